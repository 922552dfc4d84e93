"""Playbooks for people and for scripts: the list, one as a ladder, what is wrong with files.

Knows no stream and no file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from fleetstop.core import redact
from fleetstop.core.playbook import (
    PLACEHOLDERS,
    STOP_SIGNAL,
    Hold,
    Playbook,
    Rung,
    Verify,
    always_lossy,
)
from fleetstop.core.shelf import Shelved
from fleetstop.view import words
from fleetstop.view.layout import WIDTH, Line, columns, fact, fold, painted

_TITLES = ("NAME", "LOSSLESS", "FROM", "WHAT IT IS FOR")
_WHOM = {
    "trainers": "the trainers",
    "group": "the trainers' process group",
    "tree": "everything of the job",
    "wrapper": "its wrappers and launchers",
}
_NO_LIMIT = "however long that takes"


def table(shelf: Sequence[Shelved]) -> list[str]:
    """A row for each; what is wrong stands where its purpose would."""
    return columns([_TITLES, *(_row(each) for each in shelf)])


def _row(each: Shelved) -> tuple[str, ...]:
    place = "stock" if each.stock else each.source
    if each.playbook is None:
        return tuple(map(redact.text, (each.name, "?", place, f"WRONG: {each.problem}")))
    lossless = "yes" if each.playbook.lossless else "no"
    return tuple(map(redact.text, (each.name, lossless, place, each.purpose or "-")))


def ladder(shelved: Shelved, playbook: Playbook, *, width: int = WIDTH) -> list[str]:
    """One playbook as it is climbed, rung by rung."""
    title = f"{shelved.name}: {shelved.purpose}" if shelved.purpose else shelved.name
    source = f"stock, {shelved.source}" if shelved.stock else shelved.source
    lines = [Line("", redact.text(title)), fact("file", redact.text(source))]
    if playbook.extends:
        lines.append(fact("extends", redact.text(", then ".join(playbook.extends))))
    lines.append(fact("lossless", _promise(playbook)))
    for number, rung in enumerate(playbook.ladder, start=1):
        mark = "!" if not playbook.lossless and always_lossy(rung) else " "
        lead = fact("ladder" if number == 1 else "", "").lead + f"{mark}{number:>2}  "
        lines.append(Line(lead, redact.text(_rung(rung))))
    lines += [
        fact("hold", _hold(playbook.hold)),
        fact("verify", _verify(playbook.verify)),
        fact("looks", _looks(playbook)),
    ]
    return [painted(each, color=False) for line in lines for each in fold(line, width)]


def _promise(playbook: Playbook) -> str:
    if playbook.lossless:
        return "yes; what may lose work is skipped, even with --force"
    if any(always_lossy(rung) for rung in playbook.ladder):
        return (
            "no; ! always needs --force, and so does a signal that would be fatal or a second one"
        )
    return "no; a signal that would be fatal, or a second one, needs --force"


def _rung(rung: Rung) -> str:
    limit = words.wait(rung.wait_s)
    patience = _NO_LIMIT if limit == "forever" else f"up to {limit}"
    then = f"{_deed(rung)}, {'' if rung.does == 'await' else 'then '}{patience}"
    return "; ".join([then, *_conditions(rung)])


def _deed(rung: Rung) -> str:
    match rung.does:
        case "signal":
            name = "the job's stop signal" if rung.signal == STOP_SIGNAL else rung.signal
            return f"{name} to {_WHOM[rung.to]}"
        case "run":
            return f"run beside the job: {_command(rung)}"
        case "touch":
            return f"touch {rung.argument}"
        case "keys":
            return f"type {rung.argument} into its tmux pane"
        case _:
            return f"await the next whole {rung.argument}"


def _command(rung: Rung) -> str:
    """As written: what is filled in later stands without the quotes it would need for sh."""
    text = " ".join(rung.argument.split())
    for name in PLACEHOLDERS if rung.words else ():
        text = text.replace(f"'{{{name}}}'", f"{{{name}}}")
    return text


def _conditions(rung: Rung) -> Iterable[str]:
    if rung.when:
        yield f"only when {' or '.join(rung.when)}"
    if rung.unless:
        yield f"not when {' or '.join(rung.unless)}"
    if rung.again:
        yield "also to one that has heard a signal"
    if rung.lossless:
        yield "its author says that it loses nothing"


def _hold(hold: Hold | None) -> str:
    if hold is None:
        return "none: nothing waits for a save in progress"
    saving, stopping = words.wait(hold.saving_s), words.wait(hold.stopping_s)
    grown = _NO_LIMIT if saving == "forever" else f"up to {saving} without growth"
    busy = _NO_LIMIT if stopping == "forever" else f"up to {stopping} of CPU alone"
    return f"no signal into a save ({grown}) or a shutdown ({busy})"


def _verify(verify: Verify) -> str:
    checkpoint = "a new checkpoint" if verify.checkpoint == "new" else "no checkpoint asked for"
    gpus = "GPUs released" if verify.gpus == "released" else "GPUs ignored"
    return f"processes gone, {checkpoint}, {gpus}; within {words.wait(verify.within_s)}"


def _looks(playbook: Playbook) -> str:
    gpus = "GPUs by nvidia-smi" if playbook.gpus_from == "nvidia-smi" else "GPUs by no tool"
    every = playbook.every_s
    often = f"{every * 1000:g}ms" if every < 1 else words.wait(every)
    return f"at the processes every {often}, {gpus}"


def findings(shelf: Sequence[Shelved]) -> list[str]:
    """A line for each file, and the count."""
    lines = [line for each in shelf for line in _finding(each)]
    wrong = sum(each.problem is not None for each in shelf)
    right = f"{len(shelf) - wrong} right" if wrong < len(shelf) else "none right"
    return [*lines, f"{right}, {wrong} wrong" if wrong else right]


def _finding(each: Shelved) -> Iterable[str]:
    if each.playbook is None:
        yield redact.text(f"{each.problem}")
        if each.hint:
            yield redact.text(f"  next  {each.hint}")
        return
    kind = "lossless" if each.playbook.lossless else "not lossless"
    rungs = words.count(len(each.playbook.ladder), "rung")
    yield redact.text(f"{each.source}: right; {kind}, {rungs}")


def told(each: Shelved) -> dict[str, Any]:
    """One playbook for scripts: every key always there. In it a limit of null is `forever`, a
    hold of null is none."""
    playbook = each.playbook
    return {
        "name": each.name,
        "source": each.source,
        "stock": each.stock,
        "purpose": each.purpose,
        "problem": each.problem,
        "lossless": playbook.lossless if playbook else None,
        "extends": playbook.extends if playbook else None,
        "ladder": [_told_rung(rung) for rung in playbook.ladder] if playbook else None,
        "hold": _told_hold(playbook.hold) if playbook else None,
        "verify": playbook.verify if playbook else None,
        "probe": {"gpus": playbook.gpus_from, "every_s": playbook.every_s} if playbook else None,
    }


def _told_rung(rung: Rung) -> dict[str, Any]:
    signal = rung.does == "signal"
    return {
        "does": rung.does,
        "signal": rung.signal if signal else None,
        "to": rung.to if signal else None,
        "argument": None if signal else rung.argument,
        "wait_s": _finite(rung.wait_s),
        "again": rung.again,
        "lossless": rung.lossless,
        "when": rung.when,
        "unless": rung.unless,
        "always_lossy": always_lossy(rung),
    }


def _told_hold(hold: Hold | None) -> dict[str, Any] | None:
    if hold is None:
        return None
    return {"saving_s": _finite(hold.saving_s), "stopping_s": _finite(hold.stopping_s)}


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None
