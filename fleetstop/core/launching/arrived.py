"""Whether a new trainer was given what it was to be given; knows no shell and no file.

A wrapper may drop its arguments (`python train.py` without `"$@"`) or set the environment anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct


class Arrived(Struct, frozen=True):
    """`ok` None: it cannot be told. `said`: a sentence that shows no value of a variable."""

    ok: bool | None
    said: str


def arguments(
    argv: Sequence[str] | None, started: Sequence[str] | None, extra: Sequence[str]
) -> Arrived:
    """`argv`: the trainer's; `started`: what was launched where that process is the trainer
    itself, else None; `extra`: words that have to stand in it side by side."""
    if argv is None:
        return Arrived(None, "its command line could not be read")
    if _retitled(argv):
        return Arrived(None, "it has given itself another title: its arguments are not seen")
    if started is not None and _is_it(argv, started) and not _same_end(argv, started):
        return Arrived(False, "its arguments are not those it was started with")
    if extra and not _side_by_side(argv, extra):
        lost = [word for word in extra if word not in argv]
        what = f"{len(lost)} of {len(extra)} added words" if lost else "the added words, in order,"
        return Arrived(False, f"{what} did not reach it: what starts it drops its arguments")
    return Arrived(True, "its arguments arrived")


def _retitled(argv: Sequence[str]) -> bool:
    """setproctitle(3) leaves one text where the words were."""
    return len(argv) == 1 and (" " in argv[0] or argv[0].endswith(":"))


def _is_it(argv: Sequence[str], started: Sequence[str]) -> bool:
    """Still the program that was started. A run.sh that ends in `exec python train.py "$@"`, or a
    shim, has put another in its place: then it is a wrapper like any other."""
    return any(_name(each) == _name(started[0]) for each in argv)


def _same_end(argv: Sequence[str], started: Sequence[str]) -> bool:
    """Equal but for what the kernel puts in front for a `#!`, or what has exec'd the rest (env,
    nice): one is the end of the other. The first word may be a path of the same program."""
    count = min(len(argv), len(started))
    if tuple(argv[-count:]) == tuple(started[-count:]):
        return True
    rest = count - 1
    return rest > 0 and tuple(argv[-rest:]) == tuple(started[-rest:]) and _alike(argv, started)


def _alike(argv: Sequence[str], started: Sequence[str]) -> bool:
    count = min(len(argv), len(started))
    return _name(argv[-count]) == _name(started[-count])


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _side_by_side(argv: Sequence[str], extra: Sequence[str]) -> bool:
    size = len(extra)
    return any(tuple(argv[at : at + size]) == tuple(extra) for at in range(len(argv) - size + 1))


def environment(environ: Mapping[str, str] | None, wanted: Mapping[str, str]) -> Arrived:
    """Names alone are told: a value may be a secret."""
    if environ is None:
        return Arrived(None, "its environment could not be read")
    missing = [name for name in wanted if name not in environ]
    other = [name for name in wanted if name in environ and not _kept(name, environ, wanted)]
    said = [f"{', '.join(missing)} did not reach it"] if missing else []
    said += [f"{', '.join(other)} has another value there"] if other else []
    if said:
        return Arrived(False, f"{'; '.join(said)}: what starts it sets the environment anew")
    return Arrived(True, "its environment arrived")


def _kept(name: str, environ: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """A search path may have been added to, as `export PATH=/opt/bin:$PATH` does."""
    if environ[name] == wanted[name]:
        return True
    parts = environ[name].split(":")
    return name.endswith("PATH") and all(each in parts for each in wanted[name].split(":"))


def parse_environ(data: bytes, limit: int) -> dict[str, str] | None:
    """/proc/PID/environ (proc(5)). None where it may have been cut at `limit` bytes, or is empty:
    a process that has been exec'd with a marker has at least that."""
    if not data or len(data) >= limit:
        return None
    pairs = (each.partition(b"=") for each in data.split(b"\0") if b"=" in each)
    found: dict[str, str] = {}
    for name, _, value in pairs:
        # the first of two of the same name is the one getenv(3) finds
        text = name.decode("utf-8", "surrogateescape")
        found.setdefault(text, value.decode("utf-8", "surrogateescape"))
    return found
