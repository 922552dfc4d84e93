"""A job added to an inventory's file: all else stays as it was, byte for byte; it reads back."""

from __future__ import annotations

import difflib
import os
import random
import re
import stat
from pathlib import Path

import pytest

from fleetstop.config.files import load_inventory
from fleetstop.config.writing import change, write
from fleetstop.core.adopting.placing import placing
from fleetstop.core.adopting.stanza import Stanza
from fleetstop.core.inventory import Host, Inventory, Launch, Match, Target
from fleetstop.errors import BadUsage, Refused

STANZA = Stanza(
    match=Match(script="train.py"),
    stop_signal="INT",
    log="/workspace/a log.txt",
    gpus=(0, 1),
    launch=Launch(
        run=("/bin/bash", "-c", 'python "x: y" # no\n| tee\t*', "", "--n", "007", "true"),
        cwd="/root",
        env={"A": "60", "B": "a: b", "vmid": "x y", "C": "ünï \u2028 \x1b", "D": "'\"\\"},
        user="ml",
    ),
    dest="/root",
)

BLOCK = """\
# our machines
defaults: {job: {playbook: "standard"}}   # as ever
hosts:
    pve1: {ssh: root@10.1.2.6}

    box7:
        ssh: 'ml@box7'
containers:
  ct200:            # the big one
    host: pve1
    vmid: 200
    jobs:
      eval:
        match: {script: eval.py}
        stop_signal: INT   # it saves on that
        # playbook: now

      # nothing else
  ct201: {host: pve1, vmid: 201, jobs: {"x": {match: {script: x.py}}}, tags: [a,b]}   # one line
  ct202: {host: pve1, vmid: 202,
          jobs: {}}
  ct203:
    host: pve1
    vmid: 203
    jobs:   # none yet
    tags: [gpu]
  ct204:
    host: pve1
    vmid: 204
    tags:
      - a
      - b
      # the end of 204
  ct205: {host: pve1, vmid: 205, jobs: }
  ct206:
    host: pve1
    jobs: ~  # none
    vmid: 206

groups:
  all: [ct200, ct201]   # both
"""


def fleet(tmp_path: Path, text: str, name: str = "fleet.yaml") -> Path:
    path = tmp_path / "inventory" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())
    return path


def load(tmp_path: Path) -> Inventory:
    return load_inventory(None, {}, tmp_path, tmp_path / "none")


def files(tmp_path: Path) -> tuple[Path, ...]:
    return tuple(sorted((tmp_path / "inventory").glob("fleet*.yaml")))


def target(inventory: Inventory, vmid: int | None, host: str = "pve1") -> Target:
    return Target(name=f"{host}/{vmid}", host=inventory.hosts[host], vmid=vmid, job=None)


def put(tmp_path: Path, aim: Target, name: str = "train") -> str:
    """Adds the stanza and writes; the text that is new, with `all else as it was` proved."""
    inventory = load(tmp_path)
    was = {path: path.read_bytes() for path in files(tmp_path)}
    made = change(files(tmp_path), tmp_path, placing(inventory, aim, name), STANZA)
    assert {path: path.read_bytes() for path in files(tmp_path)} == was
    write(made)
    for path, before in was.items():
        assert path == made.path or path.read_bytes() == before
    return new_text((made.before or b"").decode(), made.after.decode())


def new_text(before: str, after: str) -> str:
    """What was put in; every other sign is there still, in its order (but a `jobs: null`'s)."""
    left = re.sub(r"(jobs:) (null|~)", r"\1", before)
    pieces, at = [], 0
    for match in difflib.SequenceMatcher(None, left, after, autojunk=False).get_matching_blocks():
        pieces.append(after[at : match.b])
        at = match.b + match.size
    put_in = "".join(pieces)
    assert len(left) + len(put_in) == len(after), "something is gone"
    return put_in


def same_job(inventory: Inventory, place: str, name: str = "train") -> None:
    where = inventory.containers.get(place) or inventory.hosts[place]
    job = next(each for each in where.jobs if each.name == name)
    assert (job.match, job.stop_signal, job.log) == (STANZA.match, "INT", STANZA.log)
    assert (job.gpus, job.launch) == (STANZA.gpus, STANZA.launch)
    assert job.deploy is not None
    assert job.deploy.dest == "/root"


@pytest.mark.parametrize("vmid", [200, 201, 202, 203, 204, 205, 206])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_in_every_way_that_a_container_may_be_written(
    tmp_path: Path, vmid: int, newline: str
) -> None:
    path = fleet(tmp_path, BLOCK.replace("\n", newline))
    aim = target(load(tmp_path), vmid)
    put(tmp_path, aim)
    same_job(load(tmp_path), f"ct{vmid}")
    after = path.read_bytes().decode()
    if newline == "\r\n":
        assert after.count("\n") == after.count("\r\n")


