"""What `doctor` found, for people: what is wrong first, and what to type. Knows no connection."""

from __future__ import annotations

from fleetstop.core.checkup.checks import Check, Checked, Checkup
from fleetstop.core.redact import safe, scrub, text
from fleetstop.view import words
from fleetstop.view.layout import Line, fold, painted

_CALLED = {
    "host_key": "host key",
    "nvidia_smi": "nvidia-smi",
    "kernel_log": "kernel log",
}
_LEAD = 16


def shown(told: Checkup, *, width: int, color: bool, quiet: bool, verbose: bool) -> str:
    """A fix is never wrapped: it can be copied. `quiet` leaves out what is well."""
    lines: list[str] = []
    for each in told.places:
        if not quiet or each.problems or each.unseen:
            lines += _place(each, width, color, quiet=quiet, verbose=verbose)
    return "".join(f"{each}\n" for each in [*lines, *_physical(_end(told), width, color)])


def _place(each: Checked, width: int, color: bool, *, quiet: bool, verbose: bool) -> list[str]:
    where = f" on {each.host}" if each.kind == "container" else ""
    lines = _physical(Line("", f"{text(each.place)}{text(where)}", "head"), width, color)
    well = [one for one in each.checks if one.ok]
    if verbose:
        for one in well:
            lines += _physical(Line(_lead("    ", one), text(one.says)), width, color)
    elif well and not quiet:
        names = ", ".join(_called(one) for one in well)
        lines += _physical(Line("    well".ljust(_LEAD), names), width, color)
    for one in each.checks:
        if not one.ok:
            lines += _finding(one, width, color)
    return lines


def _finding(one: Check, width: int, color: bool) -> list[str]:
    mark = "  ! " if one.ok is False else "  ? "
    lines = _physical(Line(_lead(mark, one), text(one.says), "warn"), width, color)
    if one.fix is not None:
        lines.append(painted(Line("    fix".ljust(_LEAD), safe(scrub(one.fix))), color))
    return lines


def _called(one: Check) -> str:
    return _CALLED.get(one.check, one.check)


def _lead(mark: str, one: Check) -> str:
    return f"{mark}{_called(one)}".ljust(_LEAD - 1) + " "


def _end(told: Checkup) -> Line:
    problems = sum(each.problems for each in told.places)
    unseen = sum(each.unseen for each in told.places)
    looked = words.count(len(told.places), "place")
    if not problems and not unseen:
        return Line("", f"{looked} looked over: all is well.", "good")
    wrong = words.count(problems, "problem") if problems else "no problem"
    blind = f", {unseen} could not be looked at" if unseen else ""
    return Line("", f"{looked} looked over: {wrong}{blind}.", "bad")


def _physical(line: Line, width: int, color: bool) -> list[str]:
    return [painted(each, color) for each in fold(line, width)]
