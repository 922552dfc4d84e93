"""Commands that bring a job up: launch, restart, redeploy, rollback. Bodies are short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from fleetstop.cli.options import adhoc, inventory, loudness, output, rolling, selection
from fleetstop.cli.pages import Command

F = TypeVar("F", bound=Callable[..., Any])
_ARGUMENTS = "fleetstop.arguments"


class WithArguments(Command):
    """What stands behind -- is the job's own, whatever it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_ARGUMENTS] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGS...]"]


def _stopping(body: F) -> F:
    """How what runs is stopped; as for `stop`."""
    options = (
        click.option("--graceful", is_flag=True, help="Never anything that may lose work."),
        click.option("--force", is_flag=True, help="Consent to rungs that may lose work."),
        click.option(
            "--max-loss",
            metavar="10m",
            help="Consent while the newest complete checkpoint is younger.",
        ),
        click.option(
            "--after-checkpoint", is_flag=True, help="Wait for the next checkpoint, then end it."
        ),
        click.option("--at-most", metavar="2h", help="How long --after-checkpoint waits."),
        click.option("-p", "--playbook", metavar="NAME|FILE", help="Instead of the job's own."),
        click.option(
            "--ladder", metavar="RUNGS", help="Short form: 'INT/3m TERM/1m KILL:tree/30s'."
        ),
        click.option("--signal", metavar="NAME", help="The signal that makes this job save."),
    )
    for option in reversed(options):
        body = option(body)
    return body


def _bringing(body: F) -> F:
    options = (
        click.option("--env", multiple=True, metavar="K=V", help="Added to its environment."),
        click.option("-n", "--dry-run", is_flag=True, help="Look and plan; change nothing."),
        click.option(
            "--timeout", metavar="TIME", help="Per target, in all; then it only stops watching."
        ),
        click.option("--break-lock", is_flag=True, help="Take the lock of another run."),
        click.option("--all-jobs", is_flag=True, help="All jobs of a container that has several."),
        click.option(
            "-y", "--yes", is_flag=True, hidden=True
        ),  # no question that exists is harmless
        rolling,
        selection,
        adhoc,
        inventory,
        output,
        loudness,
    )
    for option in reversed(options):
        body = option(body)
    return body


_NO_ROLLBACK = click.option("--no-rollback", is_flag=True, help="Leave what is unhealthy as it is.")
_DIFF = click.option("--diff", is_flag=True, help="Show what would change, line by line, and end.")


@click.command(cls=WithArguments, short_help="Start a job, and see that it is well.")
@click.argument("target")
@_bringing
def launch(**given: Any) -> int:
    """Start a job as its inventory says, and see whether it is well.

    Refused beside one that runs, its leftovers, or a holder of its own GPUs. What stands behind
    -- is added to its arguments.
    """
    return _run("launch", given)


@click.command(cls=WithArguments, short_help="Stop a job and start it again, able to hear.")
@click.argument("target")
@_NO_ROLLBACK
@_stopping
@_bringing
def restart(**given: Any) -> int:
    """Stop a job by its playbook and start it again, so that it hears its stop signal.

    What the inventory's `launch:` does not say stays as it runs now. What stands behind -- is
    added to its arguments. If it is unhealthy then, it is started again as it ran before (exit 8).
    """
    return _run("restart", given)


@click.command(cls=WithArguments, short_help="New code in, old run out, next stop graceful.")
@click.argument("target")
@click.argument("files", nargs=-1, metavar="FILES...")
@click.option("--to", metavar="DIR", help="The directory there, instead of the one it runs from.")
@_DIFF
@_NO_ROLLBACK
@_stopping
@_bringing
def redeploy(**given: Any) -> int:
    """Send files and directories, prove them there, stop the job, swap, start, look after it.

    Whatever fails before the stop leaves the job untouched (exit 7); an unhealthy new version is
    rolled back (exit 8).
    """
    return _run("redeploy", given)


@click.command(cls=WithArguments, short_help="The files of an earlier release again.")
@click.argument("target")
@click.option("--to", "release", metavar="RELEASE", help="Instead of the one before.")
@_DIFF
@_NO_ROLLBACK
@_stopping
@_bringing
def rollback(**given: Any) -> int:
    """Put back the files of a kept release, the one before unless --to names another."""
    return _run("rollback", given)


def _run(command: str, given: dict[str, Any]) -> int:
    from fleetstop.cli.bringing import run_bring

    args = click.get_current_context().meta.get(_ARGUMENTS, ())
    return run_bring(command, **given, args=args)
