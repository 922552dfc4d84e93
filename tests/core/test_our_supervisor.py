"""The supervisor of our own launch: seen above the trainer, never of the job, whatever is sent."""

from __future__ import annotations

import msgspec
import pytest

from fleetstop.core.above.supervisors import Notes, standing_above, to_ask
from fleetstop.core.above.units import systemd_policy
from fleetstop.core.climbing.rungs import Standing, recipients
from fleetstop.core.inventory import Job, Match
from fleetstop.core.kin.birth import grow
from fleetstop.core.kin.family import find
from fleetstop.core.kin.lineage import abandoned, above_kind, through_panes
from fleetstop.core.kin.matching import brings_it_up, matches, records_the_end
from fleetstop.core.process import ProcessTree
from tests.core.test_lineage import SPAWN
from tests.core.trees import process, roles_of, told, tree

TRAIN = Match(script="train.py")
BASE = "/srv/run/.fleetstop/train"
OURS = f"/opt/x/bin/python3 -I {BASE}/supervise.py {BASE}/launch.json"
STAYS = f"/opt/x/bin/python3 -I {BASE}/stay.py {BASE}/launch.json"
LAUNCHED = f"""
    1 init
      100 {OURS} # leader
        110 python train.py # gpu leader      => trainer
          120 python train.py # fork          => worker
"""


@pytest.mark.parametrize(
    ("line", "is_it"),
    [
        (OURS, True),
        ("python3.6 -I /a/supervise.py s.json", True),
        ("python3 -I -u '/a b/supervise.py' s.json", True),
        (f"python3 -I {BASE}/stay.py s.json", True),
        (f"python3 {BASE}/stay.py s.json", False),
        (f"python3 -I {BASE}/stay.py s.json more", False),
        ("python3 -I /a/stay.py s.json", False),  # somebody's own
        ("python3 /a/supervise.py s.json", False),
        ("python3 -I supervise.py s.json", False),
        ("python3 -I /a/supervise.py", False),
        ("python3 -I /a/supervise.py s.json more", False),
        ("python3 /a/supervise.py -I", False),
        ("python3 -I /a/train.py /a/supervise.py", False),
        ("grep -I /a/supervise.py s.json", False),
        ("bash /a/supervise.py s.json", False),
        ("python3 -I -m supervise s.json", False),
        ("-", False),
    ],
)
def test_it_is_known_by_its_command_line(line: str, is_it: bool) -> None:
    assert records_the_end(process(50, line)) is is_it


ACTIVATOR = f"python3 -I {BASE}/activate.py {BASE}/stage-7f3a/spec.json"


@pytest.mark.parametrize(
    ("line", "is_it"),
    [
        (ACTIVATOR, True),
        (f"python3 -I {BASE}/activate.py --clean {BASE} 7f3a", True),
        (f"python3 {BASE}/activate.py spec.json", False),
        (f"python3 -I {BASE}/activate.py", False),
        ("python3 -I /a/activate.py spec.json", False),  # somebody's own
        (f"vim {BASE}/activate.py spec.json", False),
    ],
)
def test_what_starts_the_job_anew_is_known_by_its_command_line(line: str, is_it: bool) -> None:
    assert brings_it_up(process(50, line)) is is_it


@pytest.mark.parametrize("match", [Match(pgrep="train"), Match(exe="python3"), Match(gpu=True)])
def test_what_starts_the_job_anew_is_never_the_job(match: Match) -> None:
    """Taken for it, it would be a second tree, or one that came back."""
    here = tree(f"1 init\n  50 {ACTIVATOR} # gpu leader\n  60 python3 train.py # gpu leader")
    found = [
        p.pid for p in here.processes.values() if matches(match, p, listed=frozenset({50, 60}))
    ]
    assert found == [60]


def test_it_is_told_with_what_it_will_do() -> None:
    here = tree(LAUNCHED)
    [family] = find(here, TRAIN, None).families
    [one] = standing_above(here, family, Notes())
    assert (one.pid, one.kind, one.again, one.restarts) == (100, "supervisor", "never", False)
    assert one.will == "records the end of what it started; starts nothing again"


