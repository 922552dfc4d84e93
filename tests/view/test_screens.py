"""Every screen as its golden file has it; UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import io
import os
from datetime import UTC
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fleetstop import events as e
from fleetstop.core import inventory as inv
from fleetstop.core import report as r
from fleetstop.view import ending, listing, table, ways_on
from fleetstop.view.layout import Line
from fleetstop.view.lines import Lines
from fleetstop.view.ways_on import Known
from tests.core.test_redact import controls
from tests.view import launches, questions, redeploys
from tests.view import scenes as s

BROUGHT = launches.SCREENS | redeploys.SCREENS
GOLDEN = Path(__file__).parent / "golden"

GPUS_HELD = s.unclean(
    "gpus_held: GPU 0: 76 GiB more than before is held by host 1826990", checkpoint=True
)
NOT_SAVED = (
    "not_saved: no checkpoint was written after the signal; lost about 18 min (since step_41000)"
)
GENTLE: dict[str, Any] = {"playbook": "graceful", "own_playbook": "graceful", "graceful": False}
STOPS: dict[str, tuple[list[e.AnyEvent], dict[str, Any]]] = {
    "stop_polite": (s.POLITE, {}),
    "stop_polite_quiet": (s.POLITE, {"quiet": True}),
    "stop_polite_verbose": (s.POLITE, {"verbose": True}),
    "stop_polite_narrow": (s.POLITE, {"width": 60}),
    "stop_deaf_graceful": (s.DEAF_GRACEFUL, {}),
    "stop_deaf_by_its_script": (
        [
            *s.DEAF_GRACEFUL[:-2],
            *s.finished(
                "14:02:12", "still_running", verdict="deaf", seconds=1.2, evidence=(s.BY_SCRIPT,)
            ),
        ],
        {},
    ),
    "stop_deaf_regular": (s.DEAF_REGULAR, {}),
    "stop_deaf_regular_due": (
        [
            s.started(),
            s.located(checkpoint=msgspec.structs.replace(s.REGULAR, age_s=2000.0), **s.DEAF),
            *s.DEAF_GRACEFUL[2:],
        ],
        {},
    ),
    "stop_deaf_newest_half_done": (
        [s.started(), s.located(checkpoint=s.HALF, **s.DEAF), *s.DEAF_GRACEFUL[2:]],
        {},
    ),
    "stop_deaf_unknown_format": (
        [s.started(), s.located(checkpoint=s.BY_LOOKS, **s.DEAF), *s.DEAF_GRACEFUL[2:]],
        {},
    ),
    "stop_measured_saving": (s.MEASURED, {}),
    "stop_deaf_graceful_quiet": (s.DEAF_GRACEFUL, {"quiet": True}),
    "stop_deaf_inventory_named": (s.DEAF_NAMED, {}),
    "stop_deaf_force": (s.DEAF_FORCE, {}),
    "stop_killed_beside_a_checkpoint": (s.KILLED, {}),
    "stop_slow_saving": (s.SLOW, {}),
    "stop_deaf_lossless": (
        [s.started(), s.located(**GENTLE, lossless=True, **s.DEAF), *s.DEAF_GRACEFUL[2:]],
        {},
    ),
    # --force was there already; it is the ladder that has no such rung
    "stop_deaf_ladder": (
        [
            s.started(),
            s.located(playbook="--ladder", graceful=False, **s.DEAF),
            s.DEAF_GRACEFUL[2],
            *s.DEAF_GRACEFUL[4:],
        ],
        {},
    ),
    "stop_uninterruptible": (s.UNINTERRUPTIBLE, {}),
    "stop_uninterruptible_again": (s.UNINTERRUPTIBLE_AGAIN, {}),
    "stop_fault": (s.FAULT, {}),
    "stop_ranks": (s.RANKS, {}),
    "stop_above_launcher": (s.ABOVE_LAUNCHER, {}),
    "stop_above_respawned": (s.ABOVE_RESPAWNED, {}),
    "stop_refused": (s.REFUSED, {}),
    "stop_ambiguous": (s.AMBIGUOUS, {}),
    "stop_unreachable": (s.UNREACHABLE, {}),
    "stop_connection_lost": (s.LOST, {}),
    "stop_reconnected": (s.RECONNECTED, {}),
    "stop_timed_out": (s.TIMED_OUT, {}),
    "stop_lock_broken": (s.LOCK_BROKEN, {}),
    "stop_lock_taken": (s.LOCK_TAKEN, {}),
    "stop_unclean_wrapper": (s.unclean("the wrapper 26978 run.sh is still alive"), {}),
    "stop_unclean_gpus": (GPUS_HELD, {}),
    "stop_unclean_not_saved": (s.unclean(NOT_SAVED), {}),
    "stop_unclean_respawned": (
        s.unclean(
            f"26978 bash /root/run.sh is left; respawned: the job runs again as 31002; {NOT_SAVED}"
        ),
        {},
    ),
    "stop_not_running": (s.NOT_RUNNING, {}),
    "stop_interrupted": (s.INTERRUPTED, {}),
    "stop_again": (s.AGAIN, {}),
    "stop_heard_runs_on": (s.RUNS_ON, {}),
    "stop_brought_back": (s.BROUGHT_BACK, {}),
    "stop_left_behind": (s.LEFT_BEHIND, {}),
    "stop_deaf_in_a_unit": (
        [
            *s.DEAF_GRACEFUL[:1],
            s.located(above=(s.UNIT_ABOVE,), up_s=240.0, **s.DEAF),
            *s.DEAF_GRACEFUL[2:],
        ],
        {},
    ),
    "stop_dry_polite": (s.DRY_POLITE, {}),
    "stop_dry_deaf": (s.DRY_DEAF, {}),
    "stop_dry_again": (s.DRY_AGAIN, {}),
    "stop_hostile": (s.HOSTILE_EVENTS, {}),
    "stop_several": (s.many(), {}),
    **{name: (story, {}) for name, story in questions.SCREENS.items()},
    "question_open_quiet": (questions.BEGUN, {"quiet": True}),
}


def running(*trees: e.Located, **changes: Any) -> list[e.AnyEvent]:
    target = trees[0].target or ""
    return [
        s.started("status"),
        *trees,
        *s.finished("14:02:12", "running", target=target, **changes),
    ]


CLOSED = "/workspace/checkpoints is not a directory that can be entered"
STALLED = (
    "no progress by any measure: 26982 is in wchan futex_do_wait, syscall 202; CPU, memory, reads "
    "and writes, context switches stood still for 1.1 s, the log for 14 min"
)
STUCK = s.STUCK
NO_SIGN = (
    "no sign of progress in 1.1 s (CPU, memory, reads and writes, context switches): too short "
    "to tell"
)
ADHOC = "root@10.1.2.6/200"
NAMELESS = s.located(target=ADHOC, job=None, playbook=None, host="10.1.2.6")
OTHER = s.located(
    family=(s.member(31002, "trainer", "python3 train_dflash_pipeline.py --eval"),),
    up_s=720.0, gpus=s.GPUS[:1], gpu_total_mib=96 * 1024, log=None, checkpoint=None,
)  # fmt: skip
DEAF_PLACE = s.located(target=ADHOC, job=None, playbook=None, gpus=s.GPUS[:1], **s.DEAF)
OTHER_PLACE = s.located(target=ADHOC, job=None, playbook=None, family=OTHER.family)
# several hosts that cannot be reached, each in its own words; and one that is something else
MANY = [
    *(s.outcome("not_running", target=f"ct{n}:train") for n in range(201, 208)),
    *(
        s.outcome(
            "unreachable", target=f"ct{n}:train", host=f"pve{n - 300}",
            reason=f"pve{n - 300}: connection refused", hint=f"ssh root@pve{n - 300} true",
        )
        for n in range(302, 306)
    ),
    s.outcome("unreachable", target="box7:eval", host="box7", reason="box7: the host key changed"),
    s.outcome("not_running", target="ct400:train", reason="container 400 is stopped"),
]  # fmt: skip


STATUSES: dict[str, list[e.AnyEvent]] = {
    "status_busy": running(s.located()),
    "status_deaf": running(s.located(**s.DEAF)),
    "status_regular": running(s.located(checkpoint=s.REGULAR)),
    "status_checkpoints_unseen": running(
        s.located(checkpoint=None, checkpoints_unseen=CLOSED), findings=(f"checkpoints: {CLOSED}",)
    ),
    "status_half_done": running(s.located(checkpoint=s.HALF)),
    "status_stalled": running(
        s.located(
            verdict="stalled",
            evidence=(STALLED,),
            log=msgspec.structs.replace(s.LOG, age_s=840.0),
        )
    ),
    "status_uninterruptible": running(s.located(verdict="uninterruptible", evidence=(STUCK,))),
    "status_left_behind": running(
        s.located(family=s.LEFT, stops_on=(), landings={}),
        family=s.LEFT,
        reason=f"{s.LEFT_SAID}; no trainer runs",
    ),
    "status_young_job": running(s.located(up_s=240.0, checkpoint=s.REGULAR)),
    "status_undecided": running(s.located(evidence=("CPU 0 %", NO_SIGN))),
    "status_two_trees": running(
        s.located(), OTHER, findings=("2 unrelated trees match; stop would refuse",)
    ),
    "status_place": running(NAMELESS, job=None),
    "status_place_typed": running(msgspec.structs.replace(NAMELESS, typed=True), job=None),
    "status_place_deaf": [
        s.started("status", inventory="lab.yaml"),
        *running(DEAF_PLACE, OTHER_PLACE, job=None, findings=("2 unrelated trees match",))[1:],
    ],
    "status_unknowns": running(
        s.located(
            gpus=None, up_s=None, threads=None, log=None, checkpoint=None, stops_on=(), landings={}
        )
    ),
    "status_hostile": running(*(x for x in s.HOSTILE_EVENTS if isinstance(x, e.Located))),
    "status_above_launcher": running(s.located(family=s.FOUR, above=(s.LAUNCHER,))),
    "status_above_loop": running(s.located(above=(s.TMUX, s.LOOP))),
    "status_above_supervisor": running(s.located(above=(s.UNIT,))),
    "status_above_unknown": running(s.located(above=(s.UNREAD,))),
    "status_code": running(s.located(code=s.RELEASED)),
    "status_code_old": running(s.located(code=s.OLD_CODE), findings=(s.OLD_SAID,)),
    "status_code_doubtful": running(
        s.located(code=s.DOUBTFUL, **s.DEAF), findings=(s.DOUBT, s.ROLLED, "another finding")
    ),
    "status_activator_waits": running(s.located(code=s.WAITED_FOR), findings=(s.WAITS,)),
    "status_between_two_lives": [
        s.started("status"),
        *s.finished(
            "14:02:11",
            "running",
            verdict="unknown",
            reason=f"between two lives: no trainer runs, but {s.STARTS}",
        ),
    ],
    "status_last_death": [
        s.started("status"),
        *s.finished("14:02:11", "not_running", reason="nothing matches", findings=(s.DEATH,)),
    ],
    "status_not_running": [s.started("status"), *s.NOT_RUNNING[1:]],
    "status_interrupted": [
        s.started("status", s.T, "ct201:train"),
        s.located(),
        r.report(
            "7f3a",
            [
                s.outcome("running"),
                msgspec.structs.replace(
                    s.outcome("refused", target="ct201:train", reason="interrupted"),
                    interrupted=True,
                ),
            ],
        ),
    ],
    "status_several": [
        s.started("status", s.T, "ct201:train", "box7:eval", "ct202:train"),
        s.located(),
        r.report(
            "7f3a",
            [
                s.outcome("running"),
                s.outcome("not_running", target="ct201:train"),
                s.outcome(
                    "unreachable", target="box7:eval", reason="box7: no route to host",
                    evidence=("box7: no route to host",),
                    hint="ssh ml@box7 true",
                ),
                s.outcome(
                    "unreachable", target="ct202:train", verdict="frozen",
                    reason="container 202 on pve1 is frozen; entering it would hang",
                    evidence=("container 202 on pve1 is frozen; entering it would hang",),
                ),
            ],
        ),
    ],
    "status_many": [
        s.started("status", s.T, *(each.target for each in MANY)),
        s.located(),
        r.report("7f3a", [s.outcome("running"), *MANY]),
    ],
}  # fmt: skip


def same(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*STOPS, *BROUGHT])
def test_a_stop_looks_as_agreed(name: str) -> None:
    story, options = (STOPS | BROUGHT)[name]
    out = io.StringIO()
    with Lines(out, zone=UTC, **options) as lines:
        for event in story:
            lines(event)
    text = out.getvalue()
    assert controls(text.replace("\n", "")) == []
    assert all(len(each) <= options.get("width", 104) for each in text.splitlines())
    same(name, text)


@pytest.mark.parametrize("name", STATUSES)
def test_status_looks_as_agreed(name: str) -> None:
    out = io.StringIO()
    listener = table.StatusTable(out)
    for event in STATUSES[name]:
        listener(event)
    assert controls(out.getvalue().replace("\n", "")) == []
    same(name, out.getvalue())


def test_quietly_everybody_has_a_row() -> None:
    out = io.StringIO()
    listener = table.StatusTable(out, quiet=True)
    for event in STATUSES["status_many"]:
        listener(event)
    rows = out.getvalue().splitlines()[1:-1]
    assert [each.split()[0] for each in rows] == [s.T, *(each.target for each in MANY)]


def test_a_narrow_status_is_not_cut() -> None:
    out = io.StringIO()
    listener = table.StatusTable(out, width=80)
    for event in STATUSES["status_deaf"]:
        listener(event)
    same("status_deaf_narrow", out.getvalue())
    assert all(len(each) <= 80 for each in out.getvalue().splitlines())


def test_what_waits_for_its_answer_is_not_told_early() -> None:
    """A supervisor needs its time: the look for it takes longer than lines are kept back."""
    out = io.StringIO()
    with Lines(out, zone=UTC) as lines:
        for event in s.POLITE[:-2]:
            lines(event)
        lines.late()
        assert "released" not in out.getvalue()
        for event in s.POLITE[-2:]:
            lines(event)
    assert "released; nothing came back" in out.getvalue()


def test_ls_looks_as_agreed() -> None:
    train = inv.Job("train", inv.Match(script="train_dflash_pipeline.py"), stop_signal="INT")
    fleet = inv.Inventory(
        hosts={
            "pve1": inv.Host("pve1", "root@10.1.2.6"),
            "box7": inv.Host(
                "box7", "ml@box7", jobs=(inv.Job("eval", inv.Match(module="pkg.eval")),)
            ),
        },
        containers={
            "ct200": inv.Container("ct200", "pve1", 200, tags=("gpu", "training"), jobs=(train,)),
            "ct201": inv.Container("ct201", "pve1", 201, protected=True),
        },
    )
    same("ls", "\n".join(listing.listing(fleet)) + "\n")
    assert [each.split()[0] for each in listing.listing(fleet, {"ct200:train"})[1:]] == [s.T]
    assert listing.listing(inv.Inventory()) == []


def test_the_model_screen_of_a_polite_stop_is_kept_to_the_letter() -> None:
    """screens of the design; colour and width change nothing in the words."""
    text = (GOLDEN / "stop_polite.txt").read_text(encoding="utf-8")
    assert text.splitlines()[1] == (
        "  job         26982 python3 -u /root/train_dflash_pipeline.py, up 3d 4h, "
        "under 26978 bash /root/run.sh"
    )
    assert text.splitlines()[-1] == "ct200:train stopped in 25 s, saved step_41212."


def test_colour_only_adds() -> None:
    plain, colored = io.StringIO(), io.StringIO()
    for out, color in ((plain, False), (colored, True)):
        with Lines(out, zone=UTC, color=color) as lines:
            for event in s.HOSTILE_EVENTS:
                lines(event)
    for code in ("0", "1", "2", "33", "1;31", "1;32"):
        colored = io.StringIO(colored.getvalue().replace(f"\x1b[{code}m", ""))
    assert colored.getvalue() == plain.getvalue()


def test_an_exit_is_told_soon_even_if_nothing_follows() -> None:
    out = io.StringIO()
    lines = Lines(out, zone=UTC)
    for event in s.exits("14:02:29", s.TRAINER):
        lines(event)
    lines.flush()
    assert out.getvalue() == "14:02:29  26982 exited\n"


def test_code_that_could_not_be_looked_at_is_told_to_who_asks_for_more() -> None:
    unseen = e.CodeSeen(unseen="no answer to 'through' within 5 s")
    told = []
    for verbose in (False, True):
        out = io.StringIO()
        view = table.StatusTable(out, verbose=verbose)
        for event in running(s.located(code=unseen)):
            view(event)
        told.append(
            "  code         not looked at: no answer to 'through' within 5 s" in out.getvalue()
        )
    assert told == [False, True]


def test_a_status_in_one_line_each_or_with_its_evidence() -> None:
    said = {}
    for mode in ("quiet", "verbose"):
        out = io.StringIO()
        listener = table.StatusTable(out, quiet=mode == "quiet", verbose=mode == "verbose")
        for event in STATUSES["status_deaf"]:
            if isinstance(event, r.Report):
                [outcome] = event.targets
                cost = r.Cost(ssh_connections=1, pct_calls=1)
                outcome = msgspec.structs.replace(outcome, evidence=("CPU 3 %",), cost=cost)
                listener(msgspec.structs.replace(event, targets=(outcome,)))
            else:
                listener(event)
        said[mode] = out.getvalue()
    assert len(said["quiet"].splitlines()) == 2
    assert "CPU 3 %" in said["verbose"]
    assert "1 SSH connection, 1 pct call" in said["verbose"]


def endings(result: r.Result, **changes: Any) -> list[Line]:
    outcome = s.outcome(result, **changes)
    known = Known(located=s.located())
    return [ending.last_line(outcome, known), *ending.below(outcome, known)]


def test_an_end_right_after_its_own_save_says_so_and_one_without_is_nothing_to_be_glad_of() -> None:
    by = (s.record("TERM", "fatal"),)
    lost = "ended by TERM without a save, as agreed with {}; lost about 2 s (since step_9)"
    soon, late = (
        endings("stopped", seconds=13.0, signals=by, findings=(lost.format(how),))[0]
        for how in ("--after-checkpoint", "--force")
    )
    assert soon.text.endswith("stopped in 13 s by TERM, 2 s after step_9.")
    assert soon.tone == "good"
    assert late.text.endswith("stopped in 13 s by TERM, NOT saved.")
    assert late.tone == "warn"


@pytest.mark.parametrize(
    ("used", "own", "lossless", "needs"),
    [
        ("standard", "standard", False, False),
        ("--ladder", "standard", False, False),  # the command goes without it
        ("standard", "graceful", False, True),
        ("graceful", "graceful", True, True),
        ("graceful", "standard", True, False),
        ("mine", "playbooks/mine.yaml", False, False),
        ("mine", None, False, False),
    ],
)
def test_a_playbook_is_named_only_where_the_jobs_own_would_not_do(
    used: str, own: str | None, lossless: bool, needs: bool
) -> None:
    """It was to be typed where the job's own was that one already, and not where that had been
    typed against the job's own."""
    book: dict[str, Any] = {"playbook": used, "own_playbook": own, "lossless": lossless}
    found = s.located(**book, **s.DEAF, checkpoint=s.REGULAR, graceful=False)
    skipped = (r.SkippedRecord(signal="KILL", reason="it needs consent. Needs --force"),)
    outcome = s.outcome("still_running", verdict="deaf", skipped=skipped)
    lines = ways_on.ways_on(outcome, Known(located=found, asked="ct200"))
    more = " --playbook standard" if needs else ""
    assert lines[0].text.startswith(f"fleetstop stop ct200{more} --after-checkpoint ")
    assert lines[1].text.startswith(f"fleetstop stop ct200{more} --force ")


def test_the_same_command_goes_by_what_was_typed() -> None:
    found = s.located(playbook="--ladder", **s.DEAF, graceful=False)
    outcome = s.outcome("still_running", verdict="deaf")
    lines = ways_on.ways_on(outcome, Known(located=found, command="restart", more=None))
    assert lines[0].text.startswith("the same command with --playbook standard --force ")


def test_what_a_command_of_the_ladder_ended_is_said_in_words() -> None:
    by = (s.record("RUN", "asked"),)
    lost = ("ended by RUN without a save, as agreed with --force; lost about 2 s (since step_9)",)
    (said,) = endings("stopped", seconds=13.0, signals=by, findings=lost)[:1]
    assert said.text.endswith("stopped in 13 s by its command, NOT saved.")


def test_an_ending_does_not_say_twice_what_its_reason_says() -> None:
    why = "not_saved: no checkpoint was written after the signal"
    _, *more = endings("unclean", reason=why, evidence=("26982 is gone", "worker 7 sleeps"))
    assert [each.text for each in more] == [
        "worker 7 sleeps",
        "its log may tell why: /workspace/train_phase012.log",
    ]
    _, *more = endings("unreachable", reason="h: refused", evidence=("h: refused",))
    assert more == []
