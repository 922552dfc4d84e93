"""What a verification found; knows not how it was found."""

from __future__ import annotations

from msgspec import Struct

from fleetstop.core.report import CheckpointRecord, GpuRecord


class Proof(Struct, frozen=True):
    """`problem` None: clean. Otherwise the short word and the sentence for `unclean`."""

    problem: str | None = None
    findings: tuple[str, ...] = ()
    record: CheckpointRecord | None = None
    gpus: tuple[GpuRecord, ...] | None = None
