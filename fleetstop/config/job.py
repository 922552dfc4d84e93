"""What an inventory says about one job -> Job. Knows no file but through the values it reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from fleetstop.config.spot import Spot
from fleetstop.core.inventory import (
    MATCH_KEYS,
    Deploy,
    Healthcheck,
    Job,
    Launch,
    Match,
    match_problem,
)
from fleetstop.core.playbook import STOP_SIGNAL, parse_signal
from fleetstop.core.spelling import plain

Table: TypeAlias = Mapping[str, Callable[[Spot], Any]]

_MOST_PIDS = 4_194_304  # PID_MAX_LIMIT of a 64-bit kernel, proc(5)
_MOST_GPUS = 1023
# Where the key people write is not the field's name: the field says its unit.
_FIELD = {"max_loss": "max_loss_s", "within": "within_s"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_values(spots: Mapping[str, Spot], table: Table) -> dict[str, Any]:
    """Each key by its reader, under the name of its field."""
    return {_FIELD.get(key, key): table[key](spot) for key, spot in spots.items()}


def texts(spot: Spot) -> tuple[str, ...]:
    return tuple(each.text() for each in spot.items())


def read_job(name: str, spot: Spot, defaults: Mapping[str, Spot]) -> Job:
    """A job by its own keys, and by the defaults' where it has none."""
    given = {**defaults, **spot.fields(JOB_KEYS)}
    if "match" not in given:
        raise spot.wrong("key 'match' is missing")
    return Job(name=name, **read_values(given, JOB_KEYS))


def _words(spot: Spot) -> tuple[str, ...]:
    if isinstance(spot.node.value, str) and not spot.node.is_null:
        raise spot.wrong("must be a list of words, like [/root/run.sh, --fast]")
    return tuple(each.word() for each in spot.items())


def _program(spot: Spot) -> tuple[str, ...]:
    words = _words(spot)
    if not words or not words[0].strip():
        raise spot.wrong("must name a program")
    return words


def _environment(spot: Spot) -> dict[str, str]:
    entries = spot.entries()
    for name, value in entries.items():
        if _VARIABLE.fullmatch(name) is None:
            raise value.wrong("is not the name of an environment variable")
    return {name: value.word() for name, value in entries.items()}


def _match(spot: Spot) -> Match:
    if spot.node.value and isinstance(spot.node.value, str) and not spot.node.is_null:
        raise spot.wrong(f"must say how; write match: {{script: {plain(spot.node.value[:60])}}}")
    match = Match(**read_values(spot.fields(_MATCH), _MATCH))
    if problem := match_problem(match):
        raise spot.wrong(problem)
    return match


def _stop_signal(spot: Spot) -> str:
    name = spot.parsed(parse_signal)
    if name == STOP_SIGNAL:
        raise spot.wrong("must be the signal's name, like INT or TERM")
    if name == "KILL":
        raise spot.wrong("KILL cannot make a job save; no process can handle it")
    return name


def _playbook(spot: Spot) -> str:
    """A name stays a name; a path counts from the inventory's file, as every path there."""
    text = spot.text()
    is_path = "/" in text and not text.startswith("~")
    return str(Path(spot.file).parent / text) if is_path else text


def _gpus(spot: Spot) -> tuple[int, ...]:
    if isinstance(spot.node.value, str) and not spot.node.is_null:
        raise spot.wrong("must be a list, like [0, 1]")
    indexes = tuple(each.integer(0, _MOST_GPUS) for each in spot.items())
    if len(set(indexes)) < len(indexes):
        raise spot.wrong("names a GPU twice")
    return indexes


def _finite(spot: Spot) -> float:
    seconds = spot.duration()
    if seconds == float("inf"):
        raise spot.wrong("must end: 'forever' is not allowed here")
    return seconds


def _launch(spot: Spot) -> Launch:
    return Launch(**read_values(spot.fields(_LAUNCH, needed=("run",)), _LAUNCH))


def _deploy(spot: Spot) -> Deploy:
    return Deploy(**read_values(spot.fields(_DEPLOY), _DEPLOY))


def _healthcheck(spot: Spot) -> Healthcheck:
    return Healthcheck(**read_values(spot.fields(_HEALTHCHECK), _HEALTHCHECK))


def _one_of(*words: str) -> Callable[[Spot], str]:
    return lambda spot: spot.choice(*words)


_MATCH: Table = {
    **dict.fromkeys(MATCH_KEYS, Spot.text),
    "pgrep": Spot.word,
    "pid": lambda spot: spot.integer(2, _MOST_PIDS),
    "gpu": Spot.boolean,
    "all": Spot.boolean,
}
_LAUNCH: Table = {
    "run": _program,
    "cwd": Spot.absolute,
    "env": _environment,
    "user": Spot.text,
    "resume": _words,
}
_DEPLOY: Table = {"dest": Spot.absolute}
_HEALTHCHECK: Table = {"log_matches": Spot.word, "within": _finite}
JOB_KEYS: Table = {
    "match": _match,
    "stop_signal": _stop_signal,
    "playbook": _playbook,
    "trainers": _one_of("leaves", "all"),
    "ranks": _one_of("all_save", "rank0_saves"),
    "wrapper": Spot.text,
    "max_loss": Spot.duration,
    "log": Spot.absolute,
    "checkpoints": Spot.absolute,
    "gpus": _gpus,
    "launch": _launch,
    "deploy": _deploy,
    "healthcheck": _healthcheck,
    "protected": Spot.boolean,
}
