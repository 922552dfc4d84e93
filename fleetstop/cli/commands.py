"""Commands and their options. Bodies are short; the work is in the api."""

from __future__ import annotations

from typing import Any

import click

from fleetstop import __version__
from fleetstop.cli import deploying, playbooks
from fleetstop.cli.options import (
    USUAL_ROOT,
    adhoc,
    inventory,
    loudness,
    output,
    parallel,
    rolling,
    selection,
    targets,
)
from fleetstop.cli.pages import Group, version

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=Group, context_settings=_CONTEXT)
@version(f"fleetstop, version {__version__}")
def group() -> None:
    """Stop GPU training jobs in Proxmox LXC containers: gently, and with proof.

    Looks first, tells what it sees, does the gentlest thing that can work, proves that it worked.
    """


for each in (deploying.launch, deploying.restart, deploying.redeploy, deploying.rollback):
    group.add_command(each)
group.add_command(playbooks.playbook)
group.add_command(playbooks.schema)


@group.command("ls", short_help="What the inventory names.")
@click.argument("targets", nargs=-1)
@inventory
@output
def ls(**given: Any) -> int:
    """What the inventory names: targets, how they are found, how they are stopped."""
    from fleetstop.cli.running import listing

    return listing(**given)


@group.command()
@targets
@click.option("--stacks", is_flag=True, help="Where each trainer is in its code (py-spy).")
@selection
@adhoc
@inventory
@output
@loudness
def status(**given: Any) -> int:
    """What runs, how it does, and which signal would stop it. Sends nothing.

    TARGET is ct200, ct200:train, @group, 'ct2*', or an address: root@10.1.2.6/200.
    """
    from fleetstop.cli.running import run_status

    return run_status(**given)


@group.command("gpus", short_help="Who is on which GPU: container, job, PID, user.")
@click.argument("targets", nargs=-1)
@parallel
@inventory
@output
@loudness
def gpus(**given: Any) -> int:
    """What is on each GPU of a host: memory, container, job, PID, user, age. Sends nothing.

    TARGET is a host: pve1, root@10.1.2.6; or what is on one: ct200. Without any: all hosts.
    """
    from fleetstop.cli.running import run_gpus

    return run_gpus(**given)


@group.command(short_help="Stop a job: signal it once, wait for its save, prove it.")
@targets
@click.option("--graceful", is_flag=True, help="Never anything that may lose work.")
@click.option("--force", is_flag=True, help="Consent to rungs that may lose work.")
@click.option(
    "--max-loss",
    metavar="10m",
    help="Consent while the newest complete checkpoint is younger than that.",
)
@click.option(
    "--after-checkpoint", is_flag=True, help="Wait for the next checkpoint, then end it at once."
)
@click.option("--at-most", metavar="2h", help="How long --after-checkpoint waits.")
@click.option("-n", "--dry-run", is_flag=True, help="Look and plan; send nothing.")
@click.option("-p", "--playbook", metavar="NAME|FILE", help="Instead of the job's own.")
@click.option("--ladder", metavar="RUNGS", help="Short form: 'INT/3m TERM/1m KILL:tree/30s'.")
@click.option("--signal", metavar="NAME", help="The signal that makes this job save.")
@click.option("--timeout", metavar="TIME", help="Per target, in all; then it only stops watching.")
@click.option(
    "--break-lock", is_flag=True, help="Take the lock of another run, saying whose it was."
)
@click.option("--all-jobs", is_flag=True, help="All jobs of a container that has several.")
@click.option(
    "--gpu", type=click.IntRange(0, 9999), help="TARGET is a host: the one job on this GPU."
)
@click.option("-y", "--yes", is_flag=True, hidden=True)  # no question that exists is harmless
@rolling
@selection
@adhoc
@inventory
@output
@loudness
def stop(**given: Any) -> int:
    """Stop a job: look, signal the trainer once, wait for its save, prove the end.

    TARGET is ct200, ct200:train, @group, 'ct2*', or an address: root@10.1.2.6/200 with --script.
    """
    from fleetstop.cli.running import run_stop

    return run_stop(**given)


@group.command(short_help="Wait until it is gone, has saved, freed its GPUs, is healthy.")
@targets
@click.option(
    "--for",
    "until",
    type=click.Choice(["gone", "checkpoint", "gpu-free", "healthy"]),
    default="gone",
    show_default=True,
    help="What to wait for.",
)
@click.option("--timeout", metavar="TIME", help="Give up after 90s, 30m, 2h. Default: never.")
@click.option("--all-jobs", is_flag=True, help="All jobs of a container that has several.")
@selection
@adhoc
@inventory
@output
@loudness
def wait(**given: Any) -> int:
    """Wait until a job is gone, has saved, has freed its GPUs, or is healthy. Sends nothing.

    TARGET is as for stop. Exit 0: reached; 1: not, a trainer was alive last; 6: not, none was.
    """
    from fleetstop.cli.running import run_wait

    return run_wait(**given)


@group.command(short_help="Give a job that runs a name in the inventory.")
@click.argument("target")
@click.option(
    "--pid", required=True, type=click.IntRange(2), help="Its PID, as the container counts."
)
@click.option("--as", "name", required=True, metavar="NAME", help="train, or ct200:train.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be written.")
@click.option("-y", "--yes", is_flag=True, help="Write it without asking.")
@inventory
@click.option("--json", "as_json", is_flag=True, help="For scripts, one line on stdout.")
@click.option("--no-color", is_flag=True, help="Plain text (also: NO_COLOR).")
def adopt(**given: Any) -> int:
    """Give a job that runs a name: its stanza is shown, and written into the inventory.

    TARGET is a container or host: ct200, pve1/200, root@10.1.2.6/200. Nothing is sent.
    """
    from fleetstop.cli.adopting import run_adopt

    return run_adopt(**given)


