from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fleetstop.core import redact
from fleetstop.core.launching.activation import Broken, Started, State, is_release_id
from fleetstop.core.launching.ended import Born
from fleetstop.core.releases.manifest import (
    Git,
    Release,
    encoded,
    parse_release,
    release_id,
    told_argv,
    told_env,
)
from fleetstop.core.releases.payload import File
from fleetstop.core.releases.retention import litter, run_of, temporary, to_remove
from fleetstop.core.releases.sighting import Stamps
from fleetstop.core.releases.standing import newer_code, running_release

ONE = "20261130-140211-7f3a"


def release(name: str = ONE, **hashes: str) -> Release:
    files = tuple(
        File(rel.replace("_py", ".py"), (sha * 64)[:64], 1, 0o644) for rel, sha in hashes.items()
    )
    return Release(id=name, files=files, dest="/root", when="2026-11-30T14:02:11Z", who="me@laptop")


FULL = Release(
    id=ONE,
    files=(File("train.py", "a" * 64, 12, 0o755),),
    dest="/root",
    when="2026-11-30T14:02:11Z",
    who="me@laptop",
    argv=("python3", "train.py"),
    cwd="/root",
    env={"LR": "1"},
    secrets=("HF_TOKEN",),
    interpreter="/usr/bin/python3",
    git=Git("c" * 40, dirty=True),
    from_release="20261129-000000-0000",
)


def test_a_manifest_comes_back_as_it_was() -> None:
    assert parse_release(encoded(FULL), "m.json") == FULL
    assert encoded(FULL).endswith(b"}\n")


def test_a_later_ones_keys_are_passed_over_a_later_schema_is_not() -> None:
    words = json.loads(encoded(FULL))
    words["colour"] = "red"
    words["files"][0]["owner"] = 7
    assert parse_release(json.dumps(words).encode(), "m.json") == FULL
    words["schema"] = 2
    found = parse_release(json.dumps(words).encode(), "m.json")
    assert isinstance(found, Broken)
    assert "newer fleetstop" in found.sentence


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"id": 7}',
        encoded(FULL)[:-20],
        encoded(FULL).replace(ONE.encode(), b"../../etc"),
        encoded(FULL).replace(b'"train.py"', b'"../train.py"', 1),
        encoded(FULL).replace(b'"' + b"a" * 64, b'"short'),
    ],
)
def test_a_broken_manifest_is_a_sentence_that_names_it(data: bytes) -> None:
    """What it lists is put back by a rollback: a path that leads out must not be believed."""
    found = parse_release(data, "/root/.fleetstop/job/releases/x/manifest.json")
    assert isinstance(found, Broken)
    assert "releases/x/manifest.json" in found.sentence


def test_ids_sort_by_time_whatever_the_zone() -> None:
    at = datetime(2026, 11, 30, 14, 2, 11, tzinfo=UTC)
    assert release_id(at, "7f3a91c2") == ONE
    east = at.astimezone(timezone(timedelta(hours=9)))
    assert release_id(east, "7f3a91c2") == ONE
    assert release_id(at + timedelta(seconds=1), "0000ffff") > ONE
    assert is_release_id(ONE)
    assert not is_release_id("latest")


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("HF_TOKEN", "x", True),
        ("WANDB_API_KEY", "x", True),
        ("AWS_ACCESS_KEY_ID", "AKIAABCDEFGHIJKLMNOP", True),
        ("AWS_SECRET_ACCESS_KEY", "abc", True),
        ("DB_PASSWORD", "x", True),
        ("PGPASSWORD", "x", True),
        ("MYSQL_PWD", "x", True),
        ("api-secret", "x", True),
        ("ENDPOINT", "https://me:hunter2@h/x", True),
        ("WHATEVER", "hf_AbCdEfGh12345678", True),
        ("BLOB", "Zm9vYmFyMTIzNDU2Nzg5MEFCQ0RFRg==", True),
        ("X", "0123456789abcdef0123456789abcdef01234567", True),
        ("GIT_COMMIT", "0123456789abcdef0123456789abcdef01234567", False),
        ("PATH", "/usr/bin:/bin", False),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/root/key.json", False),
        ("GOOGLE_APPLICATION_CREDENTIALS", '{"private_key": "x"}', True),
        ("AWS_SECRET_ACCESS_KEY", "/abc/def", True),
        ("PWD", "/root", False),
        ("OLDPWD", "/root", False),
        ("TOKENIZERS_PARALLELISM", "false", False),
        ("MAX_TOKENS", "4096", False),
        ("SSH_AUTH_SOCK", "/tmp/ssh-1/agent.2", False),
        ("CUDA_VISIBLE_DEVICES", "0,1,2,3", False),
        ("PYTHONPATH", "/root/lib", False),
        ("LANG", "C.UTF-8", False),
        ("MASTER_ADDR", "10.0.0.1", False),
        ("NCCL_DEBUG", "INFO", False),
        ("COMPASS", "north", False),
        ("MONKEYPATCH", "1", False),
        ("HF_TOKEN", "", False),
        ("HF_TOKEN_PATH", "/root/.hf", False),
        ("wandb_api_key", "x", True),
        ("MYTOKENFILE", "hunter2", True),
    ],
)
def test_what_is_a_secret(name: str, value: str, secret: bool) -> None:
    assert redact.secret(name, value) is secret
    kept, named = told_env({name: value})
    assert (named, kept) == (((name,), {}) if secret else ((), {name: value}))


