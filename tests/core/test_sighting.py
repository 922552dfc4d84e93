"""What `code` of the boot script answers, read: times, states, and what a file imports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetstop.core.releases.sighting import Beside, Stamps, imported, parse_code

TIMES = b"1000.500000000 1001.250000000 900.000000000"
ANSWER = b"\0".join([
    b"n", b"77 (ca) t) R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5000 1 1", b"2000.5",
    b"s", b"/root/.fleetstop/train", b'{"run": "7f3a"}',
    b"b", b"/root/.fleetstop/train", TIMES, b"./beat",
    b"q", b"l", b"/wrong", TIMES, b"./wrong",
    b"q", b"l", b"/current", TIMES, b"./current",
    b"p", b"/current/train.py", b"/v2/train.py", TIMES, b"./train.py",
    b"d", b"/v2", TIMES, b"./train.py", b"5.0 6.0 -", b"./mo\ndel.py", b"7.0 8.0 0.0", b"./a/b.py",
    b"i", b"./train.py:import model, os\n./train.py:\tfrom a import b\n", b"",
])  # fmt: skip


def test_an_answer_is_read() -> None:
    seen = parse_code(ANSWER)
    assert seen is not None
    assert (seen.now, seen.tick) == (2000.5, 5000)
    assert seen.began(4000, 100) == 1990.5
    assert seen.states == {"/root/.fleetstop/train": b'{"run": "7f3a"}'}
    assert seen.beats == {"/root/.fleetstop/train": 1000.5}
    assert (seen.asked, seen.main) == ("/current/train.py", "/v2/train.py")
    assert set(seen.links) == {"/current"}  # the way that was not taken tells nothing
    assert seen.files == {
        "/v2/train.py": Stamps(1000.5, 1001.25, 900.0),
        "/v2/mo\ndel.py": Stamps(5.0, 6.0),
        "/v2/a/b.py": Stamps(7.0, 8.0),
    }
    assert seen.imports == {"/v2/train.py": ("import model, os", "\tfrom a import b")}


@given(st.binary(max_size=200), st.integers(0, len(ANSWER)))
def test_whatever_comes_is_read_or_refused(noise: bytes, cut: int) -> None:
    parse_code(noise)
    parse_code(ANSWER[:cut] + noise)
    assert parse_code(ANSWER[: min(cut, 60)]) is None


def code(**files: str) -> Beside:
    return code_of({f"/r/{name}.py": text for name, text in files.items()})


def code_of(paths: dict[str, str]) -> Beside:
    """The import lines of each file."""
    old = Stamps(1.0, 1.0)
    return Beside(
        now=0.0,
        tick=0,
        states={},
        beats={},
        files=dict.fromkeys(paths, old),
        imports={path: tuple(text.splitlines()) for path, text in paths.items()},
    )


@pytest.mark.parametrize(
    ("statement", "sure"),
    [
        ("import model", True),
        ("import os, model as m  # ours", True),
        ("from model import Net", True),
        ("from . import model", True),
        ("from .model import (Net,", True),
        ("    import model", False),
        ("import models", None),
        ("import torch", None),
        ("from torch import model", None),
        ("import", None),
        ("from here", None),
    ],
)
def test_what_a_script_imports(statement: str, sure: bool | None) -> None:
    seen = code(train=statement, model="", other="")
    want = {} if sure is None else {"/r/model.py": sure}
    assert imported("/r/train.py", "/r", seen) == want


def test_by_others_and_in_a_circle() -> None:
    seen = code(
        train="import a", a="import b\nimport train\n    import c", b="import a", c="", d=""
    )
    assert imported("/r/train.py", "/r", seen) == {
        "/r/a.py": True, "/r/b.py": True, "/r/c.py": False,
    }  # fmt: skip
    # reached by two ways: the surer one counts
    twice = code(train="    import a\nimport b", a="import c", b="import a", c="")
    assert set(imported("/r/train.py", "/r", twice).values()) == {True}


def test_packages() -> None:
    names = ("__init__", "net", "layers", "unused")
    package = {f"/r/models/{name}.py": "" for name in names}
    package["/r/models/__init__.py"] = "from . import layers"
    seen = code_of({"/r/train.py": "from models.net import Net", **package})
    assert imported("/r/train.py", "/r", seen) == {
        f"/r/models/{name}.py": True for name in ("__init__", "net", "layers")
    }


def test_a_module_is_run_from_where_its_package_lies() -> None:
    """python -m pkg.train: the directory above the package is first on sys.path."""
    lines = "from pkg.model import Net\nimport util"
    others = dict.fromkeys(("/w/pkg/__init__.py", "/w/pkg/model.py", "/w/pkg/util.py"), "")
    seen = code_of({"/w/pkg/train.py": lines, **others})
    assert imported("/w/pkg/train.py", "/w", seen) == {
        "/w/pkg/__init__.py": True,
        "/w/pkg/model.py": True,
    }
