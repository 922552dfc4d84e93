"""What status says of a job's code, and of what a deploy has left: stories on a fake host."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable

import pytest

from fleetstop import events
from fleetstop.actions.status import status
from fleetstop.core.commands import Answer
from fleetstop.core.inventory import Deploy, Job
from fleetstop.core.report import Outcome
from fleetstop.errors import FrameTimedOut
from fleetstop.events import CodeSeen
from tests.actions.stage import Stage, job, target
from tests.fakes.fake_host import FakeHost, Proc, Trainer, WorldShell, a_job

BASE = "/root/.fleetstop/train"
NEW, OLD = "20261130-140211-7f3a", "20261129-140211-0000"
PLAIN = job(checkpoints=None)  # no file of it is looked at for any other reason


def running(**facts: object) -> tuple[FakeHost, Trainer]:
    """The job of a_job, deployed two minutes before it was started."""
    host = FakeHost()
    trainer = a_job(host)
    host.clock.advance(1000.0)
    host.write("/root/train.py", b"import model\n", age_s=up(host, trainer) + 120)
    host.write("/root/model.py", b"", age_s=up(host, trainer) + 120)
    host.write("/root/eval.py", b"", age_s=up(host, trainer) + 120)
    if facts:
        state(host, **facts)
    return host, trainer


def up(host: FakeHost, proc: Proc) -> float:
    return host.clock.now() - proc.start / 100


def state(host: FakeHost, step: object = "healthy", **facts: object) -> None:
    told = {"schema": 1, "run": "7f3a91c2", "step": step, "release": NEW, "before": OLD}
    told |= {"ended_at": "2026-11-30T14:02:31Z", **facts}
    host.write(f"{BASE}/state.json", json.dumps(told).encode())


def manifest(host: FakeHost, name: str, **files: str) -> None:
    """A kept release of these files by what they held."""
    told = {
        "id": name, "dest": "/root", "when": "2026-11-30T14:02:11Z", "who": "ann@laptop",
        "files": [
            {"rel": f"{rel}.py", "size": len(text), "mode": 0o644,
             "sha256": hashlib.sha256(text.encode()).hexdigest()}
            for rel, text in files.items()
        ],
    }  # fmt: skip
    host.write(f"{BASE}/releases/{name}/manifest.json", json.dumps(told).encode())


def looked(host: FakeHost, aim: Job = PLAIN) -> tuple[Outcome, CodeSeen | None, Stage]:
    stage = Stage(host, aim=target(job=aim))
    outcome = asyncio.run(status(stage.scope))
    told = stage.of(events.Located)
    return outcome, told[0].code if told else None, stage


def test_an_edit_after_the_start_is_told_in_one_frame_and_no_pct() -> None:
    host, trainer = running()
    host.write("/root/train.py", b"import model\n# better\n", age_s=up(host, trainer) - 720)
    outcome, code, stage = looked(host)
    said = "/root/train.py is 12 min newer than the process: it runs the OLD code"
    assert outcome.findings == (said,)
    assert code is not None
    assert (code.main, code.newer, code.old, code.said) == (
        "/root/train.py",
        "/root/train.py",
        True,
        said,
    )
    assert code.newer_s == pytest.approx(720.0, abs=1.0)
    assert outcome.release is None  # nothing was ever deployed
    assert [each.verb for each in host.frames].count("through") == 1
    assert stage.world.pct_calls == 0
    assert host.clock.slept[0] == 0.25  # in the pause between the looks


def test_nothing_newer_is_nothing_to_say() -> None:
    host, _ = running()
    outcome, code, _ = looked(host)
    assert outcome.findings == ()
    assert code is not None
    assert (code.old, code.said, code.unseen) == (False, None, None)


def test_of_its_neighbours_only_those_that_it_imports_count() -> None:
    host, trainer = running()
    host.write("/root/eval.py", b"# better", age_s=up(host, trainer) - 60)
    assert looked(host)[0].findings == ()
    host.write("/root/model.py", b"# better", age_s=up(host, trainer) - 60)
    outcome, code, _ = looked(host)
    (said,) = outcome.findings
    assert said.startswith("/root/model.py, which it imports, is 60 s newer")
    assert code is not None
    assert code.old is None  # nobody sees when it was imported


def test_the_release_that_was_launched_is_told_without_another_frame() -> None:
    host, trainer = running()
    state(host, running=NEW, trainer={"pid": trainer.inner, "start": trainer.start, "mark": "m"})
    outcome, code, _ = looked(host)
    assert code is not None
    assert (code.release, code.certain) == (NEW, True)
    assert outcome.release is not None
    assert (outcome.release.running, outcome.release.before) == (NEW, OLD)
    assert outcome.findings == ()
    assert [each.verb for each in host.frames].count("through") == 1


def test_the_same_content_written_again_is_no_newer_code() -> None:
    """rsync, a hard link, chown: the release that was launched is known by its hashes."""
    host, trainer = running()
    mine = {"pid": trainer.inner, "start": trainer.start, "mark": "m"}
    state(host, running=NEW, trainer=mine)
    manifest(host, NEW, train="import model\n", model="")
    host.write("/root/train.py", b"import model\n", age_s=0.0)
    outcome, code, _ = looked(host)
    assert outcome.findings == ()
    assert code is not None
    assert (code.old, code.release) == (False, NEW)
    # another content is
    host.write("/root/train.py", b"import other\n", age_s=0.0)
    outcome, code, _ = looked(host)
    assert "it runs the OLD code" in outcome.findings[0]
    assert code is not None
    assert (code.old, code.release, code.certain) == (True, NEW, True)


def test_started_by_hand_what_lies_on_disk_tells() -> None:
    host, trainer = running()
    state(host, running=NEW, trainer={"pid": 999, "start": 1, "mark": "m"})
    manifest(host, NEW, train="import model\n", model="")
    outcome, code, _ = looked(host)
    assert code is not None
    assert (code.release, code.certain) == (NEW, False)
    assert code.runs == f"release {NEW} runs, by what lies on disk"
    host.write("/root/model.py", b"# edited before it was started", age_s=up(host, trainer) + 60)
    assert looked(host)[1].release is None  # type: ignore[union-attr]
    host.write("/root/model.py", b"", age_s=0.0)
    outcome, code, _ = looked(host)
    assert code is not None
    assert code.runs == "which release runs is not known: model.py was changed since"
    assert outcome.release is not None
    assert outcome.release.running is None


def test_what_the_activator_left_is_told() -> None:
    host, trainer = running()
    mine = {"pid": trainer.inner, "start": trainer.start, "mark": "m"}
    state(host, "rolled_back", running=OLD, trainer=mine, reason="it ended: exit 3")
    outcome, code, _ = looked(host)
    assert code is not None
    assert code.release == OLD
    (said,) = outcome.findings
    assert said.endswith("it ended: exit 3; what ran before is back")
    state(host, "dancing")
    outcome, _, _ = looked(host)
    assert outcome.findings[0].startswith(f"{BASE}/state.json is no activator's state")


def activator(host: FakeHost, **facts: object) -> Proc:
    """At work for this job; what it writes says so."""
    words = ("python3", "-I", f"{BASE}/activate.py", f"{BASE}/stage-7f3a91c2/spec.json")
    proc = host.add(Proc(1077, 1000, words))
    who = {"pid": proc.inner, "start": proc.start}
    state(host, activator=who, ended_at=None, **facts)
    return proc


def test_an_activator_that_waits_for_the_old_run() -> None:
    host, _ = running()
    activator(host, step="waiting", order="armed")
    host.write(f"{BASE}/beat", b"", age_s=2.0)
    outcome, _, _ = looked(host)
    assert outcome.findings == (
        "the activator 77 of run 7f3a91c2 is at it: it waits for the end of what runs",
    )
    host.write(f"{BASE}/beat", b"", age_s=600.0)
    assert "its client was last heard 10 min ago" in looked(host)[0].findings[0]


@pytest.mark.parametrize("aim", [PLAIN, job(checkpoints=None, deploy=Deploy(dest="/root"))])
def test_between_two_lives_it_is_not_called_not_running(aim: Job) -> None:
    """The old run has ended, and the activator is about to start the new one."""
    host, trainer = running()
    wrapper = host.procs[1005]
    host.end(trainer)
    host.end(wrapper)
    proc = activator(host, step="launching", order="go")
    outcome, _, _ = looked(host, aim)
    assert (outcome.result, outcome.verdict) == ("running", "unknown")
    assert outcome.reason == (
        "between two lives: no trainer runs, but the activator 77 of run 7f3a91c2 is at it: it"
        " starts the job"
    )
    host.end(proc)
    outcome, _, stage = looked(host, aim)
    assert outcome.result == "not_running"
    # it would be refused: `launch:` says nothing
    assert ("the same command goes on from there once `launch: run`" in str(outcome.findings)) is (
        aim.deploy is not None
    )
    # only where the inventory says where the code lies can anything be found by then
    known = aim.deploy is not None
    assert bool(outcome.findings) is known
    assert ("before it had started" not in str(outcome.findings)) or known
    assert stage.world.pct_calls == 0


def test_one_whose_directory_was_moved_is_named() -> None:
    """It cannot be told what it is about; it may start the job all the same."""
    host, trainer = running()
    wrapper = host.procs[1005]
    host.end(trainer)
    host.end(wrapper)
    activator(host, step="waiting", order="armed")
    del host.files[f"{BASE}/state.json"]
    outcome, _, _ = looked(host, job(checkpoints=None, deploy=Deploy(dest="/root")))
    assert (outcome.result, outcome.verdict) == ("running", "unknown")
    assert outcome.reason == (
        "between two lives: no trainer runs, but the activator 77 of an earlier run is at it, and"
        " its records are not where they were"
    )


def test_the_last_unexplained_death() -> None:
    host, trainer = running()
    host.end(trainer)
    host.end(host.procs[1005])
    state(host, running=NEW, trainer={"pid": 10, "start": trainer.start, "mark": "m7"})
    record: dict[str, object] = {"mark": "m7", "ended_at": "2025-11-30T14:02:29Z", "signal": "KILL"}
    host.write(f"{BASE}/status/m7.json", json.dumps(record).encode())
    aim = job(checkpoints=None, deploy=Deploy(dest="/root"))
    outcome, _, _ = looked(host, aim)
    assert outcome.result == "not_running"
    assert outcome.findings[0].startswith("the last run ended by KILL at 2025-11-30 14:02:29 UTC")
    record |= {"signal": None, "exit": 0}
    host.write(f"{BASE}/status/m7.json", json.dumps(record).encode())
    assert looked(host, aim)[0].findings == ()


def test_what_came_back_and_ended_too_is_not_said_to_be_back() -> None:
    host, trainer = running()
    mine = {"pid": trainer.inner, "start": trainer.start, "mark": "m7"}
    state(host, "rolled_back", running=OLD, trainer=mine, reason="it ended: exit 3")
    aim = job(checkpoints=None, deploy=Deploy(dest="/root"))
    assert looked(host, aim)[0].findings[0].endswith("; what ran before is back")
    host.end(trainer)
    host.end(host.procs[1005])
    record = {"mark": "m7", "ended_at": "2025-11-30T14:02:29Z", "exit": 2}
    host.write(f"{BASE}/status/m7.json", json.dumps(record).encode())
    outcome, _, _ = looked(host, aim)
    assert outcome.result == "not_running"
    said, death = outcome.findings
    assert said.endswith("; what ran before was brought back, and has ended by now")
    assert death.startswith("the last run ended with exit 2")


def hangs(_: object) -> Answer:
    raise FrameTimedOut("pve1: no answer to 'through' within 5 s")


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        (hangs, "no answer"),
        (lambda _: Answer(49, b""), "status 49"),
        (lambda _: Answer(0, b"n\0"), "status 0"),
    ],
)
def test_what_cannot_be_looked_at_is_neither_new_nor_old(
    hook: Callable[[object], Answer], why: str
) -> None:
    host, _ = running()
    stage = Stage(host, aim=target(job=PLAIN))
    stage.world.host.before("through", hook)
    outcome = asyncio.run(status(stage.scope))
    (told,) = stage.of(events.Located)
    assert told.code is not None
    assert (told.code.old, told.code.said) == (None, None)
    assert why in (told.code.unseen or "")
    assert (outcome.result, outcome.verdict, outcome.findings) == ("running", "busy", ())


def test_without_root_it_is_read_inside_where_the_look_is_at_home_anyway() -> None:
    host, trainer = running()
    host.write("/root/train.py", b"", age_s=up(host, trainer) - 60)
    stage = Stage(host, aim=target(job=PLAIN))
    stage.world.without_root = "ml may not become root"
    stage.world.within = WorldShell(host)
    outcome = asyncio.run(status(stage.scope))
    assert any("OLD code" in each for each in outcome.findings)
    assert stage.world.within.sent("code")
    assert stage.world.pct_calls <= 1


@pytest.mark.parametrize("comes", ["the new one", "nobody yet", "nobody"])
def test_one_that_ends_while_it_is_looked_at_is_looked_at_anew(comes: str) -> None:
    """In the moment of a swap: it was shown as `gone`, with an empty log, running OLD code."""
    host, trainer = running()
    # the swap: newer than what ran, which has ended
    host.write("/root/train.py", b"import model\n", age_s=0.0)

    def swap() -> None:
        wrapper = host.procs[trainer.ppid]
        host.end(trainer)
        host.end(wrapper)
        if comes == "the new one":
            host.add(Trainer(host, 1210, 1000)).start = int(float(host.uptime) * 100)
        if comes != "nobody":
            activator(host, step="launching", order="go")

    host.later(0.1, swap)
    outcome, _, stage = looked(host, job(checkpoints=None, deploy=Deploy(dest="/root")))
    told = [*outcome.findings, *outcome.evidence, *[each.text for each in stage.of(events.Finding)]]
    assert "OLD code" not in str(told)
    assert "10 is gone" not in str(told)
    if comes == "the new one":
        assert [each.pid for each in outcome.family] == [210]
        assert outcome.verdict != "gone"
        assert len(stage.of(events.Located)) == 1
    elif comes == "nobody yet":
        assert (outcome.result, outcome.verdict) == ("running", "unknown")
        assert (outcome.reason or "").startswith("between two lives: no trainer runs, but the act")
    else:
        assert (outcome.result, outcome.reason) == ("not_running", "nothing matches")
