"""What the survey of a destination means: what is sent, and what cannot be."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from fleetstop.core.releases.payload import File
from fleetstop.core.releases.survey import (
    Directory,
    Proof,
    Survey,
    There,
    amount,
    answer,
    obstacle,
    unchanged,
)

MIB = 1 << 20
NEW = File("train.py", "a" * 64, 1000, 0o644)
OLD = There("/root/train.py", "file", "/root/train.py", size=900, mode=0o600, uid=0, gid=0)
ROOM = Directory("/root", True, "/root", writable=True, free=10 * MIB, inodes=500, uid=0)
GOOD = Survey("3.11.2", True, 0, ROOM, (ROOM,), (OLD,))


def said(survey: Survey, *files: File) -> str:
    found = obstacle(survey, files or (NEW,))
    return found.sentence if found else ""


def dest(**facts: object) -> Survey:
    return replace(GOOD, dest=replace(ROOM, **facts))


def test_what_a_link_leads_out_of_the_place_is_found_before_anything_is_sent() -> None:
    led = said(there(path="/root/configs/a.yaml", real="/opt/shared/a.yaml"))
    assert led == ("/root/configs/a.yaml lies outside of /root: a link leads to /opt/shared/a.yaml")
    assert said(there(path="/root/configs/a.yaml", real="/root/shared/a.yaml")) == ""
    assert said(replace(dest(path="/", real="/"), files=(replace(OLD, real="/b"),))) == ""


def there(**facts: object) -> Survey:
    return replace(GOOD, files=(replace(OLD, **facts),))


def test_where_all_is_well_nothing_is_in_the_way() -> None:
    assert said(GOOD) == ""
    assert said(dest(free=None, inodes=None)) == ""
    assert said(there(kind=None, size=None)) == ""


@pytest.mark.parametrize(
    ("survey", "words"),
    [
        (dest(exists=False), "/root does not exist there"),
        (dest(read_only=True), "mounted read-only"),
        (dest(writable=False), "cannot be written to by uid 0"),
        (dest(writable=False, unmapped=True, uid=65534), "no number in this unprivileged"),
        (replace(GOOD, around=(ROOM, replace(ROOM, path="/mnt", read_only=True))), "/mnt is on"),
        (there(kind="dir"), "is a directory there"),
        (there(kind="other"), "is no plain file there"),
        (there(kind=None, problem="Permission denied"), "could not be looked at: Permission"),
        (there(unmapped=True), "the owner of /root/train.py has no number"),
        (dest(free=8191), "8.0 KiB are needed and 8.0 KiB are free"),
        (dest(inodes=17), "has room for 17 files more, and 18 are needed"),
    ],
)
def test_what_is_in_the_way_is_said_in_a_sentence(survey: Survey, words: str) -> None:
    assert words in said(survey)


def test_one_who_may_write_though_nobody_knows_its_owner_is_not_kept_out() -> None:
    assert said(dest(unmapped=True, uid=65534)) == ""


def test_what_is_there_already_takes_little_room_and_a_large_one_none() -> None:
    same = replace(OLD, size=1000, sha256="a" * 64)
    assert unchanged(NEW, same)
    assert not unchanged(NEW, replace(same, sha256="b" * 64))
    assert not unchanged(NEW, replace(same, kind="dir"))
    assert not unchanged(NEW, OLD)
    assert said(replace(dest(free=4096), files=(same,))) == ""
    assert said(replace(dest(free=4095), files=(same,))) != ""
    large = File("w.bin", "a" * 64, 200 * MIB, 0o644)
    assert said(replace(dest(free=100), files=(replace(same, size=large.size),)), large) == ""
    assert "400 MiB are needed" in said(dest(free=300 * MIB), large)


def test_an_answer_is_what_was_asked_for_or_nothing() -> None:
    lone = '{"wrong": [["a\\udc80", "x"]], "broken": [], "compiled": 1}'
    proof = answer(lone.encode(), Proof)
    assert proof is not None
    assert proof.wrong == (("a\udc80", "x"),)
    for text in ("", "{}", "[1]", json.dumps({"wrong": 1, "broken": [], "compiled": 0})):
        assert answer(text.encode(), Proof) is None


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1536, "1.5 KiB"), (200 * MIB, "200 MiB"), (5 << 40, "5.0 TiB")],
)
def test_an_amount_is_short(size: int, text: str) -> None:
    assert amount(size) == text
