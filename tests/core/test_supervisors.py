"""What stands above the trainers, by kind, and what each will do."""

from __future__ import annotations

import msgspec
import pytest

from fleetstop.core.above.launchers import launcher_of
from fleetstop.core.above.supervisors import Above, Notes, standing_above, subject, to_ask
from fleetstop.core.above.units import Policy, systemd_policy
from fleetstop.core.inventory import Job, Match
from fleetstop.core.kin.family import Family, find
from fleetstop.core.process import ProcessTree
from tests.core.test_units import ALWAYS
from tests.core.trees import tree

TRAIN = Match(script="train.py")


def family_in(here: ProcessTree, **facts: object) -> Family:
    job = msgspec.structs.replace(Job(name="train", match=TRAIN), **facts)
    (found,) = find(here, TRAIN, job).families
    return found


def over(text: str, notes: Notes | None = None, **facts: object) -> list[tuple[str, str]]:
    here = tree(text)
    above = standing_above(here, family_in(here, **facts), notes or Notes())
    return [(each.kind, each.again) for each in above]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("100 bash run.sh\n  110 python train.py", [("wrapper", "never")]),
        (
            "100 bash -c 'while true; do python train.py; done'\n  110 python train.py",
            [("loop", "always")],
        ),
        (
            "100 bash -c 'until timeout 9 python train.py; do :; done'\n"
            "  105 timeout 9 python train.py\n    110 python train.py",
            [("loop", "failure"), ("wrapper", "never")],
        ),
        (
            "90 'tmux: server' # comm=tmux:\n  100 -bash\n    110 python train.py",
            [("tmux", "never")],
        ),
        ("90 sshd # comm=sshd\n  100 -bash\n    110 python train.py", [("login", "never")]),
        ("90 /usr/sbin/cron # comm=cron\n  100 sh -c 'python train.py'\n    110 python train.py",
         [("cron", "never"), ("wrapper", "never")]),
        ("90 SCREEN -dmS x # comm=screen\n  110 python train.py", [("screen", "never")]),
        ("90 containerd-shim-runc-v2 # comm=containerd-shim\n  110 python train.py",
         [("docker", "unknown")]),
        ("90 /usr/bin/python3 /usr/bin/supervisord -n\n  110 python train.py",
         [("supervisord", "unknown")]),
        ("90 raylet --x # comm=raylet\n  110 python train.py", [("ray", "unknown")]),
        ("90 python /opt/bin/jupyter-lab\n  110 python train.py", [("jupyter", "never")]),
        ("90 python start.py\n  110 python train.py", [("other", "never")]),
        ("1 init\n  110 python train.py", []),
        ("110 python train.py", []),
        # a loop that also carries a stranger is no member, and said all the same
        (
            "100 bash -c 'vim & while true; do python train.py; done'\n  105 vim\n"
            "  110 python train.py",
            [("loop", "always")],
        ),
    ],
)  # fmt: skip
def test_what_stands_above(text: str, kinds: list[tuple[str, str]]) -> None:
    assert over(text) == kinds


RUN = "100 torchrun --nproc_per_node 2 {}train.py\n  110 python train.py # gpu=0 rank\n"
RUN += "  120 python train.py # gpu=1 rank"


def test_a_launcher_is_told_with_what_it_does_to_the_other_ranks() -> None:
    here = tree(RUN.format(""))
    (one,) = standing_above(here, family_in(here), Notes())
    assert (one.kind, one.again, one.limit_s) == ("launcher", "never", 30.0)
    assert "TERMs the other ranks as soon as one exits non-zero" in one.will


def test_a_launcher_with_restarts_starts_all_ranks_again() -> None:
    here = tree(RUN.format("--max-restarts=2 "))
    (one,) = standing_above(here, family_in(here), Notes())
    assert one.again == "failure"
    assert "up to 2 times" in one.will


def test_a_rank_that_is_the_parent_of_the_others() -> None:
    text = "110 python train.py # gpu=0 rank\n  120 python train.py # gpu=1 rank"
    assert over(text) == [("ranks", "never")]


def spawning(*rows: str) -> ProcessTree:
    """`python train.py` above ranks of multiprocessing's spawn method; a row is its tags."""
    line = "python -c 'from multiprocessing.spawn import spawn_main' --multiprocessing-fork"
    text = [f"  {120 + at} {line} # {tags}" for at, tags in enumerate(rows)]
    return tree("\n".join(["110 python train.py", *text]))


