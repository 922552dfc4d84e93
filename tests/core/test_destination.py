from __future__ import annotations

import shlex

import pytest

from fleetstop.core.process import Detail, Process, ProcessId
from fleetstop.core.releases.destination import (
    Loaded,
    loaded,
    paths_asked,
    real_name,
    roots_asked,
    settle,
)
from fleetstop.core.releases.payload import File, Payload, assembled
from fleetstop.errors import BadUsage, DeployFailed

TRAIN = Loaded("/root/train.py", "/root")
MODULE = Loaded("/root/pkg/mod.py", "/root")


def runs(command: str, cwd: str | None = "/root", started_in: str | None = None) -> Process:
    argv = tuple(shlex.split(command))
    return Process(
        id=ProcessId(10, 100), ppid=1, pgid=10, sid=10, state="S", flags=0, threads=1, ticks=0,
        comm=argv[0].rpartition("/")[2][:15], argv=argv,
        detail=Detail(cwd=cwd, started_in=started_in),
    )  # fmt: skip


def sent(*rels: str, top: str = "/home/me/proj") -> Payload:
    """Files as they lie here: `rel`, or `rel=path below top`."""
    pairs = [each.partition("=") for each in rels]
    return assembled(
        (File(rel, "0" * 64, 1, 0o644), f"{top}/{path or rel}") for rel, _, path in pairs
    )


def there(*paths: str) -> dict[str, str]:
    return {each: each for each in paths}


@pytest.mark.parametrize(
    ("command", "cwd", "exist", "main", "root"),
    [
        ("python3 -u train.py --lr 1", "/root", ["/root/train.py"], "/root/train.py", "/root"),
        ("python3 /root/train.py", "/tmp", ["/root/train.py"], "/root/train.py", "/root"),
        ("python3 src/train.py", "/app", ["/app/src/train.py"], "/app/src/train.py", "/app/src"),
        ("python3 -m pkg.mod -x", "/root", ["/root/pkg/mod.py"], "/root/pkg/mod.py", "/root"),
        ("python3 -m pkg", "/r", ["/r/pkg/__main__.py", "/r/pkg.py"], "/r/pkg/__main__.py", "/r"),
        ("python3 app", "/r", ["/r/app/__main__.py", "/r/app"], "/r/app/__main__.py", "/r/app"),
        ("coverage run train.py", "/root", ["/root/train.py"], None, None),
        ("python3 -m cProfile train.py", "/r", ["/r/train.py"], "/r/train.py", "/r"),
        # taken away while it runs: where it was is where the new one goes
        ("python3 train.py", "/root (deleted)", [], "/root/train.py", "/root"),
        # installed, not loaded from here; nothing executed; nowhere known
        ("python3 -m torch.distributed.run x", "/root", [], None, None),
        ("python3 -c 'import x'", "/root", [], None, None),
        ("python3 train.py", None, [], None, None),
        ("./a.out", "/root", [], None, None),
    ],
)
def test_what_a_process_loads(
    command: str, cwd: str | None, exist: list[str], main: str | None, root: str | None
) -> None:
    found = loaded(runs(command, cwd), there(*exist))
    assert found == (() if main is None or root is None else (Loaded(main, root),))


def test_a_script_run_by_its_first_line_is_one_too() -> None:
    process = Process(
        id=ProcessId(10, 100), ppid=1, pgid=10, sid=10, state="S", flags=0, threads=1, ticks=0,
        comm="train.py", argv=("/usr/bin/python3", "./train.py"), detail=Detail(cwd="/root"),
    )  # fmt: skip
    assert "/root/./train.py" in paths_asked(process)
    assert loaded(process, {"/root/./train.py": "/root/train.py"}) == (TRAIN,)


def test_links_lead_to_one_place_and_the_scripts_own_comes_before_its_directory() -> None:
    real = {"/root/train.py": "/data/v3/train.py"}
    assert loaded(runs("python3 train.py"), real) == (Loaded("/data/v3/train.py", "/data/v3"),)
    # deploy.dest by another name of the same place
    settled = settle(
        sent("train.py"),
        (Loaded("/data/v3/train.py", "/data/v3"),),
        configured="/root/current",
        real={"/root/current": "/data/v3"},
    )
    assert (settled.dest, settled.by) == ("/data/v3", "deploy.dest")
    assert real_name("/root/current/x/y", {"/root/current": "/data/v3"}) == "/data/v3/x/y"
    assert real_name("/root/a/../b", {}) == "/root/b"
    assert real_name("/", {}) == "/"


def test_one_that_moved_is_looked_for_where_it_began_too() -> None:
    """Hydra goes into a directory of its own; only one of the two places has the file."""
    process = runs("python3 train.py", "/root/outputs/1", "/root")
    assert loaded(process, there("/root/train.py")) == (TRAIN,)
    both = loaded(process, there("/root/train.py", "/root/outputs/1/train.py"))
    assert [each.main for each in both] == ["/root/outputs/1/train.py", "/root/train.py"]
    with pytest.raises(DeployFailed) as caught:
        settle(sent("train.py"), both)
    assert "/root/outputs/1/train.py or /root/train.py" in caught.value.message
    assert settle(sent("train.py"), both, configured="/root").main == "/root/train.py"


