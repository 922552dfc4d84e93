from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetstop.core.inventory import Job, Launch, Match
from fleetstop.core.kin.birth import grow, may_be_marked
from fleetstop.core.kin.family import Family, find, standing
from fleetstop.core.process import OpenFile, Process, ProcessId, ProcessTree
from tests.core.trees import process, roles_of, told, tree

TRAIN = Match(script="train.py")
SPAWN = "python -c 'from multiprocessing.spawn import spawn_main' --multiprocessing-fork"
TRACKER = "python -c 'from multiprocessing.resource_tracker import main'"


def job(**keys: Any) -> Job:
    return Job(name="train", **{"match": TRAIN, **keys})


# The story, and the tree with the role that each should get.
STORIES = [
    (
        "a plain trainer, started from a terminal",
        """
        1 init
          100 'sshd: ada@pts/0'
            110 -bash
              120 python train.py                    => trainer
              125 vim train.py
        """,
    ),
    (
        "a script around it",
        """
        100 'sshd: ada@pts/0'
          110 bash run.sh                            => wrapper
            120 python train.py # gpu                => trainer
              130 python train.py # fork gpu         => worker
              131 nvidia-smi                         => worker
                132 sh -c x                          => worker
        """,
    ),
    (
        "tee stands aside",
        """
        100 'sshd: ada'
          110 bash -c 'python train.py | tee log'    => wrapper
            120 python train.py # 1>a                => trainer
            121 tee log # 0<a
        """,
    ),
    (
        "a longer pipeline stands aside too",
        """
        110 bash -c 'zcat data | python train.py | grep -v warn | tee log'   => wrapper
          119 zcat data # 1>z
          120 python train.py # 0<z 1>a 2>a          => trainer
          121 grep -v warn # 0<a 1>b
          122 tee log # 0<b
        """,
    ),
    (
        "a script whose whole output is piped",
        """
        100 bash -c 'bash run.sh | tee log'          => wrapper
          110 bash run.sh # 1>a                      => wrapper
            120 python train.py # 1>a                => trainer
          111 tee log # 0<a
        """,
    ),
    (
        "a stranger who only shares the same piped stdout is no partner",
        """
        100 bash -c 'python train.py & python serve.py' # 1>a
          120 python train.py # 1>a                  => trainer
          130 python serve.py # 1>a
        """,
    ),
    (
        "a second stranger child: this shell is not the job's alone",
        """
        110 bash run.sh
          120 python train.py                        => trainer
          130 python serve.py
        """,
    ),
    (
        "pipes that could not be seen prove nothing",
        """
        110 bash -c 'python train.py | tee log'
          120 python train.py # unseen               => trainer
          121 tee log # unseen
        """,
    ),
    (
        "a dead child of the script does not matter",
        """
        110 bash run.sh                              => wrapper
          119 - # Z
          120 python train.py                        => trainer
        """,
    ),
    (
        "pass-through programs up to the terminal's shell",
        """
        100 -bash
          105 sudo timeout 9h uv run train.py        => wrapper
            110 timeout 9h uv run train.py           => wrapper
              115 uv run train.py                    => wrapper
                120 python train.py                  => trainer
        """,
    ),
    (
        "fork workers look exactly like their trainer",
        """
        120 python train.py # gpu                    => trainer
          130 python train.py # fork gpu             => worker
            132 python train.py # fork gpu           => worker
          131 python train.py # fork                 => worker
        """,
    ),
    (
        "a fork behind a renamed fork is still a worker",
        """
        120 python train.py # gpu                    => trainer
          130 'train: loader' # fork                 => worker
            131 python train.py # fork               => worker
        """,
    ),
    (
        "a fork of a program that the trainer started is no fork of the trainer",
        """
        120 python train.py # gpu=0                  => trainer
          130 'sweep: train.py'                      => worker
            131 python train.py # fork gpu=1         => trainer
        """,
    ),
    (
        "rank 0 is the parent of the other ranks",
        """
        110 bash run.sh                              => wrapper
          120 python train.py # gpu=0                => trainer
            121 python train.py # gpu=1 rank         => trainer
              125 python train.py # fork gpu=1       => worker
            122 python train.py # gpu=2 rank         => trainer
        """,
    ),
    (
        "ranks that run another script than the one matched",
        """
        120 python train.py # gpu=0                  => trainer
          121 python _rank.py # gpu=1 rank           => trainer
          122 python _log.py # rank                  => worker
        """,
    ),
    (
        "torchrun and its ranks",
        """
        100 -bash
          110 python /opt/x/bin/torchrun train.py    => launcher
            120 python -u train.py # gpu=0 rank      => trainer
              125 python -u train.py # fork          => worker
            121 python -u train.py # gpu=1 rank      => trainer
        """,
    ),
    (
        "accelerate, under a script, under a login",
        """
        100 sshd
          105 bash run.sh                            => wrapper
            110 python /opt/x/bin/accelerate launch train.py   => launcher
              120 python train.py # gpu              => trainer
        """,
    ),
    (
        "a launcher with ranks on the CPU",
        """
        110 torchrun train.py                        => launcher
          120 python train.py # rank                 => trainer
          121 python train.py # rank                 => trainer
        """,
    ),
    (
        "spawn children train, the parent that matches only waits",
        f"""
        100 bash run.sh                              => wrapper
          110 python train.py                        => launcher
            119 {TRACKER}
            120 {SPAWN} # gpu=0                      => trainer
            121 {SPAWN} # gpu=1                      => trainer
              125 {SPAWN} # fork gpu=1               => worker
        """,
    ),
    (
        "what stands between a matched parent and its ranks is the job's own",
        """
        110 python train.py                          => launcher
          115 pool-starter                           => launcher
            120 python _rank.py # gpu=0 rank         => trainer
            121 python _rank.py # gpu=1 rank         => trainer
        """,
    ),
    (
        "a matched parent that waits, and matching children with GPUs",
        """
        110 python train.py --nproc 2                => launcher
          120 python train.py --rank 0 # gpu=0       => trainer
          121 python train.py --rank 1 # gpu=1       => trainer
        """,
    ),
    (
        "two trainers under one script are one job",
        """
        110 bash run.sh                              => wrapper
          120 python train.py --a                    => trainer
          121 python train.py --b                    => trainer
        """,
    ),
    (
        "two trees under one terminal are two",
        """
        100 -bash
          110 bash a.sh                              => wrapper
            120 python train.py --a                  => trainer
          210 bash b.sh                              => wrapper/2
            220 python train.py --b                  => trainer/2
              230 python train.py --b # fork         => worker/2
        """,
    ),
    (
        "an orphaned worker is all that is left of the job, and the job still runs",
        """
        1 init
          130 python train.py # fork                 => trainer
        """,
    ),
    (
        "one trainer, and the orphan of an earlier one: two trees",
        """
        1 init
          100 bash run.sh                            => wrapper
            120 python train.py # gpu                => trainer
          130 python train.py # fork                 => trainer/2
        """,
    ),
    (
        "a dead trainer that nobody reaped is not running; its worker is",
        """
        110 bash run.sh
          120 python train.py # Z
        130 python train.py # fork gpu ppid=1        => trainer
        """,
    ),
    (
        "a leader that ended while another thread trains on",
        """
        110 bash run.sh                              => wrapper
          120 python train.py # Z threads=2          => trainer
        """,
    ),
    (
        "a torn look: the parent is not there",
        """
        120 python train.py # ppid=77                => trainer
          130 loader                                 => worker
        """,
    ),
    (
        "a torn look: two that are each other's parent",
        """
        110 bash run.sh # ppid=120                   => worker
          120 python train.py                        => trainer
        """,
    ),
    (
        "a torn look: its own parent",
        """
        120 python train.py # ppid=120 gpu           => trainer
          130 loader                                 => worker
        """,
    ),
    (
        "a torn look: a matched parent that is its own",
        """
        130 python train.py # ppid=130               => launcher
          120 python train.py # gpu                  => trainer
        """,
    ),
    (
        "a torn look: forks in a circle",
        """
        120 python train.py # fork ppid=121 gpu      => trainer
          121 python train.py # fork gpu             => trainer
        """,
    ),
    (
        "a trainer beyond the pipe, under a stranger, is its own tree",
        """
        110 bash -c 'python train.py | feed'         => wrapper
          120 python train.py # 1>a                  => trainer
          130 feed # 0<a
            140 python train.py                      => trainer/2
        """,
    ),
    (
        "the first process of a container, with the container's number",
        """
        5000 python train.py # in=1                  => trainer
          5001 loader # in=8                         => worker
        """,
    ),
    ("nothing", "1 init\n  120 python eval.py"),
]
# What ends the chain: shown, never signalled.
ENDS = [
    "-bash",
    "bash",
    "tmux new-session -d 'python train.py'",
    "'sshd: ada@notty'",
    "/opt/x/bin/python /opt/x/bin/jupyter-lab",
    "python -m ipykernel_launcher",
    "/usr/bin/containerd-shim-runc-v2",
    "/lib/systemd/systemd --user",
    "/usr/sbin/cron -f",
    "raylet",
    "-",
]


