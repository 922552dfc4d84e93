"""What a playbook may say: rungs, holds, what to verify. Knows no file; config reads them."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from fleetstop.core import durations
from fleetstop.core.signals import NUMBERS, canonical
from fleetstop.core.spelling import did_you_mean, shown
from fleetstop.errors import BadUsage

To: TypeAlias = Literal["trainers", "group", "tree", "wrapper"]
Does: TypeAlias = Literal["signal", "run", "touch", "keys", "await"]
FOREVER = durations.FOREVER
# The word for "the job's own", in place of a signal's name.
STOP_SIGNAL = "stop_signal"
RECIPIENTS: tuple[To, ...] = get_args(To)

_LADDER_HINT = "a ladder is written like 'INT/3m TERM/1m KILL:tree/30s'"


class Rung(Struct, frozen=True):
    """One thing to try. `signal` is a canonical name or the word `stop_signal`, empty for the
    other kinds; `wait_s` may be `FOREVER`.

    `argument`: the shell text of a `run` (in the container), the path of a `touch`, the tmux
    keys of a `keys`, `checkpoint` for an `await`. `again`: legitimate although a trainer has
    heard a signal before. `lossless`: whoever wrote the playbook vouches that this rung loses
    nothing. `when`, `unless`: verdict words; the rung is for those verdicts only, or not.
    """

    signal: str
    to: To
    wait_s: float
    does: Does = "signal"
    argument: str = ""
    again: bool = False
    lossless: bool = False
    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()


class Hold(Struct, frozen=True):
    """Limits in seconds. `saving` counts time without growth, `stopping` CPU-only time."""

    saving_s: float = 1800.0
    stopping_s: float = 60.0
    # the longest that growing memory or written bytes may stop the `stopping` clock
    moving_s: float = 900.0


class Verify(Struct, frozen=True):
    checkpoint: Literal["new", "none"] = "new"
    gpus: Literal["released", "ignore"] = "released"
    within_s: float = 30.0


class Playbook(Struct, frozen=True):
    """`hold` None: no hold at all (now.yaml). `every_s`: how often processes are looked at."""

    name: str
    ladder: tuple[Rung, ...]
    lossless: bool = False
    hold: Hold | None = Hold()
    verify: Verify = Verify()
    gpus_from: Literal["nvidia-smi", "none"] = "nvidia-smi"
    every_s: float = 0.1
    source: str = ""


def parse_signal(text: str) -> str:
    """A canonical name, or `stop_signal` as it stands. Raises BadUsage with the nearest name."""
    if text == STOP_SIGNAL:
        return text
    name = canonical(text)
    if name is None:
        known = (*NUMBERS, STOP_SIGNAL)
        bare = text.strip().upper().removeprefix("SIG")
        raise BadUsage(
            f"unknown signal {shown(text)}{did_you_mean(bare, known)}",
            hint=f"signals that can be sent: {', '.join(NUMBERS)}",
        )
    return name


def parse_recipients(text: str) -> To:
    """Whom a rung is for. Raises BadUsage with the nearest word."""
    for each in RECIPIENTS:
        if each == text:
            return each
    raise BadUsage(
        f"a rung cannot be sent to {shown(text)}{did_you_mean(text, RECIPIENTS)}",
        hint=f"a rung is sent to {', '.join(RECIPIENTS)}",
    )


def parse_ladder(text: str) -> tuple[Rung, ...]:
    """The short form, `INT/3m TERM/1m KILL:tree/30s`; recipients unsaid are the trainers.

    Raises BadUsage that names the rung by its number, counted from 1.
    """
    words = text.split()
    if not words:
        raise BadUsage("--ladder: there is no rung in it", hint=_LADDER_HINT)
    return tuple(_short_rung(word, number) for number, word in enumerate(words, start=1))


def _short_rung(word: str, number: int) -> Rung:
    where = f"--ladder: rung {number}, {shown(word)}"
    left, slash, wait = word.partition("/")
    signal, colon, to = left.partition(":")
    if not slash or not wait:
        problem = f"no wait; write {shown(f'{left[:40]}/3m')}"
        raise BadUsage(f"{where}: {problem}", hint=_LADDER_HINT)
    try:
        return Rung(
            signal=parse_signal(signal),
            to=parse_recipients(to) if colon else "trainers",
            wait_s=durations.parse_duration(wait),
        )
    except BadUsage as error:
        raise BadUsage(f"{where}: {error.message}", hint=_LADDER_HINT) from error


def ladder_playbook(text: str) -> Playbook:
    """`--ladder TEXT` as a playbook: not lossless, with graceful's hold and verify."""
    return Playbook(name="--ladder", ladder=parse_ladder(text))


def lossy_reason(rung: Rung) -> str | None:
    """Why this rung may never stand in a lossless playbook, or None."""
    if rung.signal == "KILL":
        return "KILL loses work, and this playbook is lossless"
    if rung.to != "trainers":
        return f"a lossless playbook sends to trainers only, not to {rung.to}"
    return None
