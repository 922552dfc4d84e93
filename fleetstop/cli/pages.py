"""Help and version, which go the way of all output: a reader who has left is no failure."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from fleetstop.view.stream import Outlet

F = TypeVar("F", bound=Callable[..., Any])


def _say(context: click.Context, text: str) -> None:
    Outlet(sys.stdout).write(text + "\n")
    context.exit()


def _help(context: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        _say(context, context.get_help())


class Command(click.Command):
    """click would end with 1 where its own page meets a closed pipe: a trainer runs, that says."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _help
        return option


class Group(Command, click.Group):
    command_class = Command
    group_class = type


def version(text: str) -> Callable[[F], F]:
    """An eager `--version`, as click's own but for how it is written."""

    def shown(context: click.Context, _option: click.Parameter, asked: bool) -> None:
        if asked and not context.resilient_parsing:
            _say(context, text)

    return click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=shown,
        help="Show the version and exit.",
    )
