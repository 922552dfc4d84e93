"""How a word someone typed is shown, and which known word is near. Knows no grammar.

Words come from files, argument lists and other machines; `repr` keeps control characters,
terminal escapes and direction marks from reaching a terminal raw.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST_SHOWN = 60


def shown(word: str) -> str:
    """The word in quotes, every character that does not print escaped, cut when long."""
    if len(word) > _LONGEST_SHOWN:
        word = word[: _LONGEST_SHOWN - 3] + "..."
    return repr(word)


def plain(path: str) -> str:
    """As `shown` without the quotes, uncut: for file names and dotted paths."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in path)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like this one, whatever its case; None when none is like it."""
    folded: dict[str, str] = {}
    for each in known:
        folded.setdefault(each.casefold(), each)
    near = difflib.get_close_matches(word[:_LONGEST_SHOWN].casefold(), folded, n=1)
    return folded[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?`, or nothing: the end of a message."""
    near = nearest(word, known)
    return f", did you mean {shown(near)}?" if near is not None else ""


def and_then(guess: str, more: str) -> str:
    """`guess`, which may be empty or a question, and what the message goes on to say."""
    return f"{guess} {more[:1].upper()}{more[1:]}" if guess else f"; {more}"
