"""Whether words added behind a command line can reach what it starts; runs nothing, reads no file.

Behind a shell's `-c` text they are its $0, $1, … (sh(1)), and go no further than that text says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleetstop.core import redact
from fleetstop.core.kin.lineage import LAUNCHERS, PASS_THROUGH
from fleetstop.core.kin.matching import SHELLS, base, executed
from fleetstop.errors import Refused

_SU = ("su", "runuser")
# they take one text, and no words for it (flock(1), script(1))
_ONE_TEXT = ("flock", "script")
# what may hand them on: $@, $*, $1, ${1:-x}, `for each; do`, getopts, a file that is sourced
_HANDS_ON = re.compile(
    r"\$[@*1-9#]|\$\{[#!]?[@*1-9]|\bgetopts\b|\bshift\b|\bfor\s+\w+\s*(?:;|\n|do\b)"
    r"|(?:^|[\s;&|({])(?:\.|source)\s"
)
_NAME_TOO = re.compile(r"\$0|\$\{0")
# su(1), runuser(1): short options that take a value, and long ones
_VALUES = "cgGswuT"
_LONG = ("--group", "--supp-group", "--shell", "--whitelist-environment", "--user")
_TEXTS = ("--command", "--session-command")


def check(argv: Sequence[str], resume: Sequence[str], typed: Sequence[str]) -> None:
    """Raises Refused where what is to be added would be lost: words that were `typed`, or those to
    `resume` with, without which a job that saves into the same place begins anew."""
    for words, what in ((typed, redact.command(typed)), (resume, "what `launch: resume:` says")):
        why = lost(argv, words) if words else None
        if why is not None:
            raise Refused(
                f"{what} would not reach the job, which is started by {redact.brief(argv)}: {why}",
                hint="say in the inventory how else it is started: launch: {run: […]}, with them in"
                ' it, or with a script that hands on "$@"',
            )


def lost(argv: Sequence[str], added: Sequence[str]) -> str | None:
    """Why these words would not reach the job, the end of a sentence; None where they may."""
    name = base(argv[0]) if argv else ""
    if name in SHELLS:
        found = _text_of(argv)
        return _through(*found) if found is not None else None
    if name in _SU:
        return _through_su(name, argv[1:], added)
    if name in _ONE_TEXT and _has_text(argv[1:]):
        return f"{name} takes one text, and no words for it"
    if name not in PASS_THROUGH:
        return None
    for at, word in enumerate(argv[1:], 1):
        here = base(word)
        if here in SHELLS or here in _SU or here in _ONE_TEXT:
            return lost(argv[at:], added)
        if here in LAUNCHERS or executed(argv[at:]).words or here.endswith((".py", ".sh")):
            return None
    return None


def _text_of(argv: Sequence[str]) -> tuple[str, int] | None:
    """A shell's `-c` text, and how many words stand behind it."""
    words = list(argv[2:] if base(argv[0]) == "busybox" else argv[1:])
    seen = False
    while words:
        word = words.pop(0)
        if not word.startswith(("-", "+")) or word in ("-", "--"):
            if word in ("-", "--") and words:
                word = words.pop(0)
            return (word, len(words)) if seen else None
        if word in ("--rcfile", "--init-file"):
            words = words[1:]
        elif not word.startswith("--"):
            seen = seen or "c" in word[1:]
            words = words[word[1:].count("o") + word[1:].count("O") :]
    return None


def _through(text: str, behind: int) -> str | None:
    if not _HANDS_ON.search(text):
        return 'the text behind its -c hands nothing on (no "$@")'
    if behind == 0 and not _NAME_TOO.search(text):
        return "the first of them would be $0 of the text behind its -c, and not among its $@"
    return None


def _through_su(name: str, words: Sequence[str], added: Sequence[str]) -> str | None:
    """What stands behind the user's name goes to the shell; options are read by `su` itself
    wherever they stand, unless a `--` is before them."""
    rest, text, plain, ended = list(words), None, 0, False
    while rest:
        word = rest.pop(0)
        if ended or word == "-" or not word.startswith("-"):
            plain += word != "-" or ended
            continue
        long, sign, value = word.partition("=")
        if word == "--":
            ended = True
        elif long in _TEXTS:
            text = value if sign else (rest.pop(0) if rest else "")
        elif word.startswith("--"):
            rest = rest[1:] if long in _LONG and not sign else rest
        else:
            at = next((i for i, letter in enumerate(word) if i and letter in _VALUES), None)
            if at is not None:
                given = word[at + 1 :] or (rest.pop(0) if rest else "")
                text = given if word[at] == "c" else text
    if text is None:
        return None
    if not ended and any(word.startswith("-") for word in added) and _HANDS_ON.search(text):
        return f"{name} takes what begins with a dash for its own options (no -- is before it)"
    return _through(text, max(plain - 1, 0))


def _has_text(words: Sequence[str]) -> bool:
    """`-c text`, also as the last letter of a cluster: `script -qc text file`."""
    return any(
        long in ("--command", "-c") or re.fullmatch(r"-[a-z]*c", word) is not None
        for word in words
        for long in (word.partition("=")[0],)
    )
