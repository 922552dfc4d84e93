"""What a verification found, and how losses are put into words."""

from __future__ import annotations

from msgspec import Struct

from fleetstop.core.report import CheckpointRecord, GpuRecord


class Proof(Struct, frozen=True):
    """`problem` None: clean. Otherwise the short word and the sentence for `unclean`."""

    problem: str | None = None
    findings: tuple[str, ...] = ()
    record: CheckpointRecord | None = None
    gpus: tuple[GpuRecord, ...] | None = None


def minutes(seconds: float) -> str:
    """`90 s`, `30 min`."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