def test_no_secret_is_kept_of_the_arguments() -> None:
    argv = ("python3", "train.py", "--hf-token", "hunter2", "--name=a b", "--x", "tab\there")
    assert told_argv(argv) == (*argv[:3], "***", *argv[4:])
    assert told_argv(["a", "--api-key=hunter2"]) == ("a", "--api-key=***")


@pytest.mark.parametrize(
    ("needed", "gone"),
    [((), ["01", "02"]), (("01",), ["02"]), (("01", "02"), []), ((None, "09"), ["01", "02"])],
)
def test_the_newest_five_stay_and_what_is_needed(needed: tuple[str], gone: list[str]) -> None:
    def named(day: str | None) -> str | None:
        return day and f"202611{day}-000000-0000"

    days = ["03", "01", "05", "02", "07", "04", "06"]
    names = [str(named(day)) for day in days] + ["keep-me", ".tmp"]
    assert to_remove(names, needed=[named(day) for day in needed]) == tuple(
        str(named(day)) for day in gone
    )


@given(st.sets(st.integers(0, 99), max_size=20), st.sets(st.integers(0, 99), max_size=3),
       st.integers(-1, 6))  # fmt: skip
def test_what_is_needed_never_goes(days: set[int], needed: set[int], keep: int) -> None:
    def named(each: int) -> str:
        return f"202611{each:02d}-000000-0000"

    names, need = {named(each) for each in days}, {named(each) for each in needed}
    gone = set(to_remove(names, needed=need, keep=keep))
    assert gone <= names - need
    assert len(names - gone) <= max(keep, 0) + len(need)
    assert all(stay >= max(gone) for stay in names - gone - need) if gone else True


def test_temporary_files_name_their_run() -> None:
    path = temporary("/root/train.py", "7f3a91c2")
    assert path == "/root/.train.py.fleetstop-7f3a91c2"
    assert run_of(path) == "7f3a91c2"
    names = [".train.py.fleetstop-7f3a91c2", ".a.fleetstop-00000000", ".fleetstop", "train.py"]
    assert litter(names, "7f3a91c2") == (".train.py.fleetstop-7f3a91c2",)
    assert run_of(".fleetstop") is None


def at(changed: float, touched: float | None = None, born: float | None = None) -> Stamps:
    return Stamps(changed, changed if touched is None else touched, born)


MAIN, MODEL, LAYERS = "/root/train.py", "/root/model.py", "/root/layers.py"


def test_newer_code_is_told_as_the_status_line_has_it() -> None:
    newer = newer_code(MAIN, {MAIN: at(1720.0), MODEL: at(9000.0)}, 1000.0)
    assert newer is not None
    assert newer.surely
    assert newer.sentence == (
        "/root/train.py is 12 min newer than the process: it runs the OLD code"
    )
    assert newer_code(MAIN, {MAIN: at(1000.01)}, 1000.0) is None
    assert newer_code(MAIN, {}, 1000.0) is None


