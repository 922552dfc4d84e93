"""A job's stanza from what was seen of it, and as text that reads back to the same."""

from __future__ import annotations

import random

import msgspec
import pytest

from fleetstop.config.files import read_bytes
from fleetstop.config.spot import Spot
from fleetstop.core.above.supervisors import Above
from fleetstop.core.adopting.gather import (
    Facts,
    already,
    candidates,
    gather,
    saving_places,
    told_apart,
)
from fleetstop.core.adopting.stanza import Stanza, Tree, block, flow, scalar
from fleetstop.core.inventory import Job, Launch, Match
from fleetstop.core.kin.family import find
from fleetstop.core.launching.origin import Origin, Stream
from fleetstop.core.launching.outermost import program_word
from fleetstop.core.process import ProcessId
from tests.core.trees import process, tree

TOKEN = "hf_" + "Ab3" * 11
ORIGIN = Origin(
    id=ProcessId(7, 1),
    argv=("python3", "/root/train.py"),
    cwd="/root",
    env={"MODE": "fast", "PWD": "/root"},
    uid=0,
    gid=0,
    umask=0o022,
    nice=0,
    log="/w/train.log",
    streams={1: Stream("/w/train.log", "f", 0o102001), 2: Stream("/w/train.log", "f", 0o102001)},
)
FACTS = Facts(
    match=Match(script="train.py"),
    head=ORIGIN,
    trainer=ORIGIN,
    cwd="/root",
    script="/root/train.py",
    heard=("INT",),
    gpus=(0, 1),
)


def facts(**more: object) -> Facts:
    return msgspec.structs.replace(FACTS, **more)


def head(**more: object) -> Facts:
    return facts(head=msgspec.structs.replace(ORIGIN, **more))


def test_all_of_it() -> None:
    found = gather(facts(checkpoints="/w/out"))
    assert found.stanza == Stanza(
        match=Match(script="train.py"),
        stop_signal="INT",
        log="/w/train.log",
        checkpoints="/w/out",
        gpus=(0, 1),
        launch=Launch(
            run=("python3", "/root/train.py"), cwd="/root", env={"MODE": "fast"}, user="root"
        ),
        dest="/root",
    )
    assert (found.notes, found.secrets) == ((), ())


@pytest.mark.parametrize(
    ("heard", "signal", "said"),
    [
        (("INT",), "INT", ""),
        (("TERM",), "TERM", ""),
        (("INT", "TERM"), None, "it hears both INT and TERM"),
        ((), None, "it hears neither INT nor TERM now"),
    ],
)
def test_the_signal_is_written_only_where_one_is_heard(
    heard: tuple[str, ...], signal: str | None, said: str
) -> None:
    found = gather(facts(heard=heard))
    assert found.stanza.stop_signal == signal
    assert said in " ".join(found.notes)


def test_secrets_are_named_and_nowhere_written() -> None:
    env = {
        "HF_TOKEN": TOKEN,
        "PLAIN": f"x {TOKEN}",
        "DB_PASSWORD": "a",
        "OK": "1",
        "TOKENIZERS": "1",
    }
    found = gather(head(env=env))
    assert found.secrets == ("DB_PASSWORD", "HF_TOKEN", "PLAIN")
    assert found.stanza.launch is not None
    assert found.stanza.launch.env == {"OK": "1", "TOKENIZERS": "1"}
    assert found.notes[0].startswith("env: DB_PASSWORD, HF_TOKEN, PLAIN: secrets, not written")
    assert TOKEN not in repr(found)


def test_a_key_that_is_a_file_is_no_secret() -> None:
    found = gather(head(env={"GOOGLE_APPLICATION_CREDENTIALS": "/root/key.json"}))
    assert found.secrets == ()


@pytest.mark.parametrize(
    "argv",
    [
        ("python3", "t.py", "--hf-token", TOKEN),
        ("python3", "t.py", "***", "--hf-token", TOKEN),
        ("bash", "-c", f"API_KEY={TOKEN} python3 t.py"),
    ],
)
def test_a_secret_among_its_words_leaves_the_launch_out(argv: tuple[str, ...]) -> None:
    found = gather(head(argv=argv))
    assert found.stanza.launch is None
    assert "holds a secret, which is never written" in " ".join(found.notes)
    assert TOKEN not in repr(found)


