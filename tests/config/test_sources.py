from __future__ import annotations

import hashlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetstop.config import sources
from fleetstop.config.sources import contents, read_sources
from fleetstop.core import redact
from fleetstop.core.releases.payload import Payload
from fleetstop.errors import BadUsage, DeployFailed, FleetstopError


@pytest.fixture
def here(tmp_path: Path) -> Path:
    home = tmp_path / "proj"
    write(home, "train.py", "print(1)\n")
    write(home, "configs/base.yaml", "lr: 1\n")
    write(home, "configs/deep/a.yaml", "x\n")
    return home


def write(home: Path, rel: str, text: str = "x\n") -> Path:
    path = home / rel
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def rels(payload: Payload) -> list[str]:
    return [each.rel for each in payload.files]


def refusal(here: Path, *words: str, kind: type[FleetstopError] = DeployFailed) -> str:
    with pytest.raises(kind) as caught:
        read_sources(words, here)
    return caught.value.message


def test_each_lands_under_its_own_name_a_directory_with_its_tree(here: Path) -> None:
    write(here, "src/model.py", "m")
    (here / "train.py").chmod(0o755)
    payload = read_sources(["train.py", "src/model.py", "configs/"], here)
    assert rels(payload) == ["configs/base.yaml", "configs/deep/a.yaml", "model.py", "train.py"]
    train = payload.files[-1]
    assert train.sha256 == hashlib.sha256(b"print(1)\n").hexdigest()
    assert (train.size, train.mode) == (9, 0o755)
    assert payload.origin["model.py"] == str(here / "src/model.py")
    assert read_sources([str(here / "train.py")], Path("/")).files == (train,)


def test_the_bits_that_raise_privileges_are_not_carried(here: Path) -> None:
    (here / "train.py").chmod(0o4755)
    assert read_sources(["train.py"], here).files[0].mode == 0o755


def test_of_a_dot_the_contents_are_sent(here: Path) -> None:
    inside = rels(read_sources(["configs/."], here))
    assert inside == ["base.yaml", "deep/a.yaml"]
    assert rels(read_sources(["."], here / "configs")) == inside
    assert rels(read_sources([".."], here / "configs/deep")) == inside
    # named twice in two ways, each is one file
    assert rels(read_sources([".", "base.yaml"], here / "configs")) == inside


def test_the_same_twice_is_one_two_of_a_name_are_told(here: Path) -> None:
    assert rels(read_sources(["train.py", "./train.py", "configs", "configs/"], here)) == [
        "configs/base.yaml", "configs/deep/a.yaml", "train.py",
    ]  # fmt: skip
    write(here, "old/train.py")
    said = refusal(here, "train.py", "old/train.py")
    assert said == f"{here}/train.py and {here}/old/train.py would both land as train.py"


def test_what_nobody_means_is_left_out_and_told(here: Path) -> None:
    for each in (".git/config", "__pycache__/a.pyc", "a.pyc", ".venv/bin/x", "node_modules/m.js",
                 ".DS_Store", ".a.swp", "wandb/run/x", ".ipynb_checkpoints/n", ".fleetstop/job/x",
                 "ckpt/step_1.pt", "m.py"):  # fmt: skip
        write(here / "configs", each)
    payload = read_sources(["configs"], here, checkpoints="/workspace/ckpt")
    assert rels(payload) == ["configs/base.yaml", "configs/deep/a.yaml", "configs/m.py"]
    assert "configs/ckpt/" in payload.left_out
    assert "configs/.git/" in payload.left_out
    assert len(payload.left_out) == 11


def test_patterns_mean_what_they_mean_to_git(here: Path) -> None:
    for each in ("a.log", "keep.log", "deep/b.log", "data/x", "deep/data/y", "only/here"):
        write(here / "configs", each)
    left = read_sources(
        ["configs"], here, ignore=["*.log", "!keep.log", "configs/only/", "/data/"]
    ).left_out
    assert left == ("configs/a.log", "configs/deep/b.log", "configs/only/")
    # a directory that is left out is not entered again
    inside = rels(read_sources(["configs"], here, ignore=["deep/", "!deep/a.yaml"]))
    assert not [each for each in inside if each.startswith("configs/deep/")]


def test_a_file_of_patterns_counts_from_where_it_lies_the_nearest_last(here: Path) -> None:
    write(here, ".fleetstopignore", "# mine\n\n/configs/base.yaml\n*.tmp\n")
    write(here, "configs/deep/.fleetstopignore", "!b.tmp\n/a.yaml\n")
    for each in ("a.yaml", "x.tmp", "deep/b.tmp", "deep/c.tmp"):
        write(here / "configs", each)
    payload = read_sources(["configs", "train.py"], here)
    assert rels(payload) == ["configs/a.yaml", "configs/deep/b.tmp", "train.py"]
    # the same from inside, where the directory's own file is what lies beside
    write(here, "configs/.fleetstopignore", "deep/\n")
    assert rels(read_sources(["."], here / "configs")) == ["a.yaml", "base.yaml", "x.tmp"]


