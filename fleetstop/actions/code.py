"""What a job's code is, for who only looks. One frame, seldom three; changes nothing.

Whether what lies on disk is newer than what runs, which release that is, and what an activation is
about or has left.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from msgspec import Struct, structs

from fleetstop.actions.awaiting import activators, named
from fleetstop.actions.locate import Scene
from fleetstop.actions.telling import Scope
from fleetstop.core.commands import Answer, Command
from fleetstop.core.inventory import Job
from fleetstop.core.kin.family import Family
from fleetstop.core.launching.activation import Broken, Started, State, parse_state
from fleetstop.core.launching.ended import Born, last_death, parse_record
from fleetstop.core.process import Process, ProcessTree
from fleetstop.core.releases.aftermath import Around, aftermath, comes_up
from fleetstop.core.releases.destination import Loaded, loaded, paths_asked
from fleetstop.core.releases.home import bases_above, dest_of, home
from fleetstop.core.releases.manifest import Release, parse_release
from fleetstop.core.releases.sighting import Beside, imported, parse_code
from fleetstop.core.releases.standing import NewerCode, Runs, newer_code, running_release
from fleetstop.core.report import ReleaseRecord
from fleetstop.errors import CouldNotLook, FrameTimedOut, RemoteFailed
from fleetstop.events import CodeSeen

_SOON_S = 5.0
_MANIFEST = 4 * 2**20
_HASHED_MOST = 200
_HASHED_BYTES = 64 * 2**20


class Code(Struct, frozen=True):
    """`seen`: as events tell it; `release`: as a report does, None where nothing was deployed."""

    seen: CodeSeen
    release: ReleaseRecord | None = None

    @property
    def findings(self) -> tuple[str, ...]:
        told = (self.seen.said, self.seen.deploy)
        return tuple(each for each in told if each is not None)


class Left(Struct, frozen=True):
    """What there is of a job that does not run. `comes`: somebody is about to start it; a
    sentence. `release`: what was to run last."""

    comes: str | None = None
    findings: tuple[str, ...] = ()
    release: ReleaseRecord | None = None


async def code(scope: Scope, scene: Scene, family: Family) -> Code:
    """Never raises for what it cannot see: a status does without."""
    try:
        return await _code(scope, scene, family)
    except FrameTimedOut as exc:
        if not _by_files(scope):
            await scope.place.unstick()  # the host's first shell is needed on
        return Code(CodeSeen(unseen=exc.message))
    except CouldNotLook as exc:
        return Code(CodeSeen(unseen=exc.message))


async def left(scope: Scope, scene: Scene) -> Left:
    """Where nothing runs, asked only where its inventory says where its code lies."""
    job = scope.target.job
    bases = tuple(_bases(job, (), scene.tree)) if job is not None else ()
    if not bases:
        return Left()
    try:
        beside = await _look(scope, scene.tree, bases, ())
        state, base = _state(beside, scene.tree, None)
        if not isinstance(state, State):
            who = named(scene.tree, job) if job is not None else None
            at = f"the activator {who.pid} of an earlier run is at it" if who is not None else ""
            comes = f"{at}, and its records are not where they were" if at else None
            return Left(comes, (state.sentence,) if isinstance(state, Broken) else ())
        startable = job is not None and job.launch is not None and bool(job.launch.run)
        around = structs.replace(_around(beside, base, scene.tree, state), startable=startable)
        told = aftermath(state, around)
        if comes_up(state, around):
            return Left(comes=told, release=_record(state, None))
        death = await _death(scope, scene.tree, state, base)
        findings = tuple(each for each in (told, death) if each is not None)
        return Left(findings=findings, release=_record(state, None))
    except CouldNotLook:
        return Left()


async def _death(scope: Scope, tree: ProcessTree, state: State, base: str) -> str | None:
    mark = state.trainer.mark if state.trainer is not None else None
    if mark is None or "/" in mark:
        return None
    words = (f"{base}/status/{mark}.json", "65536")
    answer = await _ask(scope, tree, "body", words)
    record = parse_record(answer.data) if answer.status == 0 else None
    return last_death(record, scope.clock.wall())


async def _code(scope: Scope, scene: Scene, family: Family) -> Code:
    job, tree = scope.target.job, scene.tree
    trainers = [each for kin in family.trainers if (each := tree.get(kin.id)) is not None]
    lead = next((each for each in trainers if paths_asked(each)), None)
    if lead is None or job is None:
        return Code(CodeSeen(unseen="what file it runs cannot be told from outside"))
    if lead.nested or len(lead.inner) > 1:
        return Code(CodeSeen(unseen="it runs in a container of its own within this place"))
    asked = paths_asked(lead)
    bases = tuple(_bases(job, asked, tree))
    beside = await _look(scope, tree, bases, asked)
    state, base = _state(beside, tree, family)
    broken = state.sentence if isinstance(state, Broken) else None
    state = state if isinstance(state, State) else None
    # ranks that were restarted are younger than the others: the oldest has the oldest code
    oldest = min(
        (each for each in trainers if paths_asked(each) == asked), key=lambda e: e.id.start
    )
    began = beside.began(oldest.id.start, tree.hz)
    runs = _loaded(lead, beside)
    newer = _newer(runs, beside, began)
    release: Runs | None = None
    if state is not None and state.running is not None:
        newer, release = await _against(
            scope, tree, family, state, base, beside, runs, began, newer
        )
    around = _around(beside, base, tree, state, began, family) if state is not None else None
    told = aftermath(state, around) if state is not None and around is not None else broken
    seen = CodeSeen(
        main=runs.main if runs is not None else None,
        newer=newer.path if newer is not None else None,
        newer_s=round(newer.by_s, 3) if newer is not None else None,
        old=_old(runs, newer),
        said=newer.sentence if newer is not None else None,
        release=release.release if release is not None else None,
        certain=release.certain if release is not None else None,
        runs=release.sentence if release is not None else None,
        deploy=told,
        unseen=None if runs is not None else "the file that it runs is not where it was started",
    )
    running = release.release if release is not None else None
    return Code(seen, _record(state, running) if state is not None else None)


def _old(runs: Loaded | None, newer: NewerCode | None) -> bool | None:
    if newer is not None:
        return True if newer.surely else None
    return False if runs is not None else None


def _record(state: State, running: str | None) -> ReleaseRecord | None:
    if state.release is None and state.before is None and running is None:
        return None
    return ReleaseRecord(id=state.release, before=state.before, running=running)


def _loaded(lead: Process, beside: Beside) -> Loaded | None:
    if beside.main is None or beside.asked is None:
        return None
    real, path, there = {beside.asked: beside.main}, beside.asked, beside.main
    # its directories too, as far as no link is between
    while posixpath.basename(path) and posixpath.basename(path) == posixpath.basename(there):
        path, there = posixpath.dirname(path), posixpath.dirname(there)
        real[path] = there
    return loaded(lead, real)[0]


def _newer(
    runs: Loaded | None, beside: Beside, began: float, same: Iterable[str] = ()
) -> NewerCode | None:
    if runs is None:
        return None
    reached = imported(runs.main, runs.root, beside)
    return newer_code(
        runs.main, beside.files, began, links=beside.links, imported=reached, same=frozenset(same)
    )


async def _against(
    scope: Scope,
    tree: ProcessTree,
    family: Family,
    state: State,
    base: str,
    beside: Beside,
    runs: Loaded | None,
    began: float,
    newer: NewerCode | None,
) -> tuple[NewerCode | None, Runs]:
    """By content, where dates alone do not tell: that of the release that was launched."""
    who = _started(state, family)
    if who is not None and newer is None:
        return None, running_release((), {}, state=state, trainer=who)
    manifest = await _manifest(scope, tree, base, state.running or "")
    if manifest is None or (newer is not None and who is None):
        return newer, running_release((), {}, newer=newer, state=state, trainer=who)
    disk = await _on_disk(scope, tree, base, manifest)
    if who is not None:
        dest = dest_of(base)
        same = {posixpath.join(dest, r) for r, sha in manifest.hashes.items() if disk.get(r) == sha}
        newer = _newer(runs, beside, began, same)
    return newer, running_release((manifest,), disk, newer=newer, state=state, trainer=who)


async def _manifest(scope: Scope, tree: ProcessTree, base: str, name: str) -> Release | None:
    path = f"{base}/releases/{name}/manifest.json"
    answer = await _ask(scope, tree, "body", (path, str(_MANIFEST)))
    found = parse_release(answer.data, path) if answer.status == 0 else None
    return found if isinstance(found, Release) else None


async def _on_disk(scope: Scope, tree: ProcessTree, base: str, manifest: Release) -> dict[str, str]:
    """SHA-256 of what lies at the places of this release; of a large one only Python's files."""
    files = manifest.files
    if len(files) > _HASHED_MOST or sum(each.size for each in files) > _HASHED_BYTES:
        files = tuple(e for e in files if e.rel.endswith(".py"))[:_HASHED_MOST]
    dest = dest_of(base)
    words = tuple(posixpath.join(dest, each.rel) for each in files)
    answer = await _ask(scope, tree, "sums", words)
    sums = [line.split()[0].decode("ascii", "replace") for line in answer.data.splitlines() if line]
    if answer.status != 0 or len(sums) != len(files):
        return {}
    return {each.rel: told for each, told in zip(files, sums, strict=True) if told != "-"}


