"""From Python: one file is one file; what is no list of words is told before a host is met."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetstop.api import Fleet, given
from fleetstop.core.inventory import Container, Host, Inventory, Job, Match, Target
from fleetstop.errors import BadUsage, HostUnreachable
from fleetstop.ports import Place


class Nowhere(Fleet):
    """A fleet of which no host is ever met."""

    async def _open(self, target: Target, *, dry_run: bool, shares: bool) -> Place:
        raise HostUnreachable(f"{target.name} was met")


def fleet() -> Nowhere:
    job = Job(name="train", match=Match(script="train.py"))
    one = Container("ct200", "pve1", 200, jobs=(job,))
    return Nowhere(
        Inventory(hosts={"pve1": Host("pve1", "pve1.invalid")}, containers={"ct200": one})
    )


@pytest.mark.parametrize("one", ["train.py", Path("train.py")])
def test_one_text_or_path_is_one_file(one: Any) -> None:
    assert given.words("files", one, example="") == ("train.py",)
    assert given.words("files", [one, Path("b")], example="") == ("train.py", "b")


@pytest.mark.parametrize("one", ["train.py", Path("train.py")])
def test_a_file_by_itself_is_sent_as_one(
    one: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadUsage, match=r"^train\.py: there is no such file"):
        asyncio.run(fleet().redeploy("ct200", files=one))
    (tmp_path / "train.py").write_text("1\n")
    report = asyncio.run(fleet().redeploy("ct200", files=one, to=Path("/root")))
    assert report.targets[0].reason == "ct200:train was met"


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no files": (lambda f: f.redeploy("ct200", files=()), "no file is named"),
    "None": (lambda f: f.redeploy("ct200", files=None), "files is of the type NoneType"),
    "a number": (lambda f: f.redeploy("ct200", files=7), "files is of the type int"),
    "bytes": (lambda f: f.redeploy("ct200", files=b"a"), "files is of the type bytes"),
    "of numbers": (
        lambda f: f.redeploy("ct200", files=["a", 7]),
        "files holds something of the type int",
    ),
    "args in one": (lambda f: f.launch("ct200", args="--lr 3"), "args is one text"),
    "env by name": (lambda f: f.launch("ct200", env={"A": "1"}), "env is of the type dict"),
    "a list of targets": (
        lambda f: f.stop(["ct200"]),
        "the target holds something of the type list",
    ),
    "exclude": (lambda f: f.stop("ct200", exclude=3), "exclude is of the type int"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_list_of_words_is_a_sentence(name: str) -> None:
    call, said = WRONG[name]
    with pytest.raises(BadUsage) as caught:
        asyncio.run(call(fleet()))
    assert said in caught.value.message
    assert caught.value.hint


def test_one_name_to_exclude_is_no_list_of_letters() -> None:
    with pytest.raises(BadUsage, match="nothing of"):
        asyncio.run(fleet().stop("ct200", exclude="ct200"))
