"""What the next run of the same command does, for every state an activation can be left in."""

from __future__ import annotations

from itertools import product
from typing import Literal, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fleetstop.core.launching.activation import (
    ENDS,
    Broken,
    Started,
    State,
    Step,
    parse_state,
    same_trainer,
)
from fleetstop.core.launching.ended import Born
from fleetstop.core.releases.known_bad import failed_before
from fleetstop.core.releases.manifest import Release
from fleetstop.core.releases.payload import File
from fleetstop.core.releases.resuming import Decision, Seen, next_step

OLD, NEW, NEXT = (f"2026113{n}-000000-0000" for n in range(3))
A, B, C = "a" * 64, "b" * 64, "c" * 64
STEPS: tuple[Step, ...] = get_args(Step)


def release(name: str, sha: str) -> Release:
    return Release(id=name, files=(File("train.py", sha, 1, 0o644),), dest="/root", when="", who="")


RELEASES = {OLD: release(OLD, A), NEW: release(NEW, B)}
NEW_LIES = {"train.py": B}
OLD_LIES = {"train.py": A}
MIXTURE = {"train.py": B, "model.py": A}

# The release that runs once a step is reached, as the activator writes it, and what lies on disk.
RUNNING: dict[Step, str | None] = {
    "waiting": OLD, "swapping": None, "swapped": None, "launching": None, "launched": NEW,
    "healthy": NEW, "unconfirmed": NEW, "unhealthy": None, "rolling_back": None,
    "rolled_back": OLD, "cancelled": OLD, "failed": OLD,
}  # fmt: skip
FILES: dict[Step, Literal["old", "mixed", "new"]] = {
    **dict.fromkeys(STEPS, "new"),
    **dict.fromkeys(("waiting", "cancelled", "failed", "rolled_back"), "old"),
    **dict.fromkeys(("swapping", "rolling_back"), "mixed"),
}
LIES: dict[Step, dict[str, str]] = {
    **dict.fromkeys(STEPS, NEW_LIES),
    **dict.fromkeys(("waiting", "cancelled", "failed", "rolled_back"), OLD_LIES),
}


def state(step: Step, order: str | None = None) -> State:
    return State(
        run="7f3a91c2", step=step, release=NEW, before=OLD, activator=Born(50, 900),
        trainer=Started(60, 990), order=order, running=RUNNING[step], files=FILES[step],
        ended_at="2026-11-30T14:03:00Z" if step in ENDS else None,
    )  # fmt: skip


def decide(
    step: Step, *, alive: bool | None, runs: bool | None, wanted: str = C, ours: bool | None = True,
    old_code: bool | None = False, beat: float | None = 1e9, order: str | None = None,
) -> Decision:  # fmt: skip
    seen = Seen(alive, runs, ours=ours, old_code=old_code, beat_s=beat)
    wants = {"train.py": wanted}
    return next_step(state(step, order), seen, wanted=wants, on_disk=LIES[step], releases=RELEASES)


# step, order, client's beat, does the job run -> what is done beside an activator that lives
BESIDE: list[tuple[Step, str | None, float, bool, str]] = [
    ("waiting", None, 1.0, True, "wait"),
    ("waiting", "armed", 1.0, True, "wait"),
    ("waiting", "armed", 1.0, False, "wait"),
    ("waiting", None, 31.0, True, "take_over"),
    ("waiting", None, 31.0, False, "take_over"),
    ("waiting", "armed", 31.0, True, "succeed"),
    ("waiting", "armed", 31.0, False, "wait"),
    ("waiting", "go", 31.0, True, "wait"),
    ("waiting", "go", 31.0, False, "wait"),
    ("waiting", "cancel", 31.0, True, "take_over"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "order", "beat", "runs", "act"), BESIDE)
def test_beside_one_that_waits(
    step: Step, order: str | None, beat: float, runs: bool, act: str
) -> None:
    decision = decide(step, alive=True, runs=runs, beat=beat, order=order)
    assert (decision.act, decision.run) == (act, "7f3a91c2")


AT_IT = [step for step in STEPS[1:] if step not in ENDS]