@pytest.mark.parametrize(
    ("rows", "told"), [(("gpu=0", "gpu=1"), "TERMs the others"), (("gpu=0",), "waits for the tr")]
)
def test_who_spawned_the_ranks_is_told_with_what_it_does(rows: tuple[str, ...], told: str) -> None:
    here = spawning(*rows)
    (one,) = standing_above(here, family_in(here), Notes())
    assert (one.pid, one.kind, one.again, one.limit_s) == (110, "launcher", "never", None)
    assert told in one.will


@pytest.mark.parametrize(
    ("line", "ranks", "told_s", "forwards", "limit"),
    [
        ("torchrun --shutdown-timeout 300 train.py", 4, None, True, 300.0),
        ("torchrun --shutdown_timeout=90 train.py", 4, "7", True, 90.0),
        ("python -m torch.distributed.run train.py", 4, "120", True, 120.0),
        ("torchrun train.py --shutdown-timeout 300", 4, None, True, 30.0),
        ("accelerate launch train.py", 1, None, False, 30.0),
        ("accelerate launch --num_processes 1 train.py", 1, None, False, 30.0),
        ("accelerate launch --num_processes 4 train.py", 4, None, True, 30.0),
        ("accelerate launch train.py", 4, None, True, 30.0),
        ("python /usr/bin/accelerate-launch --multi_gpu train.py", 1, None, True, 30.0),
        # on the bed: --cpu is one process whatever its number, or mpirun below it
        ("accelerate launch --cpu --num_processes 4 train.py", 1, None, False, 30.0),
        (
            "accelerate launch --cpu --num_processes 4 --mpirun_hostfile h t.py",
            0,
            None,
            False,
            30.0,
        ),
        ("accelerate launch --use_deepspeed --num_machines 2 t.py", 0, None, False, 30.0),
        ("accelerate launch train.py --multi_gpu", 1, None, False, 30.0),
        ("deepspeed train.py", 4, None, False, 30.0),
        ("python -m deepspeed.launcher.launch train.py", 4, None, False, 30.0),
        ("mpirun -n 4 python train.py", 4, None, False, 30.0),
    ],
)
def test_who_hands_a_signal_on(
    line: str, ranks: int, told_s: str | None, forwards: bool, limit: float
) -> None:
    found = launcher_of(line.split(), ranks=ranks, told_s=told_s)
    assert (bool(found.forwards), found.limit_s) == (forwards, limit)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        # a configuration file decided; its agent gives even a single one a rank
        ("100 accelerate launch train.py\n  110 python train.py # gpu=0 rank", "TERMs the other"),
        (
            "100 accelerate launch train.py\n  110 python train.py # gpu=0",
            "leave the trainer alone",
        ),
        # what started accelerate itself gave it that rank
        (
            "100 accelerate launch train.py # rank=RANK=3\n"
            "  110 python train.py # gpu=0 rank=RANK=3",
            "leave the trainer alone",
        ),
        # Lightning in its one process: the other ranks are rank 0's
        (
            "100 accelerate launch train.py\n  110 python train.py # gpu=0\n"
            "    120 python train.py # gpu=1 rank",
            "leave the trainer alone",
        ),
        (
            "100 accelerate launch --cpu --mpirun_hostfile h train.py\n  105 mpirun -n 2 x\n"
            "    110 python train.py # gpu=0 rank\n    120 python train.py # gpu=1 rank",
            "leave the trainer alone",
        ),
        # its one process has spawned the ranks
        (
            "100 accelerate launch train.py\n  105 python train.py\n"
            "    110 python --multiprocessing-fork # gpu=0\n"
            "    120 python --multiprocessing-fork # gpu=1",
            "leave the trainer alone",
        ),
        # the runner, by each of its names
        *(
            (
                f"100 {runner} train.py\n  105 python -u -m deepspeed.launcher.launch train.py\n"
                "    110 python train.py # gpu=0 rank\n    120 python train.py # gpu=1 rank",
                "leave the ranks alone",
            )
            for runner in (
                "python /usr/bin/deepspeed",
                "python /usr/bin/ds",
                "python -m deepspeed.launcher.runner",
            )
        ),
    ],
)
def test_what_the_farthest_launcher_does_is_seen_in_what_it_started(text: str, told: str) -> None:
    here = tree(text)
    first = standing_above(here, family_in(here), Notes())[0]
    assert (first.pid, first.kind) == (100, "launcher")
    assert told in first.will


def test_the_parent_of_deepspeeds_ranks_is_told_apart_from_its_runner() -> None:
    here = tree(
        "100 deepspeed train.py\n  105 python -m deepspeed.launcher.launch train.py\n"
        "    110 python train.py # gpu=0 rank\n    120 python train.py # gpu=1 rank"
    )
    _, parent = standing_above(here, family_in(here), Notes())
    assert parent.pid == 105
    assert "one by one within a second" in parent.will
    assert parent.limit_s is None