def _started(state: State, family: Family) -> tuple[int, int] | None:
    """The trainer that the activator started, where it is one of these."""
    told = state.trainer
    every = {(kin.pid, kin.id.start) for kin in family.members}
    who = (told.pid, told.start) if told is not None else None
    return who if who in every else None


def _around(
    beside: Beside,
    base: str,
    tree: ProcessTree,
    state: State,
    began: float | None = None,
    family: Family | None = None,
) -> Around:
    beat, its = beside.beats.get(base), state.trainer
    return Around(
        activator=_lives(tree, state.activator),
        now=beside.now,
        began=began,
        ours=family is not None and _started(state, family) is not None,
        beat_s=max(0.0, beside.now - beat) if beat is not None else None,
        lives=_lives(tree, its) if its is not None else None,
    )


def _lives(tree: ProcessTree, who: Born | Started | None) -> bool:
    found = tree.by_inner(who.pid) if who is not None else None
    return found is not None and who is not None and found.id.start == who.start and found.alive


def _state(
    beside: Beside, tree: ProcessTree, family: Family | None
) -> tuple[State | Broken | None, str]:
    """The state of this job's activation and its base; of several that of what runs, or of one that
    is at work, else the latest."""
    read = [(parse_state(data, f"{base}/state.json"), base) for base, data in beside.states.items()]

    def weight(one: tuple[State | Broken, str]) -> tuple[bool, bool, str]:
        state, _ = one
        if not isinstance(state, State):
            return False, False, ""
        its = family is not None and _started(state, family) is not None
        return its, _lives(tree, state.activator) and not state.ended, state.at or ""

    return max(read, key=weight, default=(None, ""))