@pytest.mark.parametrize(("step", "runs"), list(product(AT_IT, [True, False, None])))
def test_one_that_is_at_it_is_never_interrupted(step: Step, runs: bool | None) -> None:
    """Two of them at one destination: half of each would lie there."""
    for beat in (0.0, 1e9, None):
        assert decide(step, alive=True, runs=runs, beat=beat).act == "wait"


# step, job runs -> act, the run to clean after, the way back, torn; the activator is dead, and
# other code than what lies there is wanted
AFTER: list[tuple[Step, bool, str, bool, str | None, bool]] = [
    ("waiting", True, "anew", True, OLD, False),
    ("waiting", False, "anew", True, OLD, False),
    ("swapping", True, "anew", True, OLD, True),
    ("swapping", False, "anew", True, OLD, True),
    ("swapped", True, "anew", True, OLD, False),
    ("swapped", False, "anew", True, OLD, False),
    ("launching", True, "anew", True, NEW, False),
    ("launching", False, "anew", True, OLD, False),
    ("launched", True, "anew", True, NEW, False),
    ("launched", False, "anew", True, OLD, False),
    ("healthy", True, "anew", False, NEW, False),
    ("healthy", False, "anew", False, NEW, False),
    ("unconfirmed", True, "anew", False, NEW, False),
    ("unconfirmed", False, "anew", False, OLD, False),
    ("unhealthy", True, "anew", False, OLD, False),
    ("unhealthy", False, "anew", False, OLD, False),
    ("rolling_back", True, "anew", True, OLD, True),
    ("rolling_back", False, "anew", True, OLD, True),
    ("rolled_back", True, "anew", False, OLD, False),
    ("rolled_back", False, "anew", False, OLD, False),
    ("cancelled", True, "anew", False, OLD, False),
    ("cancelled", False, "anew", False, OLD, False),
    ("failed", True, "anew", False, OLD, False),
    ("failed", False, "anew", False, OLD, False),
]


def test_the_table_has_every_case() -> None:
    assert {(step, runs) for step, runs, *_ in AFTER} == set(product(STEPS, [True, False]))


@pytest.mark.parametrize(("step", "runs", "act", "clean", "before", "torn"), AFTER)
def test_after_one_that_is_gone(
    step: Step, runs: bool, act: str, clean: bool, before: str | None, torn: bool
) -> None:
    decision = decide(step, alive=False, runs=runs)
    assert (decision.act, decision.before, decision.torn) == (act, before, torn)
    assert decision.clean == ("7f3a91c2" if clean else None)
    assert decision.sentence


# The very content that is wanted lies there, and the trainer that the state names runs it.
@pytest.mark.parametrize(
    ("step", "act"),
    [("healthy", "already_done"), ("unconfirmed", "confirm"), ("launched", "confirm"),
     ("launching", "confirm"), ("unhealthy", "anew"), ("swapped", "anew"), ("swapping", "anew"),
     ("rolling_back", "anew")],
)  # fmt: skip
def test_the_same_content_again(step: Step, act: str) -> None:
    assert decide(step, alive=False, runs=True, wanted=B).act == act


def test_where_nothing_is_to_be_done_it_is_said_whether_what_runs_is_well() -> None:
    healthy = decide("healthy", alive=False, runs=True, wanted=B).sentence
    assert f"release {NEW} is this very content, runs, and was found healthy" in healthy
    assert "healthy" not in decide("unconfirmed", alive=False, runs=True, wanted=B).sentence


def test_the_same_content_is_no_reason_to_rest_unless_it_is_what_runs() -> None:
    """A deaf trainer started by hand on the same files is just what a redeploy is for."""
    assert decide("healthy", alive=False, runs=True, wanted=B).act == "already_done"
    for other in (
        decide("healthy", alive=False, runs=True, wanted=B, ours=False),
        decide("healthy", alive=False, runs=True, wanted=B, ours=None),
        decide("healthy", alive=False, runs=True, wanted=B, old_code=True),
        decide("healthy", alive=False, runs=True, wanted=B, old_code=None),
        decide("healthy", alive=False, runs=False, wanted=B),
        next_step(state("healthy"), Seen(False, True, True, False), wanted={}, on_disk=NEW_LIES,
                  releases=RELEASES),
    ):  # fmt: skip
        assert other.act == "anew"


