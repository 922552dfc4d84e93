from __future__ import annotations

import pytest

from fleetstop.core.kin.lineage import abandoned, above_kind, pipe_partner, spawned, through_panes
from tests.core.trees import process, tree

# a command line above a trainer, and what it is to the job; None ends the chain
ABOVE = [
    ("bash run.sh", "wrapper"),
    ("/bin/bash ./run.sh", "wrapper"),
    ("/bin/bash -e ./run.sh", "wrapper"),
    ("bash -x run.sh --fast", "wrapper"),
    ("bash -c 'python train.py'", "wrapper"),
    ("bash -lc 'python train.py'", "wrapper"),
    ("bash -ic 'python train.py'", "wrapper"),
    ("sh -c 'while true; do python train.py; done'", "wrapper"),
    ("bash -eo pipefail run.sh", "wrapper"),
    ("bash -euo pipefail -c 'python train.py'", "wrapper"),
    ("bash -o pipefail run.sh", "wrapper"),
    ("bash -O extglob +O nullglob run.sh", "wrapper"),
    ("bash --norc run.sh", "wrapper"),
    ("bash --rcfile /etc/rc run.sh", "wrapper"),
    ("bash -- run.sh", "wrapper"),
    ("bash - run.sh", "wrapper"),
    ("dash run.sh", "wrapper"),
    ("zsh run.sh", "wrapper"),
    ("busybox sh run.sh", "wrapper"),
    ("busybox sh -c 'python train.py'", "wrapper"),
    ("timeout 3600 python train.py", "wrapper"),
    ("sudo -u ada python train.py", "wrapper"),
    ("/usr/bin/time -v python train.py", "wrapper"),
    ("script -qec 'python train.py'", "wrapper"),
    ("uv run train.py", "wrapper"),
    ("/opt/conda/bin/python /opt/conda/bin/conda run python train.py", "wrapper"),
    ("torchrun train.py", "launcher"),
    ("/opt/x/bin/python /opt/x/bin/torchrun train.py", "launcher"),
    ("python -m torch.distributed.run train.py", "launcher"),
    ("python -u -m torch.distributed.launch train.py", "launcher"),
    ("accelerate launch train.py", "launcher"),
    ("python /opt/x/bin/accelerate launch train.py", "launcher"),
    ("python -m accelerate.commands.launch train.py", "launcher"),
    ("python -u -m deepspeed.launcher.launch train.py", "launcher"),
    ("mpirun -n 4 python train.py", "launcher"),
    # somebody types here, or it carries others too
    ("bash", None),
    ("-bash", None),
    ("bash -l", None),
    ("bash -i", None),
    ("bash --login", None),
    ("bash --norc", None),
    ("bash -s", None),
    ("bash -s run.sh", None),
    ("bash -c", None),
    ("bash -o vi", None),
    ("bash -eo pipefail", None),
    ("bash --rcfile /etc/rc", None),
    ("bash --init-file /opt/editor/shell.sh", None),
    ("-zsh", None),
    ("busybox sh", None),
    ("tmux", None),
    ("tmux new-session -d 'python train.py'", None),
    ("SCREEN -dmS t python train.py", None),
    ("'sshd: ada@pts/0'", None),
    ("/usr/sbin/cron -f", None),
    ("/lib/systemd/systemd --user", None),
    ("/opt/x/bin/python /opt/x/bin/jupyter-lab", None),
    ("python -m ipykernel_launcher -f k.json", None),
    ("/usr/bin/containerd-shim-runc-v2 -id 7", None),
    ("raylet --node", None),
    ("lxc-start -F -n 200", None),
    ("python train.py", None),
    ("perl run.pl", None),
    ("-", None),
]


@pytest.mark.parametrize(("line", "kind"), ABOVE)
def test_what_stands_above_a_trainer(line: str, kind: str | None) -> None:
    assert above_kind(process(50, line), None) == kind


@pytest.mark.parametrize("line", ["bash run.sh", "torchrun train.py", "babysit train.py"])
def test_a_first_process_is_never_a_wrapper(line: str) -> None:
    assert above_kind(process(1, line), "babysit") is None
    assert above_kind(process(1, line, None, ["in=7"]), "babysit") is None
    assert above_kind(process(50, line, None, ["in=1"]), "babysit") is None


