"""What many looks say together: stalled, unkillable, diverged, and what became of a signal."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fleetstop.core.inventory import Match
from fleetstop.core.joblog import LogTail
from fleetstop.core.judging.evidence import span, taken
from fleetstop.core.judging.marks import Mark
from fleetstop.core.judging.progress import Progress
from fleetstop.core.kin.family import Family, find
from fleetstop.core.process import Detail, Process, ProcessTree
from fleetstop.core.signals import Masks
from fleetstop.core.verdict import WINDOW_S, Judged, Look, follow, judge, standing_still

from .trees import tree

INT, KILL = 1 << 1, 1 << 8
ALONE = """
120 bash run.sh
  130 python train.py  # gpu
    140 python train.py  # fork
"""
RANKS = """
130 python train.py  # gpu=0
  131 python train.py  # gpu=1 rank
  132 python train.py  # gpu=2 rank
"""
QUIET = Detail(
    blocked=0,
    files=(),
    cwd="/job",
    written=50,
    read=50,
    switches=7,
    wchan="futex_do_wait",
    syscall="202",
    states="S",
)


class Film:
    """Looks at one job, a minute of which costs nothing."""

    def __init__(self, text: str = ALONE, *, at: float = 1000.0) -> None:
        self.at = at
        self.text = text
        self.changes: dict[int, dict[str, Any]] = {}
        self.detail: dict[int, dict[str, Any]] = {}
        self.gone: set[int] = set()
        self.log: LogTail | None = None
        self.family: Family = find(self.tree(), Match(script="train.py"), None).families[0]
        self.looks = [self.look()]
        self.progress: Progress = follow(None, self.looks[0], self.family)
        self.marks: dict[int, Mark] = {}

    def change(self, pid: int, **changes: Any) -> None:
        self.changes.setdefault(pid, {}).update(changes)

    def detailed(self, pid: int, **changes: Any) -> None:
        self.detail.setdefault(pid, {}).update(changes)

    def tree(self) -> ProcessTree:
        base = tree(self.text)
        made = {}
        for pid, process in base.processes.items():
            seen = process.detail or Detail()
            detail = msgspec.structs.replace(
                QUIET, files=seen.files, rank=seen.rank, **self.detail.get(pid, {})
            )
            masks = Masks(pending=0, blocked=None, ignored=0, caught=INT)
            changes = {"masks": masks, "detail": detail, **self.changes.get(pid, {})}
            if pid not in self.gone:
                made[pid] = msgspec.structs.replace(process, **changes)
        return ProcessTree(processes=made, uptime=self.at)

    def process(self, pid: int) -> Process:
        return self.tree().processes[pid]

    def look(self, **more: Any) -> Look:
        return Look(at=self.at, tree=self.tree(), log=self.log, **more)

    def pass_by(self, seconds: float, every: float = 1.0, **more: Any) -> Judged:
        """Look again and again; what is judged at the end."""
        until = self.at + seconds
        while self.at < until:
            self.at = min(until, self.at + every)
            self.looks.append(self.look(**more))
            self.progress = follow(self.progress, self.looks[-1], self.family)
        return self.judged()

    def judged(self) -> Judged:
        ids = {kin.id.pid: kin.id for kin in self.family.members}
        return judge(
            self.looks[-2],
            self.looks[-1],
            self.family,
            stop_signals=("INT", "TERM"),
            checkpoints="/ck",
            heard={ids[pid]: mark for pid, mark in self.marks.items()},
            progress=self.progress,
        )


def test_stalled_needs_the_whole_window() -> None:
    film = Film()
    short = film.pass_by(WINDOW_S - 1)
    assert short.verdict == "busy"
    assert short.evidence[1].startswith("no sign of progress in 59 s (CPU, memory, reads and")
    assert standing_still(film.progress, film.looks[-1], film.family)
    found = film.pass_by(1)
    assert found.verdict == "stalled"
    assert found.evidence == (
        "no progress by any measure: 130 is in wchan futex_do_wait, syscall 202; CPU, memory, "
        "reads and writes, context switches stood still for 60 s",
    )
    assert [found.members[kin.id] for kin in film.family.of("worker", "wrapper")] == ["busy"] * 2


@pytest.mark.parametrize(
    ("pid", "moved"),
    [
        (130, {"ticks": 500}),
        (130, {"rss_kib": 9000}),
        (140, {"ticks": 500}),  # its data worker decodes for it
    ],
)
def test_any_measure_of_it_or_its_workers_is_progress(pid: int, moved: dict[str, int]) -> None:
    film = Film()
    film.pass_by(WINDOW_S - 2)
    film.change(pid, **moved)
    found = film.pass_by(30)
    assert found.verdict == "busy"
    assert film.pass_by(WINDOW_S).verdict == "stalled"


@pytest.mark.parametrize("moved", [{"switches": 8}, {"written": 51}, {"read": 90}])
def test_a_wakening_or_a_byte_is_progress(moved: dict[str, int]) -> None:
    film = Film()
    film.pass_by(WINDOW_S - 2)
    film.detailed(130, **moved)
    assert film.pass_by(30).verdict == "busy"


def test_a_watchdogs_tick_now_and_then_is_none() -> None:
    film = Film()
    for tick in range(8):
        film.change(130, ticks=tick)
        film.pass_by(10)
    assert film.judged().verdict == "stalled"


def test_a_log_that_grows_or_a_checkpoint_that_moves_is_progress() -> None:
    film = Film()
    film.log = LogTail(size=10, age_s=20.0, lines=("step 1",))
    assert film.pass_by(WINDOW_S + 10).verdict == "busy"
    other = Film()
    other.pass_by(WINDOW_S - 10, changed=("a.pt",))
    assert other.pass_by(30).verdict == "busy"
    assert other.pass_by(WINDOW_S).verdict == "stalled"


def test_an_old_log_is_a_witness_that_makes_a_second_enough() -> None:
    film = Film()
    film.log = LogTail(size=10, age_s=840.0, lines=("step 1",))
    assert film.pass_by(0.3).verdict == "busy"
    found = film.pass_by(0.8, every=0.8)
    assert found.verdict == "stalled"
    assert found.evidence[0].endswith("stood still for 1.1 s, the log for 14 min")


def test_a_log_from_before_it_was_born_is_no_witness() -> None:
    """Started a moment ago, it waits for its data; the log is still that of the run before."""
    film = Film(at=15.0)
    film.log = LogTail(size=10, age_s=840.0, lines=("step 1",))
    assert film.tree().age_s(film.process(130)) < 60.0
    film.pass_by(0.3)
    found = film.pass_by(20.0)
    assert found.verdict == "busy"
    assert not any("log" in each for each in found.evidence)


def test_cpu_alone_keeps_it_busy_and_the_silent_log_is_said() -> None:
    """A collective that hangs burns CPU too; which it is, nobody can see from here."""
    film = Film()
    film.log = LogTail(size=10, age_s=840.0, lines=("step 1",))
    film.pass_by(1)
    film.change(130, ticks=100, state="R")
    found = film.pass_by(1)
    assert (found.verdict, found.evidence) == (
        "busy",
        ("CPU 100 %", "the log has stood still for 14 min"),
    )


def test_what_could_not_be_seen_is_not_among_the_measures() -> None:
    film = Film()
    film.detailed(130, read=None, switches=None)
    film.pass_by(2)
    assert "(CPU, memory):" in film.judged().evidence[1]


# -- nothing acts on it ---------------------------------------------------------------------------


def killed(**more: Any) -> Film:
    film = Film()
    film.pass_by(1)
    pending = Masks(pending=KILL | INT, blocked=None, ignored=0, caught=INT)
    film.change(130, masks=pending, **more)
    film.detailed(130, wchan="percpu_rwsem_wait")
    return film


def test_uninterruptible_is_d_with_kill_pending_for_a_while() -> None:
    film = killed(state="D")
    assert film.pass_by(0.5, every=0.5).verdict != "uninterruptible"
    found = film.pass_by(1.5, every=0.5)
    assert found.verdict == "uninterruptible"
    assert found.evidence == (
        "130 is in percpu_rwsem_wait; INT, KILL pending for 1.5 s, and nothing acts",
    )


def test_d_alone_is_not_it() -> None:
    film = Film()
    film.change(130, state="D")
    assert film.pass_by(30).verdict == "busy"


def test_a_kernel_loop_is_system_time_only() -> None:
    """The driver's spin: R, KILL pending, no tick in user mode (open-gpu-kernel-modules 456)."""
    film = killed(state="R")
    for tick in range(1, 4):
        film.change(130, ticks=tick * 100, system=tick * 100)
        film.pass_by(1)
    found = film.judged()
    assert found.verdict == "uninterruptible"
    assert "the kernel (state R, system time only)" in found.evidence[0]
    film.change(130, ticks=500, system=300)
    assert film.pass_by(1).verdict != "uninterruptible"


