"""The table of `status`: one row each, aligned, details below. Knows no stream's tricks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from fleetstop import events as e
from fleetstop.core import redact
from fleetstop.core.report import Outcome, Report
from fleetstop.view import naming, words
from fleetstop.view.alike import together
from fleetstop.view.ending import cost, tally, unsaid
from fleetstop.view.layout import WIDTH, Line, cells, columns, fold, note, painted
from fleetstop.view.stream import Outlet

# what a narrow terminal does without, the least needed first
_SPARE = ("GPU-MEM", "LOG")
_MANY = 10
_STATUS = ("TARGET", "STATE", "PID", "UP", "GPUS", "GPU-MEM", "LOG", "CHECKPOINT", "STOPS ON")


class StatusTable:
    """A listener that keeps what `status` found and writes one table when the report comes."""

    def __init__(
        self,
        stream: TextIO | None,
        *,
        width: int = WIDTH,
        color: bool = False,
        quiet: bool = False,
        verbose: bool = False,
    ) -> None:
        self._out = Outlet(stream)
        self._quiet, self._verbose = quiet, verbose
        self._width, self._color = width, color
        self._found: dict[str, list[e.Located]] = {}
        self._inventory: str | None = None

    def __call__(self, event: e.AnyEvent) -> None:
        if isinstance(event, e.Located):
            self._found.setdefault(event.target or "", []).append(event)
        elif isinstance(event, e.Started):
            self._inventory = event.inventory
        elif isinstance(event, Report):
            lines = status(
                event.targets,
                self._found,
                width=self._width,
                inventory=self._inventory,
                apart=self._quiet,
            )
            if self._quiet:
                # the rows alone: what explains a row stands below it, indented
                lines = [each for each in lines if not each.lead]
            if self._verbose:
                for outcome in event.targets:
                    facts = _unseen(self._found.get(outcome.target, [])) + cost(outcome)
                    lines += (
                        [Line("", redact.text(outcome.target), "head"), *facts] if facts else []
                    )
            physical = [part for line in lines for part in _fit(line, self._width)]
            self._out.write("".join(painted(each, self._color) + "\n" for each in physical))


def _fit(line: Line, width: int) -> list[Line]:
    return [line] if not line.lead else fold(line, width)


def status(
    outcomes: Sequence[Outcome],
    found: dict[str, list[e.Located]],
    *,
    width: int = WIDTH,
    inventory: str | None = None,
    apart: bool = False,
) -> list[Line]:
    """The table of named jobs first, then every place that has no job in the inventory.

    `inventory`: the file that was named, to be named again in a suggested command. `apart`: a row
    for each, also of those that came to the very same.
    """
    rows: list[tuple[tuple[str, ...], list[Line]]] = []
    places: list[Line] = []
    for outcome, *others in [(each,) for each in outcomes] if apart else together(outcomes):
        trees = [each for each in found.get(outcome.target, []) if each.family]
        if trees and all(_nameless(each) for each in trees):
            places += _place(outcome, trees, inventory)
        elif trees and outcome.result == "running":
            details = [_details(tree, outcome if tree is trees[-1] else None) for tree in trees]
            rows += [(_row(tree), each) for tree, each in zip(trees, details, strict=True)]
        else:
            rows.append((_bare(outcome, len(others)), _also(others) + _why(outcome)))
    last = [tally(outcomes)] if len(outcomes) >= _MANY else []
    return (_table(rows, width) if rows else []) + places + last


def _table(rows: Sequence[tuple[tuple[str, ...], list[Line]]], width: int) -> list[Line]:
    title, *texts = _fitting([_STATUS, *(each for each, _ in rows)], width)
    lines = [Line("", title, "head")]
    for text, (_, details) in zip(texts, rows, strict=True):
        # where details stand between the rows, the rows stand out
        lines += [Line("", text, "head" if details else "plain"), *details]
    return lines


def _fitting(rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    """The rows aligned, without the spare columns that have no room."""
    spare = list(_SPARE)
    while True:
        lines = columns(rows)
        if not spare or max(cells(each) for each in lines) <= width:
            return lines
        at = rows[0].index(spare.pop(0))
        rows = [row[:at] + row[at + 1 :] for row in rows]


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
    if seen is None and found.checkpoints_unseen is not None:
        return "?"
    if seen is None:
        return "none" if found.checkpoints_declared else "-"
    age = "?" if seen.age_s is None else words.age(seen.age_s)
    whole = {True: "ok", False: "incomplete", None: "unchecked"}[seen.complete]
    return f"{age}, {whole}"


def _stops_on(found: e.Located) -> str:
    if not naming.trainers(found.family):
        return "-"
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
    above = [each for each in found.above if each.kind != "wrapper"]
    lines += [Line("  above   ", naming.over(each)) for each in above]
    if found.log is not None:
        lines.append(
            Line("  log     ", f"{redact.text(found.log.path)}: {naming.quoted_line(found.log)}")
        )
    seen = found.checkpoint
    known = seen is not None and (seen.usual_s is not None or seen.whole is not None)
    if seen is not None and (known or naming.before_the_job(found)):
        lines.append(Line("  saves   ", naming.saves(found, seen)))
    lines += _code(found)
    if _hears_nothing(found):
        lines.append(Line("  ! deaf  ", _deaf(found), "warn"))
    lines += _verdict(found)
    lines += [] if outcome is None else _stacks(outcome)
    texts = (*((outcome.reason,) if outcome.reason else ()), *outcome.findings) if outcome else ()
    texts = tuple(each for each in texts if each not in _told(found))
    return lines + [Line("  ! ", redact.text(each), "warn") for each in texts]


def _code(found: e.Located) -> list[Line]:
    """That it runs old code, and as what it was deployed."""
    seen = found.code or e.CodeSeen()
    lines = [Line("  code    ", redact.text(seen.said), "warn")] if seen.said else []
    lines += (
        [Line("  code    " if not lines else "          ", redact.text(seen.runs))]
        if seen.runs
        else []
    )
    return lines + ([Line("  deploy  ", redact.text(seen.deploy), "warn")] if seen.deploy else [])


def _told(found: e.Located) -> tuple[str | None, ...]:
    """Findings that have a line of their own."""
    return (found.code.said, found.code.deploy) if found.code else ()


def _verdict(found: e.Located) -> list[Line]:
    """What its state rests on, where that is not plain; deafness has a line of its own."""
    if found.verdict == "deaf":
        return []
    if found.verdict in ("busy", "saving", "stopping"):
        return [Line("  seen    ", each) for each in naming.account(found.evidence)]
    return [Line("  ! ", each, "warn") for each in naming.account(found.evidence)]


def _unseen(found: Sequence[e.Located]) -> list[Line]:
    why = [each.code.unseen for each in found if each.code and each.code.unseen]
    return [note("code", f"not looked at: {redact.text(each)}") for each in why]


def _stacks(outcome: Outcome) -> list[Line]:
    lines = []
    for each in outcome.stacks:
        first, *rest = each.text or (each.problem or "nothing came",)
        lines.append(Line("  stack   ", f"{each.pid}  {redact.text(first.strip())}"))
        lines += [Line("            ", redact.text(frame.strip())) for frame in rest]
    return lines


def _tree(found: e.Located, *, threads: bool = True) -> str:
    chain = [naming.full(each) for each in naming.above(found.family)]
    who = naming.trainers(found.family) or naming.of_role(found.family, "worker")
    if who:
        known = f" ({words.count(found.threads, 'thread')})" if found.threads and threads else ""
        chain.append(naming.group(who) + known)
    return " > ".join(chain)


def _deaf(found: e.Located) -> str:
    lands = ", ".join(f"{redact.safe(name)} {how}" for name, how in found.landings.items())
    why = lands or "no stop signal is heard"
    return f"{why}: `stop --graceful` cannot work. fleetstop explain deaf"


def _also(others: Sequence[Outcome]) -> list[Line]:
    names = ", ".join(redact.text(each.target) for each in others)
    return [Line("  also    ", names)] if others else []


def _bare(outcome: Outcome, more: int = 0) -> tuple[str, ...]:
    # "refused" would say that fleetstop would not look
    seen = "frozen" if outcome.verdict == "frozen" else outcome.result.replace("_", " ")
    state = "interrupted" if outcome.interrupted else seen
    name = redact.text(outcome.target)
    return (f"{name} and {more} more" if more else name, state, *("-" for _ in _STATUS[2:]))


def _why(outcome: Outcome) -> list[Line]:
    lines = [Line("  ! ", redact.text(outcome.reason), "warn")] if outcome.reason else []
    if outcome.result == "not_running":
        lines = [each._replace(lead="  ", tone="plain") for each in lines]
    lines += [Line("    ", redact.text(each)) for each in unsaid(outcome)]
    lines += [Line("  ! ", redact.text(each), "warn") for each in outcome.findings]
    return lines + ([Line("  next    ", redact.text(outcome.hint))] if outcome.hint else [])


def _nameless(found: e.Located) -> bool:
    """A tree at an address without a job: neither job nor playbook."""
    return found.job is None and found.playbook is None


def _place(outcome: Outcome, trees: Sequence[e.Located], inventory: str | None) -> list[Line]:
    """`root@10.1.2.6/200 has no jobs in the inventory. Trees that hold a GPU: …`; what was named by
    hand may be one of the inventory's all the same."""
    name, typed = redact.text(outcome.target), trees[0].typed
    held = f"{name} has no jobs in the inventory. Trees that hold a GPU:"
    lines = [Line("", f"{name}, as it was named by hand:" if typed else held, "head")]
    for tree in trees:
        up = "" if tree.up_s is None else f", up {words.uptime(tree.up_s)}"
        numbers = naming.gpu_indexes(tree)
        gpus = f"{'GPU' if numbers.isdigit() else 'GPUs'} {numbers}{up}"
        state = f"{redact.safe(tree.verdict)}, stops on {_stops_on(tree)}"
        lines.append(Line("  ", f"{_tree(tree, threads=False)}   {gpus}"))
        lines.append(Line("    ", state, "warn" if _hears_nothing(tree) else "plain"))
        lines += _verdict(tree)
    others = [each for each in outcome.findings if "unrelated trees match" not in each]
    lines += [Line("  ! ", redact.text(each), "warn") for each in others]
    for at, tree in enumerate(trees):
        lines += _what_next(outcome, tree, at if len(trees) > 1 else None, inventory)
    return lines