@pytest.mark.parametrize(("story", "text"), STORIES, ids=[story for story, _ in STORIES])
def test_who_is_family(story: str, text: str) -> None:
    tale = told(text)
    found = find(tale.tree, TRAIN, None)
    assert roles_of(found) == tale.roles
    assert found.unclear is None
    assert found.leftovers == ()


@pytest.mark.parametrize("end", ENDS)
def test_the_chain_ends(end: str) -> None:
    tale = told(f"""
        100 bash outer.sh
          110 {end}
            115 bash run.sh             => wrapper
              120 python train.py       => trainer
    """)
    assert roles_of(find(tale.tree, TRAIN, None)) == tale.roles


NO_GPU_PARENT = """
    110 python train.py                 => {0}
      120 python train.py               => {1}
      121 python train.py               => {1}
"""
UNMATCHED_HOLDER = """
    110 python train.py                 => {0}
      120 raylet-worker # gpu           => {1}
"""
# the tree, the job's `trainers:`, the roles of parent and child, what cannot be told
SAID = [
    (NO_GPU_PARENT, None, "trainer", "trainer", "110 matches, and so does its own descendant 120"),
    (NO_GPU_PARENT, "leaves", "launcher", "trainer", None),
    (NO_GPU_PARENT, "all", "trainer", "trainer", None),
    (UNMATCHED_HOLDER, None, "trainer", "worker", "below it 120 holds one and does not match"),
    (UNMATCHED_HOLDER, "leaves", "trainer", "worker", None),
    (UNMATCHED_HOLDER, "all", "trainer", "worker", None),
]