@group.command(short_help="Look every place over before anybody has to stop what runs there.")
@click.argument("targets", nargs=-1)
@selection
@inventory
@click.option("--json", "as_json", is_flag=True, help="For scripts, one line on stdout.")
@click.option("--no-color", is_flag=True, help="Plain text (also: NO_COLOR).")
@click.option("-q", "--quiet", is_flag=True, help="Only what is wrong or could not be seen.")
@click.option("-v", "--verbose", is_flag=True, help="What is well too, a line each.")
def doctor(**given: Any) -> int:
    """Look hosts, containers and jobs over, and say what to type where something is wrong.

    TARGET is as for status; none: the whole inventory. Changes nothing, sends nothing. Exit 0: all
    could be looked at, whatever was found; 4: something could not.
    """
    from fleetstop.cli.examining import run_doctor

    return run_doctor(**given)


@group.command(short_help="Find nodes and containers through Proxmox's API.")
@click.argument("hosts", nargs=-1, metavar="[HOST]...")
@click.option("--url", metavar="URL", help="An API that is in no inventory: https://10.1.2.6:8006.")
@click.option("--login", metavar="ID", help="With --url: the token as USER@REALM!NAME.")
@click.option(
    "--key-from", metavar="SOURCE", help="env:NAME, file:PATH, command:LINE or keyring:SERVICE."
)
@click.option("--ca", metavar="FILE", help="With --url: a copy of /etc/pve/pve-root-ca.pem.")
@click.option("--fingerprint", metavar="SHA256", help="Instead of --ca: the certificate's own.")
@click.option("--ssh", metavar="HOST", help="Without the API: read /etc/pve on that node.")
@click.option("--write", is_flag=True, help="Add what is new to the inventory.")
@click.option("-n", "--dry-run", is_flag=True, help="With --write: say what would be added.")
@inventory
@click.option("--json", "as_json", is_flag=True, help="For scripts, one line on stdout.")
@click.option("--no-color", is_flag=True, help="Plain text (also: NO_COLOR).")
def discover(**given: Any) -> int:
    """Nodes and containers of Proxmox clusters, by the API; --write adds them to the inventory.

    HOST is one of the inventory with an api:; none: all that have one. Nothing is sent to a job.
    """
    from fleetstop.cli.discovering import run_discover

    return run_discover(**given)


@group.command(short_help="What a verdict, a landing or an exit code means.")
@click.argument("word", required=False)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
@click.option("--no-color", is_flag=True, help="Plain text (also: NO_COLOR).")
def explain(**given: Any) -> int:
    """What a verdict, a landing, a result or an exit code means, and what to do next.

    Without a WORD: all of them.
    """
    from fleetstop.cli.explaining import explain as told

    return told(**given)


@group.group(invoke_without_command=True)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--target", metavar="TARGET", help="Only runs with this one; ct200: all its jobs.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
@click.pass_context
def history(context: click.Context, /, **given: Any) -> int | None:
    """The runs there were: each leaves a record on this machine."""
    if context.invoked_subcommand is not None:
        return None
    from fleetstop.cli.past import listing

    return listing(**given)


@history.command("show")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="The whole record, one line.")
@click.option("--no-color", is_flag=True, help="Plain text (also: NO_COLOR).")
def history_show(**given: Any) -> int:
    """One run told again; the first letters of its id are enough."""
    from fleetstop.cli.past import show

    return show(**given)


@group.group(short_help="The practice fleet: real sshd, containers, trainers to stop.")
def lab() -> None:
    """The practice fleet: a real sshd, real LXC containers, trainers to stop. Needs root."""


_ROOT = click.option(
    "--root",
    default=USUAL_ROOT,
    show_default=True,
    type=click.Path(),
    help="Where the practice fleet keeps its files.",
)


def _cost(_context: click.Context, _option: click.Parameter, seconds: float) -> float:
    if not 0.0 <= seconds <= 60.0:  # nan too
        raise click.BadParameter("seconds, from 0 to 60")
    return seconds


@lab.command("up", short_help="Start it: a polite trainer and a deaf one.")
@click.option("--containers", default=2, show_default=True, type=click.IntRange(1, 20))
@click.option(
    "--pct-cost",
    callback=_cost,
    default=0.0,
    show_default=True,
    help="Seconds of CPU a pct call costs.",
)
@_ROOT
def lab_up(**given: Any) -> int:
    """Start it, with a polite trainer in the first container and a deaf one in the second."""
    from fleetstop.cli.practice import up

    return up(**given)


@lab.command("down")
@_ROOT
def lab_down(**given: Any) -> int:
    """End what `lab up` started, by identity, and nothing else."""
    from fleetstop.cli.practice import down

    return down(**given)


@lab.command("status")
@_ROOT
def lab_status(**given: Any) -> int:
    """What of it runs, and how to use it."""
    from fleetstop.cli.practice import show

    return show(**given)


@group.command(short_help="Stop three kinds of trainer on a practice fleet of its own.")
@click.option(
    "--pct-cost",
    callback=_cost,
    default=0.4,
    show_default=True,
    help="Seconds of CPU a pct call costs.",
)
def demo(**given: Any) -> int:
    """Stop a polite, a deaf and a slow-saving trainer on a practice fleet of its own."""
    from fleetstop.cli.demo import play

    return play(**given)