def test_a_thread_in_d_behind_a_dead_leader() -> None:
    film = killed(state="Z", threads=2)
    assert film.pass_by(2).verdict == "uninterruptible"
    assert "a thread of it, the first one is dead" in film.judged().evidence[0]


def test_one_that_is_ending_gets_longer_and_is_called_so() -> None:
    film = killed(state="D", flags=0x4)
    assert film.pass_by(9).verdict != "uninterruptible"
    found = film.pass_by(3)
    assert found.verdict == "uninterruptible"
    assert found.evidence == ("130 is ending and has been in percpu_rwsem_wait for 11 s",)


# -- ranks ----------------------------------------------------------------------------------------


def test_a_rank_that_waits_for_one_that_is_gone() -> None:
    film = Film(RANKS)
    film.pass_by(1)
    film.gone.add(132)
    assert film.pass_by(5).verdict == "busy"
    film.detailed(131, switches=500)  # looks for the others now and then, like any barrier
    found = film.pass_by(10)
    assert found.verdict == "stalled"
    assert found.findings == (
        "diverged: rank 2 (132) is gone, rank 0 (130) still waits and has done nothing for 16 s "
        "(wchan futex_do_wait, syscall 202)",
        "diverged: rank 2 (132) is gone, rank 1 (131) still waits and has done nothing for 16 s "
        "(wchan futex_do_wait, syscall 202)",
    )


