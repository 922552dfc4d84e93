"""What a redeploy or launch is about to do: where files go, what differs, how it is started."""

from __future__ import annotations

from collections.abc import Sequence

from fleetstop import events as e
from fleetstop.core import redact
from fleetstop.view import words
from fleetstop.view.layout import Line, Tone, fact

_SHOWN = 6
_BY = {
    "running": "where the running process loads them from",
    "deploy.dest": "deploy.dest of the inventory",
    "--to": "as --to says",
    "release": "from a kept release",
}
_KINDS = (("new", "new"), ("changed", "changed"), ("mode", "with another mode"))
_TONES: dict[str, Tone] = {
    "file": "head", "hunk": "dim", "added": "good", "removed": "bad", "note": "warn",
}  # fmt: skip


def lines(event: e.Event) -> list[Line] | None:
    """None: it is none of these."""
    match event:
        case e.Destined():
            return _destined(event)
        case e.Differs():
            return [*(Line("", each.text, _TONES.get(each.kind, "plain")) for each in event.lines),
                    Line("", event.summary, "head")]  # fmt: skip
        case e.LaunchShown():
            return _launch(event)
    return None


def _destined(event: e.Destined) -> list[Line]:
    name, where = redact.text(event.target or "?"), redact.text(event.dest)
    by = _BY.get(event.by, event.by)
    count = words.count(len(event.files), "file")
    told = [Line("", f"{name}: {count} to {where}, {by}", "head")]
    for kind, said in _KINDS:
        of = [each for each in event.files if each.change == kind]
        if of:
            told.append(fact(said if kind != "mode" else "mode", _some(of)))
    same = sum(each.change == "same" for each in event.files)
    if same:
        told.append(fact("unchanged", words.count(same, "file")))
    if event.left_out:
        told.append(fact("left out", _names([redact.text(each) for each in event.left_out])))
    what = f"{event.release}"
    what += f", the files of {redact.safe(event.of_release)}" if event.of_release else ""
    what += f", from commit {redact.safe(event.git)[:12]}" if event.git else ""
    what += ", with changes that are not committed" if event.git and "-dirty" in event.git else ""
    return [*told, fact("release", what)]


def _some(files: Sequence[e.FileRow]) -> str:
    return _names([f"{redact.text(each.path)} {words.size(each.size)}" for each in files])


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _launch(event: e.LaunchShown) -> list[Line]:
    how = "as it was started" if event.adopted else "as the inventory says"
    carrier = f", in {redact.text(event.carrier)}" if event.carrier else ""
    rest = f"; {', '.join(event.rest)}" if event.rest else ""
    told = [
        fact("starts", f"{redact.text(event.command, 200)}"),
        fact("", f"{how}, by {redact.text(event.user)} in {event.cwd}{carrier}{rest}"),
        fact("log", event.log if event.log is not None else "none: its output goes nowhere"),
    ]
    if event.resumes is not None:
        told.append(fact("goes on from", redact.text(event.resumes)))
    return [*told, *(fact("!", redact.text(each)) for each in event.notes)]
