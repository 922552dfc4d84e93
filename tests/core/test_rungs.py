"""May this rung be climbed now: recipients, landings, cost, and the stop signal unsaid."""

from __future__ import annotations

import msgspec
import pytest

from fleetstop.core.climbing.consent import Consent
from fleetstop.core.climbing.requests import choose_stop_signal
from fleetstop.core.climbing.rungs import (
    Decision,
    Send,
    Skip,
    Standing,
    WatchOn,
    decide,
    recipients,
)
from fleetstop.core.kin.family import Family
from fleetstop.core.ledger import Heard
from fleetstop.core.playbook import Rung
from fleetstop.core.process import Detail, ProcessId, ProcessTree
from fleetstop.core.signals import Masks
from tests.core.habits import DEAF, IGNORES_ALL, POLITE, WORKER, Habit, World, job, rung


def standing(
    world: World,
    *,
    lossless: bool = False,
    consent: Consent = "absent",
    past: dict[ProcessId, Heard] | None = None,
    heard: frozenset[ProcessId] = frozenset(),
    family: Family | None = None,
) -> Standing:
    return Standing(
        family=family or world.family(),
        tree=world.tree(),
        stop_signal="INT",
        lossless=lossless,
        consent=consent,
        past=past or {},
        heard=heard,
    )


def may(text: str, here: Standing) -> Decision:
    return decide(0, rung(text), here)


def hears(*signals: str) -> Habit:
    return msgspec.structs.replace(POLITE, hears=signals)


def test_stop_signal_is_the_jobs_own() -> None:
    here = msgspec.structs.replace(standing(job(hears("USR1"))), stop_signal="USR1")
    found = decide(0, Rung("stop_signal", "trainers", 1.0), here)
    assert isinstance(found, Send)
    assert (found.signal, found.landing, found.lossy) == ("USR1", "heard", False)


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        ("INT", ["trainer", "trainer"]),
        ("INT:wrapper", ["wrapper"]),
        ("KILL:tree", ["wrapper", "trainer", "trainer", "worker"]),
        ("TERM:tree", ["trainer", "trainer", "worker"]),
        ("INT:group", ["wrapper", "trainer", "trainer", "worker"]),
    ],
)
def test_whom_a_rung_reaches(text: str, roles: list[str]) -> None:
    here = standing(job(POLITE, POLITE, workers=1))
    each = rung(text + "/1")
    assert [kin.role for kin in recipients(each.to, each.signal, here)] == roles


def test_a_group_without_a_number_is_the_members_without_one() -> None:
    """Attached without a tty: PGID 0 inside, and the real group is the attaching shell's."""
    world = job(POLITE, workers=2)
    family = world.family()
    tree = world.tree()
    inner = {100: 0, 101: 0, 200: 0, 201: 201}
    numbered = {
        pid: msgspec.structs.replace(each, inner_pgid=inner.get(pid))
        for pid, each in tree.processes.items()
    }
    here = msgspec.structs.replace(standing(world, family=family), tree=ProcessTree(numbered, 0.0))
    assert [kin.id.pid for kin in recipients("group", "INT", here)] == [100, 101, 200]


def test_tree_term_reaches_wrappers_once_the_rest_has_ended() -> None:
    world = job(POLITE)
    family = world.family()
    world.actors[1].died = world.now
    here = standing(world, family=family)
    assert [kin.role for kin in recipients("tree", "TERM", here)] == ["wrapper"]


def test_the_dead_are_no_recipients() -> None:
    world = job(POLITE, POLITE)
    family = world.family()
    world.actors[2].died = world.now
    tree = world.tree()
    gone = world.actors[1].process(world.now)
    zombie = ProcessTree({**tree.processes, 101: msgspec.structs.replace(gone, state="Z")}, 0.0)
    here = msgspec.structs.replace(standing(world, family=family), tree=zombie)
    found = may("INT/1", here)
    assert isinstance(found, Skip)
    assert "nobody is left" in found.reason