# What was named and how it lies here; what runs; where each lands.
LANDS = [
    (["train.py", "dflash_model.py", "configs/a.yaml"], TRAIN, "/root",
     ["configs/a.yaml", "dflash_model.py", "train.py"]),
    (["train.py=src/train.py"], TRAIN, "/root", ["train.py"]),
    # the directory itself was named: its records are where those of train.py alone would be
    (["proj/train.py", "proj/lib/x.py"], Loaded("/root/proj/train.py", "/root/proj"),
     "/root/proj", ["lib/x.py", "train.py"]),
    (["proj/train.py", "configs/x.yaml"], Loaded("/root/proj/train.py", "/root/proj"),
     "/root", ["configs/x.yaml", "proj/train.py"]),
    # -m pkg.mod: pkg/mod.py named alone lands where it is loaded, its neighbours beside it
    (["mod.py=pkg/mod.py", "helpers.py"], MODULE, "/root", ["helpers.py", "pkg/mod.py"]),
    (["mod.py=pkg/mod.py", "net.py=pkg/net.py"], MODULE, "/root", ["pkg/mod.py", "pkg/net.py"]),
    (["pkg/mod.py", "pkg/net.py"], MODULE, "/root", ["pkg/mod.py", "pkg/net.py"]),
    # a package whose directory here has another name
    (["mod.py=work/mod.py"], MODULE, "/root", ["pkg/mod.py"]),
    # not below the first of sys.path: a link led elsewhere
    (["mod.py=pkg/mod.py"], Loaded("/opt/p/mod.py", "/root"), "/opt/p", ["mod.py"]),
]  # fmt: skip


@pytest.mark.parametrize(("named", "run", "dest", "rels"), LANDS)
def test_files_land_where_the_process_loads_them(
    named: list[str], run: Loaded, dest: str, rels: list[str]
) -> None:
    settled = settle(sent(*named), (run,))
    assert (settled.dest, settled.by, settled.findings) == (dest, "running", ())
    assert [each.rel for each in settled.payload.files] == rels
    assert run.main in settled.landings


@pytest.mark.parametrize(
    ("home", "dest", "rels"),
    [
        ("/root", "/root", ["proj/train.py"]),
        ("/", "/", ["root/proj/train.py"]),
        ("/root/proj", "/root/proj", ["train.py"]),
        ("/srv", "/root/proj", ["train.py"]),  # of what lies elsewhere
    ],
)
def test_whatever_is_named_the_records_of_a_job_stay_where_they_are(
    home: str, dest: str, rels: list[str]
) -> None:
    """Else another command finds neither what is kept nor who is at work."""
    run = Loaded("/root/proj/train.py", "/root/proj")
    for named in ("train.py", "proj/train.py"):
        settled = settle(sent(named), (run,), home=home)
        assert (settled.dest, [each.rel for each in settled.payload.files]) == (dest, rels)
    assert settle(sent("train.py"), (run,), asked="/root/proj", home=home).dest == "/root/proj"
    unknown = settle(sent("train.py"), (), configured="/root/proj", home=home)
    assert unknown.dest == dest


def test_a_module_that_was_started_through_a_link_is_one_place() -> None:
    process = runs("python3 -m pkg.mod", "/data/v3", "/root/current")
    assert roots_asked(process) == ("/data/v3", "/root/current")
    real = {
        "/data/v3/pkg/mod.py": "/data/v3/pkg/mod.py",
        "/root/current/pkg/mod.py": "/data/v3/pkg/mod.py",
        "/root/current": "/data/v3",
    }
    assert loaded(process, real) == (Loaded("/data/v3/pkg/mod.py", "/data/v3"),)


def test_sent_files_that_nobody_loads_are_a_finding() -> None:
    settled = settle(sent("notes.txt"), (TRAIN,))
    assert settled.findings == ("/root/train.py is what runs, and is not among the files",)
    # a module beside it may be what it imports; where that was listed, it must be one of them
    assert settle(sent("dflash_model.py"), (TRAIN,)).findings == ()
    listed = Loaded("/root/train.py", "/root", frozenset({"/root/model.py"}))
    assert settle(sent("dflash_model.py"), (listed,)).findings != ()
    assert settle(sent("model.py"), (listed,)).findings == ()


def test_a_near_miss_is_refused_and_says_where_it_would_lie() -> None:
    """The job would be stopped for files it does not load, and the old code would come back."""
    wanted = "proj/train.py would land as /root/proj/train.py"
    for configured in (None, "/root"):
        with pytest.raises(DeployFailed, match=wanted) as caught:
            settle(sent("proj/train.py", "proj/model.py"), (TRAIN,), configured=configured)
        assert "DIR/." in (caught.value.hint or "")
    asked = settle(sent("proj/train.py"), (TRAIN,), asked="/root")
    assert asked.findings[0].endswith("proj/train.py lands as /root/proj/train.py")