def test_after_a_rollback_the_old_content_is_there_already() -> None:
    assert decide("rolled_back", alive=False, runs=True, wanted=A).act == "confirm"
    assert decide("rolled_back", alive=False, runs=True, wanted=B).act == "anew"


def test_a_mixture_is_never_kept_as_a_release() -> None:
    """Killed between two renames: kept as `before`, half of each would be the way back."""
    seen = Seen(False, False)
    torn = next_step(state("swapping"), seen, wanted={"train.py": C}, on_disk=MIXTURE,
                     releases=RELEASES)  # fmt: skip
    assert (torn.torn, torn.before, torn.findings) == (True, OLD, ())
    lost = next_step(state("swapping"), seen, wanted={"train.py": C}, on_disk=MIXTURE,
                     releases={NEW: RELEASES[NEW]})  # fmt: skip
    assert (lost.torn, lost.before) == (True, None)
    assert lost.findings == (f"there is no way back: release {OLD} is not kept",)


def test_what_someone_changed_by_hand_is_kept_not_overwritten() -> None:
    by_hand = next_step(state("healthy"), Seen(False, True, True, True), wanted={"x": C},
                        on_disk={"train.py": C}, releases=RELEASES)  # fmt: skip
    assert (by_hand.act, by_hand.before, by_hand.torn) == ("anew", None, False)
    assert by_hand.findings == (f"train.py on disk is not what release {NEW} holds",)


def test_that_a_file_is_gone_is_told_and_not_who_took_it() -> None:
    """A version had removed its own script; told was that somebody had changed it by hand."""
    two = replace(RELEASES[NEW], files=(*RELEASES[NEW].files, File("model.py", A, 1, 0o644)))
    seen, kept = Seen(False, True, True, True), {**RELEASES, NEW: two}
    gone = next_step(state("healthy"), seen, wanted={"x": C}, on_disk={"model.py": C},
                     releases=kept)  # fmt: skip
    assert gone.findings == (
        f"model.py on disk is not what release {NEW} holds",
        f"train.py of release {NEW} is not there any more, or not readable",
    )
    assert gone.before is None


def test_what_was_changed_by_hand_after_an_unhealthy_one_is_kept_too() -> None:
    """With the release before as the way back it would be overwritten, and nowhere be kept."""
    for step in ("unhealthy", "swapped"):
        decision = next_step(state(step), Seen(False, True), wanted={"train.py": B},
                             on_disk={"train.py": C}, releases=RELEASES)  # fmt: skip
        assert (decision.act, decision.before, decision.torn) == ("anew", None, False)
        assert "is not what release" in decision.findings[0]
    restart = replace(state("unhealthy"), release=None)
    decision = next_step(restart, Seen(False, True), wanted={"train.py": B},
                         on_disk={"train.py": C}, releases=RELEASES)  # fmt: skip
    assert decision.before is None


@pytest.mark.parametrize("step", STEPS)
def test_what_could_not_be_seen_is_not_guessed(step: Step) -> None:
    # one that has ended by its own word need not be looked for
    unseen = decide(step, alive=None, runs=True)
    assert (
        unseen == decide(step, alive=False, runs=True) if step in ENDS else unseen.act == "refuse"
    )
    assert decide(step, alive=False, runs=None).act == "refuse"


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("step", [step for step in STEPS if step not in ENDS])
def test_one_that_ended_by_a_fault_is_as_one_that_died(step: Step, runs: bool) -> None:
    over = replace(state(step), ended_at="2026-11-30T14:03:00Z")
    for alive in (True, False, None):
        decision = next_step(over, Seen(alive, runs, True, False), wanted={"train.py": C},
                             on_disk=LIES[step], releases=RELEASES)  # fmt: skip
        died = decide(step, alive=False, runs=runs)
        assert "50 of run 7f3a91c2 ended" in decision.sentence
        assert replace(decision, sentence=died.sentence) == died


