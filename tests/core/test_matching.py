from __future__ import annotations

import csv
import shlex
from pathlib import Path

import msgspec
import pytest

from fleetstop.core.inventory import Match
from fleetstop.core.kin.matching import base, executed, is_shell, matches, mentions, needs_detail
from fleetstop.core.process import PF_KTHREAD, Process
from tests.core.trees import process, tree

TRAIN = Match(script="train.py")
SAMPLES = Path(__file__).parents[1] / "samples" / "proc"

# What CPython runs, by Python/getopt.c: a command line, then the script or `-m module`; "" neither
GRAMMAR = [
    ("python train.py", "train.py"),
    ("python3 train.py --epochs 3", "train.py"),
    ("python3.11 train.py", "train.py"),
    ("python3.13t train.py", "train.py"),
    ("python3.13td train.py", "train.py"),
    ("python3-dbg train.py", "train.py"),
    ("pypy3 train.py", "train.py"),
    ("/opt/x/bin/python train.py", "train.py"),
    ("/opt/x/bin/python3.12 -u /srv/train.py", "/srv/train.py"),
    ("-python train.py", "train.py"),
    ("python -u train.py", "train.py"),
    ("python -uB train.py", "train.py"),
    ("python -OO -E -s train.py", "train.py"),
    ("python -W ignore train.py", "train.py"),
    ("python -Wignore train.py", "train.py"),
    ("python -Wc train.py", "train.py"),
    ("python -W train.py eval.py", "eval.py"),
    ("python -X dev train.py", "train.py"),
    ("python -Xdev train.py", "train.py"),
    ("python -X importtime -X dev -u train.py", "train.py"),
    ("python -uX dev train.py", "train.py"),
    ("python -uXdev train.py", "train.py"),
    ("python -X train.py", ""),
    ("python --check-hash-based-pycs always train.py", "train.py"),
    ("python --check-hash-based-pycs train.py eval.py", "eval.py"),
    ("python --check-hash-based-pycs", ""),
    ("python -- train.py", "train.py"),
    ("python -u -- train.py", "train.py"),
    ("python -- -c", "-c"),
    ("python -- -", ""),
    ("python --", ""),
    ("python - train.py", ""),
    ("python -u - train.py", ""),
    ("python", ""),
    ("python -i", ""),
    ("python -i train.py", "train.py"),
    ("python -m pkg.train", "-m pkg.train"),
    ("python -mpkg.train", "-m pkg.train"),
    ("python -um pkg.train train.py", "-m pkg.train"),
    ("python -umpkg.train", "-m pkg.train"),
    ("python -X dev -m pkg.train", "-m pkg.train"),
    ("python -m pytest train.py", "-m pytest"),
    ("python -m torch.distributed.run train.py", "-m torch.distributed.run"),
    ("python -m", "-m "),
    ("python -c 'import train' train.py", ""),
    ("python -c train.py", ""),
    ("python -uc train.py train.py", ""),
    ("python -ctrain.py", ""),
    ("python ./train.py", "./train.py"),
    ("python src/../train.py", "src/../train.py"),
    ("python '' train.py", ""),
    ("python 'my train.py'", "my train.py"),
    ("pythonic train.py", ""),
    ("ipython train.py", ""),
    ("python3-config train.py", ""),
    ("bash train.py", ""),
]


@pytest.mark.parametrize(("line", "runs"), GRAMMAR)
def test_what_an_interpreter_runs(line: str, runs: str) -> None:
    found = executed(shlex.split(line))
    assert (f"-m {found.module}" if found.module is not None else found.script or "") == runs


def test_no_words_run_nothing() -> None:
    assert executed(()).script is None
    assert executed(()).module is None


@pytest.mark.parametrize(("line", "runs"), GRAMMAR)
def test_only_what_runs_the_script_matches(line: str, runs: str) -> None:
    is_train = runs.rpartition("/")[2] == "train.py"
    assert matches(TRAIN, process(50, line)) is is_train
    assert matches(Match(module="pkg.train"), process(50, line)) is (runs == "-m pkg.train")


