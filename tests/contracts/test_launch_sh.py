"""What starts a trainer where there is no Python, in the shells there are, as far as they can."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetstop.core.kin.matching import records_the_end
from fleetstop.core.launching.shell_spec import shell_spec
from fleetstop.core.launching.spec import LaunchSpec
from tests.contracts.test_supervise import (
    DEAF,
    NOBODY,
    RAISES,
    SAVES,
    SCRIPT,
    Run,
    alive,
    as_root,
    until,
)
from tests.core.trees import process

SHELLS = ["dash", "bash", "busybox"]


class ByShell(Run):
    """`sh` is this shell, for the script and for what it starts."""

    def __init__(self, place: Path, shell: str) -> None:
        super().__init__(place)
        self.base = place / ".fleetstop" / "train"
        self.base.mkdir(parents=True)
        self.tools = Path(tempfile.mkdtemp(prefix="fst-", dir="/tmp"))  # any user gets there
        self.tools.chmod(0o755)
        self.tools.joinpath("sh").symlink_to(shutil.which(shell) or shell)
        self.script = self.base / "launch.sh"
        shutil.copy(SCRIPT.with_name("launch.sh"), self.script)
        self.file = self.base / "spec"
        self.path = f"{self.tools}:/usr/sbin:/usr/bin:/sbin:/bin"
        self.before: list[str] = []

    def ask(self, *before: str, **spec: Any) -> tuple[int, str]:
        self.spec |= spec
        tuples = {key: tuple(self.spec[key]) for key in ("argv", "groups")}
        self.file.write_text(shell_spec(LaunchSpec(**{**self.spec, **tuples})))
        words = [*before, str(self.tools / "sh"), str(self.script), str(self.file)]
        done = subprocess.run(
            words, input="the caller's", capture_output=True, text=True, timeout=90, check=False,
            env={"PATH": self.path, "OLD": "not for the trainer"},
        )  # fmt: skip
        assert done.stderr == ""
        assert done.stdout.count("\n") == 1
        assert not list(self.status.parent.glob("status.json.*"))
        return done.returncode, done.stdout.removesuffix("\n")

    def ended_by(self) -> tuple[int, str | None]:
        """As a shell can tell."""
        code, name = self.ended()
        assert code is not None
        return code, name

    def without(self, *names: str) -> None:
        """A machine that lacks these programs."""
        for place in ("/usr/bin", "/usr/sbin", "/bin", "/sbin"):
            for each in Path(place).iterdir():
                if each.name not in names and not self.tools.joinpath(each.name).is_symlink():
                    self.tools.joinpath(each.name).symlink_to(each)
        self.path = str(self.tools)


@pytest.fixture(params=SHELLS)
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ByShell]:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    made = ByShell(tmp_path, request.param)
    yield made
    if made.pid and alive(made.pid, made.start):
        os.kill(made.pid, signal.SIGKILL)
        until(lambda: not alive(made.pid, made.start), "it is gone")
    shutil.rmtree(made.tools)


@pytest.mark.parametrize("code", [0, 3, 128])
def test_the_exit_code_is_recorded(run: ByShell, code: int) -> None:
    run.go(argv=["sh", "-c", f"sleep 1; exit {code}"])
    assert run.ended_by() == (code, None)
    state = run.state
    assert (state["schema"], state["mark"], state["failed"]) == (1, "run-7", None)
    assert state["started_at"] <= state["ended_at"]
    assert "a shell recorded this" in state["approximate"][0]


@pytest.mark.parametrize("name", ["KILL", "INT", "TERM"])
def test_the_signal_that_ended_it_is_recorded_as_near_as_may_be(run: ByShell, name: str) -> None:
    run.python(RAISES)
    run.said("up")
    assert os.getsid(run.pid) == os.getpgid(run.pid) == run.pid
    os.killpg(run.pid, getattr(signal, f"SIG{name}"))
    code = 128 + getattr(signal, f"SIG{name}")
    assert run.ended_by() == (code, name)
    assert f"ended by {name}, or exit {code}: a shell cannot tell which" in run.state["approximate"]


def test_a_signal_to_the_supervisor_costs_neither_trainer_nor_record(run: ByShell) -> None:
    run.python(SAVES)
    run.said("up")
    for each in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        os.kill(run.supervisor[0], each)
    time.sleep(0.3)
    assert alive(run.pid, run.start)
    words = Path(f"/proc/{run.supervisor[0]}/cmdline").read_text().rstrip("\0").split("\0")
    assert records_the_end(process(50, " ".join(f"'{word}'" for word in words)))
    os.kill(run.pid, signal.SIGINT)
    assert run.ended_by() == (0, None)
    assert run.log.read_text() == "up\nsaved\n"


def test_it_hears_and_saves(run: ByShell) -> None:
    run.python(SAVES)
    run.said("up")
    assert int(run.field("SigIgn"), 16) & 0b111 == 0
    os.kill(run.pid, signal.SIGINT)
    assert run.ended_by() == (0, None)
    assert run.log.read_text() == "up\nsaved\n"


IGNORES = DEAF.replace("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n", "")


def test_started_deaf_it_hears_where_env_can_undo_that(run: ByShell) -> None:
    run.python(SAVES, sys.executable, "-c", IGNORES)
    run.said("up")
    os.kill(run.pid, signal.SIGINT)
    assert run.ended_by() == (0, None)
    assert run.log.read_text() == "up\nsaved\n"


def test_where_it_cannot_be_undone_it_is_on_record(run: ByShell) -> None:
    run.without("env")
    old = run.tools / "env"
    old.write_text('#!/usr/bin/dash\ncase $1 in --d*) exit 125 ;; esac\nexec /usr/bin/env "$@"\n')
    old.chmod(0o755)
    run.python(RAISES, sys.executable, "-c", IGNORES)
    assert int(run.field("SigIgn"), 16) & 2
    assert any("ignores signals, as whoever started" in each for each in run.state["approximate"])


def test_nothing_leaks_in(run: ByShell, tmp_path: Path) -> None:
    shell = ["bash", "-c", f'exec 9>&1 8<"{tmp_path}"; exec "$@" 8<&- 9>&-', "-"]
    run.go(*shell, argv=["sleep", "60"])
    place = Path(f"/proc/{run.pid}/fd")
    held_open = {each.name: os.readlink(each) for each in place.iterdir()}
    assert held_open == {"0": "/dev/null", "1": str(run.log), "2": str(run.log)}


def test_it_is_where_and_as_it_was_told(run: ByShell, tmp_path: Path) -> None:
    home = tmp_path / "a b\nc"
    home.mkdir()
    odd = b"caf\xc3\xa9 \\n %s \xff".decode("utf-8", "surrogateescape")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    env = {"PATH": "/usr/bin:/bin", "ODD": odd, "EMPTY": "", "LINES": "a\nb\n", "IFS": "/",
           "PWD": "/x", "_Q": "'\"$(touch it-ran)`*"}  # fmt: skip
    run.go(
        argv=["sleep", "60", ], cwd=str(home), nice=5, umask=0o137, env=env,
        limits={"NOFILE": [min(64, soft), hard], "CORE": [0, 0]},
    )  # fmt: skip
    assert os.readlink(f"/proc/{run.pid}/cwd") == str(home)
    assert run.field("Umask") == "0137"
    assert os.getpriority(os.PRIO_PROCESS, run.pid) == 5
    assert resource.prlimit(run.pid, resource.RLIMIT_NOFILE) == (min(64, soft), hard)
    assert resource.prlimit(run.pid, resource.RLIMIT_CORE) == (0, 0)
    raw = Path(f"/proc/{run.pid}/environ").read_bytes().rstrip(b"\0").split(b"\0")
    wanted = [os.fsencode(f"{name}={value}") for name, value in env.items()]
    got = [each for each in raw if not each.startswith((b"_=", b"SHLVL="))]  # bash's
    assert sorted(got) == sorted([*wanted, b"FLEETSTOP_MARK=run-7"])


def test_what_a_shell_cannot_set_is_on_record(run: ByShell) -> None:
    """Functions that bash has exported, as `module` on many machines."""
    env = {"BASH_FUNC_module%%": "() { :; }", "A": "b", "UID": "7", "PPID": "8"}
    run.go(argv=["/usr/bin/sleep", "60"], env=env)
    names = [each.partition("=")[0] for each in run.seen("environ").rstrip("\0").split("\0")]
    assert sorted(set(names) - {"_", "SHLVL"}) == ["A", "FLEETSTOP_MARK"]
    assert (
        "a shell cannot set these variables: BASH_FUNC_module%% UID PPID"
        in run.state["approximate"]
    )


def test_an_exit_like_a_signals_is_not_told_from_it(run: ByShell) -> None:
    run.go(argv=["sh", "-c", "sleep 1; exit 130"])
    assert run.ended_by() == (130, "INT")
    assert "ended by INT, or exit 130: a shell cannot tell which" in run.state["approximate"]


def test_its_words_arrive_as_they_are(run: ByShell) -> None:
    words = ["", "a b", "-n", "*", "$HOME\\n", "'\"`", "a\nb\n", "é"]
    code = "import os, sys, time; os.write(1, '|'.join(sys.argv[1:]).encode())"
    run.go(argv=[sys.executable, "-c", code, *words])
    run.ended()
    assert run.log.read_text() == "|".join(words)


@pytest.fixture
def outside() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="fss-", dir="/tmp"))
    os.chown(made, NOBODY, NOBODY)
    yield made
    shutil.rmtree(made)


@as_root
@pytest.mark.parametrize("tool", ["setpriv", "runuser", "su"])
def test_another_users_job_stays_that_users(run: ByShell, outside: Path, tool: str) -> None:
    """By whichever is there; runuser and su stay above it, and take the groups of /etc/group."""
    run.without(*[each for each in ("setpriv", "runuser", "su") if each != tool])
    run.log = outside / "train.log"
    groups = [NOBODY, 4321] if tool == "setpriv" else [NOBODY]
    run.go(
        argv=["/usr/bin/python3", "-c", SAVES], cwd=str(outside), log=str(run.log),
        uid=NOBODY, gid=NOBODY, groups=groups,
    )  # fmt: skip
    run.said("up")
    assert run.field("Uid").split() == run.field("Gid").split() == [str(NOBODY)] * 4
    assert sorted(run.field("Groups").split()) == sorted(str(each) for each in groups)
    assert int(run.field("CapEff"), 16) == 0
    assert (run.log.stat().st_uid, run.log.stat().st_gid) == (NOBODY, NOBODY)
    assert not [n for n in run.seen("environ").split("\0") if n.startswith(("HOME=", "USER="))]
    os.kill(run.pid, signal.SIGINT)
    assert run.ended_by() == (0, None)
    assert run.log.read_text() == "up\nsaved\n"


FAILS = [
    ({"argv": ["/no/such/python"]}, "cannot run /no/such/python: no such program"),
    ({"argv": ["/etc"]}, "its program cannot be run, or ended at once with 126 or 127"),
    ({"cwd": "/no/such"}, "cannot change to /no/such"),
    ({"limits": {"FISH": (1, 1)}}, "cannot set the limit FISH to 1:1"),
    ({"log": "/no/such/log"}, "cannot append to /no/such/log"),
]


@pytest.mark.parametrize(("spec", "sentence"), FAILS)
def test_what_cannot_start_is_said_and_leaves_nothing(
    run: ByShell, spec: dict[str, Any], sentence: str
) -> None:
    code, line = run.ask(**spec)
    assert (code, line) in (
        (1, f"failed {sentence}"),
        (1, "failed cannot run /etc: no such program"),
    )
    state = json.loads(run.status.read_text())
    assert state["ended_at"]
    assert state["failed"] in (line.removeprefix("failed "), None)


@as_root
def test_root_opens_no_log_for_a_user_who_may_not(run: ByShell) -> None:
    code, line = run.ask(argv=["sleep", "60"], cwd="/", uid=NOBODY, gid=NOBODY, groups=[])
    assert (code, line) == (1, f"failed cannot append to {run.log}")
    assert not run.log.exists()


def test_without_a_record_nothing_is_started(run: ByShell, tmp_path: Path) -> None:
    code, line = run.ask(argv=["touch", str(tmp_path / "it-ran")], status="/no/such/status.json")
    assert (code, line.startswith("failed cannot write /no/such/status.json")) == (1, True)
    time.sleep(0.5)
    assert not (tmp_path / "it-ran").exists()


def test_who_started_it_is_gone_before_the_record_is_there(run: ByShell, tmp_path: Path) -> None:
    """Nobody knows its PID then, and nobody would be told of it."""
    lost = run.tools / "mv"
    lost.write_text("#!/bin/sh\nkill -KILL $PPID\n")
    lost.chmod(0o755)
    run.spec["argv"] = ("touch", str(tmp_path / "it-ran"))
    run.file.write_text(shell_spec(LaunchSpec(**{**run.spec, "groups": tuple(run.spec["groups"])})))
    words = ["sh", str(run.script), str(run.file)]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=60, check=False, env={"PATH": run.path}
    )
    assert done.returncode == -signal.SIGKILL
    time.sleep(1)
    assert not (tmp_path / "it-ran").exists()
    assert not run.status.exists()
