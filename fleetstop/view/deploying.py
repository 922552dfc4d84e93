"""What a redeploy or launch is about to do: where files go, what differs, how it is started."""

from __future__ import annotations

from collections.abc import Sequence

from fleetstop import events as e
from fleetstop.core import redact
from fleetstop.core.adopting.stanza import deploy_line, launch_line
from fleetstop.view import words
from fleetstop.view.layout import Line, Tone, fact

_SHOWN = 6
_BY = {
    "running": "where it runs from",
    "deploy.dest": "by deploy.dest of the inventory",
    "--to": "as --to says",
    "release": "from a kept release",
}
_KINDS = (("new", "new"), ("changed", "changed"), ("mode", "other mode"))
_TONES: dict[str, Tone] = {
    "file": "head", "hunk": "dim", "added": "good", "removed": "bad", "note": "warn",
}  # fmt: skip
_TITLES = {"launch": "to be started", "restart": "to be stopped and started again"}
_AFTER = "how it is started then"


class Announced:
    """What stands on the screen already of one errand."""

    def __init__(self) -> None:
        self.titled = self.differs = False
        self.log: str | None = None
        self.dest: str | None = None
        self.unsaid: str | None = None
        """What the inventory does not say and the running process told, where that is so: once
        nothing runs, nothing tells it."""
        self.unplaced: str | None = None
        """Of that, what a rollback needs: the words are in its manifest."""


def lines(
    event: e.Event, before: Announced, command: str | None, *, alone: bool = True
) -> list[Line] | None:
    """None: it is none of these. `before` grows. Where it is not `alone`, other targets may have
    spoken meanwhile, and each block says whose it is."""
    name = redact.text(event.target or "?")
    match event:
        case e.Destined():
            before.titled, before.dest = True, event.dest
            return _destined(event)
        case e.Differs():
            before.differs = True
            titled = [] if alone else [Line("", f"{name}: what differs", "head")]
            return [*titled,
                    *(Line("", each.text, _TONES.get(each.kind, "plain")) for each in event.lines),
                    Line("", event.summary, "head")]  # fmt: skip
        case e.LaunchShown():
            before.log = event.reads or event.log
            place = redact.text(deploy_line(event.dest)) if event.dest is not None else None
            told = [each for each in (_words(event), place) if each is not None]
            before.unsaid, before.unplaced = ", ".join(told) or None, place
            if before.differs:
                return []  # that was asked for, and nothing else
            said = f"{name}: {_TITLES.get(command or '', _AFTER)}"
            title = [] if before.titled and alone else [Line("", said, "head")]
            return [*title, *_launch(event)]
    return None


def _words(event: e.LaunchShown) -> str | None:
    """As a line of the inventory, where it lacks that: what ran last."""
    if not event.ran:
        return None
    return redact.text(launch_line(event.ran, event.ran_in))


def _destined(event: e.Destined) -> list[Line]:
    name, where = redact.text(event.target or "?"), redact.text(event.dest)
    by = _BY.get(event.by, event.by)
    count = words.count(len(event.files), "file")
    told = [Line("", f"{name}: {count} to {where}, {by}", "head")]
    for kind, said in _KINDS:
        of = [each for each in event.files if each.change == kind]
        if of:
            told.append(fact(said, _some(of)))
    same = sum(each.change == "same" for each in event.files)
    if same:
        told.append(fact("unchanged", f"{words.count(same, 'file')}, not sent"))
    if event.left_out:
        told.append(fact("left out", _names([redact.text(each) for each in event.left_out])))
    what = f"{event.release}"
    what += f", the files of {redact.safe(event.of_release)}" if event.of_release else ""
    what += f", from commit {redact.safe(event.git)[:12]}" if event.git else ""
    what += " and changes that are not committed" if event.git and "-dirty" in event.git else ""
    return [*told, fact("release", what)]


def _some(files: Sequence[e.FileRow]) -> str:
    told = _names([f"{redact.text(each.path)} {words.size(each.size)}" for each in files])
    if len(files) <= _SHOWN:
        return told
    return f"{len(files)} files, {words.size(sum(each.size for each in files))}: {told}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _launch(event: e.LaunchShown) -> list[Line]:
    how = "as it was started" if event.adopted else "as the inventory says"
    how = f"as {redact.safe(event.as_release)} was started" if event.as_release else how
    carrier = f", in {redact.text(event.carrier)}" if event.carrier else ""
    rest = f"; {', '.join(redact.text(each) for each in event.rest)}" if event.rest else ""
    where = f"by {redact.text(event.user)} in {redact.text(event.cwd)}"
    told = [
        fact("starts", redact.text(event.command, 200)),
        fact("", f"{how}, {where}{carrier}{rest}"),
    ]
    if event.added:
        told.append(fact("with", " ".join(f"{name}={event.env[name]}" for name in event.added)))
    if event.resumes is not None:
        told.append(fact("resumes", f"from {redact.text(event.resumes)}, or a newer one"))
    told.append(fact("log", _log(event)))
    if event.within_s is not None:
        told.append(fact("healthy", _healthy(event, event.within_s)))
    return [*told, *(fact("!", redact.text(each)) for each in event.notes)]


def _log(event: e.LaunchShown) -> str:
    goes = redact.text(event.log) if event.log is not None else None
    if event.reads is None or event.reads == event.log:
        return goes or "none: its output goes nowhere"
    told = f"{redact.text(event.reads)}, which it opens itself"
    return f"{told}; what else it says goes to {goes}" if goes is not None else told


def _healthy(event: e.LaunchShown, within_s: float) -> str:
    limit = words.wait(within_s)
    asked = f"once it has lived {limit}"
    if event.log_matches is not None:
        asked = f"once its log matches {redact.text(event.log_matches, 60)!r}, within {limit}"
    return f"{asked}; else what runs now comes back" if event.roll_back else asked