def test_a_unit_is_told_where_its_main_process_is_a_member() -> None:
    here = tree("412 bash run.sh\n  420 python train.py")
    groups = ("/lxc/200/ns/system.slice/train.service",)
    inside = {k: msgspec.structs.replace(p, cgroups=groups) for k, p in here.processes.items()}
    here = ProcessTree(inside, here.uptime)
    family = family_in(here)
    assert to_ask(here, [family]).units == ("train.service",)
    policy = systemd_policy("train.service", ALWAYS)
    assert policy is not None
    unit, wrapper = standing_above(here, family, Notes(policies={"train.service": policy}))
    assert (unit.kind, unit.pid, unit.again, unit.delay_s) == ("systemd", None, "always", 5.0)
    assert wrapper.kind == "wrapper"
    # a unit that only carries it has nothing to start again
    other = msgspec.structs.replace(policy, main_pid=7)
    assert [
        a.kind for a in standing_above(here, family, Notes(policies={"train.service": other}))
    ] == ["wrapper"]


def test_a_supervisord_that_could_be_read() -> None:
    here = tree("90 /usr/bin/python3 /usr/bin/supervisord -n\n  110 python train.py")
    family = family_in(here)
    found = to_ask(here, [family]).supervisord
    assert found is not None
    policy = Policy("supervisord", "train (autorestart=true)", "always", 0.0, "starts it again")
    (one,) = standing_above(here, family, Notes(policies={subject(found): policy}))
    assert isinstance(one, Above)
    assert (one.kind, one.pid, one.again) == ("supervisord", 90, "always")


def test_a_script_is_read_from_where_the_shell_holds_it() -> None:
    here = tree("100 bash /job/loop.sh\n  110 python train.py")
    shell = here.processes[100]
    assert to_ask(here, [family_in(here)]).scripts == ()
    assert shell.detail is not None
    from fleetstop.core.process import OpenFile

    held = (OpenFile(255, "/job/loop.sh", 0, 0),)
    detail = msgspec.structs.replace(shell.detail, files=held)
    here.processes[100] = msgspec.structs.replace(shell, detail=detail)
    assert to_ask(here, [family_in(here)]).scripts == ((shell.id, 255),)
    text = "#!/bin/bash\nuntil python train.py\ndo sleep 1; done\n"
    notes = Notes(texts={shell.id: text})
    assert [a.kind for a in standing_above(here, family_in(here), notes)] == ["loop"]


def test_an_inits_own_loop_is_none_of_the_job() -> None:
    text = (
        "1 bash -c 'while :; do sleep 86400 & wait; done'\n  90 sleep 86400\n  110 python train.py"
    )
    assert over(text) == []


NUMBER = "4f" * 32
RESTARTS = Policy("docker", "container 4f4f (restart=always)", "always", 0.1, "starts it again")
SHIM = "90 containerd-shim-runc-v2 # comm=containerd-shim\n"


@pytest.mark.parametrize(
    ("text", "first", "again"),
    [
        (SHIM + "  110 python train.py", 110, "always"),
        (SHIM + "  100 sh -c 'python train.py; true'\n    110 python train.py", 100, "always"),
        (SHIM + "  100 docker-init -- x\n    110 python train.py", 100, "always"),
        (SHIM + "  100 tini -- x\n    110 python train.py", 100, "always"),
        # docker exec into a container that runs for a notebook server, a terminal in one
        (SHIM + "  100 python jupyter-lab\n  110 python train.py", 100, "never"),
        (SHIM + "  100 sleep infinity\n  105 bash\n    110 python train.py", 100, "never"),
        (SHIM + "  100 bash\n    110 python train.py", 100, "never"),
        # --pid host: which is its first process is not seen
        (SHIM + "  110 python train.py", None, "always"),
    ],
)
@pytest.mark.parametrize("nested", [True, False])
def test_docker_starts_a_container_again_whose_first_process_has_ended(
    text: str, first: int | None, again: str, nested: bool
) -> None:
    """KILL was refused, as in vain, for whatever ran in a container with a restart policy."""
    here = tree(text)
    for pid, each in here.processes.items():
        own = pid != 90 and first is not None
        number = (1 if pid == first else pid - 80,) if own else ()
        inner = number if nested else (pid, *number)
        groups = (f"/docker/{NUMBER}",) if pid != 90 else ()
        here.processes[pid] = msgspec.structs.replace(
            each, inner=inner, nested=nested and own, cgroups=groups
        )
    above = standing_above(here, family_in(here), Notes(policies={f"docker {NUMBER}": RESTARTS}))
    assert [each.again for each in above if each.kind == "docker"] == [again]
