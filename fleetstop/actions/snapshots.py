"""One look in full, as the history keeps it; sends nothing and asks nobody."""

from __future__ import annotations

from functools import lru_cache

from fleetstop import events
from fleetstop.actions.telling import Scope
from fleetstop.core.kin.family import Family, Kin
from fleetstop.core.process import Process, ProcessTree
from fleetstop.core.redact import command
from fleetstop.core.verdict import Judged
from fleetstop.events import SeenProcess


def snapshot(
    scope: Scope, moment: str, family: Family, tree: ProcessTree, judged: Judged | None
) -> None:
    """`moment`: found, before INT, end."""
    scope.teller.tell(
        events.Snapshot,
        moment=moment,
        verdict=judged.verdict if judged else None,
        evidence=judged.evidence if judged else (),
        processes=seen(family, tree, judged),
    )


def seen(family: Family, tree: ProcessTree, judged: Judged | None) -> tuple[SeenProcess, ...]:
    return tuple(_seen(kin, tree.get(kin.id), judged) for kin in family.members)


def _seen(kin: Kin, process: Process | None, judged: Judged | None) -> SeenProcess:
    found = SeenProcess(
        pid=kin.pid,
        host_pid=kin.id.pid,
        start=kin.id.start,
        role=kin.role,
        cmd=_command(kin.argv),
        verdict=judged.members.get(kin.id) if judged else None,
    )
    return found if process is None else _with_state(found, process)


def _with_state(found: SeenProcess, process: Process) -> SeenProcess:
    masks, detail = process.masks, process.detail
    return SeenProcess(
        pid=found.pid,
        host_pid=found.host_pid,
        start=found.start,
        role=found.role,
        cmd=found.cmd,
        verdict=found.verdict,
        state=process.state,
        ppid=process.ppid,
        threads=process.threads,
        rss_kib=process.rss_kib,
        tracer=process.tracer or None,
        pending=_hex(masks.pending if masks else None),
        blocked=_hex(detail.blocked if detail else None),
        ignored=_hex(masks.ignored if masks else None),
        caught=_hex(masks.caught if masks else None),
    )


@lru_cache(maxsize=512)
def _command(argv: tuple[str, ...]) -> str:
    """Workers are many and their words the same."""
    return command(argv)


def _hex(mask: int | None) -> str | None:
    return None if mask is None else f"{mask:016x}"
