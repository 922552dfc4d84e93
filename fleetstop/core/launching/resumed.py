"""The words with which a job goes on from a checkpoint, told apart from the rest. Asks nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

CHECKPOINT = "{checkpoint}"


def asks_for_one(words: Sequence[str]) -> bool:
    """Whether a checkpoint is named in these words of `launch: resume:`."""
    return any(CHECKPOINT in word for word in words)


def understood(
    argv: Sequence[str], recorded: Sequence[str], said: Sequence[str]
) -> tuple[str, ...]:
    """The words to resume that this start is known to know: its own hold such ones, or those of the
    inventory (`said`) are the ones it was launched with (`recorded`). None else: a program that
    does not know them ends at once."""
    held = (each for each in (recorded, said) if each and without(argv, each) != tuple(argv))
    same = said if tuple(said) == tuple(recorded) else ()
    return tuple(next(held, same))


def without(argv: Sequence[str], resume: Sequence[str]) -> tuple[str, ...]:
    """Those words without the ones that had it go on from an earlier checkpoint. `resume`: as the
    inventory has them."""
    size = len(resume)
    patterns = [re.escape(each).replace(re.escape(CHECKPOINT), ".+") for each in resume]
    left, at = [], 0
    while at < len(argv):
        here = argv[at : at + size]
        if size and len(here) == size and all(map(_fits, patterns, here)):
            at += size
        else:
            left.append(argv[at])
            at += 1
    return tuple(left)


def _fits(pattern: str, word: str) -> bool:
    return re.fullmatch(pattern, word, re.DOTALL) is not None
