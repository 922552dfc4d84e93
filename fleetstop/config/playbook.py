"""What a playbook's file says, on top of what it extends -> Playbook. Opens no file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from msgspec import Struct

from fleetstop.config.rung import lossless_shape, read_rung, rung_shape
from fleetstop.config.shape import (
    BOOLEAN,
    DURATION,
    FINITE,
    FINITE_SHAPE,
    TEXT,
    Reader,
    Shape,
    Table,
    keys,
    listed,
    one_of,
    read_values,
)
from fleetstop.config.spot import Spot
from fleetstop.core.playbook import (
    Hold,
    Playbook,
    Rung,
    Verify,
    ladder_problem,
    lossy_reason,
    promise_problem,
)
from fleetstop.core.spelling import plain
from fleetstop.errors import BadConfig

_EVERY_LEAST_S, _EVERY_MOST_S = 0.01, 10.0


def read_playbook(name: str, root: Spot, parents: Sequence[Spot] = ()) -> Playbook:
    """`parents`: what the file extends, nearest first. A key of a nearer file stands in place
    of a farther one's, whole. Rules that need several keys are checked on the result."""
    top: dict[str, Spot] = {}
    for each in (*reversed(parents), root):
        top |= each.fields(_TOP)
    if "ladder" not in top:
        raise root.wrong("key 'ladder' is missing")
    lossless = "lossless" in top and top["lossless"].boolean()
    probe = read_values(top["probe"].fields(_PROBE), _PROBE) if "probe" in top else {}
    verify = read_values(top["verify"].fields(_VERIFY), _VERIFY) if "verify" in top else {}
    rules = _Rules(root, top["lossless"] if lossless else None)
    hold = _hold(top["hold"], rules) if "hold" in top else Hold()
    return Playbook(
        name=name,
        ladder=_ladder(top["ladder"], hold, rules),
        lossless=lossless,
        hold=hold,
        verify=Verify(
            checkpoint=verify.get("checkpoint", "new"),
            gpus=verify.get("gpus", "released"),
            within_s=verify.get("within_s", 30.0),
        ),
        gpus_from=probe.get("gpus", "nvidia-smi"),
        every_s=probe.get("every", 0.1),
        source=root.file,
        extends=tuple(each.file for each in parents),
    )


def extended(root: Spot) -> tuple[Spot, str] | None:
    """The playbook this file builds on, by name or path, and where it says so."""
    top = root.fields(_TOP)
    return (top["extends"], top["extends"].text()) if "extends" in top else None


class _Rules(Struct, frozen=True):
    """What is checked on the result of several files: the first of them, and where it, or one
    that it extends, says `lossless: true`."""

    root: Spot
    promise: Spot | None

    @property
    def lossless(self) -> bool:
        return self.promise is not None

    def broken(self, spot: Spot, problem: str) -> BadConfig:
        """A rule that two files break together names both."""
        if spot.file != self.root.file:
            problem += f" (as {plain(self.root.file)} extends it)"
        elif self.promise is not None and self.promise.file != spot.file:
            problem += f" (by {plain(self.promise.file)}:{self.promise.line}, which it extends)"
        return spot.wrong(problem)


def _ladder(spot: Spot, hold: Hold | None, rules: _Rules) -> tuple[Rung, ...]:
    spots = spot.items()
    rungs: list[Rung] = []
    for each in spots:
        rung = read_rung(each)
        if reason := promise_problem(rung, hold) or (rules.lossless and lossy_reason(rung)):
            raise rules.broken(each, reason)
        rungs.append(rung)
    if not rungs:
        raise spot.wrong("needs at least one rung, like {signal: INT, to: trainers, wait: 3m}")
    if problem := ladder_problem(tuple(rungs), lossless=rules.lossless):
        index, reason = problem
        raise rules.broken(spots[index], reason)
    return tuple(rungs)


def _hold(spot: Spot, rules: _Rules) -> Hold | None:
    if isinstance(spot.node.value, str):
        if spot.node.value != "none":
            raise spot.wrong("must be a mapping of saving and stopping, or none")
        if rules.lossless:
            problem = "a lossless playbook needs a hold: a signal can cut a save short"
            raise rules.broken(spot, problem)
        return None
    given = read_values(spot.fields(_HOLD), _HOLD)
    usual = Hold()
    return Hold(
        saving_s=given.get("saving", usual.saving_s),
        stopping_s=given.get("stopping", usual.stopping_s),
    )


def _every(spot: Spot) -> float:
    seconds = spot.duration()
    if not _EVERY_LEAST_S <= seconds <= _EVERY_MOST_S:
        raise spot.wrong("must be from 10ms to 10s")
    return seconds


def _placed(spot: Spot) -> NoReturn:
    raise AssertionError(f"{spot.path} is read where the rest of the playbook is at hand")


def _elsewhere(shape: Shape) -> Reader:
    return Reader(_placed, shape)


_EVERY = Reader(_every, FINITE_SHAPE | {"minimum": _EVERY_LEAST_S, "maximum": _EVERY_MOST_S})
_PROBE: Table = {
    "processes": one_of("proc"),
    "gpus": one_of("nvidia-smi", "none").saying("what is asked who holds a GPU"),
    "every": _EVERY.saying("how often processes are looked at: from 10ms to 10s"),
}
_HOLD: Table = {
    "saving": DURATION.saying("how long a checkpoint may stand still without growing"),
    "stopping": DURATION.saying("how long a job that heard a signal may only use CPU"),
}
_VERIFY: Table = {
    "checkpoint": one_of("new", "none").saying("new: something new and whole was saved"),
    "gpus": one_of("released", "ignore"),
    "within": FINITE.saying("how long all of that may take after the end"),
}
_HOLD_SHAPE: Shape = {"anyOf": [keys(_HOLD) | {"type": "object"}, {"const": "none"}]}
_LADDER_SHAPE = listed(rung_shape(), least=1)
_TOP: Table = {
    "extends": TEXT.saying("the playbook this builds on; keys said here replace its keys whole"),
    "lossless": BOOLEAN.saying("true: nothing in it may lose work"),
    "probe": _elsewhere(keys(_PROBE)).saying("what is looked at, and how often"),
    "ladder": _elsewhere(_LADDER_SHAPE).saying("the rungs, tried from the top"),
    "hold": _elsewhere(_HOLD_SHAPE).saying("how long a signal waits for a save or a shutdown"),
    "verify": _elsewhere(keys(_VERIFY)).saying("what has to be true before it counts as stopped"),
}


def playbook_shape() -> Shape:
    says = {"properties": {"lossless": {"const": True}}, "required": ["lossless"]}
    refused = {
        "ladder": {"items": lossless_shape()},
        "hold": {"not": {"const": "none"}},
    }
    return keys(_TOP) | {
        "type": "object",
        "anyOf": [{"required": ["ladder"]}, {"required": ["extends"]}],
        "if": says,
        "then": {"properties": refused},
    }
