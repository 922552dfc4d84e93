"""Where new code goes: where the running process really loads it from, or where it is told.

Knows no file system: real names are handed in as `real`: absolute path as asked -> its name without
symbolic links, for those of `paths_asked` that exist, and for deploy.dest, --to and the checkpoints
as `realpath -m` has it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct

from fleetstop.core.kin.matching import executed, script_of
from fleetstop.core.process import Process
from fleetstop.core.releases.payload import Payload, moved
from fleetstop.core.spelling import plain
from fleetstop.errors import BadUsage, DeployFailed

By = Literal["--to", "deploy.dest", "running"]
Real = Mapping[str, str]

_NO_DISK = ("/proc", "/sys", "/dev")


class Loaded(Struct, frozen=True):
    """What one process runs, by real names: the file `main`, with `root` first on sys.path.

    `beside`: the other files it may import, where they were listed; None: not looked. `called`: by
    which name it was started, where that is a link to another.
    """

    main: str
    root: str
    beside: frozenset[str] | None = None
    called: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """By any of which whoever sends a file may mean it."""
        name = posixpath.basename(self.main)
        return (name, self.called) if self.called is not None else (name,)


class Destination(Struct, frozen=True):
    """`dest`: a real, absolute directory, perhaps not there yet. `payload`: every file under the
    path below it where it lands. `main`: what runs now, where that is known."""

    dest: str
    by: By
    payload: Payload
    main: str | None = None
    findings: tuple[str, ...] = ()

    @property
    def landings(self) -> dict[str, str]:
        """Absolute destination -> `rel`."""
        return {_join(self.dest, each.rel): each.rel for each in self.payload.files}


def real_name(path: str, real: Real) -> str:
    """The path by the real name of the nearest directory above it whose name is known."""
    above, rest = path, ""
    while above not in real and above not in ("", "/", "//"):
        above, name = posixpath.split(above.rstrip("/"))
        rest = posixpath.join(name, rest) if rest else name
    return _plain_path(posixpath.join(real.get(above, above), rest))


def paths_asked(process: Process) -> tuple[str, ...]:
    """The files that this process may be running, absolute, the likeliest first."""
    every = (main for mains, _ in _candidates(process) for main in mains)
    return tuple(dict.fromkeys(every))


def roots_asked(process: Process) -> tuple[str, ...]:
    """The directories that may be first on its sys.path where that is not its file's."""
    return tuple(dict.fromkeys(root for _, root in _candidates(process) if root))


def loaded(process: Process, real: Real) -> tuple[Loaded, ...]:
    """What this process runs. Empty: cannot be told. Two: it has moved since its start, and both
    where it was and where it is there is such a file."""
    every = list(_candidates(process))
    found = [
        (there[0], root)
        for mains, root in every
        if (there := [main for main in mains if main in real])
    ]
    if not found and script_of(process) is not None:
        found = [(mains[-1], root) for mains, root in every[:1]]  # taken away while it runs
    return tuple(dict.fromkeys(_loaded(main, root, real) for main, root in found))


def _loaded(main: str, root: str, real: Real) -> Loaded:
    name = real_name(main, real)
    asked = posixpath.basename(main)
    called = asked if asked != posixpath.basename(name) else None
    # CPython follows the script's link before it takes its directory (Python/pathconfig.c)
    root = real_name(root, real) if root else posixpath.dirname(name)
    return Loaded(name, root, called=called)


def settle(
    payload: Payload,
    runs: tuple[Loaded, ...],
    *,
    configured: str | None = None,
    asked: str | None = None,
    real: Real | None = None,
    checkpoints: str | None = None,
    home: str | None = None,
) -> Destination:
    """Where these files go; raises DeployFailed where that is not one place.

    `runs`: what the job's trainers run, as `loaded` told; `configured` is deploy.dest, `asked` is
    --to, `checkpoints` the job's directory of them, which nothing is sent into. `home`: where the
    records of this job lie, unless one of the two says where they are to be.
    """
    real, runs = real or {}, tuple(dict.fromkeys(runs))
    if asked is not None:
        if not asked.startswith("/"):
            raise BadUsage(f"--to must be an absolute path, not {plain(asked) or 'nothing'}")
        settled = _asked(payload, runs, real_name(asked, real), configured, real)
    elif configured is not None:
        settled = _rooted(_configured(payload, runs, real_name(configured, real)), home)
    elif len(runs) > 1:
        raise DeployFailed(
            f"it may be running {plain(runs[0].main)} or {plain(runs[1].main)}", hint=_SAY_WHERE
        )
    elif runs:
        settled = _rooted(_running(payload, runs[0]), home, runs[0].root)
    else:
        raise DeployFailed(
            "it is not known where the files go: no process of the job tells, and deploy.dest is"
            " not set",
            hint=_SAY_WHERE,
        )
    _check(settled, real_name(checkpoints, real) if checkpoints else None)
    return settled


