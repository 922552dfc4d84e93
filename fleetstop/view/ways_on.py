"""Commands that could help where a target did not end, and what each would cost."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from fleetstop.core import redact
from fleetstop.core.launching.ears import BY_ITSELF
from fleetstop.core.report import Outcome, SignalRecord
from fleetstop.events import CheckpointSeen, Located
from fleetstop.view import launching, words
from fleetstop.view.layout import Line, note


class Known(Struct, frozen=True):
    """What the screen already knows when a target ends.

    `asked`: the target as somebody would type it, None where the name alone does not lead
    there. `since_found_s`: from the first look to now. `patient`: a hold outlived its rung.
    `heard`: what an earlier run sent, as a sentence. `inventory`: the file that was named.
    `waits`: it was a `wait`, which sends nothing. `command`: the verb that was typed; `more`: what
    stands behind it and the target, None where that cannot be told. `log`: of what was started;
    `unsaid`: what the inventory lacks for a launch of it; `unplaced`: for a rollback.
    """

    located: Located | None = None
    asked: str | None = None
    since_found_s: float = 0.0
    patient: bool = False
    heard: str | None = None
    inventory: str | None = None
    waits: bool = False
    command: str | None = None
    more: tuple[str, ...] | None = ()
    log: str | None = None
    unsaid: str | None = None
    unplaced: str | None = None

    @property
    def brings(self) -> bool:
        return self.command in launching.BRINGING

    def again(self, *flags: str) -> str | None:
        """The same once more, with these flags; None where it cannot be told. What brings a job
        up is typed as that: a stop alone would leave its GPUs idle."""
        if not self.asked or (self.brings and self.more is None):
            return None
        verb, more = (self.command, self.more or ()) if self.brings else ("stop", ())
        at = more.index("--") if "--" in more else len(more)  # behind it stands the job's own
        return redact.typed(
            [verb or "stop", self.asked, *more[:at], *flags, *more[at:]], self.inventory
        )


def below(outcome: Outcome, known: Known) -> list[Line]:
    """After what was brought up, or was not."""
    if not known.brings:
        return []
    name = known.asked or outcome.target
    back = redact.typed(["rollback", name], known.inventory)
    lines = launching.below(outcome, known.again(), back, known.log)
    runs = any(each.verdict not in ("gone", "zombie") for each in outcome.family)
    ended = outcome.result == "unclean" and outcome.verdict != "respawned"
    ended = ended or (outcome.result == "unhealthy" and not runs)
    goes_back = bool(lines) and back in lines[-1].text
    lacks = known.unplaced if goes_back else known.unsaid
    if lacks is not None and ended:
        what = "where its code lies" if lacks == known.unplaced else "how"
        said = f"nothing runs any more that tells {what}, so say there: {lacks}"
        lines.insert(max(len(lines) - 1, 0), note("inventory", said))
    return lines


def ways_on(outcome: Outcome, known: Known) -> list[Line]:
    """The one that loses least first; none where an end by force would help nobody."""
    if not _force_could_help(outcome, known):
        return []
    return [*_lose_least(outcome, known), _end_it_now(outcome, known), *_next_time(outcome, known)]


def _force_could_help(outcome: Outcome, known: Known) -> bool:
    if known.waits or outcome.verdict == "uninterruptible":
        return False
    named = "--force" in (outcome.hint or "")
    ends = outcome.result == "still_running" or _lacks_consent(outcome)
    left_alone = outcome.interrupted or (outcome.result == "still_running" and outcome.hint)
    if any("would start it again: " in each for each in _reasons(outcome)):
        return False  # each such reason names what comes first
    return ends and not left_alone and not named and not _lossy(outcome.signals)


def _lacks_consent(outcome: Outcome) -> bool:
    skipped = any("Needs --force" in each.reason for each in outcome.skipped)
    return outcome.result == "refused" and skipped


def _reasons(outcome: Outcome) -> list[str]:
    return [each.reason for each in outcome.skipped]


def _end_it_now(outcome: Outcome, known: Known) -> Line:
    found = known.located
    book = "standard" if _has_no_such_rung(outcome, known) else None
    if found is not None and _kept_up(found):
        book = None if (found.own_playbook or found.playbook) == "systemd" else "systemd"
    more = ["--playbook", book, "--force"] if book is not None else ["--force"]
    return note("end it now", f"{known.again(*more) or _same(more, known)}   {_loss(known)}")


def _same(more: Sequence[str], known: Known) -> str:
    graceful = known.located is not None and known.located.graceful
    return f"the same command with {' '.join(more)}{', without --graceful' if graceful else ''}"


def _next_time(outcome: Outcome, known: Known) -> list[Line]:
    """A deaf one is deaf for life; how it was started is what can be changed."""
    if outcome.verdict != "deaf" or not known.asked or known.brings or _kept_up(known.located):
        return []
    text = redact.typed(["restart", known.asked], known.inventory)
    if any(BY_ITSELF in each for each in outcome.evidence):
        cure = "in the script that starts it: `exec python …`, or no &"
        return [note("next time", f"{cure}; then: {text}")]
    return [note("next time", f"{text}   launches it able to hear")]


def _kept_up(found: Located | None) -> bool:
    """Its unit would start it again after KILL, as systemd itself has said."""
    above = found.above if found is not None else ()
    return any(e.kind == "systemd" and e.again in ("always", "failure") for e in above)


def _lose_least(outcome: Outcome, known: Known) -> list[Line]:
    """Where it saves by itself now and then: end it right after the next time."""
    seen = known.located.checkpoint if known.located else None
    age = _age_of_whole(seen, known.since_found_s)
    if seen is None or seen.usual_s is None or age is None or not (known.asked or known.brings):
        return []
    if outcome.verdict not in ("deaf", "busy", "saving", None) or seen.known_format is False:
        return []  # it would never see a complete one
    stock = ["--playbook", "standard"] if _has_no_such_rung(outcome, known) else []
    more = (*stock, "--after-checkpoint")
    text = known.again(*more) or _same(more, known)
    left = seen.usual_s - age
    due = f"next in ~{words.age(left)}" if left > 0 else "the next is due"
    return [note("lose least", f"{text}   one every ~{words.age(seen.usual_s)} here; {due}")]


def _age_of_whole(seen: CheckpointSeen | None, since_s: float) -> float | None:
    """How old the newest complete checkpoint is now, as far as it is known."""
    if seen is None:
        return None
    age = seen.whole_age_s if seen.whole is not None else seen.age_s
    return None if age is None or (seen.complete is False and not seen.whole) else age + since_s


def _has_no_such_rung(outcome: Outcome, known: Known) -> bool:
    """The playbook by which the command goes unless it names one has no rung that --force could
    open, or is not known to have one. That is the job's own; of the same command, what was typed.
    """
    found = known.located
    if found is None:
        return False
    own = found.own_playbook
    if own is not None and _stem(own) != found.playbook:
        return own != "standard" or known.again() is None
    if own == "standard":
        return False
    typed = (found.playbook or "").startswith("-")
    asked = ("Needs --force", "The answer was no.", "may be lost.")
    consent = found.graceful or any(word in why for word in asked for why in _reasons(outcome))
    return found.lossless or typed or not (consent or outcome.signals)


def _stem(playbook: str) -> str:
    """It may be named by its path."""
    return playbook.rpartition("/")[2].removesuffix(".yaml")


def _loss(known: Known) -> str:
    """What an end without a save would cost, as far as it is known."""
    found = known.located
    seen = found.checkpoint if found else None
    if found is None or (seen is None and not found.checkpoints_declared):
        return "loses whatever was not saved"
    if seen is None and found.checkpoints_unseen is not None:
        return "loses whatever was not saved: what is saved could not be seen"
    age = _age_of_whole(seen, known.since_found_s)
    if seen is None or age is None:
        return "loses everything: no complete checkpoint was seen"
    doubt = "" if seen.complete or seen.whole else ", if that one is complete"
    name = redact.text(seen.whole or seen.name, 80)
    up = None if found.up_s is None else found.up_s + known.since_found_s
    if up is not None and age > up:
        return f"loses about {words.age(up)}, all since its start ({name} is older{doubt})"
    return f"loses about {words.age(age)} (since {name}{doubt})"


def _lossy(signals: Sequence[SignalRecord]) -> bool:
    return any(each.landing == "fatal" for each in signals)
