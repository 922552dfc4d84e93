"""May this rung be climbed now: who it reaches, how it lands, what it would cost."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from fleetstop.core.family import Family, Kin, standing
from fleetstop.core.ledger import Heard
from fleetstop.core.playbook import Rung
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.core.ranks import messenger, through_launcher
from fleetstop.core.signals import Landing, worst

Consent: TypeAlias = Literal["given", "refused", "absent"]


class Send(Struct, frozen=True):
    """A signal to be sent now, to all recipients in one burst or to none."""

    rung: int
    signal: str
    to: str
    recipients: tuple[Kin, ...]
    landing: Landing
    lossy: bool
    resume: bool
    wait_s: float
    # ranks that hear it from their launcher, the recipient
    passed_on: tuple[Kin, ...] = ()


class Skip(Struct, frozen=True):
    """`consent`: only consent was missing. `reason` is a sentence for people."""

    rung: int
    signal: str
    to: str
    pids: tuple[int, ...]
    landing: Landing | None
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
    """What a decision rests on, besides the rung: one look, and what was agreed and heard."""

    family: Family
    tree: ProcessTree
    stop_signal: str
    lossless: bool
    consent: Consent
    past: dict[ProcessId, Heard]
    heard: frozenset[ProcessId]


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
    """Members that share a trainer's real (host) process group, one by one: never a kill(-PGID)."""
    groups = {
        process.pgid
        for kin in here.family.trainers
        if (process := here.tree.get(kin.id)) is not None
    }
    found = []
    for kin in alive:
        process = here.tree.get(kin.id)
        if process is not None and process.pgid in groups:
            found.append(kin)
    return tuple(found)


def decide(index: int, rung: Rung, here: Standing) -> Decision:
    """One rung against one look. Rules: design of the ladder, in the README's 'How it stops'."""
    signal = here.stop_signal if rung.signal == "stop_signal" else rung.signal
    reached = recipients(rung.to, signal, here)
    passed_on: tuple[Kin, ...] = ()
    if rung.to == "trainers" and reached and through_launcher(here.family, signal):
        asked = messenger(here.family, here.tree, signal)
        if isinstance(asked, str):
            pids = tuple(kin.pid for kin in reached)
            return Skip(index, signal, rung.to, pids, None, asked)
        reached, passed_on = (asked,), reached
    pids = tuple(kin.pid for kin in reached)

    def skip(reason: str, how: Landing | None = None, consent: bool = False) -> Skip:
        return Skip(index, signal, rung.to, pids, how, reason, consent)

    if not reached:
        return skip(f"nobody is left for it ({rung.to})")
    if any(kin.id.pid <= 1 or kin.pid <= 1 for kin in reached):
        return skip("it would reach PID 1, which is never signalled")
    earlier = _heard_earlier(rung.to, reached, here)
    if signal != "KILL" and earlier is not None and _awaited(signal, earlier, here):
        # before its landing: a trainer that shuts down may ignore now what it has heard
        return WatchOn(index, earlier.signal, rung.to, reached, earlier, rung.wait_s)
    seen = [(kin, here.tree.processes[kin.id.pid]) for kin in (*reached, *passed_on)]
    landings = [process.landing(signal) for _, process in seen]
    if any(each is None for each in landings):
        return skip("how it would land could not be seen")
    how = worst([each for each in landings if each is not None])
    if signal != "KILL":
        if traced := [
            f"{kin.pid} (by host PID {p.tracer or 'unseen'})" for kin, p in seen if p.state == "t"
        ]:
            return skip(f"held by a tracer: {', '.join(traced)}; it would only wait there", how)
        if how in ("ignored", "blocked"):
            return skip(_unheard(signal, how, seen), how)
    cost = _cost(signal, rung.to, how, reached, here)
    if cost is not None:
        if here.lossless or here.consent == "refused":
            return skip(cost, how)
        if here.consent == "absent":
            return skip(f"{cost} Needs --force", how, consent=True)
    return Send(
        rung=index,
        signal=signal,
        to=rung.to,
        recipients=reached,
        landing=how,
        lossy=cost is not None,
        resume=signal != "KILL" and any(process.state == "T" for _, process in seen),
        wait_s=rung.wait_s,
        passed_on=passed_on,
    )


def _heard_earlier(to: str, reached: tuple[Kin, ...], here: Standing) -> Heard | None:
    """The latest signal of earlier runs, where every trainer this rung is for has heard one."""
    earlier = [_past(kin, here) for kin in reached if kin.id not in here.heard]
    past = [each for each in earlier if each is not None]
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
    return earlier.signal == signal or here.lossless or here.consent != "given"


def _unheard(signal: str, how: Landing, seen: list[tuple[Kin, Process]]) -> str:
    deaf = [(kin, process) for kin, process in seen if process.landing(signal) == how]
    names = ", ".join(str(kin.pid) for kin, _ in deaf)
    if how == "blocked":
        return f"{names} blocks it in every thread (SigBlk). Waiting cannot help."
    why = ""
    masks = deaf[0][1].masks
    if signal == "INT" and masks is not None and masks.ignored & 0b110 == 0b110:
        # POSIX sh 2.11: an asynchronous list without job control ignores INT and QUIT
        why = (
            " It was started with & from a non-interactive shell, "
            "so Python never installed KeyboardInterrupt."
        )
    return f"{names} ignores it (SigIgn).{why} Waiting cannot help."


def _cost(
    signal: str, to: str, how: Landing, reached: tuple[Kin, ...], here: Standing
) -> str | None:
    """Why this may lose work, or None where it cannot."""
    names = ", ".join(str(kin.pid) for kin in reached)
    if signal == "KILL":
        return "it ends the job at once, unsaved."
    if how == "fatal":
        return "no handler; it would end the job at once, unsaved."
    again = [kin for kin in reached if kin.id in here.heard or _past(kin, here) is not None]
    if again:
        pids = ", ".join(str(kin.pid) for kin in again)
        return f"{pids} has heard a signal already; a second one may cut its save."
    if to != "trainers":
        return f"it reaches more than the trainers ({to}: {names}), which may cost the checkpoint."
    return None


def choose_stop_signal(family: Family, tree: ProcessTree) -> str | None:
    """The only one of INT and TERM that every trainer hears; INT where none is heard at all.

    None: both are heard, and which of them saves cannot be seen from outside.
    """
    heard = [
        signal
        for signal in ("INT", "TERM")
        if all(
            (process := tree.get(kin.id)) is not None and process.landing(signal) == "heard"
            for kin in family.trainers
        )
    ]
    if len(heard) == 2:
        return None
    return heard[0] if heard else "INT"