_SAY_WHERE = "set deploy.dest in the inventory, or say --to DIRECTORY"


def _candidates(process: Process) -> Iterator[tuple[tuple[str, ...], str]]:
    """For each place it may have been started in: files, of which the first that exists is run,
    and the first of sys.path, "" for the file's own directory."""
    seen = process.detail
    cwds = [seen.cwd, seen.started_in] if seen else []
    places = list(dict.fromkeys(
        each.removesuffix(" (deleted)") for each in cwds if each and each.startswith("/")
    ))  # fmt: skip
    script, module = script_of(process), executed(process.argv or ()).module
    if script is not None:
        # a directory is run by its __main__.py
        for place in places[: 1 if script.startswith("/") else None] or ["/"]:
            if script.startswith("/") or places:
                main = posixpath.join(place, script)
                yield (f"{main}/__main__.py", main), ""
    elif module is not None:
        for place in places:
            path = _join(place, module.replace(".", "/"))
            yield (f"{path}/__main__.py", f"{path}.py"), place


def _asked(
    payload: Payload, runs: tuple[Loaded, ...], dest: str, configured: str | None, real: Real
) -> Destination:
    said = []
    if configured is not None and real_name(configured, real) != dest:
        said.append(f"--to {plain(dest)} goes before deploy.dest {plain(configured)}")
    for run in runs:
        if fitting := _fitting(payload, dest, run.main):
            return Destination(dest, "--to", fitting, run.main, tuple(said))
    settled = Destination(dest, "--to", payload, runs[0].main if runs else None)
    if runs and not any(_reaches(settled, run) for run in runs):
        said.append(f"--to {plain(dest)} is not where it runs from: {_runs(settled, runs[0])}")
    return Destination(dest, "--to", payload, settled.main, tuple(said))


def _configured(payload: Payload, runs: tuple[Loaded, ...], dest: str) -> Destination:
    within = [run for run in runs if below(run.main, dest) is not None]
    if runs and not within:
        raise _differ(dest, f"the process runs {plain(runs[0].main)}")
    for run in within:
        if fitting := _fitting(payload, dest, run.main):
            return Destination(dest, "deploy.dest", fitting, run.main)
    settled = Destination(dest, "deploy.dest", payload, within[0].main if within else None)
    if not within:
        return settled
    for name in within[0].names:
        if any(each.rel == name for each in payload.files):
            raise _differ(
                dest, f"the process runs {plain(within[0].main)}, not {plain(_join(dest, name))}"
            )
    return _told(settled, within[0])


def _running(payload: Payload, run: Loaded) -> Destination:
    inner = below(run.main, run.root)
    if inner is not None and "/" in inner and (deep := _deeper(payload, inner)):
        return Destination(run.root, "running", deep, run.main)
    ends = [each.rel for each in payload.files if run.main.endswith("/" + each.rel)]
    if len(ends) > 1:
        raise DeployFailed(
            f"{plain(run.main)} is what runs, and could be {' or '.join(map(plain, ends))}",
            hint=_SAY_WHERE,
        )
    if ends:
        dest = run.main.removesuffix("/" + ends[0]) or "/"
        return Destination(dest, "running", payload, run.main)
    return _told(Destination(run.root, "running", payload, run.main), run)


def _rooted(settled: Destination, *roots: str | None) -> Destination:
    """The same places seen from the first of these that they all lie in: whichever files are named,
    and whatever is asked later, the records of a job are in one place."""
    for root in filter(None, roots):
        places = {rel: below(place, root) or "" for place, rel in settled.landings.items()}
        if all(places.values()):
            again = moved(settled.payload, places)
            return Destination(root, settled.by, again, settled.main, settled.findings)
    return settled


