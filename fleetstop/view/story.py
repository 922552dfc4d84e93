"""One run told in lines: keeps what a later line needs to know. Knows no stream and no timer."""

from __future__ import annotations

from datetime import tzinfo

from fleetstop import events as e
from fleetstop.core import redact
from fleetstop.core.report import Report
from fleetstop.view import (
    deploying,
    ending,
    exits,
    header,
    holding,
    launching,
    naming,
    question,
    waiting,
    words,
)
from fleetstop.view.layout import Line
from fleetstop.view.ways_on import Known

# A hold whose numbers alone move is told again after so long.
STILL_S = 60.0
_GRAVE = ("uninterruptible", "suspended", "stalled")


class Chapter:
    """What is known of one target so far."""

    def __init__(self) -> None:
        self.located: e.Located | None = None
        self.wait_s: float | None = None
        self.over = False
        self.hold: tuple[str, frozenset[str]] | None = None
        self.hold_at = ""
        self.findings: set[str] = set()
        self.planned = False
        self.exits: list[e.MemberExited] = []
        self.released: e.GpusReleased | None = None
        self.looking = False
        self.watched: e.WatchedOn | None = None
        self.accounts: set[str] = set()
        self.spoken = launching.Spoken()
        self.announced = deploying.Announced()

    def since_found(self, at: str) -> float:
        return words.between(self.located.at, at) if self.located else 0.0


