"""The command line: parse, call the api, exit. Heavy imports live inside the bodies."""

from __future__ import annotations

import sys

import click

from fleetstop.cli.commands import group
from fleetstop.cli.early import cut_short


def main() -> None:
    """The console script. Exit codes are the README's table."""
    try:
        code = group.main(prog_name="fleetstop", standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        code = exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        cut_short(sys.argv[1:])
        code = 130
    except Exception as exc:
        # exit 1 means that the job still runs; a bug must not say that
        import traceback

        from fleetstop.api import log_fault

        where = log_fault("cli", traceback.format_exc()) or "nowhere: it could not be written"
        click.echo(f"fleetstop: a fault in fleetstop: {type(exc).__name__}", err=True)
        click.echo(f"  next  please report it; the traceback is in {where}", err=True)
        code = 70
    sys.exit(code if isinstance(code, int) else 0)