def test_what_an_inventory_cannot_hold_is_told() -> None:
    found = gather(head(env={"BASH_FUNC_a%%": "() { x; }", "RAW": "\udcff", "OK": "a\nb"}))
    assert found.stanza.launch is not None
    assert found.stanza.launch.env == {"OK": "a\nb"}
    assert "BASH_FUNC_a%%, RAW: no text" in found.notes[0]
    assert gather(head(argv=("a", "\udcff"))).stanza.launch is None


@pytest.mark.parametrize(
    ("more", "log", "said"),
    [
        ({}, "/w/train.log", ""),
        ({"log": None, "streams": {1: Stream("pipe:[1]", "p")}}, None, "a pipe, which is no file"),
        ({"log": None, "streams": {1: Stream("/dev/pts/3", "c")}}, None, "/dev/pts/3, which is no"),
        ({"log": None, "streams": {}}, None, "a place that was not seen"),
        (
            {"streams": {1: Stream("/w/train.log", "f"), 2: Stream("/w/err", "f")}},
            "/w/train.log",
            "its stderr goes to /w/err",
        ),
    ],
)
def test_the_log(more: dict[str, object], log: str | None, said: str) -> None:
    silent = msgspec.structs.replace(ORIGIN, log=None)
    found = gather(facts(trainer=msgspec.structs.replace(ORIGIN, **more), head=silent))
    assert found.stanza.log == log
    assert said in " ".join(found.notes)


def test_behind_tee_and_of_the_script_that_redirects() -> None:
    piped = msgspec.structs.replace(ORIGIN, log=None, streams={1: Stream("pipe:[1]", "p")})
    assert gather(facts(trainer=piped, tee="/w/tee.log")).stanza.log == "/w/tee.log"
    assert gather(facts(trainer=piped)).stanza.log == "/w/train.log"


def test_ranks_whose_files_are_of_one_run() -> None:
    """torchrun -r gives each a file in a directory with a new name; the launcher's log stays."""
    rank = msgspec.structs.replace(ORIGIN, log="/w/tr/none_x1/0/stdout.log")
    found = gather(facts(trainer=rank, ranks=4))
    assert found.stanza.log == "/w/train.log"
    assert "the first of its 4 trainers writes to /w/tr/none_x1/0/stdout.log" in found.notes[0]
    assert gather(facts(trainer=rank)).stanza.log == "/w/tr/none_x1/0/stdout.log"


def test_who_would_start_it_is_named() -> None:
    over = Above(None, None, "systemd", (), "starts it again", "always", name="train.service")
    assert (
        "train.service above it starts it again: let that start it"
        in gather(facts(owners=(over,))).notes
    )


def test_what_no_key_says_and_what_was_not_seen() -> None:
    found = gather(head(umask=0o077, nice=3, groups=(4,), unseen=("its program …",), cwd="/x"))
    told = " ".join(found.notes)
    assert "groups 4, umask 077, nice 3: not in an inventory" in told
    assert "its program …" in told
    assert "it was started in /root and works in /x; written is /root" in told
    assert "nvidia-smi gave no answer" in " ".join(gather(facts(gpus=None)).notes)
    assert gather(facts(gpus=())).stanza.gpus is None


CANDIDATES: list[tuple[str, str | None, list[Match]]] = [
    ("python3 train.py", "/r/train.py", [Match(script="train.py"), Match(script="/r/train.py")]),
    ("python3 -m pkg.train", None, [Match(module="pkg.train")]),
    ("python3 -m cProfile t.py", None, [Match(script="t.py")]),
    ("./train --x", None, [Match(exe="train"), Match(exe="./train")]),
    ("python3 -c text", None, []),
    ("perl t.pl", None, []),
    ("bash run.sh", None, []),
    ("java -jar x.jar", None, []),
    ("tee -a log", None, []),
    ("/usr/bin/vim train.py", None, []),
]


@pytest.mark.parametrize(("line", "script", "found"), CANDIDATES)
def test_ways_to_recognise_it(line: str, script: str | None, found: list[Match]) -> None:
    assert list(candidates(process(5, line), script)) == found


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("bash run.sh", "run.sh"),
        ("bash -euo pipefail /r/run.sh a", "/r/run.sh"),
        ("bash -c 'python t.py'", None),
        ("python3 -u t.py", "t.py"),
        ("./bin/train", "./bin/train"),
        ("train", None),
        ("/usr/bin/python3 -m x", "/usr/bin/python3"),
    ],
)
def test_what_its_command_line_names(line: str, word: str | None) -> None:
    assert program_word(process(5, line)) == word


TWO = """\
1 init
  2 python train.py # cwd=/a
    3 python train.py # fork cwd=/a
  4 python train.py # cwd=/b"""


