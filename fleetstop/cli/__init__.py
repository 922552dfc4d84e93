"""The command line: parse, call the api, exit. Heavy imports live inside the bodies."""

from __future__ import annotations

import sys

import click

from fleetstop.cli.commands import group


def main() -> None:
    """The console script. Exit codes are the README's table."""
    try:
        code = group.main(prog_name="fleetstop", standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        code = exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    sys.exit(code if isinstance(code, int) else 0)
