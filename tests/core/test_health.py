"""Looks at what was started, one after another, into what is said of it. No clock, no shell."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fleetstop.core.gpu import Gpu, GpuView, Holder, Unseen
from fleetstop.core.inventory import Healthcheck, Job, Launch, Match
from fleetstop.core.launching.ended import Born, Record
from fleetstop.core.launching.health import (
    DEAF_S,
    TRAINS_S,
    Expected,
    Health,
    Seen,
    expected_of,
    health,
)
from fleetstop.core.process import Detail, OpenFile, Process, ProcessId, ProcessTree
from fleetstop.core.signals import NUMBERS, Masks

ARGV = ("python3", "train.py", "--lr", "1")
PYTHON = 1 << 12 | 1 << 24
EXPECTED = Expected(argv=ARGV, stop_signal="INT")
WRAPPED = Expected(argv=("bash", "run.sh"), stop_signal="INT")


def bit(*names: str) -> int:
    return sum(1 << (NUMBERS[each] - 1) for each in names)


def process(
    pid: int = 10,
    *,
    ppid: int = 5,
    born_s: float = 100.0,
    hears: tuple[str, ...] = ("INT",),
    ignores: tuple[str, ...] = (),
    up: bool = True,
    argv: tuple[str, ...] = ARGV,
    files: tuple[OpenFile, ...] | None = (),
    state: str = "S",
) -> Process:
    ignored = bit(*ignores) | (PYTHON if up else 0)
    return Process(
        id=ProcessId(1000 + pid, int(born_s * 100)), ppid=1000 + ppid, pgid=0, sid=0, state=state,
        comm=argv[0], flags=0, threads=1, ticks=0, inner=(pid,), argv=argv,
        masks=Masks(pending=0, blocked=0, ignored=ignored, caught=bit(*hears)),
        detail=Detail(blocked=0, files=files),
    )  # fmt: skip


def look(age_s: float, *processes: Process, root: Process | None = None, **facts: Any) -> Seen:
    """`root` None: the first one is what was started, and the trainer itself."""
    tree = ProcessTree(processes={e.id.pid: e for e in processes}, uptime=100.0 + age_s)
    first = root or (processes[0] if processes else process())
    trainers = tuple(e.id for e in processes if e.argv and "train.py" in e.argv)
    known = {"trainers": trainers, "members": frozenset(tree.processes)}
    return Seen(age_s=age_s, tree=tree, root=first.id, **{**known, **facts})


def said(found: Health, check: str) -> bool | None:
    return next(each.ok for each in found.checks if each.check == check)


def test_what_is_expected_comes_from_the_inventory_and_the_command_line() -> None:
    job = Job(
        name="train", match=Match(script="train.py"), stop_signal="TERM", gpus=(0, 1),
        launch=Launch(run=("/root/run.sh",), env={"A": "1", "B": "2"}),
        healthcheck=Healthcheck(log_matches="tok/s", within_s=600.0),
    )  # fmt: skip
    found = expected_of(job, ("/root/run.sh",), ("--resume", "/ck"), {"B": "3"})
    assert found == Expected(
        argv=("/root/run.sh",), arguments=("--resume", "/ck"), env={"A": "1", "B": "3"},
        stop_signal="TERM", log_matches="tok/s", within_s=600.0, gpus=(0, 1),
    )  # fmt: skip
    bare = expected_of(Job(name="", match=Match(script="train.py")), ARGV)
    assert bare == Expected(argv=ARGV)


def test_without_a_pattern_it_has_to_live_for_the_whole_of_within() -> None:
    assert health(EXPECTED, look(9.9, process())).state == "waiting"
    found = health(EXPECTED, look(10.0, process()))
    assert found.state == "healthy"
    assert found.why == ("alive as 10", "hears INT", "its arguments arrived")


def test_with_a_pattern_the_first_new_line_that_matches_is_enough() -> None:
    expected = msgspec.structs.replace(EXPECTED, log_matches="tok/s", within_s=600.0)
    quiet = health(expected, look(3.0, process(), log=("loading",)))
    assert quiet.state == "waiting"
    early = health(expected, look(4.0, process(), says="step 1 14K tok/s"))
    assert early.state == "waiting"
    found = health(expected, look(5.0, process(), says="step 1 14K tok/s"))
    assert found.state == "healthy"
    assert 'the log says: "step 1 14K tok/s"' in found.why
    late = health(expected, look(600.0, process(), log=("loading",)))
    assert (late.state, late.why) == ("unhealthy", ("nothing new in the log matches 'tok/s'",))
    unread = health(expected, look(600.0, process(), log=None))
    assert (unread.state, unread.why) == ("unknown", ("its log could not be read",))


def test_a_pattern_that_could_not_be_tried_in_time_is_neither_good_nor_bad() -> None:
    expected = msgspec.structs.replace(EXPECTED, log_matches="(a+)+$", within_s=600.0)
    assert health(expected, look(599.0, process(), slow=True)).state == "waiting"
    given_up = health(expected, look(600.0, process(), slow=True))
    assert given_up.state == "unknown"
    (why,) = given_up.why
    assert why.startswith("log_matches '(a+)+$' took too long")
    dead = health(expected, look(3.0, root=process(), slow=True))
    assert dead.state == "unhealthy"


def test_one_that_ended_is_told_at_once_with_its_exact_end() -> None:
    exited = Record(mark="m", ended_at="2026-03-04T14:02:29+00:00", exit=3)
    gone = look(2.1, root=process(), record=exited)
    assert health(EXPECTED, gone).why == ("python3 train.py ended within 2 s: exit 3",)
    dumped = msgspec.structs.replace(exited, exit=None, signal="SEGV")
    dead = health(EXPECTED, look(2.1, root=process(), record=dumped))
    assert (dead.state, dead.why) == (
        "unhealthy",
        ("python3 train.py ended within 2 s: killed by SEGV",),
    )
    # not recorded yet: that it is gone is known all the same
    assert health(EXPECTED, look(2.1, root=process())).why == ("python3 train.py ended within 2 s",)
    zombie = look(2.1, process(state="Z"), trainers=())
    assert health(EXPECTED, zombie).state == "unhealthy"


def test_python_s_first_moments_are_without_a_handler_and_no_fault() -> None:
    """It installs its own some 10 to 100 ms after it was started."""
    young = process(hears=(), up=False)
    assert health(EXPECTED, look(0.05, young)).state == "waiting"
    never = health(EXPECTED, look(10.0, process(hears=(), up=True)))
    assert never.state == "unhealthy"
    assert "10 has no handler for INT" in never.why[0]


def test_a_trainer_put_into_the_background_is_deaf_for_good() -> None:
    """run.sh: `python train.py &`. Python is up and has left INT ignored."""
    shell = process(8, argv=("bash", "run.sh"), hears=())
    deaf = process(10, ppid=8, ignores=("INT", "QUIT"), hears=())
    # a program may install its own handler once its imports are done
    early = look(DEAF_S - 0.1, shell, deaf, root=shell)
    assert health(WRAPPED, early).state == "waiting"
    found = health(WRAPPED, look(DEAF_S, shell, deaf, root=shell))
    assert (found.state, said(found, "hears"), said(found, "alive")) == ("unhealthy", False, None)
    assert "10 ignores INT" in found.why[0]
    assert "into the background with &" in found.why[0]
    late_handler = process(10, ppid=8, hears=("INT",))
    assert health(WRAPPED, look(10.0, shell, late_handler, root=shell)).state == "healthy"


def test_why_it_is_deaf_is_told_as_a_fact_only_where_it_is_known() -> None:
    shell = process(8, argv=("bash", "run.sh"), hears=())

    def told(*processes: Process, root: Process = shell) -> str:
        return health(WRAPPED, look(DEAF_S, *processes, root=root)).why[0]

    # what we start hears everything as it is executed
    itself = process(ignores=("INT",), hears=())
    assert told(itself, root=itself).endswith("10 ignores INT (its own code does that)")
    # a shell that puts into the background lets INT and QUIT be ignored, both
    deaf = process(10, ppid=8, ignores=("INT",), hears=())
    either = "10 ignores INT (its own code does that, or what starts it)"
    assert told(shell, deaf).endswith(either)
    trap = process(8, argv=("bash", "run.sh"), hears=(), ignores=("INT",))
    assert told(trap, deaf, root=trap).endswith("10 ignores INT (what starts it does too: 8 bash)")
    both = process(10, ppid=8, ignores=("INT", "QUIT"), hears=())
    background = "10 ignores INT (most likely what starts it puts it into the background with &)"
    assert told(shell, both).endswith(background)
    # its script is gone, and our supervisor above it ignores both
    ours = process(5, ppid=1, argv=("python3", "supervise.py"), hears=(), ignores=("INT", "QUIT"))
    left = process(10, ppid=5, ignores=("INT", "QUIT"), hears=())
    orphan = look(DEAF_S, ours, left, root=shell, members=frozenset({left.id.pid}))
    assert health(WRAPPED, orphan).why[0].endswith(background)
    assert told(both, root=both).endswith("10 ignores INT (its own code does that)")


def test_both_signals_are_good_where_nobody_has_said_which_saves() -> None:
    unsaid = msgspec.structs.replace(EXPECTED, stop_signal=None)
    for hears in (("TERM",), ("INT",), ("INT", "TERM")):
        assert health(unsaid, look(10.0, process(hears=hears))).state == "healthy"
    found = health(unsaid, look(6.0, process(hears=(), ignores=("INT",))))
    assert "10 ignores INT and has no handler for TERM" in found.why[0]
    # the said one has to be heard, another does not help
    assert health(EXPECTED, look(10.0, process(hears=("TERM",)))).state == "unhealthy"


def test_a_wrapper_that_drops_what_was_added_is_unhealthy_at_once() -> None:
    shell = process(8, argv=("bash", "run.sh"), hears=())
    trainer = process(10, ppid=8)
    expected = msgspec.structs.replace(
        WRAPPED, arguments=("--resume", "/ck/9"), env={"FLEETSTOP_MARK": "7f3a", "A": "1"}
    )
    seen = look(0.4, shell, trainer, root=shell, environs={1010: {"FLEETSTOP_MARK": "7f3a"}})
    found = health(expected, seen)
    assert (said(found, "arguments"), said(found, "environment")) == (False, False)
    assert found.state == "unhealthy"
    assert len(found.why) == 2
    kept = process(10, ppid=8, argv=(*ARGV, "--resume", "/ck/9"))
    good = {"FLEETSTOP_MARK": "7f3a", "A": "1"}
    assert health(expected, look(10.0, shell, kept, root=shell, environs={1010: good})).state == (
        "healthy"
    )


def test_an_environment_that_cannot_be_read_is_told_and_no_reason_to_go_back() -> None:
    expected = msgspec.structs.replace(EXPECTED, env={"A": "1"})
    found = health(expected, look(10.0, process(), environs={1010: None}))
    assert (found.state, said(found, "environment")) == ("healthy", None)
    assert found.findings == ("10: its environment could not be read",)


def test_a_trainer_that_died_under_a_living_wrapper_is_no_life() -> None:
    """run.sh loops: what is seen now is another one."""
    shell = process(8, argv=("bash", "run.sh"), hears=())
    again = process(12, ppid=8, born_s=103.0)
    found = health(WRAPPED, look(4.0, shell, again, root=shell, lost=(10,)))
    assert (found.state, found.why) == ("unhealthy", ("10 ended within 4 s",))


def test_the_end_of_a_wrapper_is_not_told_as_its_trainers() -> None:
    """run.sh ends with an echo, and so with 0, whatever became of the trainer."""
    record = Record(mark="m", trainer=Born(8, 5), ended_at="2026-03-04T14:02:29+00:00", exit=0)
    found = health(WRAPPED, look(2.0, lost=(10,), record=record))
    unknown = "exit 0, its trainer's own end is not known"
    assert found.why == (f"10 ended within 2 s; what started it then ended: {unknown}",)
    found = health(WRAPPED, look(2.0, record=record, log=("KeyError: 'lr'",)))
    assert found.why == (f"bash run.sh ended within 2 s: {unknown}; last line: \"KeyError: 'lr'\"",)
    own = msgspec.structs.replace(record, trainer=Born(10, 5), exit=1)
    found = health(WRAPPED, look(2.0, lost=(10,), record=own, log=("KeyError: 'lr'",)))
    assert found.why == ("10 ended within 2 s: exit 1; last line: \"KeyError: 'lr'\"",)
    bad = msgspec.structs.replace(record, exit=2)
    found = health(WRAPPED, look(2.0, lost=(10,), record=bad, log=("KeyError: 'lr'",)))
    last = "; last line: \"KeyError: 'lr'\""
    assert found.why == (f"10 ended within 2 s; what started it then ended: exit 2{last}",)
    found = health(WRAPPED, look(2.0, record=bad, log=("KeyError: 'lr'",)))
    assert found.why == (f"bash run.sh ended within 2 s: exit 2 (the wrapper's){last}",)


def test_a_wrapper_below_which_nobody_trains_is_waited_for_and_then_told() -> None:
    shell = process(8, argv=("bash", "run.sh"), hears=())
    assert health(WRAPPED, look(TRAINS_S - 1, shell, root=shell)).state == "waiting"
    found = health(WRAPPED, look(TRAINS_S, shell, root=shell))
    assert found.why == ("no trainer is seen below what was started",)
    patient = msgspec.structs.replace(WRAPPED, within_s=300.0)
    assert health(patient, look(TRAINS_S, shell, root=shell)).state == "waiting"


def test_who_is_there_instead_of_a_trainer_is_told_and_so_is_the_wait() -> None:
    """It was 60 s of silence behind "up to 4 s", and then only that nobody was seen."""
    quick = msgspec.structs.replace(WRAPPED, within_s=4.0)
    shell = process(8, argv=("bash", "run.sh"), hears=())
    real = process(10, ppid=8, argv=("python3", "real.py"))
    assert health(quick, look(3.9, shell, real, root=shell)).late is None
    found = health(quick, look(4.0, shell, real, root=shell))
    nobody = "no trainer is seen below what was started (10 python3 real.py)"
    assert (found.state, found.late) == (
        "waiting", f"{nobody}: waited for until 60 s after its start",
    )  # fmt: skip
    assert health(quick, look(TRAINS_S, shell, real, root=shell)).why == (nobody,)
    # a GPU may take as long, and that was no less silent
    gpu = msgspec.structs.replace(EXPECTED, within_s=4.0, gpus=(0, 1))
    late = health(gpu, look(5.0, process(), gpus=IDLE)).late
    assert late == "it uses none of GPU 0-1: waited for until 60 s after its start"
    assert health(gpu, look(5.0, process(), gpus=USED)).late is None


def test_a_trainer_that_executes_something_else_is_no_launcher_to_wait_for() -> None:
    quick = msgspec.structs.replace(WRAPPED, within_s=4.0)
    shell = process(8, argv=("bash", "run.sh"), hears=())
    real = process(10, ppid=8, argv=("python3", "real.py"))
    was = (real.id,)
    assert health(quick, look(3.9, shell, real, root=shell, was=was)).state == "waiting"
    found = health(quick, look(4.0, shell, real, root=shell, was=was))
    said = "10 was a trainer, and is python3 real.py by now, which is none of this job by its"
    assert (found.state, found.why) == ("unhealthy", (f"{said} `match:`",))
    # it may start its ranks yet
    torchrun = process(10, ppid=8, argv=("torchrun", "main.py"))
    patient = look(TRAINS_S - 1, shell, torchrun, root=shell, was=was)
    assert health(quick, patient).state == "waiting"


def test_trainers_that_come_late_have_to_live_as_long() -> None:
    """torchrun was up for 30 s before its rank was."""
    shell = process(8, argv=("torchrun", "train.py"), hears=("INT",))
    late = process(12, ppid=8, born_s=130.0)
    look_at = [health(WRAPPED, look(age, shell, late, root=shell, trainers=(late.id,))).state
               for age in (31.0, 39.0, 41.0)]  # fmt: skip
    assert look_at == ["waiting", "waiting", "healthy"]


def test_one_that_outlives_what_was_started_will_end_unrecorded() -> None:
    shell = process(8, argv=("bash", "run.sh"))
    record = Record(mark="m", ended_at="2026-03-04T14:02:29+00:00", exit=0)
    found = health(WRAPPED, look(10.0, process(), root=shell, record=record))
    assert found.state == "healthy"
    assert "has ended (exit 0) and left 10 behind" in found.findings[0]


GPU0 = Gpu(0, "GPU-0", 5000, 80000)
GPU1 = Gpu(1, "GPU-1", 5000, 80000)
USED = GpuView((GPU0, GPU1), (Holder("GPU-0", 1010, 4000),))
IDLE = GpuView((GPU0, GPU1), ())
DEVICE = OpenFile(fd=5, target="/dev/nvidia0", flags=2, pos=0)


@pytest.mark.parametrize(
    ("view", "files", "age_s", "state", "ok"),
    [
        (USED, (), 10.0, "healthy", True),
        (IDLE, (DEVICE,), 10.0, "healthy", True),
        # importing and loading take their time
        (IDLE, (), 10.0, "waiting", False),
        (IDLE, (), 60.0, "unhealthy", False),
        (Unseen("nvidia-smi hangs"), (DEVICE,), 10.0, "healthy", True),
        (Unseen("nvidia-smi hangs"), (), 60.0, "unhealthy", False),
        # neither the driver nor its files tell: unknown is unknown
        (Unseen("nvidia-smi hangs"), None, 60.0, "healthy", None),
    ],
)
def test_a_job_that_declares_gpus_has_to_use_one(
    view: Any, files: Any, age_s: float, state: str, ok: bool | None
) -> None:
    expected = msgspec.structs.replace(EXPECTED, gpus=(0, 1))
    found = health(expected, look(age_s, process(files=files), gpus=view))
    assert (found.state, said(found, "gpu")) == (state, ok)


def test_a_gpu_that_is_not_its_own_is_told() -> None:
    expected = msgspec.structs.replace(EXPECTED, gpus=(1,))
    found = health(expected, look(10.0, process(), gpus=USED))
    assert found.findings == ("it uses GPU 0, which gpus: does not name",)