def _bases(job: Job, asked: Iterable[str], tree: ProcessTree) -> Iterator[str]:
    """Where its records may lie, the likeliest first."""
    places = [_said(job), home(job)]
    said = [posixpath.join(each, "-") for each in places if each is not None]
    found = [base for path in (*said, *asked) for base in bases_above(path, job)]
    return iter(dict.fromkeys((*_activators(job, tree), *found)))


def _said(job: Job) -> str | None:
    return job.deploy.dest if job.deploy is not None else None


def _activators(job: Job, tree: ProcessTree) -> Iterator[str]:
    """Of the activator of this job that lives, by the words it was started with; of one that is
    named by hand any may be the one."""
    mine = named(tree, job)
    for who, base in activators(tree):
        if who is mine or not job.name:
            yield base


async def _look(
    scope: Scope, tree: ProcessTree, bases: tuple[str, ...], asked: tuple[str, ...]
) -> Beside:
    answer = await _ask(scope, tree, "code", (*bases, "-", *asked))
    beside = parse_code(answer.data)
    if answer.status != 0 or beside is None:
        raise RemoteFailed(f"the job's code could not be looked at (status {answer.status})")
    return beside


def _by_files(scope: Scope) -> bool:
    """Without root on the host the container is entered as it is: its files are read in there."""
    return scope.target.vmid is not None and scope.place.without_root is not None


async def _ask(scope: Scope, tree: ProcessTree, verb: str, words: tuple[str, ...]) -> Answer:
    """By the host's shell, below the root of the container's first process: no `pct`, no other
    channel, and the tools are the host's."""
    vmid = scope.target.vmid
    if vmid is None:
        return await scope.place.host.run(Command(verb, words, deadline_s=_SOON_S))
    if _by_files(scope):
        return await (await scope.place.files()).run(Command(verb, words, deadline_s=_SOON_S))
    first = tree.by_inner(1)
    if first is None:
        raise RemoteFailed("the container's first process could not be seen on the host")
    whose = (str(first.id.pid), str(first.id.start), f"lxc:{vmid}", verb)
    return await scope.place.host.run(Command("through", (*whose, *words), deadline_s=_SOON_S))
