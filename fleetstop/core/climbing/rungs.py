"""May this rung be climbed now: who it reaches, how it lands, what it would cost."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from fleetstop.core.above.comeback import in_vain
from fleetstop.core.above.ranks import messenger, through_launcher
from fleetstop.core.above.supervisors import Above
from fleetstop.core.climbing.consent import Consent, Terms, missing
from fleetstop.core.climbing.landings import lands
from fleetstop.core.climbing.requests import word_of
from fleetstop.core.kin.family import Family, Kin, standing
from fleetstop.core.ledger import Heard
from fleetstop.core.playbook import Does, Rung, unfilled
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.saves.risk import AtRisk
from fleetstop.core.signals import Landing, has

Lands: TypeAlias = Landing | Literal["asked"]


class Send(Struct, frozen=True):
    """A signal to be sent now, to all recipients in one burst or to none; or, where `does` is
    another word, an ask: `argument` is run, touched or typed in the container.

    `agree`: what it may lose, as a sentence, where a yes is still needed for it.
    """

    rung: int
    signal: str
    to: str
    recipients: tuple[Kin, ...]
    landing: Lands
    lossy: bool
    resume: bool
    wait_s: float
    does: Does = "signal"
    argument: str = ""
    agree: str = ""
    # ranks that hear it from their launcher, the recipient
    passed_on: tuple[Kin, ...] = ()


class Skip(Struct, frozen=True):
    """`consent`: only consent was missing. `reason` is a sentence for people."""

    rung: int
    signal: str
    to: str
    pids: tuple[int, ...]
    landing: Lands | None
    reason: str
    consent: bool = False


class WatchOn(Struct, frozen=True):
    """An earlier run has sent `signal` already; its effect is awaited, nothing repeated."""

    rung: int
    signal: str
    to: str
    recipients: tuple[Kin, ...]
    heard: Heard
    wait_s: float


Decision: TypeAlias = Send | Skip | WatchOn


class Standing(Struct, frozen=True):
    """What a decision rests on, besides the rung: one look, and what was agreed and heard.

    `verdict` None: not judged (a plan for later). `asked`: how many asks this ladder has sent
    or watched on. `declined`: rungs that somebody said no to. `tmux`: the job is found by it.
    `arrived`: the checkpoint that `terms` wait for is there. `above`: who stands above the
    trainers and has not been told to let them end.
    """

    family: Family
    tree: ProcessTree
    stop_signal: str
    lossless: bool
    consent: Consent
    past: dict[ProcessId, Heard]
    heard: frozenset[ProcessId]
    terms: Terms = Terms()
    risk: AtRisk | None = None
    verdict: str | None = None
    asked: int = 0
    declined: frozenset[int] = frozenset()
    tmux: bool = False
    arrived: bool = False
    above: tuple[Above, ...] = ()


def recipients(to: str, signal: str, here: Standing) -> tuple[Kin, ...]:
    """Who a rung reaches now: only living members of the family, in the order of the kill.

    In a tree rung KILL takes wrappers and launchers first, so that nothing starts the job
    again; other signals reach them only when the rest has ended.
    """
    alive = standing(here.family, here.tree)
    above = tuple(k for k in alive if k.role in ("wrapper", "launcher"))
    rest = tuple(k for k in alive if k.role in ("trainer", "worker"))
    match to:
        case "trainers":
            return tuple(k for k in alive if k.role == "trainer")
        case "wrapper":
            return above
        case "group":
            return _group(alive, here)
        case _:
            return (*above, *rest) if signal == "KILL" else (rest or above)


def _group(alive: tuple[Kin, ...], here: Standing) -> tuple[Kin, ...]:
    """Members of a trainer's real (host) process group, one by one: never a kill(-PGID).

    Started through an attach without a tty a job has PGID 0 inside, and its real group is the
    attaching shell's, which others may share: then it is the members that have PGID 0 too.
    """
    trainers = [p for kin in here.family.trainers if (p := here.tree.get(kin.id)) is not None]
    groups = {p.pgid for p in trainers if p.inner_pgid != 0}
    homeless = any(p.inner_pgid == 0 for p in trainers)
    found = []
    for kin in alive:
        process = here.tree.get(kin.id)
        if process is None:
            continue
        if (homeless and process.inner_pgid == 0) or (
            process.inner_pgid != 0 and process.pgid in groups
        ):
            found.append(kin)
    return tuple(found)


def decide(index: int, rung: Rung, here: Standing) -> Decision:
    """One rung against one look. Rules: design of the ladder, in the README's 'How it stops'."""
    signal, asks = word_of(rung, here.stop_signal), rung.does != "signal"
    to = "trainers" if asks else rung.to
    reached, passed_on, mute = _reach(to, signal, here, asks=asks)
    pids = tuple(kin.pid for kin in reached)

    def skip(reason: str, how: Lands | None = None, consent: bool = False) -> Skip:
        return Skip(index, signal, to, pids, how, reason, consent)

    if (not_now := not_for(rung, here.verdict) or unfilled(rung) or mute) is not None:
        return skip(not_now)
    if rung.does == "keys" and not here.tmux:
        return skip("the job is not found through a tmux session (match: tmux), so it has no pane")
    if not reached:
        return skip(f"nobody is left for it ({to})")
    if signal == "KILL" and not (reached := _unkilled(reached, here.tree)):
        return skip(KILLED)
    if any(kin.id.pid <= 1 or kin.pid <= 1 for kin in reached):
        return skip("it would reach PID 1, which is never signalled")
    hears = passed_on or reached
    earlier = _heard_earlier(to, hears, rung, here)
    if signal != "KILL" and earlier is not None and _awaited(signal, earlier, here):
        # before its landing: a trainer that shuts down may ignore now what it has heard
        return WatchOn(index, earlier.signal, to, hears, earlier, rung.wait_s)
    how: Lands | None = "asked"
    if not asks:
        how, unheard = lands(signal, (*reached, *passed_on), here.tree)
        if unheard is not None:
            return skip(unheard, how)
    # ranks may have heard one themselves: handed on by their launcher it is a second one
    cost = _cost(signal, to, how, (*reached, *passed_on), rung, here)
    if cost is not None and (said := _against(index, cost, signal, reached, here, asks)):
        reason, lacking = said
        return skip(reason, how, consent=lacking)
    assert how is not None
    stopped = any(p is not None and p.state == "T" for p in map(here.tree.get, _ids(reached)))
    return Send(
        rung=index,
        signal=signal,
        to=to,
        recipients=reached,
        landing=how,
        lossy=cost is not None,
        resume=signal != "KILL" and not asks and stopped,
        wait_s=rung.wait_s,
        does=rung.does,
        argument=rung.argument,
        passed_on=passed_on,
        agree=cost if cost is not None and asked_for(here.consent, here.terms) else "",
    )


