"""Who descends from our own launch, in trees told as text."""

from __future__ import annotations

from fleetstop.core.inventory import Job, Match
from fleetstop.core.kin.family import Found, find
from fleetstop.core.launching.ended import Born
from fleetstop.core.launching.newborn import descendants, family_of, here, trainers_of
from fleetstop.core.process import ProcessTree
from tests.core.trees import told

MATCH = Match(script="train.py")
JOB = Job(name="train", match=MATCH)
SUPERVISOR = "python3 -I /root/.fleetstop/train/supervise.py spec.json"


def roles(text: str, root: int, supervisor: int | None) -> dict[int, str]:
    tree = told(text).tree
    above = tree.processes.get(supervisor or 0)
    ids = descendants(tree, tree.processes.get(root), above, frozenset())
    found = find(tree, MATCH, JOB)
    top = tree.processes[root].id if root in tree.processes else min(ids)
    family = family_of(tree, ids, found, top, "m")
    assert family.marks == {"m"}
    return {kin.pid: kin.role for kin in family.members}


def test_all_below_the_supervisor_is_it_and_the_supervisor_is_not() -> None:
    text = f"""
        100 {SUPERVISOR}
          110 bash run.sh
            120 python train.py
              130 python train.py   # fork
        200 python train.py
    """
    assert roles(text, 110, 100) == {
        110: "wrapper", 120: "trainer", 130: "worker",
    }  # fmt: skip


def test_what_was_put_into_the_background_is_found_below_the_supervisor() -> None:
    text = f"""
        100 {SUPERVISOR}
          120 python train.py
    """
    assert roles(text, 110, 100) == {120: "trainer"}


def test_where_nobody_trains_what_was_started_is_asked_itself() -> None:
    text = f"""
        100 {SUPERVISOR}
          110 bash run.sh
            120 pip install torch
    """
    assert roles(text, 110, 100) == {110: "trainer", 120: "worker"}


def test_where_nobody_trains_any_more_who_did_is_asked_and_not_the_shell_above() -> None:
    """`os.execv(…, "real.py")`."""
    text = f"""
        100 {SUPERVISOR}
          110 bash run.sh
            120 python real.py
              130 python real.py   # fork
    """
    tree = told(text).tree
    ids = descendants(tree, tree.processes[110], tree.processes[100], frozenset())
    was = (tree.processes[120].id,)
    family = family_of(tree, ids, Found(families=()), tree.processes[110].id, "m", was)
    assert {kin.pid: kin.role for kin in family.members} == {
        110: "wrapper", 120: "trainer", 130: "worker",
    }  # fmt: skip


def test_the_dead_are_none_of_it_and_who_was_seen_before_stays() -> None:
    text = """
        1 init
          110 bash run.sh   # Z
          120 python train.py
    """
    tree = told(text).tree
    root, child = tree.processes[110], tree.processes[120]
    assert descendants(tree, root, None, frozenset({child.id})) == {child.id}
    found = find(tree, MATCH, JOB)
    assert trainers_of(found, frozenset({child.id})) == (child.id,)
    assert trainers_of(found, frozenset()) == ()


def test_a_number_that_is_somebody_else_s_by_now_is_not_it() -> None:
    tree = told("120 python train.py").tree
    start = tree.processes[120].id.start
    assert here(tree, Born(120, start)) is not None
    assert here(tree, Born(120, start + 1)) is None
    assert here(ProcessTree(processes={}, uptime=1.0), Born(120, start)) is None
