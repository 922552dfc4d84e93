"""The jobs a playbook can be rehearsed against, by name, and what a rehearsal proves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct, structs

from fleetstop.core.climbing.consent import Consent, Terms
from fleetstop.core.durations import FOREVER
from fleetstop.core.playbook import Playbook
from fleetstop.core.rehearsing.habits import (
    DEAF,
    DEAF_SAVES_ON_TERM,
    DRAINS,
    IGNORES_ALL,
    LEAVES_UNSAVED,
    LOOP,
    POLITE,
    SHRUGS,
    SUSPENDED,
    WORKER,
    Actor,
    Habit,
)
from fleetstop.core.rehearsing.rehearsal import LONGEST_S, Climbed, World, climb, job
from fleetstop.core.report import Result, Role

SAVED_BEFORE_S = 1080.0
"""How old the newest checkpoint of a rehearsed job is at the first look: 18 minutes."""
EVERY_S = 1800.0
"""How often a rehearsed job writes one while it trains: every half hour."""
BACK_S = 6.0
"""How long a rehearsal waits for a job that comes back."""

Lost = Literal["nothing", "since_checkpoint", "checkpoint_cut", "still_running"]


class Scenario(Struct, frozen=True):
    """`about` completes the sentence "a job that ..."; `make` builds it anew."""

    name: str
    about: str
    make: Callable[[], World]


class Exit(Struct, frozen=True):
    """A member that ended, so long after the first look."""

    seconds: float
    pid: int
    role: Role
    argv: tuple[str, ...]


class Rehearsed(Struct, frozen=True):
    """`seconds` of virtual time; `lost_s`: work lost, None where nothing is, or it runs on;
    `saved`: every trainer left a checkpoint behind."""

    scenario: Scenario
    climbed: Climbed
    result: Result
    lost: Lost
    lost_s: float | None
    seconds: float
    back: tuple[int, ...] = ()
    exits: tuple[Exit, ...] = ()
    saved: bool = False


def _with(habit: Habit, **changes: object) -> Habit:
    return structs.replace(habit, **changes)


_SLOW = _with(POLITE, memory_s=60.0, file_s=240.0)
_STUCK = _with(WORKER, linger_s=FOREVER)

SCENARIOS: dict[str, Scenario] = {
    each.name: each
    for each in (
        Scenario("polite", "saves on INT within a second and leaves", lambda: job(POLITE)),
        Scenario(
            "deaf",
            "ignores INT and has no TERM handler, as `nohup run.sh &` leaves it",
            lambda: job(DEAF),
        ),
        Scenario(
            "term-saver",
            "ignores INT, and saves on TERM",
            lambda: job(DEAF_SAVES_ON_TERM),
        ),
        Scenario("ignores-all", "ignores INT and TERM", lambda: job(IGNORES_ALL)),
        Scenario(
            "slow-save",
            "gathers its state in memory for 1 min, then writes for 4 min",
            lambda: job(_SLOW),
        ),
        Scenario(
            "hung-save",
            "begins to write its checkpoint and then hangs on its storage",
            lambda: job(_with(POLITE, file_s=60.0, writes_for_s=5.0)),
        ),
        Scenario(
            "periodic-save",
            "is rewriting its only checkpoint in place when you come, for 20 s",
            lambda: job(_with(POLITE, periodic=((1000.0, 1020.0),))),
        ),
        Scenario(
            "stalled",
            "hears INT and never acts on it: its main thread does not return from C code",
            lambda: job(_with(SHRUGS, idle=True)),
        ),
        Scenario("shrugs", "handles INT, logs it, and trains on", lambda: job(SHRUGS)),
        Scenario("unsaved", "leaves on INT without saving", lambda: job(LEAVES_UNSAVED)),
        Scenario("suspended", "is stopped by SIGSTOP", lambda: job(SUSPENDED)),
        Scenario(
            "traced",
            "is held by a debugger",
            lambda: job(_with(POLITE, state="t", tracer=95)),
        ),
        Scenario(
            "uninterruptible",
            "hangs in the kernel (D): not even KILL ends it",
            lambda: job(_with(IGNORES_ALL, state="D", survives_kill=True, idle=True)),
        ),
        Scenario(
            "respawning",
            "saves on INT, but a loop above it starts it again",
            lambda: job(POLITE, wrapper=LOOP),
        ),
        Scenario("ranks", "has four ranks that all save", lambda: job(*[POLITE] * 4)),
        Scenario(
            "stuck-workers",
            "saves, but leaves two data workers that never end",
            lambda: job(POLITE, workers=2, worker=_STUCK),
        ),
        Scenario(
            "server",
            "drains on the first signal for as long as it is asked, and leaves on the second",
            lambda: job(_with(DRAINS, hears=("INT", "TERM"))),
        ),
        Scenario(
            "unseen",
            "does not let its signal masks be read",
            lambda: job(_with(POLITE, masks_seen=False)),
        ),
    )
}


def rehearse(
    playbook: Playbook,
    scenario: Scenario,
    *,
    consent: Consent = "absent",
    terms: Terms | None = None,
) -> Rehearsed:
    """The whole climb in virtual time, to the ladder's end; the loop above gets its chance."""
    world = scenario.make()
    first = world.now - SAVED_BEFORE_S
    world.regular = [first + EVERY_S * n for n in range(int(LONGEST_S / EVERY_S) + 2)]
    family = world.family()
    climbed = climb(world, playbook, consent=consent, family=family, terms=terms)
    back: tuple[int, ...] = ()
    if climbed.end.how in ("gone", "leftover"):
        until = world.now + BACK_S
        while world.now < until and not back:
            world.advance(0.5)
            back = world.back(climbed.ladder.family)
    lost, lost_s = _lost(world, climbed)
    return Rehearsed(
        scenario=scenario,
        climbed=climbed,
        result=_result(climbed, lost, back),
        lost=lost,
        lost_s=lost_s,
        seconds=climbed.took,
        back=back,
        exits=_exits(world, climbed),
        saved=all(each.saved for each in _first(world, climbed)),
    )


