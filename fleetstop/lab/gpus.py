"""The knobs of the practice nvidia-smi, kept in `<root>/gpu.json`."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TypedDict


class Row(TypedDict):
    """A holder that is in no container of this lab; `gpu` is the index. Text stands in its cell as
    it is: `[Insufficient Permissions]`, `[Not Found]`, `[N/A]`."""

    gpu: int
    pid: int | str
    mib: int | str


class Knobs(TypedDict):
    """What `gpu.json` may say.

    `fail`: a key of FAILURES in files/nvidia_smi.py, or null. `hang`: sleep for ever.
    `release_delay_s`: memory stays used, unlisted, that long after a look first missed its owner.
    `faults`: by index, `GPU requires reset` or `GPU is lost` as recorded, or another text for all
    its memory cells (`N/A`). `inforom`: it answers, warns, and ends with 14.
    `rows`: holders elsewhere; with a dead PID also what the driver says of a dead parent's memory.
    """

    uuids: list[str]
    total_mib: int
    base_mib: int
    default_mib: int
    release_delay_s: float
    fail: str | None
    hang: bool
    faults: dict[str, str]
    inforom: bool
    rows: list[Row]


def write(root: Path, count: int) -> None:
    """The default: `count` idle GPUs with UUIDs that are the same for the same lab directory."""
    knobs = Knobs(
        uuids=[f"GPU-{uuid.uuid5(uuid.NAMESPACE_URL, f'{root}/{n}')}" for n in range(count)],
        total_mib=81559,
        base_mib=0,
        default_mib=1024,
        release_delay_s=0.0,
        fail=None,
        hang=False,
        faults={},
        inforom=False,
        rows=[],
    )
    _replace(root, knobs)


def read(root: Path) -> Knobs:
    knobs: Knobs = json.loads((root / "gpu.json").read_text())
    return knobs


def change(root: Path, **wanted: object) -> None:
    if unknown := wanted.keys() - Knobs.__annotations__.keys():
        raise TypeError(f"no such knob: {sorted(unknown)}")
    _replace(root, {**read(root), **wanted})


def _replace(root: Path, knobs: object) -> None:
    temporary = root / "gpu.json.tmp"
    temporary.write_text(json.dumps(knobs, indent=1) + "\n")
    temporary.rename(root / "gpu.json")