def test_a_rank_that_was_gone_before_the_first_look() -> None:
    film = Film(RANKS)
    for pid in (131, 132):
        film.detailed(pid, ranks_here=4)
    found = film.pass_by(12)
    assert found.verdict == "stalled"
    assert found.findings[0].startswith("diverged: rank 3 is gone, rank 0 (130) still waits")


def test_ranks_that_are_all_there_or_that_work_have_not_diverged() -> None:
    film = Film(RANKS)
    assert film.pass_by(30).findings == ()
    film.gone.add(132)
    for second in range(20):
        film.change(130, ticks=second * 50)
        film.change(131, ticks=second * 50)
        film.pass_by(1)
    found = film.judged()
    assert (found.verdict, found.findings) == ("busy", ())


# -- what became of a signal ----------------------------------------------------------------------

HEARD = Mark(ignored=0, ticks=0, signal="INT", at=1000.0, switches=7, written=50)


@pytest.mark.parametrize(
    ("state", "detail", "pending", "said"),
    [
        ("R", {"wchan": None}, 0, "130 took INT 40 s ago (nothing is pending) and runs in C code"),
        ("S", {"switches": 8}, 0, "and waits in C code (wchan futex_do_wait, syscall 202); Keyb"),
        ("S", {"switches": 4007}, 0, "has woken 100.0 times a second since, without ending"),
        ("S", {"written": 70}, 0, "and has run on since (20 bytes written), without ending"),
        ("S", {}, INT, "INT is still pending on 130 after 40 s: not taken"),
        ("S", {"pending": INT}, 0, "INT is still pending on 130 after 40 s: not taken"),
        ("D", {"wchan": "kernel_clone"}, INT, "40 s: not taken (state D, wchan kernel_clone"),
    ],
)
def test_what_became_of_the_signal(
    state: str, detail: dict[str, Any], pending: int, said: str
) -> None:
    film = Film()
    masks = Masks(pending=pending, blocked=None, ignored=0, caught=INT)
    film.change(130, state=state, masks=masks, comm="python3")
    film.detailed(130, **detail)
    text = taken(film.process(130), HEARD, 1040.0)
    assert text is not None
    assert said in text
    assert taken(film.process(130), HEARD, 1001.0) is None, "it may act yet"


def test_other_programs_and_other_signals_are_not_promised_an_exception() -> None:
    film = Film()
    film.change(130, comm="trainer", argv=("./trainer",))
    text = taken(film.process(130), HEARD, 1040.0)
    assert text is not None
    assert "has not acted on it" in text
    film.change(130, comm="python3")
    term = msgspec.structs.replace(HEARD, signal="TERM")
    text = taken(film.process(130), term, 1040.0)
    assert text is not None
    assert "its handler runs when that returns" in text


def test_the_account_stands_beside_the_verdict() -> None:
    film = Film()
    film.change(130, comm="python3")
    film.marks[130] = msgspec.structs.replace(HEARD, at=film.at)
    found = film.pass_by(5)
    assert found.verdict == "busy"
    assert found.evidence[-1].startswith("130 took INT 5 s ago (nothing is pending) and waits in C")
    film.change(130, ticks=100, state="R")
    found = film.pass_by(1)
    assert found.verdict == "stopping"
    assert found.evidence[-1].startswith("130 took INT 6 s ago (nothing is pending) and runs in C")
    assert film.pass_by(WINDOW_S).verdict == "stalled"


