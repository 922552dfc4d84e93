"""What is left out of what is sent, by the patterns of .gitignore. Reads no file."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pathspec import GitIgnoreSpec

from fleetstop.core.releases.payload import NEVER_MEANT
from fleetstop.core.secret_names import may_hold_secrets
from fleetstop.core.spelling import shown


def pattern_problem(pattern: str) -> str | None:
    """Why this is no pattern, or None."""
    try:
        spec = GitIgnoreSpec.from_lines([pattern])
    except (ValueError, re.error):
        return f"{shown(pattern)} is no pattern of .gitignore"
    if all(each.include is None for each in spec.patterns):
        return f"{shown(pattern)} would leave nothing out; write it as in .gitignore"
    return None


class Ignore:
    """Patterns of one place; paths are seen from there, a directory's with / at its end."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._spec = GitIgnoreSpec.from_lines(lines)

    def says(self, path: str) -> bool | None:
        """True: left out; False: a pattern with ! takes it back; None: nothing is said."""
        return self._spec.check_file(path).include


class SecretFiles(Ignore):
    """What holds secrets by its name: not sent unless somebody says so."""

    def __init__(self) -> None:
        super().__init__(())

    def says(self, path: str) -> bool | None:
        name = path.removesuffix("/").rpartition("/")[2]  # who asks has entered what is above it
        return may_hold_secrets(f"{name}/" if path.endswith("/") else name) or None


def never_meant(checkpoints: str | None = None) -> Ignore:
    """What nobody means, and the directory of the job's checkpoints, named like the job's."""
    name = (checkpoints or "").rstrip("/").rpartition("/")[2]
    own = re.sub(r"([\\*?\[\]!# ])", r"\\\1", name)
    return Ignore((*NEVER_MEANT, f"{own}/") if name else NEVER_MEANT)
