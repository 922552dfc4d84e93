"""Which view suits the stream: live on a real terminal, plain lines everywhere else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import TextIO

from fleetstop.view.layout import WIDTH, Line, painted
from fleetstop.view.lines import Lines


def colored(stream: TextIO | None, *, no_color: bool, environ: Mapping[str, str]) -> bool:
    """Colour only on a terminal that knows it, and only where nobody said no (no-color.org)."""
    if no_color or environ.get("NO_COLOR") or not terminal(stream):
        return False
    return environ.get("TERM", "dumb") != "dumb"


def terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def width(stream: TextIO | None) -> int:
    """Columns for text that wraps: a terminal's own, never more than reads well."""
    if not terminal(stream):
        return WIDTH
    return max(60, min(WIDTH, shutil.get_terminal_size((WIDTH, 40)).columns))


def headed(
    texts: Sequence[str],
    stream: TextIO | None,
    *,
    no_color: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> list[str]:
    """Lines of which the first is a title."""
    color = colored(stream, no_color=no_color, environ=environ)
    return [
        painted(Line("", each, "plain" if n else "head"), color) for n, each in enumerate(texts)
    ]


def people(
    stream: TextIO | None,
    *,
    quiet: bool = False,
    verbose: bool = False,
    no_color: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Lines:
    """The listener for people on this stream."""
    color = colored(stream, no_color=no_color, environ=environ)
    dumb = environ.get("TERM", "dumb") == "dumb"
    if stream is None or quiet or dumb or not terminal(stream):
        columns = width(stream)
        return Lines(stream, width=columns, color=color, quiet=quiet, verbose=verbose)
    from fleetstop.view.live import LiveLines

    return LiveLines(stream, color=color, verbose=verbose)