def _fitting(payload: Payload, dest: str, main: str) -> Payload | None:
    """The payload so placed that a file of it lands on `main`."""
    inner = below(main, dest)
    if inner is None:
        return None
    if any(each.rel == inner for each in payload.files):
        return payload
    return _deeper(payload, inner)


def _deeper(payload: Payload, inner: str) -> Payload | None:
    """`pkg/mod.py`, named alone, lands as mod.py; where DEST/pkg/mod.py is what runs, it lands
    there, and whatever was named below the same directory here keeps its place beside it."""
    ends = [rel for rel, path in payload.origin.items() if path.endswith("/" + inner)]
    if not ends or "/" not in inner:
        return None
    best = min(ends, key=lambda rel: (rel.count("/"), rel))
    top = payload.origin[best].removesuffix("/" + inner) or "/"
    places = {
        rel: within if (within := below(path, top)) is not None else rel
        for rel, path in payload.origin.items()
    }
    return moved(payload, places)


def _told(settled: Destination, run: Loaded) -> Destination:
    if _reaches(settled, run):
        return settled
    if (near := _near(settled, run)) and posixpath.basename(run.main) != "__main__.py":
        # a job stopped for files that it does not load would come back as the old one
        link = run.called is not None and posixpath.basename(near) == run.called
        through = f", which {plain(run.called or '')} is a link to" if link else ""
        renamed = f"send it under the name of that file, {plain(posixpath.basename(run.main))}"
        raise DeployFailed(
            f"{plain(run.main)} is what runs{through}, but {plain(settled.landings[near])} would "
            f"land as {plain(near)}",
            hint=renamed
            if link
            else "name what it lies in by its contents, DIR/. , or say --to DIRECTORY",
        )
    said = (*settled.findings, _runs(settled, run))
    return Destination(settled.dest, settled.by, settled.payload, settled.main, said)


def _reaches(settled: Destination, run: Loaded) -> bool:
    """Does any of the files replace something that the process loads?"""
    places = settled.landings
    if run.main in places:
        return True
    if any(posixpath.basename(each) in run.names for each in places):
        return False  # it was meant, and misses
    if run.beside is not None:
        return any(each in run.beside for each in places)
    return any(each.endswith(".py") and below(each, run.root) is not None for each in places)


def _runs(settled: Destination, run: Loaded) -> str:
    near = _near(settled, run)
    but = f"; {plain(settled.landings[near])} lands as {plain(near)}" if near else ""
    return f"{plain(run.main)} is what runs, and is not among the files{but}"


def _near(settled: Destination, run: Loaded) -> str | None:
    """Where a file of the same name lands."""
    return next((e for e in settled.landings if posixpath.basename(e) in run.names), None)


def _check(settled: Destination, checkpoints: str | None) -> None:
    dest = settled.dest
    if any(below(dest, each) is not None for each in _NO_DISK):
        raise DeployFailed(f"{plain(dest)} is no place for files", hint=_SAY_WHERE)
    if checkpoints is None:
        return
    for place, rel in settled.landings.items():
        if below(place, checkpoints) is not None:
            raise DeployFailed(
                f"{plain(rel)} would land among the job's checkpoints, {plain(checkpoints)}",
                hint="leave it out: deploy.ignore in the inventory, or .fleetstopignore",
            )


def _differ(dest: str, but: str) -> DeployFailed:
    return DeployFailed(
        f"deploy.dest is {plain(dest)}, but {but}",
        hint="correct deploy.dest in the inventory, or say --to DIRECTORY",
    )


def below(path: str, directory: str) -> str | None:
    """`path` seen from `directory`, "" for itself; None where it does not lie there."""
    if path == directory:
        return ""
    within = directory.rstrip("/") + "/"
    return path.removeprefix(within) if path.startswith(within) else None


def _join(directory: str, rel: str) -> str:
    return f"{directory.rstrip('/')}/{rel}"


def _plain_path(path: str) -> str:
    """Absolute, without `.`, `..` and doubled slashes; `..` after a link is for `real` to know."""
    return "/" + posixpath.normpath(path).lstrip("/")
