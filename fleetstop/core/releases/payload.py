"""What is sent: files by their place below the destination, and what may not be one of them.

Knows no file system: who reads the files hands in what it found.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from fleetstop.core.spelling import plain, shown
from fleetstop.errors import DeployFailed

# Our own directory beside what was deployed: stages, releases, the activator's state.
OURS = ".fleetstop"
IGNORE_FILE = ".fleetstopignore"
# Never meant, in the grammar of .gitignore; a pattern with ! in front takes one of them back.
NEVER_MEANT = (
    *(f"{OURS}/", IGNORE_FILE, ".git", ".hg/", ".svn/", "__pycache__/", "*.pyc", "*.pyo"),
    *(".venv/", "venv/", "node_modules/", ".DS_Store", "*.swp", "*.swo", "*~", ".#*"),
    *(".ipynb_checkpoints/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".tox/", ".nox/"),
    *("*.egg-info/", ".idea/", ".vscode/", "wandb/"),
)
# Its temporary name beside the destination adds a dot and `.fleetstop-RUN`; 255 bytes is the most.
_LONGEST_NAME = 200
_LONGEST_PATH = 2000
_SHOWN = 3


class File(Struct, frozen=True):
    """One file. `rel` is its path below the destination, with /; `mode` its permission bits.

    `sha256` in hex and `size` in bytes are of exactly what is sent.
    """

    rel: str
    sha256: str
    size: int
    mode: int


class Payload(Struct, frozen=True):
    """All that is sent, by `rel` in order. `origin`: where each lies here, by `rel`, absolute.

    `left_out`: what an ignore pattern kept back, a directory with / at its end.
    """

    files: tuple[File, ...]
    origin: dict[str, str]
    left_out: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(each.size for each in self.files)


def name_problem(rel: str) -> str | None:
    """Why no file can be sent under this path below the destination, or None."""
    try:
        as_bytes = rel.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    parts = rel.split("/")
    if unprintable := next((each for each in rel if each < " " or "\x7f" <= each <= "\x9f"), None):
        return f"its name holds the control character {shown(unprintable)}"
    if not rel or any(part in ("", ".", "..") for part in parts):
        return "it would not lie below the destination"
    if parts[0] == OURS:
        return f"{OURS}/ at the destination is fleetstop's own"
    if any(len(part.encode()) > _LONGEST_NAME for part in parts) or len(as_bytes) > _LONGEST_PATH:
        return "its name is too long for a temporary one beside it"
    return None


def assembled(
    found: Iterable[tuple[File, str]],
    *,
    left_out: Iterable[str] = (),
    secret: Iterable[str] = (),
    empty: Iterable[str] = (),
) -> Payload:
    """Everything that was found, each with its path here; raises DeployFailed for what cannot go.

    `secret`: those of `left_out` whose names alone spoke against them. `empty`: directories with
    nothing in them, which are not carried.
    """
    files: dict[str, File] = {}
    origin: dict[str, str] = {}
    for file, path in found:
        if problem := name_problem(file.rel):
            raise DeployFailed(f"{plain(path)} cannot be sent: {problem}", hint=_LEAVE_OUT)
        if origin.get(file.rel, path) != path:
            raise _both(origin[file.rel], path, file.rel)
        files[file.rel], origin[file.rel] = file, path
    _no_file_is_a_directory(origin)
    kept_back = tuple(sorted(left_out))
    if not files:
        why = f": {some(kept_back)} left out by ignore patterns" if kept_back else ""
        raise DeployFailed(f"there is nothing to send{why}")
    return Payload(
        files=tuple(files[rel] for rel in sorted(files)),
        origin=origin,
        left_out=kept_back,
        findings=(*_only_case(files), *_empty(empty), *_secret(sorted(secret))),
    )


def moved(payload: Payload, places: Mapping[str, str]) -> Payload:
    """The same files, each under the path that `places` has for its old one."""
    again = [
        (File(places[each.rel], each.sha256, each.size, each.mode), payload.origin[each.rel])
        for each in payload.files
    ]
    kept = assembled(again, left_out=payload.left_out)
    told = dict.fromkeys((*payload.findings, *kept.findings))
    return Payload(kept.files, kept.origin, kept.left_out, tuple(told))


def some(names: Iterable[str]) -> str:
    """A few names for a sentence, and how many more there are."""
    every = [plain(each) for each in names]
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more


_LEAVE_OUT = f"leave it out: a line in {IGNORE_FILE}, or deploy.ignore in the inventory"


def _both(one: str, other: str, rel: str) -> DeployFailed:
    return DeployFailed(
        f"{plain(one)} and {plain(other)} would both land as {plain(rel)}",
        hint="name the directory that holds both, or one of them",
    )


def _no_file_is_a_directory(origin: Mapping[str, str]) -> None:
    for rel, path in origin.items():
        above = posixpath.dirname(rel)
        while above:
            if above in origin:
                raise _both(origin[above], path, above)
            above = posixpath.dirname(above)


def _only_case(files: Iterable[str]) -> Iterable[str]:
    """Two files to Linux; one to the machine of whoever edits them on macOS or Windows."""
    first: dict[str, str] = {}
    for rel in sorted(files):
        other = first.setdefault(rel.casefold(), rel)
        if other != rel:
            yield f"{plain(other)} and {plain(rel)} differ in capital letters only; both are sent"


def _empty(directories: Iterable[str]) -> Iterable[str]:
    if names := sorted(directories):
        yield f"empty directories are not sent: {some(names)}"


def _secret(names: Sequence[str]) -> Iterable[str]:
    if names:
        last = names[0].removesuffix("/").rpartition("/")[2] + "/" * names[0].endswith("/")
        yield (
            f"not sent, since named like what holds secrets ({len(names)}): {some(names)}; one is"
            f" sent if it is named itself, or if deploy.ignore has !{plain(last)}"
        )