class Story:
    """Turns events into lines; what it keeps back for one more event, `flush` returns.

    `zone` None is the machine's own time zone.
    """

    def __init__(
        self, *, zone: tzinfo | None = None, quiet: bool = False, verbose: bool = False
    ) -> None:
        self._zone, self._quiet, self._verbose = zone, quiet, verbose
        self._chapters: dict[str, Chapter] = {}
        self._started: e.Started | None = None

    def lines(self, event: e.AnyEvent) -> list[Line]:
        """The lines that this event adds, earlier ones that had waited for it first."""
        if isinstance(event, Report):
            many = len(event.targets) > 1
            return [*self.flush(), *([ending.tally(event.targets)] if many else [])]
        if isinstance(event, e.Started):
            self._started = event
        name = event.target or ""
        chapter = self._chapters.setdefault(name, Chapter())
        if isinstance(event, e.MemberExited):
            chapter.exits.append(event)
            return []
        if isinstance(event, e.Verifying) and chapter.released:
            chapter.looking = True  # whether it came back belongs into the line that is kept
            return []
        clean = isinstance(event, e.TargetFinished) and event.outcome.result == "stopped"
        kept = self._kept(name, chapter, clean=clean)
        if isinstance(event, e.TargetFinished):
            return kept + self._finished(event, chapter)
        told = self._told(event, name, chapter)
        if isinstance(event, e.Asked | e.Answered):
            return kept + told  # whoever is asked has to see it, quiet or not
        return [] if self._quiet else kept + told

    def prompt(self, event: e.AnyEvent) -> str | None:
        """What is to stand in front of the cursor after the lines of this event."""
        return question.prompt(event) if isinstance(event, e.Asked) else None

    @property
    def waiting(self) -> bool:
        """Something is kept back that `flush` would tell."""
        chapters = self._chapters.values()
        return any(each.exits or (each.released and not each.looking) for each in chapters)

    def flush(self, *, everything: bool = True) -> list[Line]:
        """What was kept back, without the event it waited for.

        `everything` False: but for what waits for an answer that is on its way.
        """
        found = (
            self._kept(name, each, clean=False)
            for name, each in self._chapters.items()
            if everything or not each.looking
        )
        return [line for lines in found for line in lines]

    def _kept(self, name: str, chapter: Chapter, *, clean: bool) -> list[Line]:
        lines = []
        if chapter.exits:
            text = exits.sentence(chapter.exits)
            lines.append(self._timed(chapter.exits[0].at, name, text))
            chapter.exits = []
        if chapter.released:
            lines.append(self._timed(chapter.released.at, name, _released(chapter, clean)))
            chapter.released, chapter.looking = None, False
        return [] if self._quiet else lines

    def _timed(self, at: str, name: str, text: str, mark: str = "") -> Line:
        lead = f"{words.clock(at, self._zone)}  "
        targets = self._started.targets if self._started else ()
        if len(targets) > 1 or len([each for each in self._chapters if each]) > 1:
            width = max((len(each) for each in targets), default=0)
            lead += f"{redact.text(name).ljust(min(width, 40))}  "
        return Line(lead + mark, text, "warn" if mark else "plain")

    def _told(self, event: e.Event, name: str, chapter: Chapter) -> list[Line]:
        """Lines of everything but endings."""
        match event:
            case e.Located():
                first = chapter.located is None
                chapter.located = event
                return header.header(event, first=first)
            case e.Planned():
                chapter.planned = True
                return header.plan(event.steps, graceful=_mild(chapter))
            case e.Holding():
                return [self._timed(event.at, name, each) for each in _held(event, chapter)]
            case e.Asked():
                what, *more = question.facts(event)
                head = self._timed(event.at, name, what, "? ")
                blank = " " * len(head.lead)
                return [head, *(Line(blank, each) for each in more)]
            case e.Looked() if not self._verbose:
                told = _account(event, chapter)
                return [self._timed(event.at, name, text, "! ") for text in told]
            case e.GpusReleased():
                chapter.released = event
                return []
            case e.RungSkipped(signal="KILL") if _mild(chapter):
                return []  # the header has said that lossy rungs are left out
            case e.Finding():
                if event.text in chapter.findings:
                    return []
                chapter.findings.add(event.text)
                return [self._timed(event.at, name, redact.text(event.text), "! ")]
        command = self._started.command if self._started else None
        alone = len(self._started.targets) == 1 if self._started else True
        planned = deploying.lines(event, chapter.announced, command, alone=alone)
        if planned is not None:
            return planned
        if begun := launching.told(event, chapter.spoken, verbose=self._verbose):
            return [self._timed(event.at, name, text, mark) for mark, text in begun]
        text = _acted(event, chapter) or (_detail(event) if self._verbose else None)
        return [self._timed(event.at, name, text)] if text else []

    def _finished(self, event: e.TargetFinished, chapter: Chapter) -> list[Line]:
        outcome = event.outcome
        known = Known(
            located=chapter.located,
            asked=self._asked(event),
            since_found_s=chapter.since_found(event.at),
            patient=chapter.over,
            heard=_heard(chapter.watched, event.at),
            waits=self._started is not None and self._started.command == "wait",
            command=self._started.command if self._started else None,
            inventory=self._started.inventory if self._started else None,
            more=self._started.more if self._started else (),
            log=chapter.announced.log,
            unsaid=chapter.announced.unsaid,
            unplaced=chapter.announced.unplaced,
        )
        last = [ending.last_line(outcome, known)]
        if self._quiet:
            return last
        untold = bool(outcome.plan) and not chapter.planned
        plan = header.plan(outcome.plan, graceful=_mild(chapter)) if untold else []
        more = ending.below(outcome, known, frozenset(chapter.findings))
        return plan + last + more + (ending.cost(outcome) if self._verbose else [])

    def _asked(self, event: e.TargetFinished) -> str | None:
        """What was typed, where it means this target alone; None for an ad-hoc address."""
        outcome, started = event.outcome, self._started
        if outcome.job is None:
            return None
        typed = started.asked[0] if started and len(started.asked) == 1 else ""
        return typed if typed == outcome.target.partition(":")[0] else outcome.target


def _released(chapter: Chapter, clean: bool) -> str:
    event = chapter.released
    if event is None:
        return ""
    late = f" (the last after {words.elapsed(event.seconds)})" if event.seconds >= 5 else ""
    name = "GPU" if len(event.indexes) == 1 else "GPUs"
    rest = "; nothing came back" if clean else ""
    return f"{name} {words.indexes(event.indexes)} released{late}{rest}"


def _mild(chapter: Chapter) -> bool:
    """The header has said that lossy rungs are left out."""
    return chapter.located is not None and chapter.located.graceful


