"""What `ls` tells of an inventory, for people and for scripts. Knows no stream."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from fleetstop.core import redact
from fleetstop.core.inventory import Container, Host, Inventory, Job, Match
from fleetstop.view.layout import columns

_TITLES = ("TARGET", "HOST", "VMID", "JOB", "MATCH", "PLAYBOOK", "STOPS ON", "TAGS")


class Listed(Struct, frozen=True):
    """One target; `job` and what follows from it are null for a place without jobs."""

    target: str
    host: str
    vmid: int | None
    job: str | None
    match: str | None
    playbook: str | None
    stop_signal: str | None
    tags: tuple[str, ...]
    protected: bool


def listed(inventory: Inventory, names: Collection[str] | None = None) -> list[Listed]:
    """Every target by name; `names`: these only (`ct200:train`, `ct200` without jobs)."""
    places: list[Host | Container] = [*inventory.hosts.values(), *inventory.containers.values()]
    ways = {each.host for each in inventory.containers.values()}
    every = [each for place in places for each in _of_place(place, inventory)]
    if names is None:  # a host that is only the way to its containers is no target
        chosen = [each for each in every if each.job or each.vmid or each.target not in ways]
    else:
        chosen = [each for each in every if each.target in names]
    return sorted(chosen, key=lambda each: each.target)


def listing(inventory: Inventory, names: Collection[str] | None = None) -> list[str]:
    """The same as a table, and the groups below it where all is listed."""
    rows = [_cells(each) for each in listed(inventory, names)]
    safe = [tuple(redact.text(cell) or "-" for cell in row) for row in rows]
    groups = "; ".join(f"{name} = {', '.join(who)}" for name, who in inventory.groups.items())
    told = [redact.text(f"groups: {groups}")] if groups and names is None else []
    return [*(columns([_TITLES, *safe]) if safe else []), *told]


def _of_place(place: Host | Container, inventory: Inventory) -> list[Listed]:
    host = inventory.hosts.get(place.host) if isinstance(place, Container) else place
    guarded = place.protected or (host is not None and host.protected)
    jobs: tuple[Job | None, ...] = place.jobs or (None,)
    return [
        Listed(
            target=f"{place.name}:{job.name}" if job else place.name,
            host=place.host if isinstance(place, Container) else place.name,
            vmid=place.vmid if isinstance(place, Container) else None,
            job=job.name if job else None,
            match=match(job.match) if job else None,
            playbook=job.playbook if job else None,
            stop_signal=job.stop_signal if job else None,
            tags=place.tags,
            protected=guarded or bool(job and job.protected),
        )
        for job in jobs
    ]


def _cells(each: Listed) -> tuple[str, ...]:
    tags = (*each.tags, *(("protected",) if each.protected else ()))
    texts = (each.job, each.match, each.playbook, each.stop_signal, ", ".join(tags))
    vmid = "" if each.vmid is None else str(each.vmid)
    return (each.target, each.host, vmid, *(text or "" for text in texts))


def match(rule: Match) -> str:
    """`train.py`, `module pkg.train`, `pgrep ^python`."""
    if rule.script is not None:
        return rule.script
    for name in ("module", "exe", "pgrep", "pid", "pidfile", "unit", "tmux"):
        value = getattr(rule, name)
        if value is not None:
            return f"{name} {value}"
    return "whatever holds a GPU" if rule.gpu else ""