DECOYS = [
    "vim train.py",
    "less train.py",
    "tail -f train.py",
    "tail -f train.py.log",
    "cat /job/train.py",
    "python monitor.py --watch train.py",
    "monitor.py --watch train.py",
    "bash -c 'python train.py'",
    "sh -c 'cd /work && exec python train.py'",
    "bash train.py",
    "sh -x train.py",
    "uv run train.py",
    "uv run python train.py",
    "accelerate launch train.py",
    "python /opt/x/bin/accelerate launch train.py",
    "torchrun --nproc-per-node 8 train.py",
    "python /opt/x/bin/torchrun train.py",
    "deepspeed train.py",
    "mpirun -n 4 python train.py",
    "timeout 3600 python train.py",
    "nohup python train.py",
    "sudo -u ada python train.py",
    "tmux new-session -d 'python train.py'",
    "script -qec 'python train.py' /dev/null",
    "ipython train.py",
    "jupyter run train.py",
    "python -m torch.distributed.run train.py",
    "python train.pyc",
    "python mytrain.py",
    "python train.py.bak",
    "python train/py",
    "python pkg/train.py/main.py",
    "rsync -a train.py backup:",
    "fleetstop stop ct200 --script train.py",
    "ssh root@pve python train.py",
    "pgrep -f train.py",
    "rg train.py",
    "-",
]


@pytest.mark.parametrize("line", DECOYS)
def test_what_only_names_the_script_is_not_the_job(line: str) -> None:
    assert not matches(TRAIN, process(50, line))


# wanted, the command line, its directory, whether it is the one
PATHS = [
    ("/job/train.py", "python train.py", "/job", True),
    ("/job/train.py", "python ./train.py", "/job", True),
    ("/job/train.py", "python ../job/train.py", "/job", True),
    ("/job/train.py", "python /job/train.py", "/", True),
    ("/job//./train.py", "python /job/train.py", "/", True),
    ("/job/train.py", "python train.py", "/elsewhere", False),
    ("/job/train.py", "python /job2/train.py", "/job", False),
    ("/job/train.py", "python sub/train.py", "/job", False),
    ("sub/train.py", "python train.py", "/job/sub", True),
    ("sub/train.py", "python /srv/sub/train.py", "/", True),
    ("sub/train.py", "python sub/train.py", "/job", True),
    ("sub/train.py", "python /srv/mysub/train.py", "/", False),
    ("sub/train.py", "python train.py", "/job", False),
    ("./train.py", "python train.py", "/job", True),
    ("train.py", "python /any/where/train.py", "/", True),
    # a redeploy replaced the directory under the running job
    ("/job/train.py", "python train.py", "/job (deleted)", True),
    # where it stands cannot be seen
    ("sub/train.py", "python sub/train.py", None, True),
    ("/job/train.py", "python train.py", None, False),
]


@pytest.mark.parametrize(("wanted", "line", "cwd", "same"), PATHS)
def test_a_path_is_taken_from_where_the_process_stands(
    wanted: str, line: str, cwd: str | None, same: bool
) -> None:
    one = process(50, line)
    assert one.detail is not None
    one = msgspec.structs.replace(one, detail=msgspec.structs.replace(one.detail, cwd=cwd))
    assert matches(Match(script=wanted), one) is same


# command line as the kernel leaves it for `#!`, comm, whether {script: train_resnet.py} means it
HASHBANG = [
    ("/opt/uv-python ./train_resnet.py", "train_resnet.py", True),
    ("/opt/uv-python -S ./train_resnet.py", "train_resnet.py", True),
    ("/opt/uv-python -S ./train_resnet.py", "uv-python", False),
    ("/opt/uv-python ./other.py train_resnet.py", "other.py", False),
    ("/opt/uv-python -S ./other.py train_resnet.py", "train_resnet.py", False),
    ("/usr/bin/python3 -u ./train_resnet.py", "train_resnet.py", True),
    ("vim train_resnet.py", "vim", False),
    ("train_resnet.py train_resnet.py", "train_resnet.py", False),
]