def test_a_link_of_another_name_is_not_what_a_file_of_its_name_replaces() -> None:
    """Sent as train.py it would lie beside train_v1.py, and the old code would come up again."""
    process = runs("python3 train.py", "/opt/lnk")
    (run,) = loaded(process, {"/opt/lnk/train.py": "/opt/store/train_v1.py"})
    assert run == Loaded("/opt/store/train_v1.py", "/opt/store", called="train.py")
    for configured in (None, "/opt/store"):
        with pytest.raises(DeployFailed) as caught:
            settle(sent("train.py", "model.py"), (run,), configured=configured)
        assert "/opt/store/train_v1.py" in caught.value.message
    with pytest.raises(DeployFailed) as caught:
        settle(sent("train.py"), (run,))
    assert caught.value.message == (
        "/opt/store/train_v1.py is what runs, which train.py is a link to, but train.py would land"
        " as /opt/store/train.py"
    )
    assert caught.value.hint == "send it under the name of that file, train_v1.py"
    assert settle(sent("train_v1.py"), (run,)).dest == "/opt/store"
    assert settle(sent("model.py"), (run,)).findings == ()


def test_two_files_that_could_be_the_one_that_runs_are_told() -> None:
    """/root/old/train.py: the tree's own old/, or a deployment in a directory called old?"""
    run = Loaded("/root/old/train.py", "/root/old")
    both = sent("train.py", "old/train.py")
    with pytest.raises(DeployFailed, match=r"could be old/train\.py or train\.py"):
        settle(both, (run,))
    assert settle(both, (run,), asked="/root").findings == ()
    assert settle(both, (run,), configured="/root/old").findings == ()


def test_deploy_dest_and_what_runs_must_agree() -> None:
    with pytest.raises(DeployFailed) as caught:
        settle(sent("train.py"), (TRAIN,), configured="/srv/app")
    assert caught.value.exit_code == 7
    assert "deploy.dest is /srv/app" in caught.value.message
    assert "the process runs /root/train.py" in caught.value.message
    assert "--to" in caught.value.hint


def test_above_what_runs_deploy_dest_agrees_if_the_file_lands_on_it() -> None:
    run = Loaded("/app/src/train.py", "/app/src")
    settled = settle(sent("train.py=src/train.py"), (run,), configured="/app")
    assert list(settled.landings) == ["/app/src/train.py"]
    with pytest.raises(DeployFailed, match=r"/app/src/train\.py, not /app/train\.py"):
        settle(sent("train.py"), (run,), configured="/app")
    assert settle(sent("notes.txt"), (run,), configured="/app").findings != ()


def test_to_goes_before_both_and_says_what_that_means() -> None:
    settled = settle(sent("train.py"), (TRAIN,), configured="/root", asked="/srv/new")
    assert (settled.dest, settled.by) == ("/srv/new", "--to")
    assert settled.findings[0] == "--to /srv/new goes before deploy.dest /root"
    assert settled.findings[1].startswith("--to /srv/new is not where it runs from: /root/train.py")
    assert settle(sent("train.py"), (TRAIN,), asked="/root/").findings == ()
    assert settle(sent("train.py"), (), asked="/srv//new/./").dest == "/srv/new"


def test_nothing_known_names_both_ways_to_say_it() -> None:
    with pytest.raises(DeployFailed) as caught:
        settle(sent("train.py"), ())
    assert "deploy.dest" in caught.value.hint
    assert "--to" in caught.value.hint
    assert settle(sent("train.py"), (), configured="/root").dest == "/root"


@pytest.mark.parametrize("asked", ["/proc/1", "/sys", "/dev/shm/x"])
def test_a_place_that_is_no_disk_is_refused(asked: str) -> None:
    with pytest.raises(DeployFailed, match="no place for files"):
        settle(sent("train.py"), (), asked=asked)


def test_a_relative_to_is_a_mistake_of_the_command_line() -> None:
    with pytest.raises(BadUsage, match="--to must be an absolute path, not srv"):
        settle(sent("train.py"), (), asked="srv")


def test_nothing_lands_among_the_checkpoints() -> None:
    """They are the work itself: a file of the same name would be gone for good."""
    with pytest.raises(DeployFailed, match=r"ckpt/step_1\.pt would land among"):
        settle(sent("train.py", "ckpt/step_1.pt"), (TRAIN,), checkpoints="/root/ckpt")
    with pytest.raises(DeployFailed, match="would land among"):
        settle(sent("train.py"), (TRAIN,), checkpoints="/ck", real={"/ck": "/root"})
    assert settle(sent("train.py", "ckpts/a"), (TRAIN,), checkpoints="/root/ckpt").dest == "/root"
