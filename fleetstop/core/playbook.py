"""What a playbook may say: rungs, holds, what to verify. Knows no file; config reads them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from fleetstop.core import durations
from fleetstop.core.signals import NUMBERS, canonical
from fleetstop.core.spelling import did_you_mean, shown
from fleetstop.core.verdict import ORDER
from fleetstop.errors import BadUsage

To: TypeAlias = Literal["trainers", "group", "tree", "wrapper"]
Does: TypeAlias = Literal["signal", "run", "touch", "keys", "await"]
FOREVER = durations.FOREVER
# The word for "the job's own", in place of a signal's name.
STOP_SIGNAL = "stop_signal"
RECIPIENTS: tuple[To, ...] = get_args(To)

# What `{name}` in a word of a `run` list stands for.
PLACEHOLDERS: dict[str, str] = {
    "unit": "the systemd unit the job runs in",
    "pid": "the trainer's PID as its container counts, where there is one trainer",
    "target": "the target's name, like ct200:train",
}

_LADDER_HINT = "a ladder is written like 'INT/3m TERM/1m KILL:tree/30s'"
_AWAIT = "await:checkpoint"
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


class Rung(Struct, frozen=True):
    """One thing to try. `signal` is a canonical name or the word `stop_signal`, empty for the
    other kinds; `wait_s` may be `FOREVER`.

    `argument`: the shell text of a `run` (in the container), the path of a `touch`, the tmux
    keys of a `keys`, `checkpoint` for an `await`. `again`: legitimate although a trainer has
    heard a signal before. `lossless`: whoever wrote the playbook vouches that this rung loses
    nothing. `when`, `unless`: verdict words; the rung is for those verdicts only, or not.
    `words`: a `run` written as a list, placeholders as they stand; `argument` is the same for
    sh. `filled` comes before it runs.
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
    words: tuple[str, ...] = ()


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
    """`hold` None: no hold at all (now.yaml). `every_s`: how often processes are looked at.
    `extends`: the files whose keys stand where its own file has none, nearest first."""

    name: str
    ladder: tuple[Rung, ...]
    lossless: bool = False
    hold: Hold | None = Hold()
    verify: Verify = Verify()
    gpus_from: Literal["nvidia-smi", "none"] = "nvidia-smi"
    every_s: float = 0.1
    source: str = ""
    extends: tuple[str, ...] = ()


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


def parse_verdict(text: str) -> str:
    """A verdict's word as it is in every report. Raises BadUsage with the nearest one."""
    if text in ORDER:
        return text
    raise BadUsage(
        f"no verdict {shown(text)}{did_you_mean(text, ORDER)}",
        hint=f"verdicts: {', '.join(ORDER)}",
    )


def run_words(words: tuple[str, ...]) -> Rung:
    """A `run` of a program with arguments, each word quoted for sh. Raises BadUsage for a
    placeholder that is none of PLACEHOLDERS."""
    for word in words:
        for name in _PLACEHOLDER.findall(word):
            if name not in PLACEHOLDERS:
                raise BadUsage(
                    f"unknown placeholder {shown('{' + name + '}')}"
                    f"{did_you_mean(name, PLACEHOLDERS)}",
                    hint=f"placeholders: {', '.join(f'{{{each}}}' for each in PLACEHOLDERS)}",
                )
    return Rung("", "trainers", 0.0, does="run", argument=shlex.join(words), words=words)


def filled(rung: Rung, values: Mapping[str, str | None]) -> Rung:
    """The rung with its placeholders replaced, each value staying one word for sh.

    Only the words of a `run` list have placeholders; in shell text and in every other rung
    braces stand for themselves, and the rung comes back as it is. Raises BadUsage for a
    placeholder without a value: a command is run whole or not at all.
    """

    def value(found: re.Match[str]) -> str:
        given = values.get(found[1])
        if not given:
            what = PLACEHOLDERS.get(found[1], "its meaning")
            raise BadUsage(f"{found[0]} cannot be filled in: {what} is not known")
        return given

    if not any(_PLACEHOLDER.search(word) for word in rung.words):
        return rung
    words = tuple(_PLACEHOLDER.sub(value, word) for word in rung.words)
    # nothing is left to fill: what a value itself holds is no placeholder
    return msgspec.structs.replace(rung, argument=shlex.join(words), words=())


def filled_ladder(ladder: tuple[Rung, ...], values: Mapping[str, str | None]) -> tuple[Rung, ...]:
    """Every rung that can be filled in, filled in; the others keep their placeholders, which
    `unfilled` tells at the moment of the rung."""

    def known(rung: Rung) -> Rung:
        names = {name for word in rung.words for name in _PLACEHOLDER.findall(word)}
        return filled(rung, values) if all(values.get(name) for name in names) else rung

    return tuple(known(rung) for rung in ladder)