IN_A_PANE = f"""
    1 init
      80 'tmux: server' # comm=tmux:
        90 {STAYS} # leader
          100 {OURS} # leader
            110 python train.py # gpu leader      => trainer
              120 python train.py # fork          => worker
"""


def test_in_a_pane_the_pane_is_told_too() -> None:
    tale = told(IN_A_PANE)
    found = find(tale.tree, TRAIN, None)
    assert (roles_of(found), found.unclear, found.leftovers) == (tale.roles, None, ())
    above = standing_above(tale.tree, found.families[0], Notes())
    assert [(each.pid, each.kind, each.restarts) for each in above] == [
        (80, "tmux", False),
        (100, "supervisor", False),
    ]
    # the server has the words of whoever began it: of our stay.py, or of somebody's other session
    assert above[0].argv == ("tmux",)
    assert above[0].will.startswith("our own launch put the job there")
    theirs = told(IN_A_PANE.replace(STAYS, "bash"))
    [family] = find(theirs.tree, TRAIN, None).families
    assert "our own" not in str(standing_above(theirs.tree, family, Notes()))
    for panes in (90, 100):
        assert through_panes(tale.tree, frozenset({panes})) == {110}


@pytest.mark.parametrize("to", ["trainers", "wrapper", "tree", "group"])
@pytest.mark.parametrize("named", ["stay.py", "python3", "sh", None])
def test_no_rung_reaches_what_stands_there_for_the_trainer(to: str, named: str | None) -> None:
    """Directly above it, in a pane whose supervisor was killed. With it the pane would go."""
    tale = told(LAUNCHED.replace(OURS, STAYS))
    job = Job(name="train", match=TRAIN, wrapper=named)
    found = find(tale.tree, TRAIN, job)
    assert roles_of(found) == tale.roles
    standing = Standing(found.families[0], tale.tree, "INT", False, "given", {}, frozenset())
    assert {each.pid for each in recipients(to, "KILL", standing)} <= {110, 120}


OURS_SAYS = """\
Restart=no
RestartUSec=100ms
TimeoutStopUSec=infinity
MainPID=90
KillMode=process
KillSignal=2
ActiveState=active
SubState=running
"""


def test_a_unit_of_our_own_is_told_and_starts_nothing_again() -> None:
    here = tree(
        f"1 init\n  90 {STAYS} # leader\n    100 {OURS} # leader\n      110 python train.py"
    )
    groups = ("/lxc/200/ns/system.slice/fleetstop-train.service",)
    inside = {k: msgspec.structs.replace(p, cgroups=groups) for k, p in here.processes.items()}
    here = ProcessTree(inside, here.uptime)
    [family] = find(here, TRAIN, None).families
    (unit,) = to_ask(here, [family]).units
    policy = systemd_policy(unit, OURS_SAYS)
    assert policy is not None
    over, ours = standing_above(here, family, Notes(policies={unit: policy}))
    assert (over.kind, over.again, ours.kind) == ("systemd", "never", "supervisor")
    assert over.will == (
        "leaves it ended; `systemctl stop` would send INT to its main process,"
        " which hands it on to the trainer once"
    )
    # a unit that only carries it: cron's, say, from whose table it was launched
    other = msgspec.structs.replace(policy, main_pid=7)
    (only,) = standing_above(here, family, Notes(policies={unit: other}))
    assert only.kind == "supervisor"


def test_it_is_never_family() -> None:
    tale = told(LAUNCHED)
    found = find(tale.tree, TRAIN, None)
    assert (roles_of(found), found.unclear, found.leftovers) == (tale.roles, None, ())
    assert {each.pid for each in found.families[0].reapers} == {100}


@pytest.mark.parametrize("to", ["trainers", "wrapper", "tree", "group"])
@pytest.mark.parametrize("signal", ["INT", "KILL"])
def test_no_rung_reaches_it(to: str, signal: str) -> None:
    """Its death would cost the record of how the trainer ended."""
    here = tree(LAUNCHED)
    job = Job(name="train", match=TRAIN, wrapper="supervise.py")
    [family] = find(here, TRAIN, job).families
    standing = Standing(family, here, "INT", False, "given", {}, frozenset())
    reached = {each.pid for each in recipients(to, signal, standing)}
    assert reached <= {110, 120}
    assert bool(reached) is (to != "wrapper")


