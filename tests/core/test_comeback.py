"""Work is not risked for an end that would be none: who starts the job again is told first."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fleetstop.config import load_playbook, stock_dir
from fleetstop.core.above.comeback import in_vain, untold
from fleetstop.core.above.supervisors import Above
from fleetstop.core.above.units import systemd_policy
from fleetstop.core.kin.loops import Again
from fleetstop.core.playbook import Playbook, Rung, filled_ladder
from fleetstop.core.process import ProcessId
from fleetstop.core.rehearsing.habits import LOOP
from fleetstop.core.rehearsing.rehearsal import World
from fleetstop.core.rehearsing.rehearsal import climb as climb_until
from tests.core.habits import DEAF, POLITE, SHRUGS, Habit, climb, job, short

TRAINER, SHELL = 101, 100


def unit(again: Again, main: int | None = TRAINER) -> Above:
    name = f"train.service (Restart={again})"
    return Above(None, None, "systemd", (), "", again, 2.0, name=name, main_pid=main)


def supervisord(again: Again) -> Above:
    return Above(ProcessId(90, 900), 90, "supervisord", (), "", again, name="train (auto)")


def loop(again: Again) -> Above:
    return Above(ProcessId(SHELL, 1000), SHELL, "loop", ("bash", "run.sh"), "", again)


NAME = "container 0123456789ab (restart=always)"
DOCKER = Above(None, None, "docker", (), "", "always", name=NAME)
UNIT, SV, LOOPS = "unit train.service", "supervisord train", "100 bash run.sh"
RULES: list[tuple[Above, str, bool, tuple[int, ...], str | None]] = [
    (unit("always"), "KILL", True, (TRAINER,), UNIT),
    (unit("always"), "TERM", True, (TRAINER,), UNIT),
    (unit("always"), "TERM", False, (TRAINER,), UNIT),  # however a second signal ends it
    (unit("failure"), "KILL", True, (TRAINER,), UNIT),
    (unit("failure"), "TERM", True, (TRAINER,), None),  # counts as clean, systemd.service(5)
    (unit("failure", SHELL), "TERM", True, (TRAINER,), UNIT),  # the shell makes it exit 143
    (unit("failure"), "USR1", True, (TRAINER,), UNIT),
    (unit("failure"), "TERM", False, (TRAINER,), None),  # not known how it will end
    (unit("success"), "TERM", True, (TRAINER,), UNIT),
    (unit("success"), "KILL", True, (TRAINER,), None),
    (unit("never"), "KILL", True, (TRAINER,), None),
    (unit("unknown"), "KILL", True, (TRAINER,), None),
    (supervisord("always"), "KILL", True, (SHELL, TRAINER), SV),
    (supervisord("failure"), "TERM", True, (TRAINER,), SV),
    (DOCKER, "KILL", True, (SHELL, TRAINER), "`docker stop 0123456789ab` comes first"),
    (loop("always"), "TERM", True, (TRAINER,), LOOPS),
    (loop("rounds"), "TERM", True, (TRAINER,), LOOPS),
    (loop("failure"), "TERM", True, (TRAINER,), LOOPS),
    (loop("success"), "TERM", True, (TRAINER,), None),
    (loop("always"), "KILL", True, (SHELL, TRAINER), None),  # ended in the same burst, first
    (loop("always"), "TERM", True, (SHELL, TRAINER), None),
]


@pytest.mark.parametrize(("above", "signal", "ends", "pids", "who"), RULES)
def test_who_would_start_it_again(
    above: Above, signal: str, ends: bool, pids: tuple[int, ...], who: str | None
) -> None:
    world = job(DEAF)
    reached = frozenset(p.id for p in world.tree().processes.values() if p.id.pid in pids)
    said = in_vain([above], signal, ends, reached, frozenset({TRAINER}), world.tree())
    assert (said is None) == (who is None), said
    assert who is None or who in (said or "")


def test_a_loop_that_has_gone_starts_nothing() -> None:
    gone = msgspec.structs.replace(loop("always"), id=ProcessId(SHELL, 7))
    world = job(DEAF)
    assert in_vain([gone], "KILL", True, frozenset(), frozenset({TRAINER}), world.tree()) is None


@pytest.mark.parametrize(
    ("above", "command", "told"),
    [
        (unit("always"), "systemctl stop train.service", True),
        (unit("always"), "systemctl stop 'train'", True),
        (unit("always"), "kill 40; systemctl stop train", True),
        (unit("always"), "systemctl stop other.service", False),
        (unit("always"), "touch /tmp/train.service.stop", False),
        (supervisord("always"), "supervisorctl stop train", True),
        (supervisord("always"), "systemctl stop train", False),
        (loop("always"), "bash run.sh", False),
    ],
)
def test_a_command_that_is_for_a_supervisor_tells_it(
    above: Above, command: str, told: bool
) -> None:
    assert untold([above], [command]) == (() if told else (above,))


@pytest.mark.parametrize(
    ("above", "command"),
    [
        (unit("always"), "systemctl kill -s TERM train.service"),
        (unit("always"), "systemctl status train"),
        (unit("always"), "systemctl restart train.service"),
        (supervisord("always"), "supervisorctl signal INT train"),
        (supervisord("always"), "supervisorctl restart train"),
        (DOCKER, "docker restart box"),
    ],
)
def test_a_command_that_stops_nothing_for_good_has_told_nobody(above: Above, command: str) -> None:
    """A KILL after it would lose the work, and the job would run again."""
    assert untold([above], [command]) == (above,)


def test_a_unit_that_is_being_stopped_already_has_been_told() -> None:
    text = "MainPID=101\nRestart=always\nRestartUSec=1s\nActiveState=deactivating\nSubState={}\n"
    for sub, told in (("stop-sigterm", True), ("stop-watchdog", False), ("running", False)):
        policy = systemd_policy("train.service", text.format(sub))
        assert policy is not None
        one = msgspec.structs.replace(unit("always"), stopping=policy.stopping)
        assert (untold([one], []) == ()) is told, sub


class Unit(World):
    """A job in a unit with Restart=always, which `systemctl stop` alone ends for good."""

    def above(self) -> tuple[Above, ...]:
        return (unit("always"),)


def in_a_unit(habit: Habit) -> Unit:
    world = Unit()
    world.actors = job(habit, wrapper=None).actors
    return world


def systemd() -> Playbook:
    book = load_playbook("systemd", cwd=Path.cwd(), dirs=(stock_dir(),))
    return msgspec.structs.replace(
        book, ladder=filled_ladder(book.ladder, {"unit": "train.service"})
    )


def test_heard_and_not_obeyed_the_unit_is_told_before_anything_is_lost() -> None:
    """TERM to the trainer would end it unsaved, and Restart=always start it again."""
    ran = climb(in_a_unit(SHRUGS), systemd(), consent="given")
    assert ran.signals == ["INT", "RUN"]
    [skip] = [each for each in ran.skips if each.signal == "TERM"]
    assert "systemd unit train.service (Restart=always) would start it again" in skip.reason
    assert "`systemctl stop train.service` comes first" in skip.reason
    assert not skip.consent


def test_once_its_unit_was_told_it_may_be_ended() -> None:
    rungs = (*systemd().ladder, Rung("KILL", "tree", 30.0))
    book = msgspec.structs.replace(systemd(), ladder=rungs)
    ran = climb(in_a_unit(SHRUGS), book, consent="given")
    assert (ran.signals, ran.end.how) == (["INT", "RUN", "KILL"], "gone")
    without = msgspec.structs.replace(book, ladder=(rungs[0], rungs[-1]))
    ran = climb(in_a_unit(SHRUGS), without, consent="given")
    assert (ran.signals, ran.end.how) == (["INT"], "trainers_alive")


def test_nobody_is_asked_for_a_yes_that_would_stop_nothing() -> None:
    """Nor told that `--force` was all that was missing."""
    book = short("KILL:tree/5")
    ran = climb(in_a_unit(DEAF), book, answers=[(1.0, True)])
    assert (ran.asked, ran.signals) == ([], [])
    ran = climb(in_a_unit(DEAF), book)
    assert ran.end.how == "trainers_alive"


def test_a_loop_is_ended_with_its_trainer_or_not_at_all() -> None:
    """A deaf job below `while true`: TERM to the trainer alone loses 18 minutes for nothing."""
    world = job(DEAF, wrapper=LOOP)
    family = world.family()
    ran = climb_until(world, short("INT/5 TERM/5 KILL:tree/5"), consent="given", family=family)
    assert ran.signals == ["KILL"]
    world.advance(5.0)
    assert world.back(family) == ()
    polite = job(POLITE, wrapper=LOOP)
    # what is heard loses nothing: that it comes back is told afterwards
    assert climb_until(polite, short("INT/5"), consent="given").signals == ["INT"]