def _reach(
    to: str, signal: str, here: Standing, *, asks: bool
) -> tuple[tuple[Kin, ...], tuple[Kin, ...], str | None]:
    """Who gets it, who hears it from them, and why it would not be handed on."""
    reached = recipients(to, signal, here)
    if to != "trainers" or asks or not reached or not through_launcher(here.family, signal):
        return reached, (), None
    asked = messenger(here.family, here.tree, signal)
    return (reached, (), asked) if isinstance(asked, str) else ((asked,), reached, None)


def _against(
    index: int, cost: str, signal: str, reached: tuple[Kin, ...], here: Standing, asks: bool
) -> tuple[str, bool] | None:
    """Why what has this cost is not sent, and whether only consent is missing."""
    if here.lossless or here.consent == "refused":
        return cost, False
    if not asks and (vain := _in_vain(signal, reached, here)) is not None:
        return f"{cost} {vain}", False
    lacking = missing(here.consent, here.terms, here.risk, here.arrived)
    if lacking is not None:
        return f"{cost} {lacking}", True
    return (f"{cost} The answer was no.", False) if index in here.declined else None


def _in_vain(signal: str, reached: tuple[Kin, ...], here: Standing) -> str | None:
    """Work is risked for the sake of the end: where there would be none, it is not risked."""
    trainers = [kin for kin in reached if kin.role == "trainer"]
    if not trainers:
        return None
    ends = any(here.tree.processes[k.id.pid].landing(signal) == "fatal" for k in trainers)
    ids, pids = frozenset(_ids(reached)), frozenset(kin.pid for kin in trainers)
    return in_vain(here.above, signal, ends or signal == "KILL", ids, pids, here.tree)