@pytest.mark.parametrize(
    ("text", "pid", "match", "trainers"),
    [
        ("1 init\n  2 python train.py", 2, Match(script="train.py"), [2]),
        (TWO, 4, Match(script="/b/train.py"), [4]),
        # the PID of a worker means the job
        (
            "1 init\n  2 python train.py\n    3 python train.py # fork",
            3,
            Match(script="train.py"),
            [2],
        ),
        ("1 init\n  2 python train.py # cwd=/a\n  3 python train.py # cwd=/a", 2, None, []),
    ],
)
def test_a_match_that_finds_it_and_nothing_else(
    text: str, pid: int, match: Match | None, trainers: list[int]
) -> None:
    told = tree(text)
    (family,) = find(told, Match(pid=pid), None).families
    here = told.processes[pid]
    directory = here.detail.cwd if here.detail else ""
    found = told_apart(told, family, candidates(here, f"{directory}/train.py"), None)
    assert (found[0] if found else None) == match
    assert [kin.id.pid for kin in found[1].trainers] == trainers if found else not trainers


def test_a_job_that_is_known_already() -> None:
    told = tree(TWO)
    (family,) = find(told, Match(pid=4), None).families
    jobs = [Job("a", Match(script="/a/train.py")), Job("b", Match(script="/b/train.py"))]
    assert already(told, family, jobs[:1]) is None
    assert already(told, family, jobs) == "b"


@pytest.mark.parametrize(
    ("argv", "written", "found"),
    [
        (("t", "--checkpoints", "/ck"), (), ("/ck",)),
        (("t", "--output_dir=out/a", "--save-every", "5"), (), ("/r/out/a", "/r/5")),
        (("t", "--ckpt-dir", "--x"), (), ()),
        (("t", "trainer.checkpoint_dir=x"), (), ()),
        (("t", "--out", "/x", "--save"), (), ()),
        (("t",), ("/ck/a.pt.tmp", "/ck/b.pt"), ("/ck",)),
        (("t", "--save-dir", "/"), ("/a",), ()),
    ],
)
def test_where_it_may_save(
    argv: tuple[str, ...], written: tuple[str, ...], found: tuple[str, ...]
) -> None:
    assert saving_places(argv, "/r", written) == found


PLAIN = ["train.py", "/root/run.sh", "--gpus", "a@b", "1.2.3.4", "-x", "a=b", "10.1.2.6", "v1"]
QUOTED = [
    "",
    "5",
    "1e5",
    "1.5",
    "0x1f",
    "true",
    "No",
    "null",
    "~",
    "a b",
    "a: b",
    "#x",
    "[a",
    "a,b",
]
QUOTED += [
    "*a",
    "&a",
    "!x",
    "- a",
    "-",
    "a:",
    "é",
    "\n",
    '"',
    "\\",
    "12:30",
    "2026-01-01",
    "{x}",
    "'",
]


def read(text: str) -> Spot:
    return read_bytes(text.encode(), "f")


@pytest.mark.parametrize("word", PLAIN + QUOTED)
def test_text_reads_back_and_is_quoted_where_it_may_be_taken_for_another(word: str) -> None:
    assert (scalar(word) == word) is (word in PLAIN)
    assert read(f"a: {scalar(word)}\n").entries()["a"].word() == word
    assert read(f"a: [{scalar(word)}]\n").entries()["a"].items()[0].word() == word


def test_any_words_read_back() -> None:
    dice = random.Random(3)
    signs = "ab1 :#,[]{}'\"\\\n\t\r\x1b\x85\u2028\ufeffé😀-?*&!|>%@`~=."
    for _ in range(400):
        word = "".join(dice.choice(signs) for _ in range(dice.randrange(1, 8)))
        text = "\n".join(block("x", {"launch": {"run": (word, "b"), "env": {"A": word}}}))
        launch = read(text + "\n").entries()["x"].entries()["launch"].entries()
        assert launch["run"].items()[0].word() == word
        assert launch["env"].entries()["A"].word() == word
        one = read("x: " + flow({"env": {"A": word}}) + "\n").entries()["x"].entries()["env"]
        assert one.entries()["A"].word() == word


def test_numbers_stay_numbers_and_names_of_variables_are_names() -> None:
    made: dict[str, Tree] = {"vmid": 200, "env": {"vmid": "7", "match": "true", "port": "a: b"}}
    assert block("x", made) == [
        "x:",
        "  vmid: 200",
        "  env:",
        '    vmid: "7"',
        '    match: "true"',
        '    port: "a: b"',
    ]
