"""Tables for `status` and `ls`: one row each, aligned, details below. Knows no stream's tricks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TextIO

from fleetstop import events as e
from fleetstop.core import redact
from fleetstop.core.inventory import Container, Host, Inventory, Job, Match
from fleetstop.core.report import Outcome, Report
from fleetstop.view import naming, words
from fleetstop.view.layout import WIDTH, Line, columns, fold, painted
from fleetstop.view.stream import Outlet

_STATUS = ("TARGET", "STATE", "PID", "UP", "GPUS", "GPU-MEM", "LOG", "CHECKPOINT", "STOPS ON")
_LS = ("TARGET", "HOST", "VMID", "JOB", "MATCH", "PLAYBOOK", "STOPS ON", "TAGS")


class StatusTable:
    """A listener that keeps what `status` found and writes one table when the report comes."""

    def __init__(self, stream: TextIO | None, *, width: int = WIDTH, color: bool = False) -> None:
        self._out = Outlet(stream)
        self._width, self._color = width, color
        self._found: dict[str, list[e.Located]] = {}

    def __call__(self, event: e.AnyEvent) -> None:
        if isinstance(event, e.Located):
            self._found.setdefault(event.target or "", []).append(event)
        elif isinstance(event, Report):
            lines = status(event.targets, self._found)
            physical = [part for line in lines for part in _fit(line, self._width)]
            self._out.write("".join(painted(each, self._color) + "\n" for each in physical))


def _fit(line: Line, width: int) -> list[Line]:
    return [line] if not line.lead else fold(line, width)


def status(outcomes: Sequence[Outcome], found: dict[str, list[e.Located]]) -> list[Line]:
    """The table of named jobs first, then every place that has no job in the inventory."""
    rows: list[tuple[tuple[str, ...], list[Line]]] = []
    places: list[Line] = []
    for outcome in outcomes:
        trees = [each for each in found.get(outcome.target, []) if each.family]
        if trees and all(_nameless(each) for each in trees):
            places += _place(outcome.target, trees)
        elif trees and outcome.result == "running":
            details = [_details(tree, outcome if tree is trees[-1] else None) for tree in trees]
            details[-1] += _unrelated(trees)
            rows += [(_row(tree), each) for tree, each in zip(trees, details, strict=True)]
        else:
            rows.append((_bare(outcome), _why(outcome)))
    return (_table(rows) if rows else []) + places


def _table(rows: Sequence[tuple[tuple[str, ...], list[Line]]]) -> list[Line]:
    title, *texts = columns([_STATUS, *(cells for cells, _ in rows)])
    lines = [Line("", title, "head")]
    for text, (_, details) in zip(texts, rows, strict=True):
        lines += [Line("", text), *details]
    return lines


def _row(found: e.Located) -> tuple[str, ...]:
    who = naming.trainers(found.family) or list(found.family)
    more = f" +{len(who) - 1}" if len(who) > 1 else ""
    return (
        redact.text(found.target or "?"),
        redact.safe(found.verdict),
        f"{who[0].pid}{more}",
        "?" if found.up_s is None else words.uptime(found.up_s),
        naming.gpu_indexes(found),
        _memory(found),
        _log_age(found),
        _checkpoint(found),
        _stops_on(found),
    )


def _memory(found: e.Located) -> str:
    if naming.gpu_indexes(found) == "none":
        return "-"
    held, total = naming.gpu_memory(found), found.gpu_total_mib
    if held is None:
        return "?"
    return words.memory(held) if total is None else words.share(held, total)


def _log_age(found: e.Located) -> str:
    if found.log is None:
        return "-"
    return "?" if found.log.age_s is None else f"{words.age(found.log.age_s)} ago"


def _checkpoint(found: e.Located) -> str:
    seen = found.checkpoint
    if seen is None:
        return "none" if found.checkpoints_declared else "-"
    age = "?" if seen.age_s is None else words.age(seen.age_s)
    whole = {True: "ok", False: "incomplete", None: "unchecked"}[seen.complete]
    return f"{age}, {whole}"


def _stops_on(found: e.Located) -> str:
    if found.stops_on:
        return ", ".join(redact.safe(each) for each in found.stops_on)
    if not _hears_nothing(found):
        return "?"
    deaf = [name for name, how in found.landings.items() if how in ("ignored", "blocked")]
    return f"nothing (deaf to {', '.join(deaf)})" if deaf else "nothing"


def _hears_nothing(found: e.Located) -> bool:
    """Seen, not merely unknown."""
    return not found.stops_on and (bool(found.landings) or found.verdict == "deaf")


def _details(found: e.Located, outcome: Outcome | None) -> list[Line]:
    lines = [Line("  tree    ", _tree(found))]
    if found.log is not None:
        lines.append(
            Line("  log     ", f"{redact.text(found.log.path)}: {naming.quoted_line(found.log)}")
        )
    if _hears_nothing(found):
        lines.append(Line("  ! deaf  ", _deaf(found), "warn"))
    texts = outcome.findings if outcome else ()
    return lines + [Line("  ! ", redact.text(each), "warn") for each in texts]


def _tree(found: e.Located, *, threads: bool = True) -> str:
    chain = [naming.full(each) for each in naming.above(found.family)]
    who = naming.trainers(found.family)
    if who:
        known = f" ({words.count(found.threads, 'thread')})" if found.threads and threads else ""
        chain.append(naming.group(who) + known)
    return " > ".join(chain)


def _deaf(found: e.Located) -> str:
    lands = ", ".join(f"{redact.safe(name)} {how}" for name, how in found.landings.items())
    return f"{lands or 'no stop signal is heard'}: `stop --graceful` cannot work."


def _unrelated(trees: Sequence[e.Located]) -> list[Line]:
    if len(trees) < 2:
        return []
    text = f"{len(trees)} unrelated trees match; `stop` refuses until the match fits one of them."
    return [Line("  ! ", text, "warn")]


def _bare(outcome: Outcome) -> tuple[str, ...]:
    state = outcome.result.replace("_", " ")
    return (redact.text(outcome.target), state, *("-" for _ in _STATUS[2:]))


def _why(outcome: Outcome) -> list[Line]:
    lines = [Line("  ! ", redact.text(outcome.reason), "warn")] if outcome.reason else []
    if outcome.result == "not_running":
        lines = [each._replace(lead="  ", tone="plain") for each in lines]
    lines += [Line("    ", redact.text(each)) for each in outcome.evidence]
    lines += [Line("  ! ", redact.text(each), "warn") for each in outcome.findings]
    return lines + ([Line("  next    ", redact.text(outcome.hint))] if outcome.hint else [])


def _nameless(found: e.Located) -> bool:
    """A tree at an address without a job: neither job nor playbook."""
    return found.job is None and found.playbook is None


def _place(target: str, trees: Sequence[e.Located]) -> list[Line]:
    """`root@10.1.2.6/200 has no jobs in the inventory. Trees that hold a GPU: …`."""
    name = redact.text(target)
    lines = [Line("", f"{name} has no jobs in the inventory. Trees that hold a GPU:", "head")]
    for tree in trees:
        up = "" if tree.up_s is None else f", up {words.uptime(tree.up_s)}"
        holds = f"GPUs {naming.gpu_indexes(tree)}{up}"
        lines.append(Line("  ", f"{_tree(tree, threads=False)}   {holds}"))
    script = _script(trees[0])
    if script:
        command = redact.command(["fleetstop", "stop", target, "--script", script, "--graceful"])
        lines.append(Line("Stop it as it is:   ", command))
    return lines


def _script(found: e.Located) -> str:
    who = naming.trainers(found.family)
    name = naming.short(who[0].cmd) if who else ""
    return name if name.endswith(".py") else ""


def listing(inventory: Inventory, names: Collection[str] | None = None) -> list[str]:
    """The table of `ls`; `names`: these targets only (`ct200:train`, `ct200` without jobs)."""
    places: list[Host | Container] = [*inventory.hosts.values(), *inventory.containers.values()]
    every = [row for place in places for row in _place_rows(place, inventory)]
    rows = [row for row in every if names is None or row[0] in names]
    rows.sort()
    safe = [tuple(redact.text(cell) or "-" for cell in row) for row in rows]
    return columns([_LS, *safe]) if safe else []


def _place_rows(place: Host | Container, inventory: Inventory) -> list[tuple[str, ...]]:
    inside = isinstance(place, Container)
    host = place.host if isinstance(place, Container) else place.name
    vmid = str(place.vmid) if isinstance(place, Container) else ""
    used = any(each.host == place.name for each in inventory.containers.values())
    if not place.jobs and not inside and used:
        return []  # a host that is only the way to its containers
    above = inventory.hosts.get(host)
    guarded = place.protected or (above is not None and above.protected)
    jobs: tuple[Job | None, ...] = place.jobs or (None,)
    return [
        (
            f"{place.name}:{job.name}" if job else place.name,
            host,
            vmid,
            job.name if job else "",
            match(job.match) if job else "",
            job.playbook if job else "",
            (job.stop_signal or "") if job else "",
            ", ".join((*place.tags, *_protected(guarded or bool(job and job.protected)))),
        )
        for job in jobs
    ]


def _protected(guarded: bool) -> tuple[str, ...]:
    return ("protected",) if guarded else ()


def match(rule: Match) -> str:
    """`train.py`, `module pkg.train`, `pgrep ^python`."""
    if rule.script is not None:
        return rule.script
    for name in ("module", "exe", "pgrep", "pid", "pidfile", "unit"):
        value = getattr(rule, name)
        if value is not None:
            return f"{name} {value}"
    return "whatever holds a GPU" if rule.gpu else ""