def test_it_stands_after_the_last_job_and_before_the_comments_of_others(tmp_path: Path) -> None:
    path = fleet(tmp_path, BLOCK)
    put(tmp_path, target(load(tmp_path), 200))
    text = path.read_text()
    assert (
        "        # playbook: now\n      train:\n        match: {script: train.py}\n"
        "        stop_signal: INT\n" in text
    )
    assert "\n\n      # nothing else\n  ct201" in text


def test_a_container_that_is_new_comes_with_its_host(tmp_path: Path) -> None:
    path = fleet(tmp_path, BLOCK)
    host = Host(name="10.9.9.9", ssh="root@10.9.9.9", port=2222)
    put(tmp_path, Target(name="root@10.9.9.9/300", host=host, vmid=300, job=None), "ct300:train")
    inventory = load(tmp_path)
    same_job(inventory, "ct300")
    assert inventory.hosts["10.9.9.9"] == host
    assert (inventory.containers["ct300"].host, inventory.containers["ct300"].vmid) == (
        "10.9.9.9",
        300,
    )
    assert "groups:\n  all: [ct200, ct201]   # both\n" in path.read_text()


def test_a_host_itself_may_have_the_job(tmp_path: Path) -> None:
    fleet(tmp_path, BLOCK)
    put(tmp_path, target(load(tmp_path), None, "box7"), "box7:train")
    same_job(load(tmp_path), "box7")
    host = Host(name="h", ssh="ml@h")
    put(tmp_path, Target(name="ssh://h", host=host, vmid=None, job=None), "h:train")
    same_job(load(tmp_path), "h")


def test_without_any_inventory_a_file_is_made(tmp_path: Path) -> None:
    host = Host(name="10.1.2.6", ssh="root@10.1.2.6")
    aim = Target(name="root@10.1.2.6/200", host=host, vmid=200, job=None)
    made = change((), tmp_path, placing(Inventory(), aim, "train"), STANZA)
    assert made.before is None
    write(made)
    same_job(load(tmp_path), "ct200")
    with pytest.raises(Refused, match="changed meanwhile"):
        write(made)


def test_what_is_no_file_is_not_written_to(tmp_path: Path) -> None:
    fleet(tmp_path, BLOCK)
    aim = target(load(tmp_path), 200)
    where = placing(load(tmp_path), aim, "train")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(Refused, match="pipe is no plain file"):
        change((pipe,), tmp_path, where, STANZA)


def test_of_several_files_the_one_that_has_the_container(tmp_path: Path) -> None:
    one = fleet(tmp_path, "hosts: {pve1: {ssh: root@h}}\n", "fleet-a.yaml")
    two = fleet(tmp_path, "containers: {ct200: {host: pve1, vmid: 200}}\n", "fleet-b.yaml")
    before = one.read_bytes()
    put(tmp_path, target(load(tmp_path), 200))
    assert one.read_bytes() == before
    same_job(load(tmp_path), "ct200")
    put(tmp_path, target(load(tmp_path), 201))
    assert "ct201" in one.read_text()
    assert "ct201" not in two.read_text()


def test_no_new_line_at_the_end_a_mark_at_the_begin_and_a_link(tmp_path: Path) -> None:
    path = fleet(tmp_path, "")
    real = tmp_path / "real.yaml"
    text = "hosts: {pve1: {ssh: root@h}}\ncontainers:\n  ct200:\n    vmid: 200\n    host: pve1"
    real.write_bytes(b"\xef\xbb\xbf" + text.encode())
    path.unlink()
    path.symlink_to(real)
    put(tmp_path, target(load(tmp_path), 200))
    assert path.is_symlink()
    assert real.read_bytes().startswith(b"\xef\xbb\xbfhosts: {pve1: {ssh: root@h}}\ncontainers:\n")
    same_job(load(tmp_path), "ct200")


def test_mode_and_owner_stay_and_nothing_is_left_beside(tmp_path: Path) -> None:
    path = fleet(tmp_path, BLOCK)
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 34, 34)
    put(tmp_path, target(load(tmp_path), 200))
    now = path.stat()
    assert stat.S_IMODE(now.st_mode) == 0o640
    assert os.geteuid() != 0 or (now.st_uid, now.st_gid) == (34, 34)
    assert sorted(each.name for each in path.parent.iterdir()) == ["fleet.yaml"]