def test_only_a_trainer_that_lives_trains_on() -> None:
    """Ctrl-C to the group of a loop: its trainer is gone, and the steps are the next one's."""
    film = Film()
    film.marks.update({120: HEARD, 130: HEARD})
    said = "new steps in the log after the signal: it trains on"
    assert said in film.pass_by(1, trains_on=True).evidence
    film.gone.update({130, 140})
    assert said not in film.pass_by(1, trains_on=True).evidence


@pytest.mark.parametrize(
    "detail", [{"written": 90}, {"switches": 4007}, {}], ids=["writes", "wakes", "in C"]
)
def test_what_gathers_its_state_is_not_said_to_train_on(detail: dict[str, Any]) -> None:
    """`torch.save` into memory, tensors from the GPU: for most of a save no file is open. That it
    goes on `without ending` is what somebody reads who holds `--force` in his hand."""
    film = Film()
    film.change(130, comm="python3", ticks=10, rss_kib=100_000)
    film.marks[130] = msgspec.structs.replace(HEARD, at=film.at)
    film.pass_by(5)
    film.detailed(130, **detail)
    film.change(130, ticks=110, rss_kib=900_000, state="R")
    found = film.pass_by(1)
    assert (found.verdict, found.moves_memory) == ("stopping", True)
    assert found.evidence[-1].endswith("it may gather what it saves, or go on; too early to tell")
    assert "without ending" not in " ".join(found.evidence)


def test_a_dead_main_thread_acts_on_nothing() -> None:
    film = Film()
    film.change(130, state="Z", threads=3)
    why = "the main thread of 130 has ended, 2 live on; Python acts on signals in its main"
    assert why in film.pass_by(1).evidence[-1]
    film.marks[130] = msgspec.structs.replace(HEARD, at=film.at)
    assert f"130 took INT 5 s ago; {why}" in film.pass_by(5).evidence[-1]


def test_a_tracer_of_the_place_is_named_and_what_waits_too() -> None:
    film = Film()
    masks = Masks(pending=INT, blocked=None, ignored=0, caught=INT)
    film.change(130, state="t", tracer=120, masks=masks)
    found = film.pass_by(1)
    assert found.evidence == ("130 is held by a tracer, 120 bash; INT waits until it lets go",)
    film.change(130, state="T", tracer=0)
    found = film.pass_by(1)
    assert found.evidence == ("130 is stopped (state T); INT waits until it continues",)


@pytest.mark.parametrize(
    ("state", "wchan", "verdict"),
    [
        ("S", "get_signal", "suspended"),  # cgroup v2, as measured
        ("S", "do_freezer_trap", "suspended"),  # the same where it is not inlined
        ("R", "get_signal", "busy"),  # on its way through
        ("D", "get_signal", "busy"),
        ("S", "futex_do_wait", "busy"),
    ],
)
def test_frozen_by_its_own_control_group(state: str, wchan: str, verdict: str) -> None:
    film = Film()
    masks = Masks(pending=INT, blocked=None, ignored=0, caught=INT)
    film.change(130, state=state, masks=masks)
    film.detailed(130, wchan=wchan, syscall="230")
    found = film.pass_by(1)
    assert found.verdict == verdict
    where = f"130 is frozen by its control group (wchan {wchan}, syscall 230); INT waits until it"
    assert (f"{where} is thawed" in found.evidence) == (verdict == "suspended")


def test_a_tracer_keeps_the_dead() -> None:
    """Its parent may be as careful as it likes."""
    film = Film()
    film.gone |= {120, 140}
    film.change(130, state="Z", tracer=77)
    why = "130 is dead; its tracer, host PID 77, outside this place, keeps it until it lets go"
    assert film.pass_by(1).evidence == (why,)


def test_who_should_reap_the_dead() -> None:
    film = Film()
    film.change(140, state="Z")
    film.gone.add(120)
    film.change(130, state="Z")
    found = film.pass_by(1)
    assert found.verdict == "zombie"
    assert found.evidence == (
        "130 is dead; host PID 120, outside this place should reap it and has not",
        "140 is dead; 130 python should reap it and has not",
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.34, "0.3 s"), (40, "40 s"), (119, "119 s"), (840, "14 min"), (9000, "2 h"), (-1, "0 s")],
)
def test_spans(seconds: float, said: str) -> None:
    assert span(seconds) == said
