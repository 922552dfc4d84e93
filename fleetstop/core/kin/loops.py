"""What a shell's text does when the job it runs has ended: only its words; it runs nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

Again: TypeAlias = Literal["always", "failure", "success", "rounds", "unknown", "never"]
"""After which end something starts the job again. `rounds`: once for each entry of a list."""
Runs: TypeAlias = Callable[[Sequence[str]], bool]

_FOREVER = frozenset({"true", ":", "[ 1 ]", "((1))", "(( 1 ))", "1", "test 1", "[[ 1 ]]"})
_OPENING = frozenset({"do", "then", "else", "elif", "if", "{", "(", "!", "time", "exec", "eval"})
_LEAVES = frozenset({"break", "exit", "return"})
_WAITS = frozenset({"wait", "fg", "jobs", "while", "until"})
_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+|\\\n)|(?P<comment>(?<![^\s;&|()])\#[^\n]*)|
    |(?P<end>&&|\|\||;;|[;\n|()]|(?<![<>])&(?!>))
    |(?P<word>(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|\$\((?:[^()]|\([^()]*\))*\)|\$\{[^}\n]*\}|\{[^}\s]*\}
        |[^\s;&|()'"\\])+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ENDLESS = re.compile(r"\bfor\s*\(\(\s*;\s*;\s*\)\)\s*;?")
_AFTER_GROUP = re.compile(r"\}|[0-9]*[<>]")
_SLEEP = re.compile(r"\bsleep\s+([0-9]{1,4}(?:\.[0-9]+)?)\b")
_ERREXIT = re.compile(r"(?m)^\s*set\s+(-[a-z]*e|-o\s+errexit)")


class Loop(Struct, frozen=True):
    """The loop around the job: `while true`, `until python train.py`, `for seed in 1 2 3`."""

    head: str
    again: Again
    delay_s: float = 0.0


class _Open:
    """A loop that the reader stands in. `tested`: the job runs in its condition; `firsts`: what
    the commands in it begin with, all of them, whenever it is asked for."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.condition: list[str] = []
        self.in_body = False
        self.tested = False
        self.firsts: set[str] = set()


def loop_around(text: str, runs: Runs) -> Loop | None:
    """The loop of this shell text in which a command stands that runs the job; the one that
    starts it again most readily where several enclose it. None: no loop runs it again."""
    text = _ENDLESS.sub("while true;", text)
    seen = [loop for at in _commands(text) if (loop := _judged(at, runs)) is not None]
    found = [each for each in seen if each.again != "never"]
    if not found:
        return None
    rank = ("always", "failure", "success", "unknown", "rounds", "never")
    best = min(found, key=lambda each: rank.index(each.again))
    again: Again = "success" if best.again == "always" and _ERREXIT.search(text) else best.again
    return Loop(best.head, again, max((float(s) for s in _SLEEP.findall(text)), default=0.0))


class _Command(Struct):
    """A simple command, what follows it (`||`, `;`) with the command after that, its loops."""

    words: list[str]
    negated: bool
    loops: list[_Open]
    joint: str = ""
    then: str = ""


def _judged(command: _Command, runs: Runs) -> Loop | None:
    if not command.loops or not runs(command.words):
        return None
    seen = [_again(each, command) for each in command.loops]
    loops = [Loop(_head(o), a) for o, a in zip(command.loops, seen, strict=True)]
    return next((each for each in loops if each.again == "always"), loops[-1])


def _again(loop: _Open, command: _Command) -> Again:
    condition = " ".join(loop.condition).strip()
    if loop.in_body and command.joint == "&" and not loop.firsts & _WAITS:
        # started and left to itself: nobody waits for its end to start another
        return "never" if loop.word == "for" else "unknown"
    if loop.word == "for":
        return "rounds"
    if not loop.in_body or loop.tested:
        fails = (loop.word == "until") != command.negated
        return "failure" if fails else "success"
    forever = condition in _FOREVER or condition.startswith("sleep ")
    endless = forever if loop.word == "while" else condition == "false"
    if not endless:
        return "unknown"
    if command.then in _LEAVES and command.joint in ("&&", "||"):
        return "failure" if command.joint == "&&" else "success"
    return "always"


def _head(loop: _Open) -> str:
    return f"{loop.word} {' '.join(loop.condition)}".strip()[:80]


def _commands(text: str) -> list[_Command]:
    """All simple commands, with the loops open around each. Loops are closed over: a command
    in a condition keeps the loop as it was then."""
    made: list[_Command] = []
    stack: list[_Open] = []
    words: list[str] = []
    negated, fresh = False, True
    groups = _Groups()

    def finish(joint: str) -> None:
        nonlocal words, negated
        if joint == "&" and (not words or _AFTER_GROUP.match(words[0])):
            for one in made[groups.closed :]:
                one.joint = joint
        groups.closed = len(made)
        if words:
            for each in stack:
                each.firsts.add(words[0])
            loops = [_copy(each) for each in stack]
            if made and made[-1].joint in ("&&", "||"):
                made[-1].then = words[0]
            made.append(_Command(words, negated, loops, joint))
        elif made and joint not in (";", "\n"):
            made[-1].joint = made[-1].joint or joint
        words, negated = [], False

    for kind, word in _tokens(text):
        if kind == "end":
            finish(word)
            fresh = True
            groups.at(word, len(made))
            continue
        top = stack[-1] if stack else None
        if fresh and word in ("while", "until", "for"):
            finish("")
            for each in stack:
                each.firsts.add(word)
            stack.append(_Open(word))
            fresh = word != "for"
            continue
        if fresh and word == "do" and top is not None:
            top.in_body = True
            continue
        if fresh and word == "done" and stack:
            finish("")
            stack.pop()
            fresh = False
            continue
        if top is not None and not top.in_body:
            top.condition.append(word)
        if fresh:
            groups.at(word, len(made))
        if fresh and word in _OPENING:
            negated = negated or word == "!"
            continue
        fresh = False
        words.append(_plain(word))
    finish("")
    return made


class _Groups:
    """`( … )` and `{ … }`. `closed`: the first command of the one that has just been closed, else
    the next command to come."""

    def __init__(self) -> None:
        self.closed = 0
        self._opened: list[int] = []

    def at(self, word: str, commands: int) -> None:
        if word in ("(", "{"):
            self._opened.append(commands)
        elif word in (")", "}") and self._opened:
            self.closed = self._opened.pop()


def _copy(loop: _Open) -> _Open:
    made = _Open(loop.word)
    made.condition, made.in_body = loop.condition, loop.in_body
    made.tested = not loop.in_body
    made.firsts = loop.firsts
    return made


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for found in _TOKEN.finditer(text):
        if found.lastgroup in ("end", "word", "other"):
            yield ("end" if found.lastgroup == "end" else "word"), found[0]


def _plain(word: str) -> str:
    """Without its quotes: what the shell would hand on, as far as no variable is in it."""
    return re.sub(r"\\(.)|['\"]", r"\1", word)


def told(loop: Loop) -> str:
    """What the loop will do, as a sentence's end."""
    match loop.again:
        case "always":
            return f"starts it again whatever it returns ({loop.head})"
        case "failure":
            return f"starts it again until it exits 0 ({loop.head})"
        case "success":
            return f"starts it again as long as it exits 0 ({loop.head})"
        case "rounds":
            return f"starts the next round of its list ({loop.head})"
        case _:
            return f"may start it again ({loop.head})"