@pytest.mark.parametrize(("text", "said", "parent", "child", "unclear"), SAID)
def test_who_trains_is_seen_or_said(
    text: str, said: Any, parent: str, child: str, unclear: str | None
) -> None:
    tale = told(text.format(parent, child))
    found = find(tale.tree, TRAIN, job(trainers=said))
    assert roles_of(found) == tale.roles
    assert (found.unclear or "").startswith("110 matches") is bool(unclear)
    assert (unclear or "") in (found.unclear or "")


PANE = """
110 -bash
  120 python train.py # {gpu}1>a                   => trainer
  121 grep -v warn # 0<a 1>b
  122 tee log # 0<b
"""


def test_in_a_pane_the_rest_of_the_pipeline_is_no_trainer() -> None:
    """All three are what works in the pane; INT to tee would cost the trainer its checkpoint."""
    pane = told(PANE.format(gpu="gpu "))
    rule, listed = Match(tmux="work"), frozenset({120, 121, 122})
    found = find(pane.tree, rule, job(match=rule), listed=listed)
    assert roles_of(found) == pane.roles
    # nobody is seen to hold a GPU: which of them trains is not guessed
    unseen = find(tree(PANE.format(gpu="")), rule, job(match=rule), listed=listed)
    assert [len(each.trainers) for each in unseen.families] != [1]


def test_the_driver_s_list_counts_where_open_files_could_not_be_seen() -> None:
    tale = told("""
        110 python train.py # unseen        => launcher
          120 python train.py # unseen      => trainer
    """)
    assert find(tale.tree, TRAIN, None).unclear is not None
    found = find(tale.tree, TRAIN, None, gpu_pids=frozenset({120}))
    assert (roles_of(found), found.unclear) == (tale.roles, None)


def test_a_named_wrapper_and_one_that_outlives() -> None:
    tale = told("""
        100 -bash
          110 babysit train         => wrapper
            120 python train.py     => trainer
    """)
    assert roles_of(find(tale.tree, TRAIN, job(wrapper="babysit"))) == tale.roles
    assert roles_of(find(tale.tree, TRAIN, job(wrapper="outlives"))) == {120: "trainer"}
    assert roles_of(find(tale.tree, TRAIN, job())) == {120: "trainer"}


def test_a_wrapper_that_outlives_joins_its_trainers_and_is_left_alone() -> None:
    tale = told("""
        110 bash run.sh
          120 python train.py     => trainer
          121 python train.py     => trainer
    """)
    found = find(tale.tree, TRAIN, job(wrapper="outlives"))
    assert roles_of(found) == tale.roles
    assert len(found.families) == 1


def test_the_host_s_first_process_is_never_family() -> None:
    """A plain host that is itself a container: everything descends from the trainer."""
    box = tree("""
        1 python train.py # gpu
          7 python train.py # fork gpu
          8 sshd
            9 -bash
    """)
    found = find(box, TRAIN, None)
    assert found.families == ()
    assert "first process" in (found.unclear or "")
    assert [each.id.pid for each in found.leftovers] == [1]  # never "not running"


def test_a_container_process_is_known_by_its_own_number() -> None:
    [family] = find(tree("7321 python train.py # in=312 born=900"), TRAIN, None).families
    [kin] = family.members
    assert (kin.id, kin.pid, kin.up_s) == (ProcessId(7321, 900), 312, 991.0)
    assert kin.argv == ("python", "train.py")


def test_a_member_without_words_is_shown_by_its_name() -> None:
    [family] = find(tree("120 python train.py\n  130 - # comm=pt_main"), TRAIN, None).families
    assert [kin.argv for kin in family.of("worker")] == [("[pt_main]",)]


# A tree, and which sessions are the job's alone.
SESSIONS = [
    ("100 sshd\n  110 bash run.sh # leader\n    120 python train.py", {110}),
    ("110 python train.py # leader\n  120 loader # leader", {110, 120}),
    ("100 -bash # leader\n  110 bash run.sh\n    120 python train.py", set[int]()),
    ("110 python train.py # sid=99", set[int]()),
    ("110 python train.py # sid=0", set[int]()),
    # a stranger in it: tee of the pipeline, or one who lost his parent
    ("110 bash run.sh\n  120 python train.py # 1>a\n  121 tee log # 0<a", set[int]()),
    ("110 bash run.sh\n  120 python train.py\n130 other # sid=110", set[int]()),
]


