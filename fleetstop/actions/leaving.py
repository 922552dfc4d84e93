"""What goes on without us where a launch is left in the middle, a sentence. Does nothing."""

from __future__ import annotations

from msgspec import structs

from fleetstop.actions.activating import Activation
from fleetstop.core.adopting.stanza import deploy_line, launch_line
from fleetstop.core.inventory import Job, Launch
from fleetstop.core.launching.activator import ActivatorSpec
from fleetstop.core.launching.resumed import without
from fleetstop.core.releases.home import code_of, home
from fleetstop.core.releases.manifest import told_argv
from fleetstop.core.report import Outcome

AGAIN = "run the same command again"
STOPPED = f"the container was stopped, and nothing goes on in it by itself: start it, and {AGAIN}"

WHAT_RAN = "what ran before"


def left_as(activation: Activation) -> str:
    """Told whenever the watching ends early."""
    state, ordered = activation.state, activation.ordered
    at = state.step if state is not None else None
    if not activation.started:
        return "nothing was started"
    if activation.dead:
        return f"what worked in the container is gone, and nothing goes on by itself: {AGAIN}"
    if activation.stopping and ordered == "armed":
        return (
            "what waits in the container starts the job by itself if what runs ends, and leaves "
            "if it does not"
        )
    if ordered == "armed" or (ordered == "go" and activation.heard == "armed"):
        return "what ran has ended, and what waits in the container starts the job by itself"
    if ordered in (None, "cancel"):
        return "nothing was started; what waits in the container leaves by itself"
    if ordered != activation.heard:
        return f"what waits in the container goes on if it has heard {ordered}, and else leaves"
    if ordered == "unwell":
        return (
            "it is not well: what works in the container brings the version before back if it "
            "ends, and leaves it as it is if it does not"
        )
    if at == "launched" and ordered in ("go", "done"):
        return "it was started, and what works in the container sees to its health by itself"
    if at in ("rolled_back", "unhealthy", "failed"):
        return f"what works in the container has come to {at}"
    return "what works in the container goes on by itself"


def said_first(job: Job | None, spec: ActivatorSpec) -> str:
    """What the same command lacks once nothing runs, as words to add; empty: nothing. Where the
    inventory does not say how the job is started, or where its code lies, what ran told that."""
    made, name = spec.launch_old or spec.launch, "launch_old" if spec.launch_old else "launch"
    launch = job.launch or Launch() if job is not None else Launch()
    if job is None or launch.run or made is None:
        return ""
    argv = without(told_argv(made.argv), spec.resumes.get(name, ()))
    lines = [launch_line(argv, made.cwd)]
    said = structs.replace(job, launch=structs.replace(launch, run=argv, cwd=made.cwd))
    # files go only where it is said that they lie, not to wherever it is started in
    if (code_of(said) if spec.files else home(said)) != spec.dest:
        lines.append(deploy_line(spec.dest))
    how = "should nothing run by then, say first in the inventory how it is started"
    return f"; {how}: {', '.join(lines)}"


def goes_on(activation: Activation, outcome: Outcome, left_s: float | None) -> bool:
    """Only the watching ends: what has heard its signal may end yet, and nothing would run then.
    `outcome`: of a stop that did not see it end; `left_s`: of the --timeout, None: no end."""
    over = left_s is not None and left_s <= 0
    heard = outcome.signals or activation.spec.succeeds is not None
    unseen = outcome.result == "unreachable" and heard
    return activation.ordered == "armed" and bool(over or unseen)


def left_unhealthy(spec: ActivatorSpec, runs: bool) -> str:
    """What becomes of what was started, where nothing else is brought back."""
    wished = not spec.roll_back and spec.launch_old is not None
    wish = ", as --no-rollback has it" if wished else ""
    if spec.launch_old is None and spec.gone:  # what ran before is the same, and no way back
        wish = ": it is what ran before, started the same way, so there is no other to bring back"
    name = version(spec.release, "what was started")
    return f"{name} runs on{wish}" if runs else f"NOTHING runs{wish}"


def version(release: str | None, else_: str) -> str:
    return f"release {release}" if release else else_
