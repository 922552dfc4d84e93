"""What a playbook's file says -> Playbook. Opens no file."""

from __future__ import annotations

from fleetstop.config.job import Table, read_values
from fleetstop.config.spot import Spot
from fleetstop.core.durations import FOREVER
from fleetstop.core.playbook import (
    Hold,
    Playbook,
    Rung,
    Verify,
    lossy_reason,
    parse_recipients,
    parse_signal,
)

_LATER_RUNGS = ("run", "keys", "touch", "await")
_TOP = ("lossless", "probe", "ladder", "hold", "verify")
_EVERY_LEAST_S, _EVERY_MOST_S = 0.01, 10.0


def read_playbook(name: str, root: Spot) -> Playbook:
    top = root.fields(_TOP, needed=("ladder",))
    lossless = "lossless" in top and top["lossless"].boolean()
    probe = read_values(top["probe"].fields(_PROBE), _PROBE) if "probe" in top else {}
    verify = read_values(top["verify"].fields(_VERIFY), _VERIFY) if "verify" in top else {}
    return Playbook(
        name=name,
        ladder=_ladder(top["ladder"], lossless=lossless),
        lossless=lossless,
        hold=_hold(top["hold"], lossless=lossless) if "hold" in top else Hold(),
        verify=Verify(
            checkpoint=verify.get("checkpoint", "new"),
            gpus=verify.get("gpus", "released"),
            within_s=verify.get("within_s", 30.0),
        ),
        gpus_from=probe.get("gpus", "nvidia-smi"),
        every_s=probe.get("every", 0.1),
        source=root.file,
    )


def _ladder(spot: Spot, *, lossless: bool) -> tuple[Rung, ...]:
    rungs: list[Rung] = []
    for each in spot.items():
        rung = _rung(each)
        if lossless and (reason := lossy_reason(rung)):
            raise each.wrong(reason)
        rungs.append(rung)
    if not rungs:
        raise spot.wrong("needs at least one rung, like {signal: INT, to: trainers, wait: 3m}")
    return tuple(rungs)


def _rung(spot: Spot) -> Rung:
    entries = spot.entries()
    for kind in _LATER_RUNGS:
        if kind in entries:
            raise spot.wrong(f"a {kind} rung is not supported by this version")
    fields = spot.fields(("signal", "to", "wait"), needed=("signal", "to", "wait"))
    return Rung(
        signal=fields["signal"].parsed(parse_signal),
        to=fields["to"].parsed(parse_recipients),
        wait_s=fields["wait"].duration(),
    )


def _hold(spot: Spot, *, lossless: bool) -> Hold | None:
    if isinstance(spot.node.value, str):
        if spot.node.value != "none":
            raise spot.wrong("must be a mapping of saving and stopping, or none")
        if lossless:
            raise spot.wrong("a lossless playbook needs a hold: a signal can cut a save short")
        return None
    given = {key: each.duration() for key, each in spot.fields(("saving", "stopping")).items()}
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


def _within(spot: Spot) -> float:
    seconds = spot.duration()
    if seconds == FOREVER:
        raise spot.wrong("must end: 'forever' is not allowed here")
    return seconds


_PROBE: Table = {
    "processes": lambda spot: spot.choice("proc"),
    "gpus": lambda spot: spot.choice("nvidia-smi", "none"),
    "every": _every,
}
_VERIFY: Table = {
    "checkpoint": lambda spot: spot.choice("new", "none"),
    "gpus": lambda spot: spot.choice("released", "ignore"),
    "within": _within,
}