def _heard(watched: e.WatchedOn | None, at: str) -> str | None:
    """`it heard INT 4 min ago (run 7f3a) and runs on`."""
    if watched is None:
        return None
    who, go_on = ("they", "run on") if len(watched.pids) > 1 else ("it", "runs on")
    ago = ""
    if watched.ago_s is not None:
        ago = f" {words.age(watched.ago_s + words.between(watched.at, at))} ago"
    sent = f"{redact.safe(watched.signal)}{ago} (run {redact.safe(watched.by_run)})"
    return f"{who} heard {sent} and {go_on}"


def _held(event: e.Holding, chapter: Chapter) -> list[str]:
    """A hold, when it begins, changes its nature, outlives its rung, or has long been silent."""
    why, parts = holding.news(event)
    before, told = chapter.hold or ("", frozenset())
    outlived = event.over_wait and not chapter.over
    known = why == before and parts <= told
    if known and not outlived and words.between(chapter.hold_at, event.at) < STILL_S:
        return []
    chapter.hold, chapter.hold_at = (why, parts | told if why == before else parts), event.at
    if outlived:
        chapter.over = True
        return holding.outlived(event, chapter.wait_s)
    return [holding.sentence(event)]


def _acted(event: e.Event, chapter: Chapter) -> str | None:
    """What was done or came to pass, as everybody reads it."""
    match event:
        case e.SignalSent():
            chapter.wait_s, chapter.over, chapter.hold = event.wait_s, False, None
            what = naming.delivery(event.signal, event.to, event.pids, event.landing)
            were = "they were" if len(event.pids) > 1 else "it was"
            woken = f", then CONT: {were} suspended" if event.continued else ""
            text = f"{what}{woken}; waiting {words.patience(event.wait_s)}"
            text = question.done(event) if event.landing == "asked" else text
        case e.WatchedOn():
            chapter.wait_s, chapter.over, chapter.watched = event.wait_s, False, event
            ago = "" if event.ago_s is None else f" {words.age(event.ago_s)} ago"
            sent = f"{redact.safe(event.signal)} was sent to {words.pids(event.pids)}{ago}"
            by = f"by run {redact.safe(event.by_run)}"
            text = f"{sent} {by}; not repeated, waiting {words.patience(event.wait_s)}"
        case e.Reconnected():
            took = words.elapsed(event.seconds)
            text = f"the connection to {redact.text(event.host)} was lost; re-made in {took}"
        case e.RungSkipped():
            text = f"{redact.safe(event.signal)} skipped: {redact.text(event.reason)}"
        case e.CheckpointVerified():
            whole = "complete" if event.complete else "NOT complete"
            name = redact.text(event.name, 80)
            text = f"{name} {whole}, {words.size(event.size)}, written after the signal"
        case e.Waiting():
            text = f"waiting {waiting.AIMS[event.what]}, {words.patience(event.limit_s)}"
        case e.Interrupted():
            text = "interrupted; nothing more is sent"
        case e.Fault():
            where = f"; traceback in {redact.text(event.traceback_path or '?')}"
            text = f"fault in fleetstop: {redact.text(event.error)}{where}"
        case _:
            return question.told(event)
    return text


def _account(event: e.Looked, chapter: Chapter) -> list[str]:
    """What a state rests on, each once: other numbers are no news."""
    told = []
    for text in event.evidence:
        kind = holding.NUMBER.sub("#", text)
        if kind not in chapter.accounts and (
            event.verdict in _GRAVE or holding.ACCOUNT.search(text)
        ):
            chapter.accounts.add(kind)
            told.append(redact.text(text))
    return told


def _detail(event: e.Event) -> str | None:
    """What only `--verbose` tells."""
    match event:
        case e.Connected():
            took = words.elapsed(event.seconds)
            return f"connected to {redact.text(event.host)} in {took}"
        case e.Looked():
            facts = ", ".join(redact.text(each) for each in event.evidence)
            return f"now {redact.safe(event.verdict)}" + (f": {facts}" if facts else "")
        case e.RungEntered():
            return f"rung {event.rung}: {redact.safe(event.signal)} to {redact.safe(event.to)}"
        case e.Verifying():
            return f"verifying: {event.what}"
    return launching.detail(event)