KILLED = "KILL is pending on it already and nothing acts; a second one does no more"


def _unkilled(reached: tuple[Kin, ...], tree: ProcessTree) -> tuple[Kin, ...]:
    """Without those for whom KILL waits already: in D nothing hastens it."""
    return tuple(kin for kin in reached if not has(tree.processes[kin.id.pid].pending, "KILL"))


def asked_for(consent: Consent, terms: Terms) -> bool:
    """Whether what may lose work takes a yes at the moment it is sent."""
    return consent == "absent" and terms.asks and not terms.limited


def _ids(kins: tuple[Kin, ...]) -> tuple[ProcessId, ...]:
    return tuple(kin.id for kin in kins)


def not_for(rung: Rung, verdict: str | None) -> str | None:
    """Why this rung is none for a job with this verdict. None: not judged, so it may be."""
    if verdict is not None and rung.when and verdict not in rung.when:
        return f"only for a job that is {' or '.join(rung.when)}, and it is {verdict}"
    if verdict is not None and verdict in rung.unless:
        return f"not for a job that is {' or '.join(rung.unless)}, and it is {verdict}"
    return None


def _heard_earlier(to: str, reached: tuple[Kin, ...], rung: Rung, here: Standing) -> Heard | None:
    """The latest signal of earlier runs, where every trainer this rung is for has heard one.

    An `again` rung is a later ask of the same ladder: it is watched on for only where earlier
    runs have asked as often already.
    """
    done = [_past(kin, here) for kin in reached]
    past = [
        heard
        for kin, heard in zip(reached, done, strict=True)
        if heard is not None
        and (kin.id not in here.heard or (rung.again and heard.times > here.asked))
    ]
    if to != "trainers" or len(past) < len(reached):
        return None
    return min(past, key=lambda each: each.ago_s)


def _past(kin: Kin, here: Standing) -> Heard | None:
    """What an earlier run has sent it, or sent its launcher to be handed on."""
    told = here.past.get(kin.id)
    if told is not None or kin.role != "trainer":
        return told
    above = (here.past.get(each.id) for each in here.family.of("launcher"))
    return next((each for each in above if each is not None), None)


def _awaited(signal: str, earlier: Heard, here: Standing) -> bool:
    """Another signal than the one heard may follow by consent only; the same never does."""
    agreed = here.consent == "given" or (
        here.consent == "absent" and missing("absent", here.terms, here.risk, here.arrived) is None
    )
    return earlier.signal == signal or here.lossless or not agreed


def _cost(
    signal: str, to: str, how: Lands | None, reached: tuple[Kin, ...], rung: Rung, here: Standing
) -> str | None:
    """Why this may lose work, or None where it cannot."""
    names = ", ".join(str(kin.pid) for kin in reached)
    if signal == "KILL":
        return "it ends the job at once, unsaved."
    if how == "fatal":
        return "no handler; it would end the job at once, unsaved."
    again = [kin for kin in reached if kin.id in here.heard or _past(kin, here) is not None]
    if again and not (rung.again and rung.lossless):
        pids = ", ".join(str(kin.pid) for kin in again)
        have, its = ("have", "their") if len(again) > 1 else ("has", "its")
        return f"{pids} {have} heard a signal already; a second one may cut {its} save."
    if to != "trainers":
        return f"it reaches more than the trainers ({to}: {names}), which may cost the checkpoint."
    if rung.does in ("run", "keys") and not rung.lossless:
        return "nobody vouches for what it does (`lossless: true` on the rung); it may lose work."
    return None
