"""Who has a GPU's device open, from the answer of `openers`; knows no process and no nvidia-smi."""

from __future__ import annotations

import re
from collections import defaultdict

_AT = re.compile(rb"/proc/([0-9]{1,10})/fd/[0-9]{1,10}")
_NODE = re.compile(r"/dev/nvidia([0-9]{1,4})")
_NUMBERS = re.compile(r"([0-9a-f]{1,4}):([0-9a-f]{1,5})")
# Documentation/admin-guide/devices.txt of the kernel; from 254 on: modeset and control, no GPU
_MAJOR, _NO_GPU = 195, 254


def parse_openers(data: bytes) -> dict[int, frozenset[int]]:
    """Host PID -> the minors N of /dev/nvidiaN, which are not nvidia-smi's indexes.

    Records of link path and link text, or the major:minor (hex) of a node with another name.
    """
    found: dict[int, set[int]] = defaultdict(set)
    records = data.split(b"\0")
    for path, text in zip(records[::2], records[1::2], strict=False):
        at, minor = _AT.fullmatch(path), _minor(text.decode("utf-8", "replace"))
        if at is not None and minor is not None:
            found[int(at[1])].add(minor)
    return {pid: frozenset(minors) for pid, minors in found.items()}


def _minor(text: str) -> int | None:
    named = _NODE.fullmatch(text.removesuffix(" (deleted)"))
    if named is not None:
        return int(named[1])
    numbers = _NUMBERS.fullmatch(text)
    if numbers is None or int(numbers[1], 16) != _MAJOR:
        return None
    minor = int(numbers[2], 16)
    return minor if minor < _NO_GPU else None