def test_what_is_named_itself_is_meant(here: Path) -> None:
    write(here, "cache.pyc")
    write(here, "wandb/a.py")
    payload = read_sources(["cache.pyc", "wandb"], here, ignore=["wandb/", "*.pyc"])
    assert rels(payload) == ["cache.pyc", "wandb/a.py"]


def test_what_may_hold_secrets_stays_here_and_is_counted_and_named(here: Path) -> None:
    for each in (".env", "deep/id_rsa", ".aws/config", ".env.example", "a.pem"):
        write(here / "configs", each)
    payload = read_sources(["configs"], here)
    assert rels(payload) == ["configs/.env.example", "configs/base.yaml", "configs/deep/a.yaml"]
    kept_back = ("configs/.aws/", "configs/.env", "configs/a.pem", "configs/deep/id_rsa")
    assert payload.left_out == kept_back
    assert payload.findings == (
        "not sent, since named like what holds secrets (4): configs/.aws/, configs/.env,"
        " configs/a.pem and 1 more; one is sent if it is named itself, or if deploy.ignore has"
        " !.aws/",
    )
    # and no screen takes the names for secrets themselves
    assert redact.text(payload.findings[0]) == payload.findings[0]


def test_what_may_hold_secrets_is_sent_by_those_who_say_so(here: Path) -> None:
    for each in (".env", "deep/.env", "x.pem"):
        write(here / "configs", each)
    told = read_sources(["configs"], here, ignore=["!.env"])
    assert rels(told)[0] == "configs/.env"
    assert told.left_out == ("configs/x.pem",)
    write(here, ".fleetstopignore", "!/configs/.env\n")
    assert rels(read_sources(["configs"], here))[0] == "configs/.env"
    # named itself, beside the directory that it lies in or alone
    beside = read_sources([".", ".env"], here / "configs")
    assert ".env" in rels(beside)
    assert beside.left_out == ("deep/.env", "x.pem")
    assert "secrets (2): deep/.env, x.pem" in beside.findings[0]
    # a pattern of one's own that leaves it out is no surprise to anybody
    assert read_sources(["configs"], here, ignore=[".env", "*.pem", "!x"]).findings == ()
    (here / "only/.ssh").mkdir(parents=True)
    assert refusal(here, "only") == "there is nothing to send in only: only/.ssh/ left out"


def test_a_wrong_line_in_a_file_of_patterns_is_named(here: Path) -> None:
    write(here, ".fleetstopignore", "*.log\n!\n")
    assert refusal(here, "configs") == (
        f"{here}/.fleetstopignore:2: '!' is no pattern of .gitignore"
    )


def test_nothing_to_send_says_why(here: Path) -> None:
    (here / "empty").mkdir()
    assert refusal(here, "empty") == "there is nothing to send in empty: it is empty"
    write(here, "junk/a.pyc")
    assert refusal(here, "junk") == "there is nothing to send in junk: junk/a.pyc left out"
    (here / "configs/none").mkdir()
    assert read_sources(["configs"], here).findings == (
        "empty directories are not sent: configs/none/",
    )


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("trian.py", "trian.py: there is no such file or directory here"),
        ("train.py/x", "train.py/x: there is no such file or directory here"),
        ("", "an empty word names no file"),
        ("a\0b", "a\\x00b names no file"),
        ("/", "/ has no name to land under"),
        ("broken", "broken is a link to nowhere, which is not there"),
        ("circle", "cannot read circle: Too many levels of symbolic links"),
    ],
)
def test_a_word_that_names_nothing_is_a_mistake_of_the_command_line(
    here: Path, word: str, said: str
) -> None:
    (here / "broken").symlink_to("nowhere")
    (here / "circle").symlink_to("circle")
    assert refusal(here, word, kind=BadUsage) == said


