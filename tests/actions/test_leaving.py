"""What is printed to be typed again works as it is typed, also where nothing runs any more."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from fleetstop.actions.leaving import said_first
from fleetstop.core.inventory import Deploy, Job, Launch, Match
from fleetstop.errors import ContainerStopped
from tests.actions.stage import JOB, job
from tests.actions.test_launching import Bringing, a_host, born, launch_spec, plan, run

RUN = "launch: {run: [bash, run.sh], cwd: /root}"
PLACED = f"{RUN}, deploy: {{dest: /root}}"
FIRST = "; should nothing run by then, say first in the inventory how it is started: "
SAYS = Launch(run=("bash", "run.sh"), cwd="/root")


@pytest.mark.parametrize("said", [True, False])
def test_where_nobody_goes_on_the_same_command_is_told_with_what_it_lacks(said: bool) -> None:
    """It was refused as it was typed: nothing said how the job is started, that had ended."""
    host = a_host(born())
    host.killed_at = "launching"
    outcome, _ = run(host, launch=SAYS if said else None)
    assert outcome.result == "unreachable"
    assert "run the same command again" in f"{outcome.reason} {outcome.hint}"
    for text in (outcome.reason, outcome.hint):
        if text and "run the same command again" in text:
            assert text.endswith("the same command again" if said else f"again{FIRST}{PLACED}")


def test_a_stopped_container_has_nothing_that_runs() -> None:
    host = a_host(born())
    stage = Bringing(host)

    def stopped(_: Any) -> None:
        raise ContainerStopped("container 200 on pve1 is not running")

    stage.world.within.before("order", stopped)
    outcome = asyncio.run(stage.launch())
    assert outcome.result == "unreachable"
    assert (outcome.reason or "").endswith(
        f"start it, and run the same command again{FIRST}{PLACED}"
    )


def test_what_was_never_touched_needs_no_word() -> None:
    host = a_host(born())
    host.refuses = "the disk is full"
    outcome, _ = run(host)
    assert outcome.result == "deploy_failed"
    assert FIRST not in f"{outcome.reason} {outcome.hint}"


LAUNCHED = msgspec.structs.replace(
    launch_spec("m"), argv=("bash", "run.sh", "--from", "/ck/9", "--token", "hunter2x")
)


@pytest.mark.parametrize(
    ("known", "facts", "lines"),
    [
        (JOB, {}, PLACED),
        (JOB, {"files": ()}, RUN),
        (job(match=Match(script="/root/train.py")), {}, RUN),
        (JOB, {"dest": "/srv/code"}, f"{RUN}, deploy: {{dest: /srv/code}}"),
        (job(deploy=Deploy(dest="/srv/code")), {"dest": "/srv/code"}, RUN),
        (job(launch=Launch(cwd="/x")), {"files": ()}, RUN),
        (job(launch=SAYS), {}, None),
        # as it ran before, without the checkpoint of once, and without what nobody is to read
        (
            JOB,
            {
                "launch_old": LAUNCHED,
                "files": (),
                "resumes": {"launch_old": ("--from", "{checkpoint}")},
            },
            'launch: {run: [bash, run.sh, --token, "***"], cwd: /root} (with what *** stands for)',
        ),
    ],
)
def test_it_is_told_as_what_ran_tells_it(
    known: Job, facts: dict[str, Any], lines: str | None
) -> None:
    spec = plan(**facts).spec
    assert said_first(known, spec) == ("" if lines is None else f"{FIRST}{lines}")
    assert said_first(None, spec) == ""