def _exits(world: World, climbed: Climbed) -> tuple[Exit, ...]:
    died = {each.id: each.died for each in world.actors}
    ended = [
        Exit(seconds=at - climbed.began, pid=kin.pid, role=kin.role, argv=kin.argv)
        for kin in climbed.ladder.family.members
        if (at := died.get(kin.id)) is not None and at <= climbed.ended
    ]
    return tuple(sorted(ended, key=lambda each: each.seconds))


def _first(world: World, climbed: Climbed) -> list[Actor]:
    """The trainers that were there at the start."""
    ids = {kin.id for kin in climbed.ladder.family.trainers}
    return [each for each in world.actors if each.id in ids]


def _lost(world: World, climbed: Climbed) -> tuple[Lost, float | None]:
    """By what became of the first trainers themselves: the simulated job knows."""
    trainers = _first(world, climbed)
    if any(each.died is None for each in trainers):
        return "still_running", None
    ended = max(each.died or 0.0 for each in trainers)
    until = max(world.trained_until(), climbed.began)
    since = ended - max(at for at in world.regular if at <= until)
    if any(each.lost for each in trainers):
        return "checkpoint_cut", since
    if all(each.saved or (each.draining and each.asked is not None) for each in trainers):
        return "nothing", None
    return "since_checkpoint", since


def _result(climbed: Climbed, lost: Lost, back: tuple[int, ...]) -> Result:
    """As the stop itself would call it (actions/stop.py), the GPUs aside."""
    match climbed.end.how:
        case "refused":
            return "refused"
        case "leftover":
            return "unclean"
        case "gone":
            agreed = any(send.lossy for send in climbed.sends)
            return "stopped" if not back and (lost == "nothing" or agreed) else "unclean"
        case _:
            return "still_running"