def test_kill_is_not_repeated_where_one_waits_already() -> None:
    """In D nothing hastens it. Who has not had it yet still gets it."""
    world = job(POLITE, POLITE)
    here = standing(world, consent="given")
    tree = here.tree
    waits = Masks(pending=1 << 8, blocked=None, ignored=0, caught=2)
    stuck = {
        pid: msgspec.structs.replace(tree.processes[pid], masks=waits, state="D")
        for pid in (101, 102)
    }
    one = ProcessTree({**tree.processes, 101: stuck[101]}, 0.0)
    found = may("KILL:tree/5", msgspec.structs.replace(here, tree=one))
    assert isinstance(found, Send)
    assert [kin.pid for kin in found.recipients] == [100, 102]
    both = ProcessTree({**tree.processes, **stuck}, 0.0)
    found = may("KILL/5", msgspec.structs.replace(here, tree=both))
    assert isinstance(found, Skip)
    assert "KILL is pending" in found.reason
    assert not found.consent


def test_what_its_control_group_freezes_is_sent_nothing_but_kill() -> None:
    """INT would wait there beside TERM; at the thaw both come, and the save would be cut."""
    world = job(POLITE, POLITE)
    here = standing(world, consent="given")
    processes = here.tree.processes
    iced = msgspec.structs.replace(processes[101], detail=Detail(wchan="get_signal"))
    tree = ProcessTree({**processes, 101: iced}, 0.0)
    here = msgspec.structs.replace(here, tree=tree)
    for text in ("INT/1", "TERM/1"):
        found = may(text, here)
        assert isinstance(found, Skip)
        assert found.reason == "frozen by its control group: 101; it would only wait there"
        assert not found.consent
    assert isinstance(may("KILL/5", here), Send)


def test_a_pid_with_another_start_is_somebody_else() -> None:
    world = job(POLITE)
    family = world.family()
    world.actors[1].id = ProcessId(101, 7)
    assert isinstance(may("INT/1", standing(world, family=family)), Skip)


@pytest.mark.parametrize(("pid", "inner"), [(1, ()), (101, (1,))])
def test_pid_one_is_never_signalled(pid: int, inner: tuple[int, ...]) -> None:
    world = job(POLITE, wrapper=None)
    world.actors[0].id = ProcessId(pid, 5)
    process = msgspec.structs.replace(world.actors[0].process(world.now), inner=inner)
    tree = ProcessTree({pid: process}, 0.0)
    kin = msgspec.structs.replace(job().family().trainers[0], id=process.id, pid=process.pid)
    here = msgspec.structs.replace(
        standing(world, consent="given", family=Family(members=(kin,))), tree=tree
    )
    for text in ("INT/1", "KILL:tree/1"):
        found = may(text, here)
        assert isinstance(found, Skip)
        assert "PID 1" in found.reason


def test_pid_one_of_a_nested_namespace_ignores_what_it_does_not_handle() -> None:
    world = job(hears("INT"))
    nested = msgspec.structs.replace(world.actors[1].process(world.now), inner=(501, 1))
    assert nested.landing("INT") == "heard"
    assert nested.landing("TERM") == "ignored"
    assert nested.landing("KILL") == "fatal"


def test_kill_is_fatal_to_masks_unseen() -> None:
    unseen = msgspec.structs.replace(job().actors[1].process(0.0), masks=None)
    assert (unseen.landing("KILL"), unseen.landing("INT")) == ("fatal", None)


CONSENTS: tuple[Consent, ...] = ("absent", "refused", "given")
COSTS: list[tuple[Habit, str, str]] = [
    (POLITE, "KILL:tree/1", "it ends the job"),
    (POLITE, "TERM/1", "no handler"),
    (hears("INT"), "INT:group/1", "no handler"),
]


@pytest.mark.parametrize(("habit", "text", "why"), COSTS)
def test_what_may_lose_work_needs_consent(habit: Habit, text: str, why: str) -> None:
    world = job(habit, workers=1)
    for lossless in (False, True):
        for consent in CONSENTS:
            found = may(text, standing(world, lossless=lossless, consent=consent))
            if consent == "given" and not lossless:
                assert isinstance(found, Send)
                assert found.lossy
            else:
                assert isinstance(found, Skip)
                assert why in found.reason
                assert found.consent is (consent == "absent" and not lossless)