@pytest.mark.parametrize(("text", "alone"), SESSIONS)
def test_sessions_that_hold_only_family(text: str, alone: set[int]) -> None:
    [family] = find(tree(text), TRAIN, None).families
    assert family.sessions == alone


RUN_SH = job(launch=Launch(run=("./run.sh", "--all")))
# A tree between two lives, the job, and who would start it again.
BETWEEN = [
    ("110 torchrun train.py\n120 python other.py", None, [110]),
    ("110 python /opt/x/bin/accelerate launch /job/train.py", None, [110]),
    ("110 torchrun eval.py", None, []),
    ("110 tail -f train.py", None, []),
    ("110 bash -c 'while true; do python train.py; sleep 5; done'\n  120 sleep 5", None, [110]),
    ("110 bash -c 'until python3 -u train.py --x; do sleep 5; done'", None, [110]),
    ("110 bash -c 'while sleep 60; do rsync train.py away:; done'", None, []),
    ("110 bash -c 'python train.py; bash upload.sh'", None, []),
    # a loop over whatever it was given, which is the job, or anybody's
    ("110 bash -c 'while true; do \"$@\"; done' x python train.py", None, [110]),
    ("110 bash -c 'f=train.py; while true; do python $f; done'", None, [110]),
    ("110 bash -c 'while true; do \"$@\"; done' x python other.py", None, []),
    ('110 bash -c \'for each in a b; do while true; do "$tool" "$@"; done; done\'', None, []),
    ("110 bash -c 'while true; do python $f; done' x my-train.py train.pyc", None, []),
    ("110 ./run.sh --all", RUN_SH, [110]),
    ("110 /bin/bash ./run.sh --all\n  120 sleep 5", RUN_SH, [110]),
    ("110 /bin/bash -e ./run.sh --all", RUN_SH, [110]),
    ("110 /bin/bash ./run.sh --all # Z", RUN_SH, []),
    ("110 /bin/bash ./run.sh --some", RUN_SH, []),
    ("110 vim -R -n ./run.sh --all", RUN_SH, []),
    (
        "110 bash -c 'while true; do python train.py; done'\n  120 sleep 5",
        job(launch=Launch(run=("bash", "-c", "while true; do python train.py; done"))),
        [110],
    ),
    ("110 python train.py # Z", job(launch=Launch()), []),
]


@pytest.mark.parametrize(("text", "one", "left"), BETWEEN)
def test_between_two_lives(text: str, one: Job | None, left: list[int]) -> None:
    found = find(tree(text), TRAIN, one)
    assert found.families == ()
    assert [each.id.pid for each in found.leftovers] == left


BEFORE = """
    100 'sshd: ada'
      110 bash run.sh # leader
        120 python train.py
          130 loader
"""
SSH = """
    100 'sshd: ada' # leader
      110 -bash
        120 python train.py
          130 loader
"""
UNSEEN = """
    120 python train.py # sid=100 ppid=100
      130 loader
"""
PIPED = """
    110 bash -c 'python train.py | tee log'
      120 python train.py # 1>a
        130 loader
      140 tee log # 0<a
"""
REAPED = """
    100 python reaper.py # leader
      110 bash run.sh # leader
        120 python train.py
"""
LED = """
    110 torchrun train.py # leader
      120 python train.py # leader gpu rank
"""
MARKED = """
    110 bash run.sh # leader mark=a1
      120 python train.py # mark=a1
"""
# the story, the tree as fixed, the tree later, who joined
BIRTHS = [
    ("nobody", BEFORE, BEFORE, []),
    ("a worker of the trainer", BEFORE, BEFORE + "          150 loader", [150]),
    ("a worker's child", BEFORE, BEFORE + "            150 loader", [150]),
    (
        "a worker and its child",
        BEFORE,
        BEFORE + "          150 loader\n            160 sh -c x",
        [150, 160],
    ),
    (
        "both born in one tick, the child's number the smaller",
        BEFORE,
        BEFORE + "140 sh -c x # born=200 ppid=150\n150 loader # born=200 ppid=120",
        [150, 140],
    ),
    ("a new trainer under the script", BEFORE, BEFORE + "        150 python train.py", []),
    ("and its own child", BEFORE, BEFORE + "        150 python train.py\n          160 loader", []),
    ("a stranger under the login", BEFORE, BEFORE + "      150 python train.py", []),
    ("an orphan in the script's session", BEFORE, BEFORE + "150 loader # ppid=1 sid=110", [150]),
    ("its parent was not seen", BEFORE, BEFORE + "150 loader # ppid=77 sid=110", [150]),
    (
        "and the child of that orphan",
        BEFORE,
        BEFORE + "150 x # ppid=1 sid=110\n  151 y",
        [150, 151],
    ),
    (
        "an orphan whose container's init took it",
        BEFORE,
        BEFORE + "90 init # in=1\n  150 loader # sid=110",
        [150],
    ),
    (
        "a living stranger between",
        BEFORE,
        BEFORE + "149 other # sid=9\n  150 loader # sid=110",
        [],
    ),
    ("older than all of us", BEFORE, BEFORE + "150 loader # ppid=1 sid=110 born=50", []),
    ("an orphan in another session", BEFORE, BEFORE + "150 loader # ppid=1 sid=9", []),
    ("an orphan in no session at all", BEFORE, BEFORE + "150 loader # ppid=1 sid=0", []),
    ("a second job of the same login", SSH, SSH + "        150 python train.py", []),
    ("whose shell has ended", SSH, SSH + "150 python train.py # ppid=1 sid=100", []),
    ("whose shell was never seen", UNSEEN, UNSEEN + "150 python train.py # ppid=1 sid=100", []),
    ("an orphan where tee shares the session", PIPED, PIPED + "150 x # ppid=1 sid=110", []),
    (
        "a renamed orphan that a subreaper above took",
        REAPED,
        REAPED + "      150 x # sid=110",
        [150],
    ),
    ("a subreaper's own child", REAPED, REAPED + "      150 python train.py", []),
    ("an orphan that the launcher took", LED, LED + "      150 x # sid=120", [150]),
    ("a child of the launcher's own", LED, LED + "      150 x", []),
    ("a marked orphan in a session of its own", MARKED, MARKED + "150 x # ppid=1 mark=a1", [150]),
    ("with another's mark", MARKED, MARKED + "150 x # ppid=1 mark=b2", []),
    ("a marked one below a stranger", MARKED, MARKED + "149 y\n  150 x # mark=a1", []),
    ("a marked one that is older", MARKED, MARKED + "150 x # ppid=1 mark=a1 born=5", []),
    (
        "a child of one that took the trainer's number",
        BEFORE,
        "120 other # born=500\n  150 loader # born=501",
        [],
    ),
]