def test_a_way_back_that_failed_half_way_is_a_mixture_too() -> None:
    """The disk was full when the old files were to be put back."""
    stuck = replace(state("failed"), files="mixed", running=None, reason="no space left on device")
    decision = next_step(stuck, Seen(False, True), wanted={"train.py": C}, on_disk=NEW_LIES,
                         releases=RELEASES)  # fmt: skip
    assert (decision.act, decision.before, decision.torn) == ("anew", OLD, True)
    assert "no space left" in decision.sentence
    assert decision.findings == ("what runs may have been started from a mixture of two releases",)


def test_a_cancelled_ones_own_before_is_gone_again_and_nothing_is_said_of_it() -> None:
    was = replace(state("cancelled"), running=None)
    decision = next_step(was, Seen(False, True), wanted={"train.py": C}, on_disk=OLD_LIES,
                         releases={})  # fmt: skip
    assert (decision.act, decision.before, decision.findings) == ("anew", None, ())


def test_a_waiting_ones_client_and_job_must_be_seen() -> None:
    assert decide("waiting", alive=True, runs=True, beat=None).act == "refuse"
    assert decide("waiting", alive=True, runs=None, order="armed").act == "refuse"


def test_no_state_at_all_is_a_first_time_and_a_broken_one_is_said() -> None:
    first = next_step(None, Seen(None, True), wanted={"a": A}, on_disk={}, releases={})
    assert (first.act, first.clean, first.before) == ("anew", None, None)
    broken = parse_state(b'{"run": "x", "step": "dancing"}', "/root/.fleetstop/job/state.json")
    assert isinstance(broken, Broken)
    said = next_step(broken, Seen(False, True), wanted={}, on_disk={}, releases={})
    assert said.act == "refuse"
    assert "/root/.fleetstop/job/state.json is no activator's state" in said.sentence


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("step", STEPS)
def test_a_restart_that_died_goes_again_with_the_code_that_lies_there(
    step: Step, runs: bool
) -> None:
    """No files: nothing can be torn, and what ran before is the way back."""
    was = replace(state(step), release=None, before=OLD, running=None)
    decision = next_step(was, Seen(False, runs, False, False), wanted={}, on_disk=OLD_LIES,
                         releases=RELEASES)  # fmt: skip
    assert (decision.act, decision.torn) == ("anew", False)
    assert decision.before == OLD
    assert (decision.clean is not None) is (step not in ENDS)


FULL = (
    b'{"schema":1,"run":"7f3a91c2","release":"20261130-140211-7f3a","before":null,'
    b'"step":"launched","activator":{"pid":50,"start":900},'
    b'"trainer":{"pid":60,"start":990,"mark":"m"},"exit":null,"signal":null,"reason":null,'
    b'"findings":["a"],"at":"2026-11-30T14:02:11Z","order":"go","running":null,'
    b'"log_rotated":null,"colour":"red"}'
)


def test_a_state_is_read_and_a_later_ones_keys_are_passed_over() -> None:
    found = parse_state(FULL, "state.json")
    assert isinstance(found, State)
    assert (found.step, found.order, found.findings) == ("launched", "go", ("a",))
    assert same_trainer(found, 60, 990)
    assert not same_trainer(found, 60, 991)
    assert not same_trainer(replace(found, trainer=None), 60, 990)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"null",
        b"\xff",
        FULL[:-9],
        FULL.replace(b'"schema":1', b'"schema":2'),
        FULL.replace(b'"7f3a91c2"', b'"../../etc"'),
        FULL.replace(b'"before":null', b'"before":"../x"'),
    ],
)
def test_a_state_that_cannot_be_relied_on_is_a_sentence(data: bytes) -> None:
    found = parse_state(data, "state.json")
    assert isinstance(found, Broken)
    assert found.sentence.startswith("state.json ")


