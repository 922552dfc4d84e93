"""The command line: parse, call the api, exit. Heavy imports live inside the bodies."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress

import click

from fleetstop.cli.commands import group
from fleetstop.cli.early import cut_short
from fleetstop.view.stream import Outlet, unwritten


def main() -> None:
    """The console script. Exit codes are the README's table."""
    gc.set_threshold(50_000)  # imports make no garbage, and a tenth of the start went to looking
    try:
        code = group.main(prog_name="fleetstop", standalone_mode=False)
    except click.ClickException as exc:
        with suppress(OSError):  # stderr may be full, or gone
            exc.show()
        code = exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        cut_short(sys.argv[1:])
        code = 130
    except Exception as exc:
        # exit 1 means that the job still runs; a bug must not say that
        _told(exc)
        code = 70
    sys.exit(_ended(code if isinstance(code, int) else 0))


def _told(exc: Exception) -> None:
    where = _kept(exc)
    err = Outlet(sys.stderr)
    err.write(f"fleetstop: a fault in fleetstop: {type(exc).__name__}\n")
    kept = where or "nowhere: it could not be written"
    err.write(f"  next  please report it; the traceback is in {kept}\n")


def _kept(exc: Exception) -> str | None:
    """Where its traceback is. What is broken may be what keeps it: an update half done, say."""
    import traceback

    try:
        from fleetstop.api import log_fault
    except Exception:
        traceback.print_exception(exc)
        return "the lines above"
    return log_fault("cli", "".join(traceback.format_exception(exc)))


def _ended(code: int) -> int:
    """What was asked for has not come out whole: that is no 0. What became of a job stands."""
    return 70 if code == 0 and unwritten() else code