@pytest.mark.parametrize(
    ("story", "before", "later", "joined"), BIRTHS, ids=[story for story, *_ in BIRTHS]
)
def test_a_family_grows_only_by_birth(
    story: str, before: str, later: str, joined: list[int]
) -> None:
    [family] = find(tree(before), TRAIN, None).families
    grown = grow(family, tree(later))
    assert grown.members[: len(family.members)] == family.members
    fresh = grown.members[len(family.members) :]
    assert [kin.id.pid for kin in fresh] == joined
    assert {kin.role for kin in fresh} <= {"worker"}
    assert grown.sessions == family.sessions
    assert grow(grown, tree(later)) == grown


def test_who_may_carry_the_marker_is_looked_at() -> None:
    [family] = find(tree(MARKED), TRAIN, None).families
    later = tree(MARKED + "149 y\n  150 x\n160 z # ppid=1")
    assert may_be_marked(family, later) == {149, 160}
    [plain] = find(tree(REAPED), TRAIN, None).families
    assert may_be_marked(plain, later) == set()


def test_a_child_seen_alive_stays_when_its_parent_ends() -> None:
    [family] = find(tree(BEFORE), TRAIN, None).families
    grown = grow(family, tree(BEFORE + "          150 loader"))
    later = tree("150 loader # ppid=1 sid=7\n  160 x")
    assert [kin.id.pid for kin in standing(grown, later)] == [150]
    assert grow(grown, later).members[-1].id.pid == 160


def test_who_still_stands() -> None:
    [family] = find(tree(BEFORE), TRAIN, None).families
    later = tree("""
        110 bash run.sh
          120 - # Z
        130 loader # born=999
    """)
    assert [kin.id.pid for kin in standing(family, later)] == [110]
    half = tree("120 - # Z threads=2")
    assert [kin.id.pid for kin in standing(family, half)] == [120]


LINES = (
    "python train.py",
    "bash run.sh",
    "bash -c 'python train.py | tee log'",
    "torchrun train.py",
    "tee log",
    "-bash",
    "timeout 9 python train.py",
    SPAWN,
    "-",
)
TAGS = ("gpu", "rank", "fork", "Z", "leader", "0<a", "1>a", "in=1", "in=7", "unseen")
ROWS = st.tuples(
    st.integers(0, 12),
    st.integers(0, 13),
    st.sampled_from(LINES),
    st.lists(st.sampled_from(TAGS), max_size=3, unique=True),
)
TABLES = st.lists(ROWS, max_size=12)


def table(rows: list[tuple[int, int, str, list[str]]]) -> ProcessTree:
    """Any table at all: circles, missing parents, a first process below others."""
    made = {pid: process(pid, line, None, [*tags, f"ppid={up}"]) for pid, up, line, tags in rows}
    return ProcessTree(processes=made, uptime=1.0)


def ancestors(seen: ProcessTree, pid: int) -> set[int]:
    return {each.id.pid for each in seen.above(pid)}


