"""What is healthy when it is started otherwise tells nothing of what a release's manifest says."""

from __future__ import annotations

import msgspec
import pytest

from fleetstop.core.launching.surroundings import LOGIN_PATH, Person
from fleetstop.core.releases.manifest import Release
from fleetstop.core.releases.own_start import Start, by_manifest

ROOT = Person("root", 0, 0, (), "/root", "/bin/sh")
LOGIN = {"SITE": "munich", "PROXY_TOKEN": "hf_of_the_site"}
RESUME = ("--resume", "{checkpoint}")
ENV = {"PATH": LOGIN_PATH, "HOME": "/root", "FOO": "1", "SITE": "munich", "PWD": "/root"}
KEPT = Release(
    id="20261130-140211-7f3a", files=(), dest="/root", when="", who="me@box", cwd="/root",
    argv=("/root/run.sh", "--gpus", "0", "--resume", "/ck/1"), resume=RESUME, env=ENV,
    secrets=("HF_TOKEN", "PROXY_TOKEN"),
)  # fmt: skip
HAS = Start(KEPT.argv or (), "/root", ENV | {"HF_TOKEN": "hf_x", **LOGIN}, RESUME)
WORDS = ("/root/run.sh", "--gpus", "0")


@pytest.mark.parametrize(
    ("start", "same"),
    [
        ({}, True),
        # as the kernel starts it; from another checkpoint, or from none; what a terminal leaves
        ({"argv": ("/bin/bash", *HAS.argv)}, True),
        ({"argv": ("/bin/bash", "./run.sh", *WORDS[1:])}, True),
        ({"argv": ("/bin/bash", "-u", "run.sh", *WORDS[1:])}, True),
        ({"argv": ("/bin/bash", "/srv/run.sh", *WORDS[1:])}, False),
        ({"argv": ("/bin/bash", "/root/no-run.sh", *WORDS[1:])}, False),
        ({"argv": ("run.sh", *WORDS[1:])}, False),
        ({"argv": (*WORDS, "--resume", "/ck/2")}, True),
        ({"argv": WORDS}, True),
        ({"env": {**(HAS.env or {}), "TERM": "xterm", "SHLVL": "2", "PWD": "/x"}}, True),
        # without it, with another word or value, elsewhere: it may be well only so
        ({"argv": ("/root/run.sh",)}, False),
        ({"argv": (*HAS.argv, "--save-every", "3")}, False),
        ({"argv": ("/root/other.sh", *WORDS[1:])}, False),
        ({"cwd": "/srv"}, False),
        ({"env": {**(HAS.env or {}), "FOO": "2"}}, False),
        ({"env": {**(HAS.env or {}), "NEW": "2"}}, False),
        ({"env": ENV}, False),  # its token is missing
        ({"env": None}, False),
    ],
)
def test_a_start_as_the_manifest_tells(start: dict[str, object], same: bool) -> None:
    assert by_manifest(KEPT, msgspec.structs.replace(HAS, **start), LOGIN, ROOT) is same


def test_words_to_resume_that_it_was_never_started_with_are_others() -> None:
    """A release whose manifest names none would be started without them."""
    never = msgspec.structs.replace(KEPT, argv=WORDS, resume=())
    assert not by_manifest(never, HAS, LOGIN, ROOT)
    assert by_manifest(never, msgspec.structs.replace(HAS, argv=WORDS), LOGIN, ROOT)


def test_a_manifest_that_tells_no_start_is_started_as_the_inventory_has_it() -> None:
    unknown = msgspec.structs.replace(KEPT, argv=None, env=None)
    assert by_manifest(unknown, HAS, LOGIN, ROOT)
