"""Who could start the job again is given its time; who could not is not waited for."""

from __future__ import annotations

import asyncio

import pytest

from fleetstop.core.commands import Answer
from fleetstop.core.report import Outcome, exit_code_of
from tests.actions.stage import Stage, playbook, target
from tests.actions.stage import job as a_stage_job
from tests.fakes.fake_host import FakeHost, Open, Proc, Trainer, a_job

CONF = "[program:train]\ncommand=python train.py\nautorestart={}\n"
INT = playbook("INT/1m")


def supervised(autorestart: str) -> tuple[FakeHost, Trainer]:
    host = FakeHost()
    trainer = a_job(host, wrapper=False)
    host.add(Proc(1005, 1000, ("supervisord", "-c", "/sv.conf")))
    trainer.ppid = 1005
    host.write("/sv.conf", CONF.format(autorestart).encode())
    return host, trainer


def stopped(host: FakeHost) -> tuple[Outcome, float]:
    start = host.clock.now()
    return asyncio.run(Stage(host).stop(INT)), host.clock.now() - start


def again(host: FakeHost, seconds: float) -> None:
    def appear() -> None:
        host.add(Trainer(host, 1050, 1005))

    host.later(seconds, appear)


def test_supervisord_starts_it_again_within_its_time() -> None:
    host, _ = supervised("true")
    again(host, 6.0)
    outcome, _ = stopped(host)
    assert (outcome.result, outcome.verdict) == ("unclean", "respawned")
    assert exit_code_of(outcome) == 6
    assert "the job runs again as 50; supervisord train (autorestart=true)" in (
        outcome.reason or ""
    )
    assert host.kills == [("INT", 1010)], "the new one has heard nothing"


def test_what_did_not_come_within_that_time_is_told_and_clean() -> None:
    host, _ = supervised("true")
    outcome, took = stopped(host)
    assert (outcome.result, outcome.reason) == ("stopped", None)
    assert took >= 5.0
    assert any("did not within 5 s" in each for each in outcome.findings)


@pytest.mark.parametrize("form", ["false"])
def test_a_supervisor_that_leaves_it_ended_is_not_waited_for(form: str) -> None:
    host, _ = supervised(form)
    outcome, took = stopped(host)
    assert outcome.result == "stopped"
    assert took < 5.0
    assert [each.again for each in outcome.above] == ["never"]


def test_a_loop_in_a_script_is_read_from_the_shell_and_named() -> None:
    host = FakeHost()
    a_job(host)
    shell = host.procs[1005]
    shell.ends_with_children = False
    shell.files[255] = Open("/root/run.sh", flags=0o100000)
    host.write("/root/run.sh", b"until python train.py\ndo sleep 2\ndone\n")
    again(host, 5.0)
    outcome, _ = stopped(host)
    assert [(each.kind, each.again) for each in outcome.above] == [("loop", "failure")]
    assert "respawned: the job runs again as 50; 5 bash run.sh starts it again until" in (
        outcome.reason or ""
    )


def test_between_two_lives_of_a_loop() -> None:
    host = FakeHost()
    host.add(Proc(1000, 1, ("init",)))
    shell = host.add(Proc(1005, 1000, ("bash", "run.sh")))
    shell.files[255] = Open("/root/run.sh", flags=0o100000)
    host.write("/root/run.sh", b"while true; do python train.py; sleep 60; done\n")
    host.add(Proc(1007, 1005, ("sleep", "60")))
    outcome, _ = stopped(host)
    assert (outcome.result, exit_code_of(outcome)) == ("unclean", 6)
    assert (outcome.reason or "").startswith("between_lives: ")
    # without a word of the script in its text it is anybody's loop
    host.write("/root/run.sh", b"while true; do python other.py; sleep 60; done\n")
    assert stopped(host)[0].result == "not_running"


