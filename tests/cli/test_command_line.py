"""The command line without any host: mistakes get a sentence and the right code."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleetstop import cli
from fleetstop.cli import main as cli_main

INVENTORY = """\
hosts:
  pve1: {ssh: root@pve1.invalid}
containers:
  ct200:
    host: pve1
    vmid: 200
    jobs:
      train: {match: {script: train.py}, stop_signal: INT}
  ct201:
    host: pve1
    vmid: 201
    protected: true
    jobs:
      train: {match: {script: train.py}}
      eval: {match: {script: eval.py}}
groups:
  training: [ct200]
"""
HEAVY = ("asyncio", "asyncssh", "proxmoxer", "rich", "ruamel", "msgspec", "tenacity", "pathspec")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory/fleet.yaml").write_text(INVENTORY)
    return tmp_path


def fleetstop(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("FLEETSTOP")}
    env |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-m", "fleetstop", *words],
        cwd=home,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    [
        *(["--help"], ["stop", "--help"], ["status", "--help"]),
        *(["playbook", "--help"], ["playbook", "check", "--help"], ["schema", "--help"]),
    ],
)
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys\nfrom fleetstop.cli.commands import group\n"
        f"try:\n    group.main({words!r}, standalone_mode=False)\nfinally:\n"
        f"    print('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED []"
    assert "Usage" in done.stdout


# words, exit code, what stderr must say
MISTAKES: list[tuple[list[str], int, list[str]]] = [
    (["stop"], 2, ["no target is given", "`fleetstop ls` lists them"]),
    (["stop", "--tag", "gup"], 2, ["bears the tag 'gup'"]),
    (["stop", "--failed-in", "7f3a"], 2, ["there is no run '7f3a'"]),
    (["stop", "--targets-from", "nowhere.txt"], 2, ["nowhere.txt", "No such file"]),
    (["stop", "--targets-from", "-"], 2, ["--targets-from <stdin> names no target"]),
    (["stop", "ct200", "--batch", "0"], 2, ["--batch"]),
    (["stop", "ct20"], 2, ["no container or host 'ct20'", "did you mean 'ct20"]),
    (["stop", "ct9*"], 2, ["ct9*"]),
    (["stop", "@trainin"], 2, ["did you mean"]),
    (["stop", ""], 2, []),
    (["stop", "ct200:trian"], 2, ["did you mean"]),
    (["stop", "ct200", "--exclude", "ct200"], 2, ["--exclude leaves nothing"]),
    (["stop", "ct200", "--graceful", "--force"], 2, ["contradict"]),
    (["stop", "ct200", "--ladder", "INT/3m TREM/1m"], 2, ["TREM", "did you mean 'TERM'"]),
    (["stop", "ct200", "--ladder", ""], 2, []),
    (["stop", "ct200", "--ladder", "INT/3m", "-p", "now"], 2, ["exclude each other"]),
    (["stop", "ct200", "-p", ""], 2, ["the playbook's name is empty"]),
    (["ls", "-q"], 2, ["-q"]),
    (["stop", "ct200", "--signal", "HUPP"], 2, ["HUPP"]),
    (["stop", "ct200", "--signal", "KILL"], 2, ["KILL"]),
    (["stop", "ct200", "--script", "a.py", "--pid", "7"], 2, ["exclude each other"]),
    (["stop", "ct200", "--pgrep", "("], 2, ["("]),
    (["stop", "ct200", "--pid", "0"], 2, ["0"]),
    (["stop", "root@h.invalid/200"], 2, ["--script"]),
    (["stop", "root@h.invalid/abc"], 2, ["abc"]),
    (["stop", "ct200", "--playbook", "gracefull"], 3, ["did you mean 'graceful'"]),
    (["stop", "ct200", "--playbook", "./none.yaml"], 3, ["none.yaml"]),
    (["stop", "ct200", "-i", "nowhere.yaml"], 3, ["nowhere.yaml"]),
    (["ls", "-i", "nowhere.yaml"], 3, ["nowhere.yaml"]),
    (["stopp", "ct200"], 2, ["stopp"]),
    (["stop", "ct200", "--forse"], 2, ["--forse"]),
    (["playbook", "show", "gracefull"], 3, ["did you mean 'graceful'"]),
    (["playbook", "show", "./none.yaml"], 3, ["none.yaml: there is no such file"]),
    (["playbook", "check"], 2, ["Missing argument"]),
    (["playbook", "ls", "-i", "nowhere.yaml"], 3, ["nowhere.yaml"]),
    (["schema", "playbok"], 2, ["playbook", "inventory"]),
    (["stop", "ct201:train"], 5, ["protected"]),
    (["stop", "ct201"], 5, ["ct201:train", "ct201:eval"]),
]


@pytest.mark.parametrize(("words", "code", "said"), MISTAKES, ids=lambda v: str(v)[:40])
def test_mistakes_get_a_sentence_and_the_right_code(
    home: Path, words: list[str], code: int, said: list[str]
) -> None:
    done = fleetstop(home, *words)
    text = done.stderr + done.stdout
    assert done.returncode == code, text
    assert "Traceback" not in text
    assert len(text.splitlines()) <= 12
    assert text.strip()
    for words_said in said:
        assert words_said in " ".join(text.split()), text


def test_a_refusal_is_a_report_for_scripts(home: Path) -> None:
    done = fleetstop(home, "stop", "ct201", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["exit_code"]) == (5, 5)
    assert report["targets"][0]["result"] == "refused"
    assert done.stdout.count("\n") == 1


def test_every_contract_key_is_always_there(home: Path) -> None:
    done = fleetstop(home, "stop", "ct200", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 4
    assert set(report) >= {"event", "schema", "run", "exit_code", "targets"}
    assert report["event"] == "report"
    keys = {"target", "host", "vmid", "job", "result", "verdict", "reason", "evidence", "family"}
    keys |= {"signals", "skipped", "checkpoint", "gpus", "findings", "causes", "seconds"}
    assert set(report["targets"][0]) >= keys
    assert report["targets"][0]["result"] == "unreachable"


def test_events_begin_with_started_and_end_with_the_report(home: Path) -> None:
    done = fleetstop(home, "stop", "ct200", "--events")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "started"
    assert events[0]["schema"] == 1
    assert events[0]["run"] == events[-1]["run"]
    assert events[-1]["event"] == "report"
    assert all("at" in each and "target" in each for each in events[:-1])


def test_a_closed_stdout_never_changes_the_code(home: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    for flag in (["--json"], ["--events"], []):
        done = subprocess.run(
            [sys.executable, "-m", "fleetstop", "stop", "ct201", *flag],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 5, done.stderr
        assert "Traceback" not in done.stderr
        assert "BrokenPipe" not in done.stderr
    os.close(write)


@pytest.mark.parametrize("flag", ["--json", "--events"])
def test_interrupted_before_it_could_look_there_is_a_report(home: Path, flag: str) -> None:
    read, write = os.pipe()  # an inventory that never comes
    child = subprocess.Popen(
        [sys.executable, "-m", "fleetstop", "stop", "ct200", flag, "-i", f"/dev/fd/{read}"],
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[read],
    )
    waiting = Path(f"/proc/{child.pid}/wchan")
    deadline = time.monotonic() + 60
    while "pipe" not in waiting.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    os.close(read)
    os.close(write)
    (report,) = map(json.loads, out.splitlines())
    assert child.returncode == report["exit_code"] == 130, err
    assert (report["event"], report["schema"], report["targets"]) == ("report", 1, [])
    assert re.fullmatch(r"[0-9a-f]{8}", report["run"])


@pytest.mark.parametrize(
    ("sent", "ignored"),
    [
        (signal.SIGINT, False),
        (signal.SIGTERM, False),
        (signal.SIGHUP, False),
        (signal.SIGHUP, True),
    ],
)
def test_a_signal_tells_and_a_nohup_holds(home: Path, sent: signal.Signals, ignored: bool) -> None:
    """A terminal that closes is an interruption like Ctrl-C, except under nohup."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it never greets
        port = silent.getsockname()[1]
        text = f"hosts: {{box: {{ssh: root@127.0.0.1, port: {port}, jobs: {{train: {{}}}}}}}}\n"
        text = text.replace("{}", "{match: {script: train.py}}")
        (home / "inventory/fleet.yaml").write_text(text)
        shell = "trap '' HUP; " if ignored else ""
        words = ["-m", "fleetstop", "wait", "box", "--json", "--timeout", "2"]
        child = subprocess.Popen(
            ["sh", "-c", f'{shell}exec "$@"', "sh", sys.executable, *words],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        silent.settimeout(60)
        connection, _ = silent.accept()
        assert connection.recv(4) == b"SSH-"  # it has greeted, so it listens to signals too
        child.send_signal(sent)
        if ignored:
            time.sleep(0.5)
            assert child.poll() is None
            silent.close()  # else it would be tried again, and wait for a greeting
            connection.close()
        out, err = child.communicate(timeout=60)
        connection.close()
    assert child.returncode == (4 if ignored else 130), err
    assert json.loads(out)["targets"][0]["interrupted"] is not ignored


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["wait", "ct200", "--json"], 1),
        (["status", "--events", "ct200"], 1),
        (["stop", "ct200"], 0),
        (["stop", "ct200", "--", "--json"], 0),
        (["ls", "--json"], 0),
    ],
)
def test_interrupted_while_it_is_loaded_too(
    words: list[str],
    lines: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def loading(**_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("fleetstop.cli.group.main", loading)
    monkeypatch.setattr(sys, "argv", ["fleetstop", *words])
    with pytest.raises(SystemExit) as left:
        cli_main()
    assert left.value.code == 130
    assert len(capsys.readouterr().out.splitlines()) == lines


@pytest.mark.parametrize(
    "words",
    [
        ["stop", "ct201", "--json"],
        ["stop", "ct201"],
        ["ls"],
        ["ls", "--json"],
        ["explain", "deaf"],
        ["history"],
        ["history", "--json"],
        ["playbook", "ls"],
        ["playbook", "show", "graceful"],
        ["playbook", "rehearse", "graceful", "--against", "polite"],
        ["schema", "playbook"],
        ["--help"],
        ["stop", "--help"],
        ["--version"],
    ],
)
def test_a_full_stdout_is_told_and_is_no_success(home: Path, words: list[str]) -> None:
    """An empty file beside exit 0 would be read as an empty answer. What became of a job, 5 here,
    stands."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fleetstop", *words],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == (5 if words[:2] == ["stop", "ct201"] else 70)
    told = [each for each in done.stderr.splitlines() if "could be written" in each]
    assert told == ["fleetstop: not all of the output could be written: No space left on device"]


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["playbook", "--help"],
        ["--version"],
        ["explain"],
        ["ls"],
        ["schema", "playbook"],
    ],
)
@pytest.mark.parametrize("way", ["left", "closed"])
def test_a_reader_who_has_left_changes_no_code(home: Path, words: list[str], way: str) -> None:
    """click would end with 1, which says that a trainer runs."""
    reading, writing = os.pipe()
    os.close(reading)
    shell = 'exec "$@" >&-' if way == "closed" else 'exec "$@"'
    with open(writing, "wb") as gone:
        done = subprocess.run(
            ["sh", "-c", shell, "sh", sys.executable, "-m", "fleetstop", *words],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["bogus"], ["ls", "-i", "/nowhere"]])
def test_a_full_stderr_changes_no_code_either(home: Path, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fleetstop", *words],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == (2 if words == ["bogus"] else 3)


def test_a_hint_about_names_names_the_inventory_that_was_named(home: Path) -> None:
    (home / "my fleet.yaml").write_text("hosts: {pve1: {ssh: root@10.1.2.6}}\n")
    for words in (["stop", "nobody"], ["status", "nobody"], ["wait", "nobody"]):
        done = fleetstop(home, *words, "-i", "my fleet.yaml")
        assert done.returncode == 2
        assert "`fleetstop ls -i 'my fleet.yaml'`" in done.stderr
        assert "`fleetstop ls` lists" in fleetstop(home, *words).stderr


def test_ls_lists_the_inventory(home: Path) -> None:
    done = fleetstop(home, "ls")
    assert done.returncode == 0
    assert "ct200:train" in done.stdout
    assert "ct201:eval" in done.stdout
    one = fleetstop(home, "ls", "ct200")
    assert "ct201" not in one.stdout
    listed = json.loads(fleetstop(home, "ls", "--json").stdout)
    assert [each["target"] for each in listed["targets"]] == [
        "ct200:train",
        "ct201:eval",
        "ct201:train",
    ]
    assert [each["protected"] for each in listed["targets"]] == [False, True, True]
    assert listed["groups"] == {"training": ["ct200"]}
    assert done.stdout.splitlines()[-1] == "groups: training = ct200"
    listed = json.loads(fleetstop(home, "ls", "ct200", "--json").stdout)
    assert [each["target"] for each in listed["targets"]] == ["ct200:train"]


def test_ls_without_an_inventory_says_where_it_looked(tmp_path: Path) -> None:
    done = fleetstop(tmp_path, "ls")
    assert done.returncode == 0
    assert "./inventory/fleet*.yaml" in done.stderr
    assert "fleetstop status" in done.stderr


GOOD = "# mine.yaml: mine.\nextends: graceful\nhold: {saving: 2h}\n"
BAD = "lossless: true\nladder:\n  - {signal: INT, to: trainers, wiat: 3m}\n"


def test_playbooks_are_listed_shown_and_checked(home: Path) -> None:
    (home / "playbooks").mkdir()
    (home / "playbooks/mine.yaml").write_text(GOOD)
    (home / "bad.yaml").write_text(BAD)
    listed = fleetstop(home, "playbook", "ls")
    assert listed.returncode == 0
    assert re.search(r"^mine +yes +playbooks/mine\.yaml +mine\.$", listed.stdout, re.MULTILINE)
    assert re.search(r"^standard +no +stock", listed.stdout, re.MULTILINE)
    shown = fleetstop(home, "playbook", "show", "mine")
    assert shown.returncode == 0
    assert "  ladder        1  the job's stop signal to the trainers, then up to 3m" in shown.stdout
    assert "up to 2h without growth" in shown.stdout
    told = json.loads(fleetstop(home, "playbook", "show", "mine", "--json").stdout)
    assert (told["event"], told["name"], told["hold"]["saving_s"]) == ("playbook", "mine", 7200.0)
    right = fleetstop(home, "playbook", "check", "playbooks/mine.yaml", "graceful")
    assert (right.returncode, right.stdout.splitlines()[-1]) == (0, "2 right")
    wrong = fleetstop(home, "playbook", "check", "bad.yaml", "playbooks/mine.yaml", "gone.yaml")
    assert wrong.returncode == 3
    assert wrong.stdout.splitlines() == [
        "bad.yaml:3: ladder[0]: unknown key 'wiat', did you mean 'wait'?",
        "playbooks/mine.yaml: right; lossless, 2 rungs",
        "gone.yaml: there is no such file",
        "1 right, 2 wrong",
    ]
    told = json.loads(fleetstop(home, "playbook", "check", "bad.yaml", "--json").stdout)
    assert told["playbooks"][0]["problem"].startswith("bad.yaml:3: ladder[0]: unknown key")


@pytest.mark.parametrize("kind", ["playbook", "inventory"])
def test_a_schema_is_printed_whole(home: Path, kind: str) -> None:
    done = fleetstop(home, "schema", kind)
    assert done.returncode == 0
    assert json.loads(done.stdout)["$schema"].endswith("/2020-12/schema")


def test_the_version_and_the_module_form() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fleetstop", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("fleetstop, version ")


def test_an_installation_that_is_half_there_is_a_fault_of_ours_and_no_job_that_runs(
    home: Path, tmp_path: Path
) -> None:
    """Exit 1 says that a trainer was seen alive; what cannot even be imported must not."""
    whole = Path(cli.__file__).parent.parent
    half = tmp_path / "half" / "fleetstop"
    shutil.copytree(whole, half, ignore=shutil.ignore_patterns("__pycache__", "lab"))
    (half / "actions" / "stop.py").write_text("def stop(:\n")
    done = subprocess.run(
        [sys.executable, "-m", "fleetstop", "stop", "root@127.0.0.1/200", "--script", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(half.parent), "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 70
    assert "a fault in fleetstop: SyntaxError" in done.stderr
    assert "the traceback is in the lines above" in done.stderr