@pytest.mark.parametrize("named", ["supervise.py", "python3", "outlives", None])
def test_no_word_of_the_inventory_makes_it_a_wrapper(named: str | None) -> None:
    """A rung to `wrapper` or `tree` would reach it, and the end would go unrecorded."""
    tale = told(LAUNCHED)
    job = Job(name="train", match=TRAIN, wrapper=named)
    assert roles_of(find(tale.tree, TRAIN, job)) == tale.roles
    assert above_kind(process(50, OURS), named) is None


@pytest.mark.parametrize(
    "match",
    [
        Match(script="supervise.py"),
        Match(script="/srv/run/.fleetstop/supervise.py"),
        Match(exe="python3"),
        Match(exe="/opt/x/bin/python3"),
        Match(pid=50),
        Match(pidfile="/run/t.pid"),
        Match(pgrep="train"),
        Match(tmux="train"),
        Match(gpu=True),
    ],
)
def test_no_match_means_it(match: Match) -> None:
    one = process(50, OURS, None, ["gpu"])
    assert not matches(match, one, listed=frozenset({50}))
    # and a program of somebody's own with that name is one like any other
    if match.script == "supervise.py":
        assert matches(match, process(50, "python3 /a/supervise.py s.json"))


def test_a_match_above_and_below_leaves_it_out() -> None:
    """A first program that adopts orphans, and starts our launch: both sides match."""
    tale = told(f"""
        1 init
          90 python train.py
            100 {OURS} # leader
              110 python train.py # leader    => trainer
    """)
    job = Job(name="train", match=TRAIN, trainers="leaves")
    assert roles_of(find(tale.tree, TRAIN, job)) == tale.roles


def test_it_is_no_worker_of_a_trainer_that_adopted_it() -> None:
    here = tree(f"90 python train.py # gpu\n  100 {OURS} # leader\n    110 python eval.py # leader")
    [family] = find(here, TRAIN, None).families
    assert 100 not in {each.pid for each in family.members}


def test_it_never_joins_though_it_carries_the_mark() -> None:
    before = "1 init\n  110 python train.py # gpu leader mark=m1"
    [family] = find(tree(before), TRAIN, None).families
    later = tree(f"{before}\n  111 {OURS} # mark=m1\n  112 python x.py # mark=m1")
    assert [each.pid for each in grow(family, later).members] == [110, 112]


LEFT = f"""
    1 init
      100 {OURS} # leader
        130 python train.py # fork sid=110        => worker
        131 python train.py # fork sid=110        => worker
"""


def test_workers_that_it_adopted_are_orphans_and_no_trainers() -> None:
    """It is a subreaper: with a dead trainer's command line, they are its children."""
    made = told(LEFT)
    found = find(made.tree, TRAIN, None, gpu_pids=frozenset())
    assert (roles_of(found), found.unclear) == (made.roles, None)
    assert [each.pid for each in found.orphans] == [130, 131]


def test_what_multiprocessing_left_below_it_is_abandoned() -> None:
    lost = f"1 init\n  100 {OURS}\n    130 python -c '{SPAWN}'"
    assert [each.id.pid for each in abandoned(tree(lost))] == [130]
    kept = f"1 init\n  100 {OURS}\n    110 python train.py\n      130 python -c '{SPAWN}'"
    assert abandoned(tree(kept)) == ()


def test_an_orphan_that_it_adopted_joins_while_the_trainer_lives() -> None:
    here = tree(LAUNCHED)
    [family] = find(here, TRAIN, None).families
    later = tree(LAUNCHED.replace("=> trainer", "").replace("=> worker", "") + """
        150 loader # ppid=100 sid=110
    """)  # fmt: skip
    assert [each.pid for each in grow(family, later).members] == [110, 120, 150]


def test_a_pane_shows_what_it_started() -> None:
    here = tree(f"60 -bash\n  100 {OURS}\n    110 python train.py")
    assert through_panes(here, frozenset({60})) == {110}