@given(TABLES, st.sampled_from([None, "leaves", "all"]))
def test_whatever_the_table_only_relatives_are_family(rows: Any, said: Any) -> None:
    seen = table(rows)
    found = find(seen, TRAIN, job(trainers=said))
    everyone = [kin for family in found.families for kin in family.members]
    assert all(family.trainers for family in found.families)
    assert all(kin.id.pid > 1 for kin in everyone)
    assert len({kin.id for kin in everyone}) == len(everyone)
    trainers = {kin.id.pid for kin in everyone if kin.role == "trainer"}
    above = {at for pid in trainers for at in ancestors(seen, pid)}
    for kin in everyone:
        if kin.role == "worker":
            assert ancestors(seen, kin.id.pid) & trainers
        elif kin.role in ("wrapper", "launcher"):
            assert kin.id.pid in above
        else:
            assert _may_train(seen, seen.processes[kin.id.pid])
        assert seen.get(kin.id) is not None


def _may_train(seen: ProcessTree, one: Process) -> bool:
    matched = {p.id.pid for p in seen.processes.values() if p.argv == ("python", "train.py")}
    return one.id.pid in matched or bool(one.gpus and ancestors(seen, one.id.pid) & matched)


@given(TABLES)
def test_whatever_runs_is_found_or_named(rows: Any) -> None:
    """`not running` is never said of a table in which the script runs."""
    seen = table(rows)
    runs = [p for p in seen.processes.values() if p.argv == ("python", "train.py") and p.alive]
    found = find(seen, TRAIN, None)
    assert not runs or found.families or (found.unclear and found.leftovers)


@given(TABLES, TABLES)
def test_whatever_comes_later_only_joins_by_birth(rows: Any, more: Any) -> None:
    seen, later = table(rows), table([*rows, *more])
    for family in find(seen, TRAIN, None).families:
        grown = grow(family, later)
        kept = grown.members[: len(family.members)]
        assert kept == family.members
        known = {kin.id.pid for kin in family.of("trainer", "worker")}
        for kin in grown.members[len(family.members) :]:
            assert kin.id.pid > 1
            assert kin.role == "worker"
            assert kin.ppid in known or kin.sid in family.sessions or _new(grown, kin.ppid)


def _new(family: Family, pid: int) -> bool:
    return any(kin.id.pid == pid for kin in family.of("worker"))


def test_the_builder_tells_what_it_is_told() -> None:
    tale = told("7 a # in=3 born=9 sid=4\n  8 python t.py # gpu=1+2 rank => trainer\n")
    assert tale.roles == {8: "trainer"}
    child = tale.tree.processes[8]
    assert (child.ppid, child.sid, child.gpus) == (7, 4, ("/dev/nvidia1", "/dev/nvidia2"))
    assert msgspec.structs.asdict(tale.tree.processes[7])["inner"] == (3,)


def test_a_wrapper_that_became_a_shell_has_left_the_job() -> None:
    """exec keeps pid and start time: only its words tell that it is somebody's shell now."""
    before = told("""
        110 bash -c train.sh        => wrapper
          120 python train.py       => trainer
    """)
    [family] = find(before.tree, TRAIN, None).families
    after = told("""
        110 bash
    """)
    assert [kin.role for kin in standing(family, before.tree)] == ["wrapper", "trainer"]
    assert standing(family, after.tree) == ()


NAMED = [
    (
        "the script that was sent to the background",
        """
        110 bash run.sh                              => wrapper
          120 python train.py                        => trainer
            130 loader                               => worker
        """,
    ),
    (
        "what a shell's text runs, through a wrapper of that",
        """
        110 bash -c 'timeout 9h python train.py; date' => wrapper
          115 timeout 9h python train.py             => wrapper
            120 python train.py # gpu                => trainer
        """,
    ),
    (
        "a launcher's ranks",
        """
        110 torchrun train.py                        => launcher
          120 python train.py # rank                 => trainer
          121 python train.py # rank                 => trainer
        """,
    ),
    (
        "not its `tee`, where a GPU tells",
        """
        110 bash -c 'python train.py | tee log'      => wrapper
          120 python train.py # gpu 1>a              => trainer
          130 tee log # 0<a
        """,
    ),
    (
        "a shell that runs nothing is itself what is meant",
        """
        110 bash run.sh                              => trainer
        """,
    ),
]


@pytest.mark.parametrize("match", [Match(pid=110), Match(pidfile="/run/t.pid")])
@pytest.mark.parametrize("text", [text for _, text in NAMED], ids=[name for name, _ in NAMED])
def test_the_pid_of_what_started_it_names_what_trains(text: str, match: Match) -> None:
    """TERM to `bash run.sh` ends it alone, and the trainer is nobody's: not asked, not saved."""
    made = told(text)
    found = find(made.tree, match, None, listed=frozenset({110}))
    assert found.unclear is None
    assert roles_of(found) == made.roles


def test_the_pid_of_a_shell_that_runs_several_is_refused() -> None:
    made = told("110 bash run.sh\n  120 python train.py\n  130 tensorboard --logdir x")
    found = find(made.tree, Match(pid=110), None)
    assert found.unclear is not None
    assert "below 110 run 120, 130" in found.unclear