# `wrapper:` of the job, a command line, what it is then
NAMED = [
    ("babysit", "babysit -- python train.py", "wrapper"),
    ("babysit", "/opt/bin/babysit python train.py", "wrapper"),
    ("babysit.py", "python /opt/babysit.py python train.py", "wrapper"),
    ("babysit.rb", "- # comm=babysit.rb", None),
    ("babysit", "perl /opt/babysit # comm=babysit", "wrapper"),
    ("other", "babysit -- python train.py", None),
    ("outlives", "outlives -- python train.py", None),
    ("outlives", "bash run.sh", "wrapper"),
]


@pytest.mark.parametrize(("named", "line", "kind"), NAMED)
def test_a_wrapper_that_the_job_names(named: str, line: str, kind: str | None) -> None:
    command, _, tags = line.partition(" # ")
    assert above_kind(process(50, command, None, tags.split()), named) == kind


# The pipes of one process and of a member, and whether one reads what the other writes
PIPES = [
    ("0<a", "1>a", True),
    ("0<a", "2>a", True),
    ("1>a", "0<a", True),
    ("0<a", "1>b", False),
    ("1>a", "1>a", False),  # both only share the stdout they were given
    ("2>a", "1>a", False),
    ("0<a", "0<a", False),
    ("0<a 1>b", "1>a 0<c", True),
    ("unseen", "1>a", False),
    ("0<a", "unseen", False),
    ("", "", False),
]


@pytest.mark.parametrize(("ours", "theirs", "partners"), PIPES)
def test_a_pipe_joins_reader_and_writer(ours: str, theirs: str, partners: bool) -> None:
    one = process(50, "tee log", None, ours.split())
    member = process(60, "python train.py", None, theirs.split())
    assert pipe_partner(one, [member]) is partners
    assert pipe_partner(one, []) is False


def test_a_pipe_to_itself_is_no_partner() -> None:
    loop = process(50, "python x.py", None, ["0<a", "1>a"])
    assert not pipe_partner(loop, [loop])


SPAWN = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)"


@pytest.mark.parametrize(
    ("line", "is_child"),
    [
        (f"python -c '{SPAWN}' --multiprocessing-fork", True),
        (f"python -c '{SPAWN}'", True),
        ("frozen-trainer --multiprocessing-fork parent_pid=7 pipe_handle=9", True),
        ("python -c 'from multiprocessing.resource_tracker import main;main(5)'", False),
        ("python -c 'from multiprocessing.forkserver import main'", False),
        ("python train.py", False),
        ("-", False),
    ],
)
def test_a_child_of_spawn(line: str, is_child: bool) -> None:
    assert spawned(process(50, line)) is is_child


TRACKER = "python -c 'from multiprocessing.resource_tracker import main;main(5)'"
FORKER = "python -c 'from multiprocessing.forkserver import main; main(3)'"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"1 init\n  6 {TRACKER}\n  7 python -c '{SPAWN}'\n  9 python other.py", {6, 7}),
        (f"1 init\n  6 {FORKER}\n    7 {FORKER}\n    8 {FORKER}", {6, 7, 8}),
        (f"1 init\n  5 python other.py\n    6 {TRACKER}\n    7 python -c '{SPAWN}'", set()),
        (f"1 init\n  5 python other.py\n    6 {FORKER}\n      7 {FORKER}", set()),
        (f"1 python other.py\n  6 {TRACKER}", set()),
        (f"6 {TRACKER}", {6}),
    ],
)
def test_what_multiprocessing_left_behind(text: str, left: set[int]) -> None:
    assert {each.id.pid for each in abandoned(tree(text))} == left


def test_above_and_below_end_in_a_torn_look() -> None:
    """Two PIDs may be reused between the reading of two lines: parents in a circle."""
    circle = tree("""
        10 a # ppid=12
          11 b
            12 c
        20 d # ppid=20
        30 e # ppid=29
    """)
    assert [each.id.pid for each in circle.above(10)] == [12, 11]
    assert [each.id.pid for each in circle.below(10)] == [11, 12]
    assert not list(circle.above(20))
    assert not list(circle.below(20))
    assert not list(circle.above(30))


def test_through_a_pane_to_what_works_in_it() -> None:
    place = tree("""
        50 tmux
          60 -bash
            70 bash run.sh
              80 timeout 1h python train.py
                90 python train.py
                  95 python train.py # fork
          61 -bash
            71 htop
        99 python other.py
    """)
    assert through_panes(place, frozenset({60})) == {90}
    assert through_panes(place, frozenset({60, 61})) == {90, 71}
    assert through_panes(place, frozenset({90})) == {90}
    assert through_panes(place, frozenset({12345})) == frozenset()
