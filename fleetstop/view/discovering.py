"""What `discover` shows of clusters: nodes, containers, what the inventory lacks. Knows no API."""

from __future__ import annotations

from collections.abc import Sequence

from fleetstop.core import redact
from fleetstop.core.cluster import Guest, Node
from fleetstop.core.discovery import Answered, Newcomers, Unanswered, known_as
from fleetstop.core.inventory import Inventory
from fleetstop.view.layout import Line, columns, fold, note, painted
from fleetstop.view.words import count

_NODES = ("NODE", "ADDRESS", "STATE", "CONTAINERS")
_GUESTS = ("VMID", "NAME", "NODE", "STATUS", "TAGS", "POOL", "LOCK", "INVENTORY")


def shown(
    inventory: Inventory,
    answers: Sequence[Answered],
    failures: Sequence[Unanswered],
    new: Newcomers,
) -> list[Line]:
    """Tables are never wrapped."""
    lines: list[Line] = []
    for answered in answers:
        lines += [*_cluster(inventory, answered), Line("", "")]
    for failed in failures:
        # most messages begin with the url already, which is what was asked where it was typed
        told = failed.reason.removeprefix(f"{failed.by}: ")
        lines.append(Line("", f"{redact.safe(failed.by)}: {redact.text(told)}", "bad"))
        lines += [note("next", redact.text(failed.hint))] if failed.hint else []
    return lines + [Line("  ! ", redact.text(each), "warn") for each in new.notes]


def _cluster(inventory: Inventory, answered: Answered) -> list[Line]:
    seen = answered.seen
    name = f"cluster {redact.safe(seen.name)}" if seen.name else "one node"
    if seen.name is None and len(seen.nodes) != 1:
        name = "a cluster whose name is not told"
    told = f"{count(len(seen.nodes), 'node')}, {count(len(seen.containers), 'container')}"
    by = ", ".join(redact.safe(each) for each in answered.by)
    lines = [Line("", f"{name}: {told} (asked: {by})", "head")]
    rows = [_node(each, seen.containers) for each in seen.nodes]
    lines += [Line("  ", each, "plain") for each in columns([_NODES, *rows])] if rows else []
    names = known_as(inventory, answered)
    guests = [_guest(each, names) for each in seen.containers]
    if guests:
        lines += [Line("  ", each, "plain") for each in ("", *columns([_GUESTS, *guests]))]
    return lines + [Line("  ! ", redact.text(each), "warn") for each in seen.findings]


def _node(node: Node, containers: Sequence[Guest]) -> tuple[str, ...]:
    here = [each for each in containers if each.node == node.name]
    running = sum(each.status == "running" for each in here)
    told = f"{len(here)}, {running} running" if node.problem is None else f"{len(here)}, unknown"
    state = {True: "online", False: "offline", None: "unknown"}[node.online]
    if node.problem is not None and node.online is not False:
        state = "not reached" if node.online is None else f"{state}, not reached"
    return redact.safe(node.name), redact.safe(node.address or "-"), state, told if here else "0"


def _guest(guest: Guest, names: dict[int, str]) -> tuple[str, ...]:
    name = guest.name or "-"
    told = (name, guest.node, guest.status, ", ".join(guest.tags), guest.pool, guest.lock)
    known = "template" if guest.template else names.get(guest.vmid, "new")
    return (str(guest.vmid), *(redact.safe(each or "-") for each in told), known)


def ended(
    new: Newcomers, *, whole: bool, file: str | None, written: bool, command: str
) -> list[Line]:
    """`file`: what was, or would be, written into; None: nobody asked for that. `whole`: all was
    seen, so that nothing new means that nothing is lacking."""
    if not new:
        said = (
            "The inventory lacks nothing of this." if whole else "Of what was seen nothing is new."
        )
        return [Line("", said)] if file else []
    parts = [count(len(new.hosts), "host")] if new.hosts else []
    parts += [count(len(new.containers), "container")] if new.containers else []
    many = " and ".join(parts)
    if written and file:
        return [Line("", f"{many} added to {redact.safe(file)}.", "good")]
    if file:
        return [Line("", f"{many} would be added to {redact.safe(file)}; nothing was written.")]
    return [Line("", f"The inventory lacks {many}."), note("next", redact.safe(command))]


def text(lines: Sequence[Line], *, width: int, color: bool) -> str:
    parts = (
        part
        for each in lines
        # a row of a table stays one line
        for part in ([each] if each.lead == "  " else fold(each, width))
    )
    return "".join(painted(part, color) + "\n" for part in parts)