def test_a_pattern_that_fits_the_log_of_tee_makes_no_trainer_of_tee() -> None:
    """`pgrep -f train.py` names `tee train.py.log` too; INT there, and the save dies of SIGPIPE."""
    text = """
    110 bash -c 'python train.py | tee train.py.log' => wrapper
      120 python train.py # {gpu}1>a                 => trainer
      130 tee train.py.log # 0<a
    """
    rule, listed = Match(pgrep="train.py"), frozenset({110, 120, 130})
    seen = told(text.format(gpu="gpu "))
    found = find(seen.tree, rule, None, listed=listed)
    assert (roles_of(found), found.unclear) == (seen.roles, None)
    guess = find(told(text.format(gpu="")).tree, rule, None, listed=listed)
    assert guess.unclear is not None
    assert "120, 130 match and stand in one pipeline" in guess.unclear


def test_the_tee_of_a_unit_is_no_trainer_either() -> None:
    made = told(
        """
        110 bash -c 'python train.py | tee log'      => launcher
          120 python train.py # gpu 1>a              => trainer
          130 tee log # 0<a
        """
    )
    every = {
        pid: msgspec.structs.replace(each, cgroups=("/system.slice/train.service",))
        for pid, each in made.tree.processes.items()
    }
    found = find(ProcessTree(processes=every, uptime=1000.0), Match(unit="train"), None)
    assert (roles_of(found), found.unclear) == (made.roles, None)


def test_a_rank_that_its_matched_parent_reads_from_leaves_the_parent_in_the_family() -> None:
    made = told(
        """
        110 python train.py # 0<a                    => launcher
          120 python train.py # gpu 1>a              => trainer
        """
    )
    found = find(made.tree, Match(pgrep="train.py"), None, listed=frozenset({110, 120}))
    assert roles_of(found) == made.roles


STARTERS = [
    (Match(exe="mpirun"), "mpirun -n 2 python train.py"),
    (Match(pgrep="torchrun"), "torchrun --nproc_per_node 2 train.py"),
    (Match(pgrep="timeout"), "timeout 9h bash run.sh"),
    (Match(script="torchrun"), "python /opt/x/bin/torchrun train.py"),
    (Match(module="torch.distributed.run"), "python -m torch.distributed.run train.py"),
]


@pytest.mark.parametrize("gpu", ["gpu ", ""])
@pytest.mark.parametrize(("rule", "command"), STARTERS, ids=[c for _, c in STARTERS])
def test_the_name_of_what_starts_it_names_what_trains(rule: Match, command: str, gpu: str) -> None:
    """INT to `timeout` or `accelerate` ends it alone, to mpirun it starts a countdown to KILL."""
    made = told(f"""
    110 {command}                              => {"wrapper" if "run.sh" in command else "launcher"}
      120 python train.py # {gpu}rank          => trainer
        130 loader                             => worker
    """)
    found = find(made.tree, rule, None, listed=frozenset({110}))
    assert found.unclear is None
    assert roles_of(found) == made.roles


def test_a_name_that_fits_a_launcher_above_several_is_refused() -> None:
    made = told("110 mpirun -n 2 x\n  120 ./simulate\n  130 ./watch")
    found = find(made.tree, Match(exe="mpirun"), None)
    assert found.unclear is not None
    assert "below 110 run 120, 130" in found.unclear


def test_a_launcher_that_has_started_nothing_yet_is_between_two_lives() -> None:
    made = told("110 mpirun -n 2 python train.py")
    found = find(made.tree, Match(exe="mpirun"), None)
    assert found.families == ()
    assert [each.pid for each in found.leftovers] == [110]


def test_a_pattern_that_fits_the_launcher_and_its_ranks_takes_the_ranks() -> None:
    made = told("""
    110 torchrun train.py                      => launcher
      120 python train.py # rank               => trainer
      121 python train.py # rank               => trainer
    """)
    found = find(made.tree, Match(pgrep="train.py"), None, listed=frozenset({110, 120, 121}))
    assert (roles_of(found), found.unclear) == (made.roles, None)


LEFT = """
    1 init
      130 python train.py # fork sid=90        => worker
        135 ffmpeg                             => worker
      131 python train.py # fork sid=90        => worker
"""


def test_workers_that_a_dead_trainer_left_behind_are_no_trainers() -> None:
    """They have its command line and its session; INT to them saves nothing."""
    made = told(LEFT)
    found = find(made.tree, TRAIN, None, gpu_pids=frozenset())
    assert (roles_of(found), found.unclear) == (made.roles, None)
    assert [each.pid for each in found.orphans] == [130, 131]


def test_a_trainer_that_was_started_since_is_the_job_and_they_are_nobodys() -> None:
    made = told(LEFT.replace("worker", "").replace("=> ", "") + "\n      150 python train.py")
    found = find(made.tree, TRAIN, None, gpu_pids=frozenset())
    assert roles_of(found) == {150: "trainer"}
    assert [each.pid for each in found.orphans] == [130, 131]


DAEMONS = [
    "130 python train.py # fork sid=90",  # nothing speaks against one alone
    "130 python train.py # fork leader",
    "130 python train.py # fork sid=90\n        140 python train.py # fork sid=90",
    "130 python train.py # fork sid=90 leader\n      131 python train.py # fork leader",
]