def _what_next(
    outcome: Outcome, tree: e.Located, at: int | None, inventory: str | None
) -> list[Line]:
    """How to stop it as it is, and how to name it; `at`: it is one of several trees, which a
    script's name need not tell apart, so that each is named by its PID."""
    who = naming.trainers(tree.family)
    pid = str(who[0].pid) if who else ""
    script = _script(tree)
    named = ("--script", script) if at is None else ("--pid", pid)
    it = "it" if at is None else pid
    wide = 20 if at is None else len(f"Stop {it} as it is:  ")
    lines = []
    if script or (at is not None and pid):
        command = _as_it_is(outcome, tree, named, inventory)
        lines.append(Line(f"Stop {it} as it is:".ljust(wide), command))
    if pid and not tree.typed:
        name = "train" if not at else f"train{at + 1}"
        command = redact.typed(("adopt", outcome.target, "--pid", pid, "--as", name), inventory)
        lines.append(Line(f"Give {it} a name:".ljust(wide), command))
    return lines


def _as_it_is(
    outcome: Outcome, tree: e.Located, named: tuple[str, str], inventory: str | None
) -> str:
    deaf = _hears_nothing(tree)
    words = ("stop", outcome.target, *named, "--force" if deaf else "--graceful")
    return redact.typed(words, inventory) + ("   loses whatever was not saved" if deaf else "")


def _script(found: e.Located) -> str:
    who = naming.trainers(found.family)
    name = naming.short(who[0].cmd) if who else ""
    return name if name.endswith(".py") else ""
