"""What an inventory says about one job -> Job. Knows no file but through the values it reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from fleetstop.config.shape import (
    BOOLEAN,
    DURATION,
    FINITE,
    PATH,
    TEXT,
    TEXT_SHAPE,
    WORD,
    WORD_SHAPE,
    Reader,
    Shape,
    Table,
    integer,
    keys,
    listed,
    one_of,
    read_values,
    signal_shape,
)
from fleetstop.config.spot import Spot
from fleetstop.core.inventory import (
    MATCH_KEYS,
    SESSION_PATTERN,
    Deploy,
    Healthcheck,
    Job,
    Launch,
    Launcher,
    Match,
    match_problem,
)
from fleetstop.core.playbook import STOP_SIGNAL, parse_signal
from fleetstop.core.spelling import plain

_MOST_PIDS = 4_194_304  # PID_MAX_LIMIT of a 64-bit kernel, proc(5)
_MOST_GPUS = 1023
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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
    indexes = tuple(_INDEX(each) for each in spot.items())
    if len(set(indexes)) < len(indexes):
        raise spot.wrong("names a GPU twice")
    return indexes


def _launch(spot: Spot) -> Launch:
    return Launch(**read_values(spot.fields(_LAUNCH), _LAUNCH))


def _deploy(spot: Spot) -> Deploy:
    return Deploy(**read_values(spot.fields(_DEPLOY), _DEPLOY))


def _patterns(spot: Spot) -> tuple[str, ...]:
    from fleetstop.config.ignoring import pattern_problem

    if isinstance(spot.node.value, str) and not spot.node.is_null:
        raise spot.wrong('must be a list of patterns, like ["*.log", data/]')
    lines = []
    for each in spot.items():
        lines.append(each.text())
        if problem := pattern_problem(lines[-1]):
            raise each.wrong(problem)
    return tuple(lines)


def _launcher(spot: Spot) -> Launcher:
    if isinstance(spot.node.value, str):
        return Launcher(_KIND(spot))
    fields = spot.fields(_SESSION, needed=("tmux",))
    return Launcher("tmux", _SESSION["tmux"](fields["tmux"]))


def _session(spot: Spot) -> str:
    name = spot.text()
    if re.fullmatch(SESSION_PATTERN, name) is None:
        raise spot.wrong("may have letters, digits, - and _ only")
    return name


def _healthcheck(spot: Spot) -> Healthcheck:
    return Healthcheck(**read_values(spot.fields(_HEALTHCHECK), _HEALTHCHECK))


def _match_shape() -> Shape:
    """`all` beside exactly one of the ways; `gpu: false` is none."""
    ways = [{"required": [way]} for way in MATCH_KEYS if way != "gpu"]
    by_gpu = {"required": ["gpu"], "properties": {"gpu": {"const": True}}}
    return keys(_MATCH) | {"type": "object", "oneOf": [*ways, by_gpu]}


def _program_shape() -> Shape:
    named = {"type": WORD_SHAPE["type"], "pattern": r"\S"}
    return listed(WORD_SHAPE, least=1) | {"prefixItems": [named]}


def _variables() -> Shape:
    return {
        "type": ["object", "null"],
        "propertyNames": {"pattern": rf"^(?:{_VARIABLE.pattern})$"},
        "additionalProperties": WORD_SHAPE,
    }


_INDEX = integer(0, _MOST_GPUS)
_MATCH: Table = {
    **dict.fromkeys(MATCH_KEYS, TEXT),
    "pgrep": Reader(Spot.word, WORD_SHAPE | {"minLength": 1}),
    "pid": integer(2, _MOST_PIDS),
    "pidfile": Reader(Spot.text, PATH.shape),
    "gpu": BOOLEAN,
    "all": BOOLEAN,
}
_KIND = one_of("setsid", "tmux", "systemd")
_SESSION: Table = {"tmux": Reader(_session, {"type": "string", "pattern": f"^{SESSION_PATTERN}$"})}
_LAUNCH: Table = {
    "run": Reader(_program, _program_shape()),
    "cwd": PATH,
    "env": Reader(_environment, _variables()),
    "user": TEXT,
    "resume": Reader(_words, listed(WORD_SHAPE)),
    "launcher": Reader(_launcher, {"anyOf": [_KIND.shape, keys(_SESSION, needed=("tmux",))]}),
}
_DEPLOY: Table = {
    "dest": PATH,
    "ignore": Reader(_patterns, listed(TEXT_SHAPE)),
    "prove": TEXT,
}
_HEALTHCHECK: Table = {"log_matches": WORD, "within": FINITE}
JOB_KEYS: Table = {
    "match": Reader(_match, _match_shape()),
    "stop_signal": Reader(_stop_signal, signal_shape(leave_out=("KILL",))),
    "playbook": Reader(_playbook, TEXT_SHAPE),
    "trainers": one_of("leaves", "all"),
    "ranks": one_of("all_save", "rank0_saves"),
    "wrapper": TEXT,
    "max_loss": DURATION,
    "log": PATH,
    "checkpoints": PATH,
    "gpus": Reader(_gpus, listed(_INDEX.shape) | {"uniqueItems": True}),
    "launch": Reader(_launch, keys(_LAUNCH)),
    "deploy": Reader(_deploy, keys(_DEPLOY)),
    "healthcheck": Reader(_healthcheck, keys(_HEALTHCHECK)),
    "protected": BOOLEAN,
}