@pytest.mark.parametrize(("line", "comm", "is_it"), HASHBANG)
def test_a_script_run_by_its_first_line(line: str, comm: str, is_it: bool) -> None:
    one = msgspec.structs.replace(process(50, line), comm=comm)
    assert matches(Match(script="train_resnet.py"), one) is is_it


def test_comm_is_cut_to_fifteen_bytes() -> None:
    one = process(50, "/opt/uv-python ./train_a_very_long_name.py")
    one = msgspec.structs.replace(one, comm="train_a_very_lo")
    assert matches(Match(script="train_a_very_long_name.py"), one)
    assert not matches(Match(script="train_a_very_long_nose.py"), one)


# a match, a process, container PIDs that pgrep or the pid file named, whether it is the job
KEYS = [
    (Match(exe="trainer"), "/opt/bin/trainer --go", [], True),
    (Match(exe="/opt/bin/trainer"), "/opt/bin/trainer --go", [], True),
    (Match(exe="/bin/trainer"), "/opt/bin/trainer --go", [], False),
    (Match(exe="trainer"), "bash trainer", [], False),
    (Match(exe="trainer"), "-", [], False),
    (Match(pid=7), "python x.py # in=7", [], True),
    (Match(pid=50), "python x.py # in=7", [], False),
    (Match(pid=50), "python x.py", [], True),
    (Match(pidfile="/run/t.pid"), "python x.py # in=7", [7], True),
    (Match(pidfile="/run/t.pid"), "python x.py # in=7", [50], False),
    (Match(pidfile="/run/t.pid"), "bash run.sh # in=7", [7], True),
    (Match(pgrep="x"), "python x.py # in=7", [7], True),
    (Match(pgrep="x"), "python x.py # in=7", [50], False),
    (Match(pgrep="x"), "bash -c 'pgrep -f x; true' # in=7", [7], False),
    (Match(pgrep="x"), "-sh # in=7", [7], False),
    (Match(pgrep="x"), "/bin/busybox sh -c x # in=7", [7], False),
    (Match(pgrep="x"), "- # in=7 comm=bash", [7], False),
    (Match(gpu=True), "python x.py # gpu=3", [], True),
    (Match(gpu=True), "python x.py", [], False),
    (Match(gpu=True), "python x.py # unseen", [], False),
    (Match(), "python train.py", [], False),
]


@pytest.mark.parametrize(("match", "line", "listed", "is_it"), KEYS)
def test_every_key_of_a_match(match: Match, line: str, listed: list[int], is_it: bool) -> None:
    command, _, tags = line.partition(" # ")
    assert (
        matches(match, process(50, command, None, tags.split()), listed=frozenset(listed)) is is_it
    )


UNITS = [
    ("train", "/lxc/200/ns/system.slice/train.service", True),
    ("train.service", "/lxc/200/ns/system.slice/train.service", True),
    ("train", "/system.slice/train.service/payload", True),
    ("train", "/system.slice/train.service.d", False),
    ("train", "/system.slice/mytrain.service", False),
    ("train", "/system.slice/train.scope", False),
    ("run-7.scope", "/user.slice/run-7.scope", True),
    ("train@1", "/system.slice/system-train.slice/train@1.service", True),
]


@pytest.mark.parametrize(("unit", "group", "inside"), UNITS)
def test_a_unit_by_its_control_group(unit: str, group: str, inside: bool) -> None:
    one = msgspec.structs.replace(process(50, "python x.py"), cgroups=("/", group))
    assert matches(Match(unit=unit), one) is inside


def test_the_dead_and_the_kernel_never_match() -> None:
    dead = process(50, "python train.py", None, ["Z"])
    half = process(50, "python train.py", None, ["Z", "threads=2"])
    kernel = msgspec.structs.replace(process(50, "python train.py"), flags=PF_KTHREAD)
    assert not matches(TRAIN, dead)
    assert matches(TRAIN, half)
    assert not matches(TRAIN, kernel)
    assert not matches(Match(pid=50), kernel)


def test_process_two_of_a_small_box_is_no_kernel_thread() -> None:
    init = process(1, "tini")
    assert matches(TRAIN, process(2, "python train.py", init))
    assert matches(TRAIN, process(9, "python train.py", process(2, "bash", init)))


