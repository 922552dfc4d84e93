"""What an earlier run has left, and what this one does about it: wait, take over, clean."""

from __future__ import annotations

from msgspec import Struct

from fleetstop.actions import awaiting, hands
from fleetstop.actions.errand import Errand, wished
from fleetstop.actions.interpreter import scripts
from fleetstop.actions.lots import Lot
from fleetstop.core.launching.activation import ENDS, State
from fleetstop.core.launching.activator import Order
from fleetstop.core.releases.aftermath import seconds
from fleetstop.core.releases.known_bad import failed_before
from fleetstop.core.releases.landing import differing, tells_all
from fleetstop.core.releases.payload import some
from fleetstop.core.releases.resuming import Decision, Seen, next_step
from fleetstop.core.releases.standing import NewerCode, newer_code
from fleetstop.errors import DeployFailed, Refused

_WAIT_S = 180.0
_LOOK_S = 1.0
_LONG_AGO_S = 3600.0


class Settled(Struct, frozen=True):
    """`again`: what was waited for has changed what is there: everything is looked at anew.
    `done`: nothing is left to do, a sentence. `confirm`: what was launched runs, and only its
    health is left to see. None of them: from the start."""

    again: bool = False
    done: str | None = None
    confirm: State | None = None


async def settled(lot: Lot, errand: Errand) -> Settled:
    """Names the releases of the lot. Raises Refused where nothing can be done about it."""
    newer = code_since(lot)
    decision = _decided(lot, errand, newer)
    for text in decision.findings:
        lot.finding(text)
    match decision.act:
        case "refuse":
            raise Refused(decision.sentence)
        case "already_done" if _as_asked(lot, errand):
            return Settled(done=decision.sentence)
        case "confirm" if errand.dry_run and _as_asked(lot, errand):
            return Settled(done=f"{decision.sentence}; only its health would be looked at")
        case "confirm" if lot.state is not None and _as_asked(lot, errand):
            if decision.clean is not None:
                await clean(lot, decision.clean)
            lot.finding(f"{decision.sentence}; nothing is sent, its health is looked at")
            return Settled(confirm=lot.state)
        case "wait" | "take_over" | "succeed" if errand.dry_run:
            raise Refused(
                f"{decision.sentence}; a dry run does not touch that",
                hint=awaiting.plan_later(lot.scope),
            )
        case "wait" | "take_over":
            return await _others_end(lot, errand, decision)
        case "succeed":
            lot.finding(decision.sentence)
            lot.succeeds = decision.run
    # what may have heard a signal does not run on for being what is wanted
    if lot.succeeds is None and _nothing_to_do(lot, errand, newer):
        count = len(lot.files)
        files = "the file is" if count == 1 else f"all {count} files are"
        return Settled(done=f"{files} what runs already: nothing was sent, nothing was stopped")
    _known_bad(lot, errand)
    if decision.torn:
        _no_mixture(lot, decision)
    if decision.clean is not None and not errand.dry_run:
        await clean(lot, decision.clean)
    kept = lot.ground.releases.get(decision.before or "")
    whole = kept is not None and tells_all(kept, lot.wanted, lot.ground.on_disk)
    lot.name(decision.before if whole else lot.kept_already if not decision.torn else None)
    return Settled()


def _same(lot: Lot, errand: Errand) -> bool:
    """What the last run was asked is what is asked now."""
    wish = lot.state.wish if lot.state is not None else None
    return wish is not None and wish == wished(errand, lot.job, lot.wanted)


def _as_asked(lot: Lot, errand: Errand) -> bool:
    """What runs was started with what was typed now, if anything was."""
    return not (errand.extra.words or errand.extra.env) or _same(lot, errand)


def _known_bad(lot: Lot, errand: Errand) -> None:
    """A healthy job is not stopped for what failed here before, unless that is meant. Where it is
    what runs, or nothing does, nothing is lost by another try."""
    bad = failed_before(lot.state, lot.ground.releases, lot.wanted)
    if bad is None or errand.command not in ("redeploy", "rollback"):
        return
    bad_runs = lot.state is not None and lot.state.step == "unhealthy" and lot.started
    asked_anew = lot.state is not None and lot.state.wish is not None and not _same(lot, errand)
    if (
        lot.now is None
        or bad_runs
        or asked_anew
        or errand.dry_run
        or errand.stop.consent == "given"
    ):
        lot.finding(bad)
        return
    raise DeployFailed(
        f"{bad}; nothing was stopped",
        hint="mend it; or, if it was not at fault, send it with another --env, argument or health"
        " check; --force sends it all the same, and is consent to lose work in the stop as well",
    )


def _decided(lot: Lot, errand: Errand, newer: NewerCode | None) -> Decision:
    return next_step(
        lot.ground.state,
        _seen(lot, errand, newer),
        wanted=lot.wanted if errand.command == "redeploy" else {},
        on_disk=lot.ground.on_disk,
        releases=lot.ground.releases,
    )


