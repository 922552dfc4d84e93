"""What one rung of a ladder says -> Rung: five kinds, each with its own keys. Opens no file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec

from fleetstop.config.shape import (
    BOOLEAN,
    DURATION,
    PATH,
    TEXT,
    WORD_SHAPE,
    Reader,
    Shape,
    Table,
    keys,
    listed,
    one_of,
    signal_shape,
)
from fleetstop.config.spot import Spot
from fleetstop.core.playbook import (
    RECIPIENTS,
    STOP_SIGNAL,
    Does,
    Rung,
    parse_recipients,
    parse_signal,
    parse_verdict,
    run_words,
)
from fleetstop.core.spelling import did_you_mean, shown
from fleetstop.core.verdict import ORDER
from fleetstop.errors import BadUsage

_KINDS: tuple[Does, ...] = get_args(Does)
_EXAMPLES: dict[Does, str] = {
    "signal": "{signal: INT, to: trainers, wait: 3m}",
    "run": "{run: [/root/stop.sh], wait: 3m}",
    "touch": "{touch: /workspace/STOP, wait: 3m}",
    "keys": "{keys: C-c, wait: 3m}",
    "await": "{await: checkpoint, wait: 30m}",
}


def read_rung(spot: Spot) -> Rung:
    does = _kind(spot)
    for key, each in spot.entries().items():
        if key not in _RUNGS[does] and (right := [k for k in _KINDS if key in _RUNGS[k]]):
            problem = f"key {shown(key)} does not go with {does}, only with {', '.join(right)}"
            raise spot.wrong(problem, line=each.line)
    given = spot.fields(_RUNGS[does], needed=_needed(does))
    read = {key: _RUNGS[does][key](each) for key, each in given.items()}
    what = read.pop(does)
    wait_s = read.pop("wait")
    both = [word for word in read.get("when", ()) if word in read.get("unless", ())]
    if both:
        raise given["unless"].wrong(f"{both[0]} is in when and in unless; the rung would never be")
    rung = what if does == "run" else Rung("", "trainers", wait_s, does=does, argument=what)
    if does == "signal":
        rung = Rung(what, read.pop("to"), wait_s)
    return _with(rung, wait_s=wait_s, **read)


def _with(rung: Rung, **changes: Any) -> Rung:
    return msgspec.structs.replace(rung, **changes)


def _kind(spot: Spot) -> Does:
    """The one thing this rung does."""
    entries = spot.entries()
    found = [each for each in _KINDS if each in entries]
    if len(found) == 1:
        return found[0]
    if found:
        raise spot.wrong(f"does one thing, not {' and '.join(found)}; make a rung of each")
    for key, each in entries.items():
        if key not in _RUNGS["signal"]:
            near = did_you_mean(key, _KINDS)
            raise spot.wrong(f"unknown key {shown(key)}{near}", line=each.line)
    raise spot.wrong(f"needs one of {', '.join(_KINDS)}, like {_EXAMPLES['signal']}")


def _needed(does: Does) -> tuple[str, ...]:
    return (does, "to", "wait") if does == "signal" else (does, "wait")


def _run(spot: Spot) -> Rung:
    """Text for sh, or the words of one command."""
    if not isinstance(spot.node.value, list):
        text = spot.word()
        if not text.strip():
            raise spot.wrong("must not be empty")
        return Rung("", "trainers", 0.0, does="run", argument=text)
    words = tuple(each.word() for each in spot.items())
    if not words or not words[0].strip():
        raise spot.wrong("must name a program")
    try:
        return run_words(words)
    except BadUsage as error:
        raise spot.wrong(error.message) from error


def _verdicts(spot: Spot) -> tuple[str, ...]:
    """One word or a list of them."""
    if not isinstance(spot.node.value, list):
        return (spot.parsed(parse_verdict),)
    words = tuple(each.parsed(parse_verdict) for each in spot.items())
    if not words:
        raise spot.wrong(f"needs at least one verdict, like {ORDER[3]}")
    return words


def _parsed(parse: Callable[[str], Any]) -> Callable[[Spot], Any]:
    return lambda spot: spot.parsed(parse)


def _run_shape() -> Shape:
    program = {"type": WORD_SHAPE["type"], "pattern": r"\S"}
    return {"anyOf": [program, listed(WORD_SHAPE, least=1) | {"prefixItems": [program]}]}


_VERDICT: Shape = {"enum": list(ORDER)}
_VERDICTS = Reader(_verdicts, {"anyOf": [_VERDICT, listed(_VERDICT, least=1)]})
_COMMON: Table = {
    "wait": DURATION.saying("how long its effect is awaited: 90s, 3m, 1h30m, forever"),
    "lossless": BOOLEAN.saying(
        "you vouch that a run, keys or second signal (again) loses nothing; never of KILL"
    ),
    "when": _VERDICTS.saying("one verdict or a list: the rung is for those only"),
    "unless": _VERDICTS.saying("one verdict or a list: the rung is not for those"),
}
_ACTS: Table = {
    **_COMMON,
    "again": BOOLEAN.saying("also for a trainer that has heard a signal; still under the hold"),
}
_SIGNAL = Reader(_parsed(parse_signal), signal_shape(STOP_SIGNAL))
_TO = Reader(_parsed(parse_recipients), {"enum": list(RECIPIENTS)})
_RUN = Reader(_run, _run_shape())
_RUNGS: dict[Does, Table] = {
    "signal": {
        "signal": _SIGNAL.saying("a signal's name, or stop_signal: the job's own"),
        "to": _TO.saying("trainers; anything more may lose work"),
        **_ACTS,
    },
    "run": {
        "run": _RUN.saying(
            "text for sh, or the words of one command, {unit}, {pid}, {target} filled in; lossy"
        ),
        **_ACTS,
    },
    "touch": {"touch": PATH.saying("an absolute path: for trainers with a stop file"), **_ACTS},
    "keys": {"keys": TEXT.saying("typed into the job's tmux pane, like C-c; lossy"), **_ACTS},
    "await": {
        "await": one_of("checkpoint").saying("go on as soon as the next checkpoint is whole"),
        **_COMMON,
    },
}


def rung_shape() -> Shape:
    return {"oneOf": [keys(_RUNGS[does], needed=_needed(does)) for does in _KINDS]}


def lossless_shape() -> Shape:
    """What a lossless playbook refuses of a rung, as far as one rung shows it."""
    vouched: Shape = {"properties": {"lossless": {"const": True}}, "required": ["lossless"]}
    again: Shape = {"properties": {"again": {"const": True}}, "required": ["again"]}
    return {
        "properties": {
            "to": {"const": "trainers"},
            "signal": signal_shape(STOP_SIGNAL, leave_out=("KILL",)),
        },
        "allOf": [
            {"if": {"anyOf": [{"required": ["run"]}, {"required": ["keys"]}]}, "then": vouched},
            {"if": {"required": ["signal"], "allOf": [again]}, "then": vouched},
        ],
    }