maybe = st.sampled_from([True, False, None])


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(STEPS), st.builds(Seen, maybe, maybe, maybe, maybe,
                                      st.sampled_from([None, 0.0, 29.0, 31.0, float("inf")])),
    st.sampled_from([None, "armed", "go", "cancel", "done", "back"]),
    st.sampled_from([{}, NEW_LIES, OLD_LIES, MIXTURE, {"train.py": C}]),
    st.sampled_from([{}, NEW_LIES, OLD_LIES, {"train.py": C}]),
    st.sampled_from([{}, RELEASES, {OLD: RELEASES[OLD]}, {NEW: RELEASES[NEW]}]),
    st.sampled_from([None, OLD]), st.sampled_from([None, NEW]),
    st.sampled_from([None, "old", "mixed", "new"]),
)  # fmt: skip
def test_whatever_is_found(
    step: Step, seen: Seen, order: str | None, disk: dict[str, str], wanted: dict[str, str],
    releases: dict[str, Release], before: str | None, new: str | None,
    files: Literal["old", "mixed", "new"] | None,
) -> None:  # fmt: skip
    was = replace(state(step, order), before=before, release=new, files=files)
    decision = next_step(was, seen, wanted=wanted, on_disk=disk, releases=releases)
    # nothing of its own is begun beside an activator that lives, or may live
    if seen.activator is not False and step not in ENDS:
        assert decision.act in ("wait", "take_over", "succeed", "refuse")
        assert decision.clean is None
    # the job may have heard a signal: nobody waits for its end then, unless that one does
    if decision.act in ("take_over", "succeed"):
        assert (decision.act == "succeed") == (was.order == "armed" and not was.torn)
        assert not decision.torn
    if decision.act == "take_over":
        assert step == "waiting"
    # a way back is a release that is kept whole somewhere
    assert decision.before is None or decision.before in releases
    if decision.act in ("already_done", "confirm"):
        assert seen.family is True
        assert seen.ours is True
        assert seen.old_code is False
        assert all(disk[rel] == sha for rel, sha in wanted.items())
    # where the swap was cut, what lies there is not kept as a release
    mixed = files == "mixed" or (files is None and step in ("swapping", "rolling_back"))
    if decision.act == "anew":
        assert decision.torn is bool(new and mixed)
        assert not decision.torn or decision.before in (before, None)


def after(found: State, **seen: bool) -> str:
    """What a command that sends nothing does about it."""
    known = {"ours": True, "old_code": False, **seen}
    looked = Seen(False, True, beat_s=1e9, **known)
    return next_step(found, looked, wanted={}, on_disk={}, releases={}).act


@pytest.mark.parametrize("step", ["unconfirmed", "healthy", "launched"])
def test_an_interrupted_restart_is_not_done_once_more(step: Step) -> None:
    """The second stop would end what has just come up. What somebody was told, he asks anew."""
    found = replace(state(step), release=None, confirmed_by="activator")
    assert after(found, same=True) == "confirm"
    assert after(found, same=False) == "anew"
    assert after(found, same=True, told=True) == "anew"
    assert after(found, same=True, ours=False) == "anew"
    assert after(found, same=True, old_code=True) == "anew"
    assert after(replace(found, confirmed_by="client"), same=True) == "anew"


def test_who_said_that_he_leaves_is_not_waited_for() -> None:
    alone = replace(state("waiting", "armed"), alone=True)
    for runs, act in ((True, "succeed"), (False, "wait")):
        decision = next_step(
            alone, Seen(True, runs, beat_s=1.0), wanted={}, on_disk={}, releases=RELEASES
        )
        assert decision.act == act
        assert ("goes on by itself" in decision.sentence) == (not runs)


def test_bytes_that_failed_here_are_known_again() -> None:
    bad = replace(state("rolled_back"), reason="bash run.sh ended with exit code 3")
    assert failed_before(bad, RELEASES, {"train.py": B}) == (
        f"these bytes failed on 2026-11-30 14:03 UTC as release {NEW}: bash run.sh ended with exit"
        " code 3"
    )
    assert failed_before(replace(bad, step="unhealthy"), RELEASES, {"train.py": B})
    for other in ({"train.py": C}, {"train.py": B, "model.py": A}, {}):
        assert failed_before(bad, RELEASES, other) is None
    assert failed_before(replace(bad, step="healthy"), RELEASES, {"train.py": B}) is None
    assert failed_before(bad, {OLD: RELEASES[OLD]}, {"train.py": B}) is None
    assert failed_before(None, RELEASES, {"train.py": B}) is None