def code_since(lot: Lot) -> NewerCode | None:
    """What was changed on disk after the trainer began; None where nothing runs, too."""
    if lot.now is None:
        return None
    dest, ground = lot.dest.rstrip("/"), lot.ground
    began = ground.began(lot.scene.tree, lot.now.trainer.id.start)
    changed = {f"{dest}/{rel}": each for rel, each in ground.changed.items()}
    kept = ground.releases.get((lot.state.running or "") if lot.state is not None else "")
    same: frozenset[str] = frozenset()
    if kept is not None and lot.started:
        # its dates may be later: a hard link to it was made, its owner was set
        same = frozenset(
            f"{dest}/{rel}" for rel, sha in kept.hashes.items() if ground.on_disk.get(rel) == sha
        )
    main = lot.place.main if lot.place is not None else None
    return newer_code(main or "", changed, began, same=same)


def _seen(lot: Lot, errand: Errand, newer: NewerCode | None) -> Seen:
    now, state = lot.now, lot.state
    dead = state is not None and state.run in lot.dead
    return Seen(
        activator=lot.ground.activator,
        family=now is not None,
        ours=lot.started,
        old_code=newer is not None if now is not None else None,
        beat_s=float("inf") if lot.ground.beat_s is None or dead else lot.ground.beat_s,
        same=_same(lot, errand),
        told=state is not None and _told(lot, state),
    )


def _told(lot: Lot, state: State) -> bool:
    """A client has told how it did, or it is so long ago that nobody waits for that."""
    at = seconds(state.ended_at or state.at)
    old = at is not None and lot.ground.now - at > _LONG_AGO_S
    return old or lot.ground.order == (state.run, "done")


def _nothing_to_do(lot: Lot, errand: Errand, newer: NewerCode | None) -> bool:
    """The very files lie there, and what runs was started after they came. Of what was found to be
    unhealthy that is no reason to leave it at that."""
    if errand.command != "redeploy" or lot.now is None or newer is not None:
        return False
    if lot.state is not None and lot.state.step == "unhealthy" and lot.started:
        return False
    same = all(lot.ground.on_disk.get(rel) == sha for rel, sha in lot.wanted.items())
    return same and not errand.extra.words and not errand.extra.env


def _no_mixture(lot: Lot, decision: Decision) -> None:
    """What would be started has to be all of one release."""
    before = lot.ground.releases.get(decision.before or "")
    if before is not None:
        rest = [each for each in differing(before, lot.ground.on_disk) if each not in lot.wanted]
    else:
        rest = [] if lot.wanted else ["what lies there"]
    if rest:
        raise Refused(
            f"{decision.sentence}; {some(rest)} would be started as it is",
            hint="send them all again, or put the release before back: "
            + lot.scope.run.typed("rollback", lot.scope.target.name),
        )


async def _others_end(lot: Lot, errand: Errand, decision: Decision) -> Settled:
    """We hold the lock: its client is gone, and the activator ends by itself, or by our word."""
    lot.finding(decision.sentence)
    run = decision.run or ""
    if decision.act == "take_over":
        shell = await lot.scope.place.hands()
        await hands.surely(lot.scope, lambda: hands.order(shell, lot.base, run, "cancel"))
    elif run in lot.dead and lot.state is not None and lot.state.order in ("armed", "go"):
        shell = await lot.scope.place.hands()
        word: Order = "go" if lot.state.order == "go" else "armed"
        # in its client's stead: it need not wait until it believes the silence
        await hands.surely(lot.scope, lambda: hands.order(shell, lot.base, run, word, "alone"))
    end = lot.scope.clock.now() + _WAIT_S
    while lot.scope.clock.now() < end:
        await lot.scope.clock.sleep(_LOOK_S)
        await lot.read()
        state = lot.state
        if state is None or state.run != run or state.step in ENDS or not lot.ground.activator:
            return Settled(again=True)
        # its client may have left meanwhile; what is done about that asks for another look
        if _decided(lot, errand, code_since(lot)).act != decision.act == "wait":
            return Settled(again=True)
    raise Refused(
        f"{decision.sentence}, and has not come to an end within {_WAIT_S:.0f} s",
        hint=f"look again with: {lot.scope.run.typed('status', lot.scope.target.name)}",
    )


async def clean(lot: Lot, run: str) -> None:
    shell, where = await lot.scope.place.hands(), lot.ground.tools
    if where != lot.base:
        await hands.tools(shell, where)
    await hands.put_all(shell, {f"{where}/{name}": each for name, each in scripts().items()})
    line = await hands.clean(shell, lot.python, f"{where}/activate.py", lot.base, run)
    if line.startswith("cleaned"):
        lot.finding(f"removed what run {run} had left lying about")
    else:
        lot.finding(f"what run {run} left lying about could not be removed: {line}")
