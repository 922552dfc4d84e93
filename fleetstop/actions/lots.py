"""All that one errand has found out about a place. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from fleetstop.actions.awaiting import at_work
from fleetstop.actions.errand import Errand
from fleetstop.actions.grounding import Loads, Running, ground, what_it_loads
from fleetstop.actions.locate import Scene
from fleetstop.actions.telling import Scope
from fleetstop.core.adopting.stanza import deploy_line
from fleetstop.core.inventory import Job
from fleetstop.core.launching.activation import State
from fleetstop.core.releases.destination import Destination, below
from fleetstop.core.releases.destination import settle as destination
from fleetstop.core.releases.ground import Ground
from fleetstop.core.releases.home import base_in, base_of, code_of, dest_of, home
from fleetstop.core.releases.landing import came_with, differing, tells_all, to_go_back_to
from fleetstop.core.releases.manifest import Release, release_id
from fleetstop.core.releases.own_start import same_words
from fleetstop.core.releases.payload import File, some
from fleetstop.core.releases.survey import Survey
from fleetstop.core.releases.tried import how_it_did, row, worth_going_back_to
from fleetstop.core.report import ReleaseRecord
from fleetstop.core.spelling import plain
from fleetstop.errors import DeployFailed, Refused

_KEPT = (
    "each redeploy keeps what it sends and what it replaces; it can be gone back to from then on"
)


class Lot:
    """`dest`: where the code lies; `base`: our own directory there; `files`: what is to lie there,
    none for a launch or restart; `source`: the kept release that they are taken from. `release`,
    `before`: the ids of what they will be, and of what they replace. `placed`: the inventory says
    where the code lies, so that it is known also once nothing runs."""

    def __init__(
        self, scope: Scope, scene: Scene, now: Running | None, python: str, dest: str
    ) -> None:
        self.scope, self.scene, self.now, self.python, self.dest = scope, scene, now, python, dest
        self.base = base_of(dest, self.job)
        self.place: Destination | None = None
        self.files: tuple[File, ...] = ()
        self.source: Release | None = None
        self.release: str | None = None
        self.before: str | None = None
        self.findings: list[str] = []
        self.survey: Survey | None = None
        self.placed = True
        self.dead: frozenset[str] = frozenset()  # runs whose client is gone for certain
        self.succeeds: str | None = None  # a run whose activator waits there, armed
        self.ground: Ground

    @property
    def job(self) -> Job:
        assert self.scope.target.job is not None
        return self.scope.target.job

    @property
    def run(self) -> str:
        return self.scope.run.id

    @property
    def kept(self) -> str | None:
        return f"{self.base}/releases/{self.source.id}/files" if self.source else None

    @property
    def wanted(self) -> dict[str, str]:
        return {each.rel: each.sha256 for each in self.files}

    def record(self) -> ReleaseRecord:
        runs = self.runs or self.before if self.now is not None else None
        return ReleaseRecord(id=self.release, before=self.before, running=runs)

    def standing(self) -> ReleaseRecord:
        """Of what is left as it is."""
        if self.state is None:
            return self.record()
        runs = self.state.running if self.now is not None else None
        return ReleaseRecord(id=runs, before=self.state.before, running=runs)

    def back(self, *, runs: bool) -> str:
        """The version before again, as a command that works as it is typed. `runs`: something of
        the job does, which tells where its code lies."""
        typed = self.scope.run.typed("rollback", self.scope.target.name)
        if runs or self.placed:
            return typed
        return f"{typed}, once the inventory says where its code lies: {deploy_line(self.dest)}"

    async def read(self) -> None:
        """What lies there by now."""
        self.ground = await ground(self.scope, self.python, self.base, self.dest, self.wanted)

    def name(self, before: str | None) -> None:
        """The ids of the new release and of what it replaces."""
        at = datetime.fromisoformat(self.scope.clock.wall())
        if self.files:
            self.release = release_id(at, self.run)
            lies_there = any(rel in self.ground.on_disk for rel in self.wanted)
            # a second earlier, so that the two sort as they were
            then = datetime.fromtimestamp(at.timestamp() - 1, at.tzinfo)
            # the run's other half: people tell releases by their last letters
            old = release_id(then, self.run[4:] if len(self.run) >= 8 else self.run)
            self.before = before or (old if lies_there else None)

    def content(self, errand: Errand, file: File) -> Iterator[bytes]:
        """Of a file that comes from the machine of whoever asked."""
        assert self.place is not None
        assert errand.read is not None
        return errand.read(self.place.payload, file)

    def finding(self, text: str) -> None:
        self.findings.append(self.scope.teller.finding(text))

    @property
    def state(self) -> State | None:
        return self.ground.state if isinstance(self.ground.state, State) else None

    @property
    def others(self) -> tuple[str, ...]:
        """The runs whose stages are left there, but one whose activator lives, or may live."""
        here = self.state is not None and self.ground.activator is not False
        living = {self.state.run} if here and self.state is not None else set()
        return tuple(sorted({*self.ground.stages} - living - {self.run}))

    @property
    def before_lies(self) -> bool:
        """Whether what is replaced is what goes back: False after one that was not well, or half
        a swap, for which the release before it is kept."""
        kept = self.ground.releases.get(self.before or "")
        return kept is None or not differing(kept, self.ground.on_disk)

    @property
    def lies(self) -> Release | None:
        """The kept release that lies on disk; of several the one that was started last."""
        return next(self._lying(), None)

    def _lying(self) -> Iterator[Release]:
        kept = self.ground.releases
        last = self.state.running if self.state is not None else None
        names = sorted(kept, key=lambda name: (name == last, name), reverse=True)
        there = (kept[name] for name in names if kept[name].files)
        return (each for each in there if not differing(each, self.ground.on_disk))

    @property
    def kept_already(self) -> str | None:
        """The release that what lies there would only be kept as once more: the same files, and
        the same words as what runs, if anything does."""
        fits = (e for e in self._lying() if tells_all(e, self.wanted, self.ground.on_disk))
        return next((each.id for each in fits if self._its_words(each)), None)

    def _its_words(self, release: Release) -> bool:
        members = self.now.family.members if self.now is not None else ()
        resume = self.resumes
        return self.now is None or any(same_words(release, e.argv, resume) for e in members)

    @property
    def started(self) -> bool | None:
        """Whether what runs is what the last activator started; None where either is not there."""
        who = self.state.trainer if self.state is not None else None
        if self.now is None or self.state is None:
            return None
        return who is not None and any(
            (kin.pid, kin.id.start) == (who.pid, who.start) for kin in self.now.family.members
        )

    @property
    def runs(self) -> str | None:
        """The release that runs, where it was started as that one."""
        return self.state.running if self.state is not None and self.started else None

    @property
    def resumes(self) -> tuple[str, ...]:
        """The words to resume that what runs was launched with, by what the inventory had then."""
        known = self.state.resumes if self.state is not None and self.started else None
        return known or ()


async def lot_of(
    scope: Scope, errand: Errand, scene: Scene, now: Running | None, python: str
) -> Lot:
    """Raises DeployFailed where it is not one place, Refused where nothing is to go back to."""
    job = scope.target.job
    assert job is not None
    # what runs tells better than the inventory where its code lies; where nothing does, that does
    configured = job.deploy.dest if job.deploy is not None else None
    configured = code_of(job) if now is None else configured
    also = (configured, errand.to, job.checkpoints, home(job))
    loads = await what_it_loads(scope, python, now, also)
    runs, real = loads.runs, loads.real
    who = await at_work(scope, scene.tree, now.family if now is not None else None)
    base = base_in(who.argv or ()) if who is not None else None
    records = dest_of(base) if base is not None else loads.home
    said = errand.to or (job.deploy.dest if job.deploy is not None else None)
    if errand.payload is not None:
        place = destination(
            errand.payload,
            runs,
            configured=configured,
            asked=errand.to,
            real=real,
            checkpoints=job.checkpoints,
            home=records if said is None else None,
        )
        lot = Lot(scope, scene, now, python, place.dest)
        lot.place, lot.files = place, place.payload.files
    else:
        lot = Lot(scope, scene, now, python, _home(job, loads, records))
    if who is not None and base is not None and base != lot.base:
        name = scope.target.name
        raise Refused(
            f"the activator {who.pid} of an earlier run is at work in {plain(base)}, and this would"
            f" be in {plain(lot.base)}",
            hint=f"{scope.run.typed('status', name)} tells how that comes out",
        )
    if any(each < " " or each == "\x7f" for each in lot.base):  # no answer tells such a path again
        raise Refused(f"the name of {plain(lot.dest)} holds a control character: not deployed to")
    said = configured if errand.payload is not None else home(job)
    # below that it is found again
    lot.placed = said is not None and below(real.get(said, said), lot.dest) is not None
    await lot.read()
    if errand.command == "rollback":
        try:
            lot.source = _source(lot, errand.release)
        except (Refused, DeployFailed):
            if lot.state is not None and lot.ground.activator and lot.state.step == "waiting":
                lot.finding(_waits(lot.state))
            raise
        lot.files = lot.source.files
        await lot.read()
        if not worth_going_back_to(lot.source, lot.ground.tried):
            said = how_it_did(lot.source, lot.ground.tried)
            lot.finding(f"release {lot.source.id}, which is asked for: {said}")
        if stays := came_with(lot.lies, lot.source):
            lot.finding(f"{some(stays)} came with what runs now, and stays")
    for text in lot.ground.broken:
        lot.finding(text)
    return lot


def _waits(state: State) -> str:
    run, brings = plain(state.run), f"release {plain(state.release)}" if state.release else "it"
    waits = f"the activator of run {run} waits for the job's end"
    return f"{waits}, and starts {brings} then: `stop` has it leave"


def _home(job: Job, loads: Loads, records: str | None) -> str:
    real = loads.real
    if job.deploy is not None and job.deploy.dest is not None:
        return real.get(job.deploy.dest, job.deploy.dest)
    if records is not None:
        return records
    if len({each.root for each in loads.runs}) == 1:
        return loads.runs[0].root
    found = home(job)
    if found is None:
        raise Refused(
            "it is not known where its code lies, and so where its records are",
            hint=f"say where in the inventory; if that is /root: {deploy_line('/root')}",
        )
    return real.get(found, found)


def _source(lot: Lot, named: str | None) -> Release:
    """Raises Refused where the name is none, DeployFailed where there is nothing to go back to."""
    kept, tried = lot.ground.releases, lot.ground.tried
    rows = tuple(row(each, tried, _now(lot, each)) for _, each in sorted(kept.items()))[::-1]
    before = lot.state.before if lot.state is not None else None
    usual = to_go_back_to(kept, lot.ground.on_disk, before, tried=tried, runs=lot.runs)
    plainly = lot.scope.run.typed("rollback", lot.scope.target.name)
    if named == "":
        raise Refused(f"--to names no release: any kept in {lot.base} would fit", evidence=rows)
    if named is not None:
        fits = [name for name in kept if name == named or name.startswith(named)]
        if len(fits) == 1:
            return kept[fits[0]]
        many = f"{plain(named)} fits {len(fits)} releases"
        why = many if fits else f"no release {plain(named)} is"
        raise Refused(
            f"{why} kept in {lot.base}{'' if rows else '; none is'}",
            hint=f"{plainly} goes back to {usual.id}" if usual is not None else "",
            evidence=rows,
        )
    if usual is not None:
        return usual
    known = "besides what lies there no release is kept that is known to have run well"
    others = [name for name, each in kept.items() if differing(each, lot.ground.on_disk)]
    raise DeployFailed(
        known if rows else f"no release is kept in {lot.base}: there is nothing to go back to",
        hint=f"one of them all the same: {_to(lot, max(others))}" if others else _KEPT,
        evidence=rows,
    )


def _to(lot: Lot, release: str) -> str:
    return lot.scope.run.typed("rollback", lot.scope.target.name, "--to", release)


def _now(lot: Lot, release: Release) -> str | None:
    if release.id == lot.runs:
        return "runs now"
    lies = lot.lies
    return "lies there now" if lies is not None and lies.id == release.id else None