def unfilled(rung: Rung) -> str | None:
    """Why this command cannot be run as it stands, a sentence; None where it can."""
    gaps = [name for word in rung.words for name in _PLACEHOLDER.findall(word)]
    if not gaps:
        return None
    return f"{{{gaps[0]}}} cannot be filled in: {PLACEHOLDERS[gaps[0]]} is not known"


def parse_ladder(text: str) -> tuple[Rung, ...]:
    """The short form, `INT/3m await:checkpoint/30m KILL:tree/30s`; recipients unsaid are the
    trainers.

    Raises BadUsage that names the rung by its number, counted from 1.
    """
    words = text.split()
    if not words:
        raise BadUsage("--ladder: there is no rung in it", hint=_LADDER_HINT)
    rungs = tuple(_short_rung(word, number) for number, word in enumerate(words, start=1))
    if problem := ladder_problem(rungs, lossless=False):
        index, reason = problem
        where = f"--ladder: rung {index + 1}, {shown(words[index])}"
        raise BadUsage(f"{where}: {reason}", hint=_LADDER_HINT)
    return rungs


def _short_rung(word: str, number: int) -> Rung:
    where = f"--ladder: rung {number}, {shown(word)}"
    left, slash, wait = word.partition("/")
    signal, colon, to = left.partition(":")
    if not slash or not wait:
        problem = f"no wait; write {shown(f'{left[:40]}/3m')}"
        raise BadUsage(f"{where}: {problem}", hint=_LADDER_HINT)
    try:
        wait_s = durations.parse_duration(wait)
        if signal == "await":
            if left != _AWAIT:
                raise BadUsage(f"only a checkpoint can be awaited; write {_AWAIT}/{wait[:20]}")
            return Rung("", "trainers", wait_s, does="await", argument="checkpoint")
        return Rung(
            signal=parse_signal(signal),
            to=parse_recipients(to) if colon else "trainers",
            wait_s=wait_s,
        )
    except BadUsage as error:
        raise BadUsage(f"{where}: {error.message}", hint=_LADDER_HINT) from error


def ladder_playbook(text: str) -> Playbook:
    """`--ladder TEXT` as a playbook: not lossless, with graceful's hold and verify."""
    return Playbook(name="--ladder", ladder=parse_ladder(text))


def lossy_reason(rung: Rung) -> str | None:
    """Why this rung may never stand in a lossless playbook, or None."""
    if rung.does in ("run", "keys"):
        said = f"nobody can see whether a {rung.does} rung loses work; in a lossless playbook it"
        return None if rung.lossless else f"{said} must say lossless: true itself"
    if rung.does != "signal":
        return None
    if rung.signal == "KILL":
        return "KILL loses work, and this playbook is lossless"
    if rung.to != "trainers":
        return f"a lossless playbook sends to trainers only, not to {rung.to}"
    if rung.again and not rung.lossless:
        said = "a second signal may cut a save; in a lossless playbook again: true"
        return f"{said} needs lossless: true beside it"
    return None


def promise_problem(rung: Rung, hold: Hold | None) -> str | None:
    """Why `lossless: true` cannot be said of this signal, in whatever playbook, or None."""
    if rung.does != "signal" or not rung.lossless:
        return None
    if rung.signal == "KILL":
        return "KILL loses work, so it cannot be lossless: true"
    if rung.to != "trainers":
        return f"a signal to {rung.to} reaches more than the trainers; it cannot be lossless: true"
    if not rung.again:
        said = "lossless: true on a signal is for a second one, with again: true"
        return f"{said}; a first one is judged by how it lands"
    if hold is None:
        return "lossless: true needs a hold: without one a second signal can cut a save short"
    return None


def ladder_problem(ladder: tuple[Rung, ...], *, lossless: bool) -> tuple[int, str] | None:
    """What is wrong with the rungs together: the rung's index and why, or None."""
    if all(rung.does == "await" for rung in ladder):
        return 0, "nothing on this ladder asks the job to stop"
    if ladder[-1].does == "await" and not lossless:
        # in a lossless ladder it is patience; here something was to follow and is missing
        said = "await is the last rung, so nothing follows the checkpoint and the job runs on"
        fix = "put below it what ends the job then, like {signal: KILL, to: tree, wait: 30s}"
        return len(ladder) - 1, f"{said}; {fix}"
    return None


def always_lossy(rung: Rung) -> bool:
    """Does this rung need consent wherever the job stands? Others may, by how they would land."""
    if rung.does in ("run", "keys"):
        return not rung.lossless
    return rung.does == "signal" and (rung.signal == "KILL" or rung.to != "trainers")