@pytest.mark.parametrize("text", DAEMONS)
def test_a_trainer_that_made_itself_a_daemon_is_one(text: str) -> None:
    made = told("    1 init\n      " + text)
    found = find(made.tree, TRAIN, None, gpu_pids=frozenset())
    assert found.orphans == ()
    assert {130} <= {kin.pid for each in found.families for kin in each.trainers}


def test_one_alone_with_pipes_to_a_parent_that_is_gone_is_left_over_unless_it_is_listed() -> None:
    made = told("    1 init\n      130 python train.py # fork sid=90 gpu")
    one = made.tree.processes[130]
    assert one.detail is not None
    pipes = tuple(OpenFile(fd, f"pipe:[{fd}]", 0, 0) for fd in (7, 8))
    detail = msgspec.structs.replace(one.detail, files=(*(one.detail.files or ()), *pipes))
    piped = msgspec.structs.replace(one, detail=detail)
    seen = ProcessTree({**made.tree.processes, 130: piped}, 1000.0)
    assert [each.pid for each in find(seen, TRAIN, None, gpu_pids=frozenset()).orphans] == [130]
    assert find(seen, TRAIN, None, gpu_pids=frozenset({130})).orphans == ()
    # both open the GPU, and nobody tells who works on it
    assert "cannot be seen" in (find(seen, TRAIN, None, gpu_pids=None).unclear or "")
    # whoever names it means it
    assert find(seen, Match(pid=130), None, gpu_pids=None).families[0].trainers[0].pid == 130


def _with_files(seen: ProcessTree, pid: int, *files: OpenFile) -> ProcessTree:
    one = seen.processes[pid]
    assert one.detail is not None
    detail = msgspec.structs.replace(one.detail, files=(*(one.detail.files or ()), *files))
    changed = msgspec.structs.replace(one, detail=detail)
    return ProcessTree({**seen.processes, pid: changed}, seen.uptime)


# a trainer that forked twice to be a daemon leads no session, and trains on a CPU
DAEMON = "    1 init\n      130 python train.py # fork sid=90"
SPAWNED = "python -c 'from multiprocessing.spawn import spawn_main' --multiprocessing-fork"


def test_a_daemons_own_queue_and_pipes_to_its_children_are_none_to_a_parent() -> None:
    """Hidden as a worker it would be "not running" while it trains."""
    queue = [OpenFile(5, "pipe:[5]", 0, 0), OpenFile(6, "pipe:[5]", 1, 0)]
    seen = _with_files(tree(DAEMON), 130, *queue)
    assert find(seen, TRAIN, None, gpu_pids=frozenset()).orphans == ()

    made = tree(DAEMON + "\n        140 wandb-core # 0<x 1>y")
    ends = [OpenFile(5, "pipe:[x]", 1, 0), OpenFile(6, "pipe:[y]", 0, 0)]
    assert find(_with_files(made, 130, *ends), TRAIN, None, gpu_pids=frozenset()).orphans == ()

    # and with those of a dead parent it is left over still, whatever else it has
    sentinels = [OpenFile(7, "pipe:[7]", 0, 0), OpenFile(8, "pipe:[8]", 1, 0)]
    both = _with_files(made, 130, *ends, *queue, *sentinels)
    assert [each.pid for each in find(both, TRAIN, None, gpu_pids=frozenset()).orphans] == [130]


def test_a_daemon_with_spawned_workers_trains() -> None:
    """It holds one end of each one's pipes, and those may not be seen."""
    made = tree(DAEMON + f"\n        140 {SPAWNED} # unseen")
    ends = [OpenFile(5, "pipe:[5]", 1, 0), OpenFile(6, "pipe:[6]", 1, 0)]
    found = find(_with_files(made, 130, *ends), TRAIN, None, gpu_pids=frozenset())
    assert found.orphans == ()
    assert [each.pid for each in found.families[0].trainers] == [130]


def test_a_helper_that_matches_is_not_taken_for_the_trainer_that_does_not() -> None:
    """INT would go to the monitor, and the trainer would not even be shown."""
    made = told(
        "100 python3 /usr/bin/accelerate launch t.py\n  110 /opt/py/bin/python t.py # gpu=0\n"
        "    120 python3 monitor.py"
    )
    unclear = find(made.tree, Match(exe="python3"), None, gpu_pids=frozenset({110})).unclear or ""
    assert "100 matches and starts 110, which does not; 120 below that does" in unclear


def test_a_script_that_pauses_between_two_lives_has_no_trainer() -> None:
    made = told("100 /bin/bash ./run.sh # comm=run.sh\n  110 sleep 60")
    found = find(made.tree, Match(script="run.sh"), None)
    assert (found.families, [each.pid for each in found.leftovers]) == ((), [100])
    made = told("100 /bin/bash ./run.sh # comm=run.sh\n  110 sleep 60\n  120 python train.py # gpu")
    found = find(made.tree, Match(script="run.sh"), None)
    assert [each.pid for each in found.families[0].trainers] == [120]