def test_a_link_to_a_file_inside_is_followed(here: Path) -> None:
    (here / "configs/link.yaml").symlink_to("base.yaml")
    payload = read_sources(["configs"], here)
    assert payload.files[0].sha256 == payload.files[2].sha256
    assert rels(payload)[2] == "configs/link.yaml"
    # one that was named is meant, wherever it leads, under its own name
    outside = write(here.parent, "v3.py", "3")
    (here / "current.py").symlink_to(outside)
    assert rels(read_sources(["current.py"], here)) == ["current.py"]
    (here / "linked").symlink_to("configs")
    assert rels(read_sources(["linked"], here))[0] == "linked/base.yaml"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("../train.py", "is a link to {here}/train.py, outside what was named"),
        ("/etc/hostname", "is a link to /etc/hostname, outside what was named"),
        ("deep", "is a link to the directory {here}/configs/deep; links to directories"),
        ("nowhere", "a link to nowhere, No such file or directory"),
        ("odd", "a link to odd, "),
    ],
)
def test_a_link_that_leads_elsewhere_is_told_and_can_be_left_out(
    here: Path, target: str, said: str
) -> None:
    (here / "configs/odd").symlink_to(target)
    assert said.format(here=here) in refusal(here, "configs")
    assert len(read_sources(["configs"], here, ignore=["odd"]).files) == 2


def test_what_is_no_file_is_told(here: Path) -> None:
    os.mkfifo(here / "configs/pipe")
    assert refusal(here, "configs") == f"{here}/configs/pipe is a pipe, no file to send"
    assert "is a pipe" in refusal(here, "configs/pipe")
    (here / "configs/pipe").unlink()
    short = here.parent / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(short))
        assert "is a socket" in refusal(here, str(short))
    assert "is a device" in refusal(here, "/dev/null")


def test_names_no_terminal_should_see_are_told_harmless(here: Path) -> None:
    write(here, "configs/a\nb")
    said = refusal(here, "configs")
    assert "\n" not in said
    assert "control character" in said
    (here / "configs/a\nb").unlink()
    Path(os.fsdecode(os.fsencode(here) + b"/configs/\xff.yaml")).write_bytes(b"x")
    assert refusal(here, "configs").endswith("its name is not UTF-8")


def test_a_file_that_cannot_be_read_is_told(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    assert refusal(here, "train.py") == f"cannot read {here}/train.py: Permission denied"


@pytest.mark.parametrize("change", ["grow", "rewrite", "replace"])
def test_a_file_that_changes_while_it_is_read_is_noticed(
    here: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """An editor that saves at this moment: half of each version would be sent as one file."""
    real = sources._pieces

    def pieces(path: Path) -> Iterator[bytes]:
        for piece in real(path):
            yield piece
            if change == "grow":
                path.write_bytes(piece + b"more")
            elif change == "rewrite":
                path.write_bytes(piece[::-1])
                os.utime(path, ns=(1, 1))
            else:
                other = path.with_name("other")
                other.write_bytes(piece)
                other.replace(path)

    monkeypatch.setattr(sources, "_pieces", pieces)
    assert refusal(here, "train.py") == f"{here}/train.py was changed while it was read"


def _collect(pieces: Iterator[bytes], into: list[bytes]) -> None:
    for piece in pieces:
        into.append(piece)


def test_what_is_sent_is_what_was_hashed(here: Path) -> None:
    big = write(here, "big.bin")
    big.write_bytes(os.urandom(3 * 1024 * 1024 + 7))
    payload = read_sources(["big.bin", "train.py"], here)
    assert b"".join(contents(payload, payload.files[0])) == big.read_bytes()
    write(here, "nothing", "")
    nothing = read_sources(["nothing"], here)
    assert list(contents(nothing, nothing.files[0])) == []
    data = bytearray(big.read_bytes())
    data[-1] ^= 1
    big.write_bytes(data)
    with pytest.raises(DeployFailed, match="was changed while it was read"):
        list(contents(payload, payload.files[0]))
    pieces = contents(payload, payload.files[0])
    sent = b"".join(next(pieces) for _ in range(3))
    with pytest.raises(DeployFailed):
        next(pieces)
    assert len(sent) < len(data)  # who receives it sees that it is not whole
    # one that grows for ever is not read for ever
    big.write_bytes(bytes(data) + bytes(5 * 1024 * 1024))
    handed_out: list[bytes] = []
    with pytest.raises(DeployFailed):
        _collect(contents(payload, payload.files[0]), handed_out)
    assert sum(map(len, handed_out)) <= len(data)
    big.unlink()
    with pytest.raises(DeployFailed, match="cannot read"):
        list(contents(payload, payload.files[0]))


def test_too_many_files_are_refused_before_they_are_read(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_MOST_FILES", 2)
    assert refusal(here, "train.py", "configs") == "there are more than 2 files in what was named"


def test_the_files_themselves_are_left_as_they_are(here: Path) -> None:
    before = {path: path.lstat().st_mtime_ns for path in here.rglob("*")}
    read_sources(["."], here)
    assert {path: path.lstat().st_mtime_ns for path in here.rglob("*")} == before
    assert stat.S_IMODE((here / "train.py").stat().st_mode) & 0o111 == 0