def test_of_a_file_beside_it_no_more_is_said_than_is_known() -> None:
    """Nobody sees from outside what a Python has imported; what it never did is no old code."""
    files = {MAIN: at(10.0), MODEL: at(1030.0), LAYERS: at(1500.0)}
    for imported, path, which in (
        (None, LAYERS, "beside what runs"),
        ({MODEL: True, LAYERS: False}, MODEL, "which it imports"),
        ({LAYERS: False}, LAYERS, "which it may import"),
    ):
        newer = newer_code(MAIN, files, 1000.0, imported=imported)
        assert newer is not None
        assert (newer.path, newer.surely) == (path, False)
        assert newer.sentence.startswith(f"{path}, {which}, is ")
        assert newer.sentence.endswith(
            " newer than the process: what it imported from there before is the OLD code"
        )
    assert newer_code(MAIN, files, 1000.0, imported={}) is None


@pytest.mark.parametrize(
    ("stamps", "how"),
    [
        (at(1500.0), "rewritten"),
        # scp -p over it: its date is the laptop's, its change of status is the kernel's
        (at(10.0, touched=1500.0), "touched"),
        # rsync -t, tar: another file in its place
        (at(10.0, touched=1500.0, born=1490.0), "rewritten"),
        # touch -d tomorrow, before the process began: nobody has written to it since
        (at(9e9, touched=900.0), None),
        (at(9e9, touched=1500.0), "rewritten"),
        # chmod
        (at(10.0, touched=1500.0, born=10.0), "touched"),
        (at(10.0, touched=20.0, born=10.0), None),
    ],
)
def test_a_date_is_not_believed_against_the_kernel(stamps: Stamps, how: str | None) -> None:
    newer = newer_code(MAIN, {MAIN: stamps}, 1000.0)
    assert (newer.how if newer is not None else None) == how
    if newer is not None:
        assert newer.by_s <= 500.0
        assert newer.surely is ("it runs the OLD code" in newer.sentence)
        assert newer.surely or "it may run the OLD code" in newer.sentence
    # the same content, known by its hash: then dates say nothing
    assert newer_code(MAIN, {MAIN: stamps}, 1000.0, same={MAIN}) is None


def test_a_link_that_leads_elsewhere_since() -> None:
    links = {"/opt/current": at(1720.0)}
    newer = newer_code("/opt/42/train.py", {"/opt/42/train.py": at(10.0)}, 1000.0, links=links)
    assert newer is not None
    assert newer.sentence == (
        "/opt/current was made to lead elsewhere 12 min after the process began: it may run the OLD"
        " code"
    )
    assert newer_code("/opt/42/train.py", {}, 1800.0, links=links) is None


def test_which_release_runs() -> None:
    old = release("20261129-000000-0000", train_py="a", model_py="b")
    new = release("20261130-000000-0000", train_py="c")
    disk = {"train.py": "c" * 64, "model.py": "b" * 64}
    by_disk = running_release([old, new], disk)
    assert (by_disk.release, by_disk.certain) == (new.id, False)
    assert running_release([old], disk).release is None
    assert running_release([], disk).release is None
    # changed on disk since: hashes say nothing of what was loaded
    late = newer_code(MAIN, {MAIN: at(9.0)}, 1.0)
    unsure = running_release([old, new], disk, newer=late)
    assert unsure.release is None
    assert "train.py was changed since" in unsure.sentence
    touched = newer_code(MAIN, {MAIN: at(0.5, 9.0)}, 1.0)  # its rights, perhaps
    unsure = running_release([old, new], disk, newer=touched)
    assert "train.py was, or may have been, changed since" in unsure.sentence
    # unless the process is the very one that was launched as it
    state = State("7f3a91c2", "healthy", activator=Born(5, 6), trainer=Started(40, 99),
                  running=old.id)  # fmt: skip
    sure = running_release([old, new], disk, newer=late, state=state, trainer=(40, 99))
    assert (sure.release, sure.certain) == (old.id, True)
    # a restart brings no release of its own: what lies on disk tells
    again = running_release([old, new], disk, state=replace(state, running=None), trainer=(40, 99))
    assert (again.release, again.certain) == (new.id, False)
    other = running_release([old, new], disk, newer=late, state=state, trainer=(40, 98))
    assert other.release is None


def test_a_release_without_files_is_never_taken_for_what_runs() -> None:
    assert running_release([release("20261130-000000-0000")], {"x": "a" * 64}).release is None