def test_pgrep_seen_matching_its_own_shell() -> None:
    """procps leaves only itself out; the shell that asked has the words in its `-c` text."""
    lines = (SAMPLES / "pgrep_self_match.txt").read_text().splitlines()[1:]
    seen = {int(line.split()[0]): line.split(" ", 1)[1] for line in lines}
    pgrep = Match(pgrep="train.py")
    hit = [
        pid
        for pid, line in seen.items()
        if matches(pgrep, process(pid, line), listed=frozenset(seen))
    ]
    assert hit == [10417, 15173]


MENTIONS = [
    (TRAIN, "torchrun train.py", True),
    (TRAIN, "torchrun /job/train.py", True),
    (Match(script="/job/train.py"), "torchrun train.py", True),
    (TRAIN, "torchrun eval.py", False),
    (TRAIN, "train.py", False),
    (Match(module="pkg.train"), "torchrun -m pkg.train", True),
    (Match(module="pkg.train"), "torchrun -m pkg.other", False),
    (Match(pid=3), "torchrun train.py", False),
    (TRAIN, "-", False),
]


@pytest.mark.parametrize(("match", "line", "names_it"), MENTIONS)
def test_a_launcher_names_the_job(match: Match, line: str, names_it: bool) -> None:
    assert mentions(match, process(50, line)) is names_it


@pytest.mark.parametrize(
    ("line", "shell"),
    [("-bash", True), ("/bin/dash x", True), ("zsh", True), ("python bash", False), ("-", False)],
)
def test_shells(line: str, shell: bool) -> None:
    assert is_shell(process(50, line)) is shell


def test_a_login_shell_by_its_name() -> None:
    assert [base(word) for word in ("-bash", "/bin/-bash", "/usr/bin/sh")] == ["bash", "bash", "sh"]


SCENE = tree("""
1 init
  100 sshd
    110 bash -c 'python train.py | tee log'
      120 python train.py
        130 python train.py                # fork
      140 tee log
  200 cron
    210 python other.py
    220 vim train.py
""")


# All that could decide about the job is looked at closely; strangers are not worth the time.
CLOSER = [
    (TRAIN, {1, 100, 110, 120, 130, 140}),
    (Match(script="/job/train.py"), {1, 100, 110, 120, 130, 140}),
    (Match(script="absent.py"), set[int]()),
    (Match(pid=210), {1, 200, 210, 220}),
    (Match(gpu=True), set(SCENE.processes)),
]


@pytest.mark.parametrize(("match", "pids"), CLOSER)
def test_who_is_worth_a_closer_look(match: Match, pids: set[int]) -> None:
    assert needs_detail(match, SCENE, frozenset()) == pids


def test_a_path_is_not_decided_before_the_closer_look() -> None:
    blind = tree("120 python train.py # unseen")
    assert needs_detail(Match(script="/job/train.py"), blind, frozenset()) == {120}


def test_a_torn_look_has_parents_that_are_not_there() -> None:
    torn: Process = process(120, "python train.py", None, ["ppid=99"])
    alone = msgspec.structs.replace(SCENE, processes={120: torn})
    assert needs_detail(TRAIN, alone, frozenset()) == {120}


def test_the_samples_are_told_in_the_index() -> None:
    rows = csv.DictReader((SAMPLES / "INDEX.tsv").read_text().splitlines(), delimiter="\t")
    assert {row["file"] for row in rows} | {"INDEX.tsv"} == {
        each.name for each in SAMPLES.iterdir()
    }


@pytest.mark.parametrize(
    "line",
    [
        "python -m cProfile -o out train.py --lr 1",
        "python -m pdb train.py",
        "python3 -m coverage run --branch train.py",
        "python /opt/x/bin/kernprof -l -v train.py",
        "python /usr/bin/ipython train.py",
    ],
)
def test_a_runner_executes_the_script_it_is_given(line: str) -> None:
    [found] = tree(f"120 {line}").processes.values()
    assert matches(Match(script="train.py"), found)
    assert not matches(Match(script="other.py"), found)
