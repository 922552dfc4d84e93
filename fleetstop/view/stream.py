"""Writing to a stream that may be closed, full or narrow in its encoding, without ever raising."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import TextIO

_lost: list[str] = []


def unwritten() -> bool:
    """Whether stdout has not taken all of it, though somebody meant to keep it: a full disk. A
    reader who has left wanted no more."""
    return bool(_lost)


class Outlet:
    """A stream that may go away: after its first failure every write is a no-op."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    @property
    def open(self) -> bool:
        return self._stream is not None

    @property
    def encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def flush(self) -> None:
        """Every write has been flushed already; rich asks for it."""

    def write(self, text: str) -> None:
        stream = self._stream
        if stream is None:
            return
        try:
            try:
                stream.write(text)
            except UnicodeEncodeError:
                stream.write(_narrow(text, stream.encoding))
            stream.flush()
        except (OSError, ValueError) as exc:
            self._stream = None
            _silence(stream)
            _tell(stream, exc)


def _narrow(text: str, encoding: str | None) -> str:
    name = encoding or "ascii"
    return text.replace("…", "...").encode(name, "backslashreplace").decode(name)


def _tell(stream: TextIO, exc: Exception) -> None:
    """One line, where more was meant to be kept than a reader has gone away."""
    if not isinstance(exc, OSError) or exc.errno in (errno.EPIPE, errno.EBADF):
        return
    if stream is sys.stdout:
        _lost.append(str(exc))
    if sys.stderr is None or stream is sys.stderr:
        return
    with suppress(OSError, ValueError):
        why = exc.strerror or type(exc).__name__
        sys.stderr.write(f"fleetstop: not all of the output could be written: {why}\n")
        sys.stderr.flush()


def _silence(stream: TextIO) -> None:
    """Nobody reads any more: what is still buffered must not fail when Python ends (exit 120)."""
    with suppress(OSError, ValueError):
        number = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