def test_a_file_that_was_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = fleet(tmp_path, BLOCK)
    inventory = load(tmp_path)
    made = change(
        files(tmp_path), tmp_path, placing(inventory, target(inventory, 200), "train"), STANZA
    )
    path.write_text(BLOCK + "# somebody else\n")
    with pytest.raises(Refused, match="changed meanwhile"):
        write(made)
    assert path.read_text() == BLOCK + "# somebody else\n"
    assert sorted(each.name for each in path.parent.iterdir()) == ["fleet.yaml"]


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ("jobs: *shared", "'jobs' is an alias"),
        ("jobs: &twice {a: {match: {script: a.py}}}", "would be changed"),
    ],
)
def test_what_is_shared_with_others_is_not_added_to(tmp_path: Path, jobs: str, said: str) -> None:
    anchor = "&shared " if "*shared" in jobs else ""
    again = "*twice" if "&twice" in jobs else "{}"
    text = (
        "hosts: {pve1: {ssh: root@h}}\ncontainers:\n"
        f"  ct199: {{host: pve1, vmid: 199, jobs: {anchor}{{b: {{match: {{script: b.py}}}}}}}}\n"
        f"  ct200:\n    host: pve1\n    vmid: 200\n    {jobs}\n"
        f"  ct201: {{host: pve1, vmid: 201, jobs: {again}}}\n"
    )
    path = fleet(tmp_path, text)
    inventory = load(tmp_path)
    with pytest.raises(Refused, match=said):
        change(
            files(tmp_path), tmp_path, placing(inventory, target(inventory, 200), "train"), STANZA
        )
    assert path.read_text() == text


def test_what_comes_after_an_alias_and_a_block_of_text(tmp_path: Path) -> None:
    text = (
        "hosts: {pve1: {ssh: root@h}}\ncontainers:\n  ct200:\n    host: pve1\n    vmid: 200\n"
        "    jobs:\n      a: &a\n        match: {script: a.py}\n        healthcheck:\n"
        "          log_matches: |\n            tok/s\n\n      b: *a   # the same\n"
        "    # of 200\n# of all\n"
    )
    path = fleet(tmp_path, text)
    put(tmp_path, target(load(tmp_path), 200))
    assert "      b: *a   # the same\n      train:\n" in path.read_text()
    assert path.read_text().endswith("    # of 200\n# of all\n")


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ("eval", Refused, "is in the inventory already"),
        ("ct200:eval", Refused, "is in the inventory already"),
        ("ct201:train", BadUsage, "is 'ct200' in the inventory"),
        ("a b", BadUsage, "is no name"),
        ("ct200:", BadUsage, "is no name"),
        (":train", BadUsage, "is no name"),
        ("-x", BadUsage, "is no name"),
    ],
)
def test_names(tmp_path: Path, asked: str, error: type[Exception], said: str) -> None:
    fleet(tmp_path, BLOCK)
    inventory = load(tmp_path)
    with pytest.raises(error, match=said):
        placing(inventory, target(inventory, 200), asked)


@pytest.mark.parametrize("asked", ["box7:train", "pve1:train", "all:train", "ct200:train"])
def test_a_new_place_takes_no_name_of_another(tmp_path: Path, asked: str) -> None:
    fleet(tmp_path, BLOCK)
    inventory = load(tmp_path)
    with pytest.raises(Refused, match="already"):
        placing(inventory, target(inventory, 999), asked)


def test_any_inventory_of_ours_can_be_added_to(tmp_path: Path) -> None:
    """Blanks, comments and styles at random: it is added, or refused with a sentence."""
    dice = random.Random(7)
    for _ in range(150):
        text = some_inventory(dice)
        path = fleet(tmp_path, text)
        vmid = dice.choice([200, 201, 202])
        put(tmp_path, target(load(tmp_path), vmid))
        place = next(n for n, c in load(tmp_path).containers.items() if c.vmid == vmid)
        same_job(load(tmp_path), place)
        comments = [line.strip() for line in text.splitlines() if line.strip().startswith("#")]
        after = [each.strip() for each in path.read_text().splitlines()]
        assert [line for line in after if line.startswith("#")] == comments


def some_inventory(dice: random.Random) -> str:
    step = " " * dice.choice([1, 2, 4])

    def remark(deep: int) -> str:
        said = ("", "\n", step * dice.randrange(deep + 1) + "# said\n")
        return dice.choice(said) + dice.choice(said)

    lines = [remark(0), "hosts:\n", step, "pve1: {ssh: root@h}\n", remark(2), "containers:\n"]
    for vmid in (200, 201):
        jobs = dice.choice(["", "{}", "null", "{a: {match: {script: a.py}}}", "block", "absent"])
        parts = [f"{step * 2}host: pve1\n", f"{step * 2}vmid: {vmid}{dice.choice(['', ' # v'])}\n"]
        if jobs == "block":
            body = f"{step * 3}a:\n{step * 4}match:\n{step * 5}script: a.py\n{remark(5)}"
            parts.append(f"{step * 2}jobs:\n{body}")
        elif jobs != "absent":
            parts.append(f"{step * 2}jobs: {jobs}".rstrip() + dice.choice(["\n", "  # j\n"]))
        dice.shuffle(parts)
        lines += [f"{step}c{vmid}:\n", *(each + remark(3) for each in parts)]
    return "".join(lines) + dice.choice(["", "groups: {g: [c200]}\n", remark(0)])
