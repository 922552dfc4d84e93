from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from fleetstop.api.commit import git_facts
from fleetstop.core.releases.manifest import Git


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "repo"
    home.mkdir()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    git(home, "init", "-q")
    for name in ("train.py", "lib/été.py", "notes.txt"):
        write(home, name)
    write(home, ".gitignore", "*.log\nbuild/\n")
    git(home, "add", "-A")
    commit(home)
    return home


def git(home: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(
        ("git", *who, *words), cwd=home, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(home: Path) -> None:
    git(home, "commit", "-q", "--no-gpg-sign", "-m", "x")


def write(home: Path, rel: str, text: str = "x\n") -> str:
    path = home / rel
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def facts(home: Path, *rels: str) -> Git | None:
    return git_facts([str(home / rel) for rel in rels])


def test_a_clean_checkout_is_its_commit(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    assert facts(repository, "train.py", "lib/été.py") == Git(head, dirty=False)


def test_only_the_files_that_are_sent_count(repository: Path) -> None:
    write(repository, "notes.txt", "changed\n")
    write(repository, "lib/other.py")
    found = facts(repository, "train.py", "lib/été.py")
    assert found is not None
    assert found.dirty is False


@pytest.mark.parametrize(
    ("rel", "text"),
    [("train.py", "y\n"), ("lib/été.py", "y\n"), ("new.py", "y\n"), ("a b.py", "y\n"),
     ("run.log", "y\n"), ("build/deep/gen.py", "y\n")],
)  # fmt: skip
def test_changed_untracked_and_ignored_ones_differ(repository: Path, rel: str, text: str) -> None:
    write(repository, rel, text)
    found = facts(repository, "train.py", rel)
    assert found is not None
    assert found.dirty is True


def test_a_staged_and_a_renamed_one_differ(repository: Path) -> None:
    git(repository, "mv", "train.py", "trainer.py")
    renamed = facts(repository, "trainer.py")
    assert renamed is not None
    assert renamed.dirty is True
    # the old name follows the new one, and is no entry: its letters are nobody's state
    write(repository, "M  notes.txt", "".join(f"{n}\n" for n in range(50)))
    git(repository, "add", "-A")
    commit(repository)
    git(repository, "mv", "M  notes.txt", "moved.txt")
    others = facts(repository, "notes.txt")
    assert others is not None
    assert others.dirty is False


def test_a_link_into_the_repository_is_seen_through(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "short").symlink_to(repository)
    found = git_facts([str(tmp_path / "short/train.py")])
    assert found is not None
    assert found.dirty is False


def test_files_of_elsewhere_are_in_no_commit_of_this_one(repository: Path, tmp_path: Path) -> None:
    other = write(tmp_path, "z/outside.py")
    found = git_facts([str(repository / "train.py"), other])
    assert found is not None
    assert found.dirty is True


def test_no_repository_no_commit_no_git_no_time(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert git_facts([write(tmp_path, "plain/a.py")]) is None
    assert git_facts([]) is None
    git(tmp_path, "init", "-q", "unborn")
    assert git_facts([write(tmp_path / "unborn", "a.py")]) is None
    assert git_facts([str(repository / "train.py")], within_s=0.0) is None
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    assert facts(repository, "train.py") is None
    slow = tools / "git"
    slow.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    slow.chmod(0o755)
    began = time.monotonic()
    assert git_facts([str(repository / "train.py")], within_s=0.3) is None
    assert time.monotonic() - began < 20
