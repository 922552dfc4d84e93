"""What is sent: files by their place below the destination.

Knows no file system: who reads the files hands in what it found.
"""

from __future__ import annotations

from msgspec import Struct


class File(Struct, frozen=True):
    """One file. `rel` is its path below the destination, with /; `mode` its permission bits.

    `sha256` in hex and `size` in bytes are of exactly what is sent.
    """

    rel: str
    sha256: str
    size: int
    mode: int