def test_a_wrapper_that_outlives_may_loop_and_what_comes_back_is_told() -> None:
    host = FakeHost()
    a_job(host)
    host.procs[1005].ends_with_children = False
    host.procs[1005].argv = ("bash", "-c", "while true; do python train.py; sleep 1; done")
    aim = target(job=a_stage_job(wrapper="outlives"))
    again(host, 4.0)
    outcome = asyncio.run(Stage(host, aim=aim).stop(INT))
    assert outcome.verdict == "respawned"
    assert "starts it again whatever it returns" in (outcome.reason or "")


def unit(state: str) -> Answer:
    text = f"Restart=always\nRestartUSec=3s\nMainPID=5\nKillSignal=15\nActiveState={state}\n"
    return Answer(status=0, data=text.encode())


def in_a_unit(*states: str) -> tuple[FakeHost, Stage]:
    host = FakeHost()
    a_job(host)
    for pid in (1005, 1010):
        host.procs[pid].group = "/ns/system.slice/train.service"
    stage = Stage(host)
    stage.world.within.on("unit", *(unit(each) for each in states))
    return host, stage


def test_a_unit_that_will_start_it_again_is_waited_for_and_named() -> None:
    host, stage = in_a_unit("active", "activating")

    def appear() -> None:
        host.add(Trainer(host, 1050, 1000)).group = "/ns/system.slice/train.service"

    host.later(8.0, appear)
    outcome = asyncio.run(stage.stop(INT))
    assert outcome.verdict == "respawned"
    said = "the job runs again as 50; systemd unit train.service (Restart=always, after 3 s) starts"
    assert said in (outcome.reason or "")
    (above, _) = outcome.above
    assert (above.kind, above.pid) == ("systemd", None)
    assert "would send TERM to all of it" in above.will


def test_a_unit_that_has_settled_is_not_waited_for() -> None:
    host, stage = in_a_unit("active", "inactive")
    start = host.clock.now()
    outcome = asyncio.run(stage.stop(INT))
    assert (outcome.result, outcome.findings) == ("stopped", ())
    assert host.clock.now() - start < 5.0


def test_a_systemctl_that_gives_no_answer_is_told_and_given_its_time() -> None:
    _, stage = in_a_unit("active")
    stage.world.within.on("unit", Answer(32, b""))
    outcome = asyncio.run(stage.stop(INT))
    assert outcome.result == "stopped"
    assert (outcome.above[0].kind, outcome.above[0].again) == ("systemd", "unknown")
    assert any("train.service could start it again, and did not" in f for f in outcome.findings)


def test_a_unit_that_only_carries_the_job_is_not_above_it() -> None:
    host, stage = in_a_unit("active")
    for pid in (1005, 1010):
        host.procs[pid].group = "/ns/system.slice/ssh.service"
    stage.world.within.on("unit", Answer(33, b""))
    assert [each.kind for each in asyncio.run(stage.stop(INT)).above] == ["wrapper"]


def test_a_program_of_somebodys_own_that_lives_on_is_named() -> None:
    """It may start the job again in a minute; what it does nobody has told."""
    host = FakeHost()
    trainer = a_job(host, wrapper=False)
    host.add(Proc(1005, 1000, ("python3", "-u", "keep.py")))
    trainer.ppid = 1005
    outcome, took = stopped(host)
    assert (outcome.result, outcome.reason) == ("stopped", None)
    assert took < 5.0, "nobody was told that it would, so nothing is waited for"
    [said] = [each for each in outcome.findings if "keep.py" in each]
    assert "lives on; whether it starts the job again is not known" in said


def test_a_program_that_left_with_the_job_is_not_named() -> None:
    host = FakeHost()
    trainer = a_job(host, wrapper=False)
    host.add(Proc(1005, 1000, ("python3", "-u", "keep.py")))
    trainer.ppid = 1005
    host.later(0.5, lambda: host.procs.__delitem__(1005))
    outcome, _ = stopped(host)
    assert not [each for each in outcome.findings if "keep.py" in each]
