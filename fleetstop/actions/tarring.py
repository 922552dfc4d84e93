"""Files as one tar stream, read a little at a time; knows neither place nor destination.

GNU's format (tar(5)): long names are understood by busybox too. What it says of owners and times is
the same for everybody.
"""

from __future__ import annotations

import asyncio
import base64
import tarfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from fleetstop.actions.interpreter import failed
from fleetstop.core.releases.payload import File
from fleetstop.core.spelling import plain

Read: TypeAlias = Callable[[File], Iterator[bytes]]
"""The bytes of one file, a piece at a time."""

PIECE = 256 * 1024
UNPACKED_MOST = 2 * 2**20
PACKED_MOST = 256 * 1024
"""A shell reads its questions byte by byte: so much takes it 0.1 to 0.2 s, and a `pct exec` for a
stream of its own costs a core for half a second."""
_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)


def named(files: Iterable[File]) -> Iterator[tuple[str, File]]:
    """Each by its path below the destination."""
    return ((each.rel, each) for each in files)


def tar(files: Iterable[tuple[str, File]], read: Read) -> Iterator[bytes]:
    """The stream, each file under this name of it.

    Raises DeployFailed where a file is not as long as it was, or cannot be read."""
    for name, file in files:
        yield header(name, file)
        yield from _content(file, read)
        yield bytes(-file.size % _BLOCK)
    yield _END


def _content(file: File, read: Read) -> Iterator[bytes]:
    left = file.size
    try:
        for piece in read(file):
            left -= len(piece)
            if left < 0:
                break
            yield piece
    except OSError as exc:
        told = f"{plain(file.rel)} could not be read here: {exc.strerror or exc}"
        raise failed(told) from exc
    if left:
        told = f"{plain(file.rel)} changed here while it was being sent"
        raise failed(told, hint="run the same command again")


def packed(files: Sequence[File], read: Read) -> str | None:
    """All of them one behind the other, for a question; None where that would be too long.

    Raises as `tar` does."""
    if sum(each.size for each in files) > UNPACKED_MOST:
        return None
    content = b"".join(piece for each in files for piece in _content(each, read))
    text = base64.b64encode(zlib.compress(content)).decode("ascii")
    return text if len(text) <= PACKED_MOST else None


def header(name: str, file: File) -> bytes:
    """With what a long name takes in front of it."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = file.size, file.mode
    return entry.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def length(files: Iterable[File]) -> int:
    """Of the whole stream, bytes."""
    return len(_END) + sum(
        len(header(each.rel, each)) + each.size + -each.size % _BLOCK for each in files
    )


async def unhurried(stream: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in fair pieces, read in a thread: the loop never waits for a disk."""
    while piece := await asyncio.to_thread(_gathered, stream):
        yield piece


def _gathered(stream: Iterator[bytes]) -> bytes:
    found = bytearray()
    for each in stream:
        found += each
        if len(found) >= PIECE:
            break
    return bytes(found)