def test_more_than_the_trainers_is_lossy_even_where_all_hear_it() -> None:
    found = may("INT:tree/1", standing(job(POLITE, wrapper=None)))
    assert isinstance(found, Skip)
    assert "more than the trainers" in found.reason
    assert found.consent


def test_a_second_signal_in_one_run_is_lossy() -> None:
    world = job(hears("INT", "TERM"))
    heard = frozenset({world.actors[1].id})
    skipped = may("TERM/1", standing(world, lossless=True, heard=heard, consent="given"))
    assert isinstance(skipped, Skip)
    assert "heard a signal already" in skipped.reason
    found = may("TERM/1", standing(world, heard=heard, consent="given"))
    assert isinstance(found, Send)
    assert found.lossy


@pytest.mark.parametrize("consent", ["absent", "refused", "given"])
def test_the_same_signal_of_an_earlier_run_is_watched_on(consent: Consent) -> None:
    world = job(POLITE, POLITE)
    past = {each.id: Heard("7f3a", "INT", 240.0 + each.id.pid) for each in world.actors[1:]}
    found = may("INT/9", standing(world, past=past, consent=consent))
    assert isinstance(found, WatchOn)
    assert (found.signal, found.heard.ago_s, found.wait_s) == ("INT", 341.0, 9.0)


def test_another_signal_of_an_earlier_run_is_watched_on_unless_agreed() -> None:
    world = job(hears("INT", "TERM"))
    past = {world.actors[1].id: Heard("7f3a", "INT", 240.0)}
    cases: list[tuple[bool, Consent]] = [(True, "given"), (False, "absent"), (False, "refused")]
    for lossless, consent in cases:
        found = may("TERM/9", standing(world, lossless=lossless, consent=consent, past=past))
        assert isinstance(found, WatchOn)
        assert found.signal == "INT"
    agreed = may("TERM/9", standing(world, past=past, consent="given"))
    assert isinstance(agreed, Send)
    assert agreed.lossy


def test_an_earlier_signal_is_watched_on_once() -> None:
    world = job(POLITE)
    me = world.actors[1].id
    past = {me: Heard("7f3a", "INT", 240.0)}
    found = may("INT/9", standing(world, lossless=True, past=past, heard=frozenset({me})))
    assert isinstance(found, Skip)


def test_kill_is_nothing_to_watch_on_for() -> None:
    world = job(POLITE)
    past = {world.actors[1].id: Heard("7f3a", "KILL", 240.0)}
    assert isinstance(may("KILL/9", standing(world, past=past, consent="given")), Send)


def test_resume_goes_with_requests_to_the_stopped_only() -> None:
    stopped = job(msgspec.structs.replace(POLITE, state="T"))
    asked = may("INT/1", standing(stopped))
    killed = may("KILL/1", standing(stopped, consent="given"))
    assert isinstance(asked, Send)
    assert asked.resume
    assert isinstance(killed, Send)
    assert not killed.resume
    running = may("INT/1", standing(job(POLITE)))
    assert isinstance(running, Send)
    assert not running.resume


@pytest.mark.parametrize(
    ("ranks", "chosen"),
    [
        ([hears("INT")], "INT"),
        ([hears("TERM")], "TERM"),
        ([hears("INT", "TERM")], None),
        ([hears()], "INT"),
        ([hears("INT", "TERM"), hears("INT")], "INT"),
        ([hears("INT"), hears("TERM")], "INT"),
        ([DEAF], "INT"),
        ([IGNORES_ALL], "INT"),
    ],
)
def test_the_stop_signal_unsaid(ranks: list[Habit], chosen: str | None) -> None:
    world = job(*ranks, workers=1, worker=WORKER)
    assert choose_stop_signal(world.family(), world.tree()) == chosen


def test_what_every_thread_blocks_counts_and_what_was_not_seen_does_not() -> None:
    process = job(msgspec.structs.replace(POLITE, blocks=("INT",))).actors[1].process(0.0)
    assert process.landing("INT") == "blocked"
    leader_only = msgspec.structs.replace(
        process, detail=None, masks=Masks(pending=0, blocked=2, ignored=0, caught=2)
    )
    assert leader_only.landing("INT") == "heard"
