"""Options that several commands share, each group as one decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

# where the practice fleet keeps its files unless told otherwise
USUAL_ROOT = "/var/lib/fleetstop-lab"

F = TypeVar("F", bound=Callable[..., Any])


def _all(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(body: F) -> F:
        for option in reversed(options):
            body = option(body)
        return body

    return decorate


def inventory(body: F) -> F:
    return _all(
        click.option(
            "-i",
            "--inventory",
            metavar="FILE|DIR",
            help="Default: $FLEETSTOP_INVENTORY, ./inventory/fleet*.yaml, the user config dir.",
        ),
    )(body)


def targets(body: F) -> F:
    """Any number of them, from a file too; an option that narrows stands for all it leaves."""
    return _all(
        click.argument("targets", nargs=-1),
        click.option(
            "--targets-from",
            metavar="FILE|-",
            type=click.File("r", encoding="utf-8"),
            help="Targets, one on a line; # begins a remark.",
        ),
    )(body)


def rolling(body: F) -> F:
    return _all(
        click.option(
            "--batch",
            type=click.IntRange(1),
            metavar="N",
            help="So many targets; the next ones once all of those have ended.",
        ),
        click.option(
            "--max-failures",
            type=click.IntRange(1),
            metavar="N",
            help="Once so many have failed, begin no more.",
        ),
    )(body)


def selection(body: F) -> F:
    return _all(
        click.option(
            "--tag", "tags", multiple=True, metavar="TAG", help="Only what bears it; or that one."
        ),
        click.option("--failed-in", metavar="RUN", help="Only what failed in this earlier run."),
        click.option("-l", "--limit", multiple=True, metavar="TARGET", help="Only these of them."),
        click.option("-x", "--exclude", multiple=True, metavar="TARGET", help="All but these."),
        parallel,
    )(body)


def parallel(body: F) -> F:
    return _all(
        click.option(
            "-P",
            "--parallel",
            default=20,
            show_default=True,
            type=click.IntRange(1, 500),
            help="Targets at once.",
        ),
    )(body)


def adhoc(body: F) -> F:
    return _all(
        click.option("--script", metavar="NAME|PATH", help="The job: the script python executes."),
        click.option("--pgrep", metavar="ERE", help="The job: as `pgrep -f` in the container."),
        click.option(
            "--pid", type=click.IntRange(1), help="The job: a PID as the container counts."
        ),
    )(body)


def output(body: F) -> F:
    """What a command prints; for scripts, or plain."""
    return _all(
        click.option("--json", "as_json", is_flag=True, help="The report, one line on stdout."),
        click.option("--events", is_flag=True, help="Every event, a line each, on stdout."),
        click.option("--no-color", is_flag=True, help="Plain text (also: NO_COLOR)."),
    )(body)


def loudness(body: F) -> F:
    return _all(
        click.option("-q", "--quiet", is_flag=True, help="Only one line for each target."),
        click.option("-v", "--verbose", is_flag=True, help="Evidence, and what it cost."),
    )(body)
