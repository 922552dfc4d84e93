"""What was found, as the facts that events and reports carry; redacted here, once."""

from __future__ import annotations

from typing import Any

from fleetstop.actions import looks
from fleetstop.actions.locate import Scene
from fleetstop.actions.telling import Scope
from fleetstop.actions.verify import records
from fleetstop.core import redact
from fleetstop.core.above.ranks import promise
from fleetstop.core.above.supervisors import Notes, standing_above
from fleetstop.core.climbing.requests import heard_by_all, requests
from fleetstop.core.gpu import Unseen, indexes_of
from fleetstop.core.inventory import Target
from fleetstop.core.judging.marks import earlier_marks
from fleetstop.core.kin.family import Family
from fleetstop.core.kin.lineage import abandoned
from fleetstop.core.ladder import Ladder
from fleetstop.core.process import ProcessTree
from fleetstop.core.report import AboveRecord, CheckpointRecord, GpuRecord, Member, Outcome, Result
from fleetstop.core.saves.listing import PlainFile, spelled
from fleetstop.core.saves.risk import AtRisk, age
from fleetstop.core.signals import Landing, worst
from fleetstop.core.verdict import Judged, Look, Verdict, judge
from fleetstop.errors import ContainerFrozen, CouldNotLook, LockTaken, Refused
from fleetstop.events import CheckpointSeen, CodeSeen, LogSeen


def failed(exc: CouldNotLook | Refused) -> dict[str, Any]:
    """An expected failure as the facts of an outcome, `result` among them."""
    facts: dict[str, Any] = {"reason": exc.message, "hint": exc.hint or None}
    match exc:
        case LockTaken():
            return facts | {"result": "still_running"}
        case Refused():
            return facts | {"result": "refused", "evidence": exc.evidence}
        case _:
            blinded = {"verdict": blind(exc), "evidence": (exc.message,)}
            return facts | {"result": "unreachable"} | blinded


def blind(exc: CouldNotLook) -> Verdict:
    """The verdict on a job that cannot be seen: what it was before is not what it is."""
    return "frozen" if isinstance(exc, ContainerFrozen) else "unknown"


def outcome_of(target: Target, result: Result, *, hint: str | None = None, **facts: Any) -> Outcome:
    """The outcome of a target; what is not among `facts` is unknown."""
    return Outcome(
        target=target.name,
        host=target.host.name,
        vmid=target.vmid,
        job=target.job_name,
        result=result,
        hint=hint or None,
        **facts,
    )


def newest_record(scene: Scene) -> CheckpointRecord | None:
    """The newest checkpoint of the first look, before anything was asked of the job."""
    if scene.newest is None:
        return None
    return CheckpointRecord(
        path=spelled(scene.newest.path),
        age_s=_age(scene),
        complete=scene.newest_complete,
        written_after_signal=None,
        known_format=scene.newest_known,
        usual_s=scene.risk.usual_s if scene.risk is not None else None,
    )


def _age(scene: Scene) -> float | None:
    return None if scene.newest is None else age(scene.newest.mtime, scene.remote_now)


def gaps(scope: Scope, scene: Scene) -> list[str]:
    """What the inventory names of this job that is not there."""
    job = scope.target.job
    found: list[str] = []
    for pid in sorted(scope.place.hanging):
        process = scene.tree.processes.get(pid)
        name = f"{process.pid} ({process.comm})" if process is not None else f"host PID {pid}"
        found.append(f"{name} was skipped: its files in /proc hang")
    found += _blind_spots(scope, scene)
    if job is None:
        return found
    if scene.not_entered is not None:
        found.append(f"log and checkpoints could not be looked at: {scene.not_entered}")
    if (told := looks.from_host(scope.place)) is not None:
        found.append(told)
    if job.checkpoints and scene.checkpoints_missing:
        found.append(f"checkpoints: {job.checkpoints} does not exist there (yet)")
    if isinstance(scene.listing, PlainFile):
        found.append(f"checkpoints: {scene.listing.reason}: name the directory that it lies in")
    elif isinstance(scene.listing, Unseen) and scene.not_entered is None:
        found.append(f"checkpoints: {scene.listing.reason}: what is saved could not be seen")
    nowhere = (saves_nowhere(scene, each) for each in scene.found.families)
    found += [f"checkpoints: {job.checkpoints}: {each}" for each in nowhere if each is not None]
    if job.log and scene.log is None and scene.not_entered is None:
        found.append(f"log: {job.log} could not be read there")
    if job.gpus and not isinstance(scene.gpus, Unseen):
        lacking = [str(index) for index in job.gpus if scene.gpus.at(index) is None]
        if lacking:
            found.append(f"gpus: the host has no GPU {', '.join(lacking)}")
    return found


def saves_nowhere(scene: Scene, family: Family) -> str | None:
    """Why nothing can be saved under `checkpoints:` (a sentence), where that is sure: it is empty
    and closed to the root of the container, and the trainers are that root. In an unprivileged
    container that may be a directory of the host's root; in any, a file system mounted read-only.
    """
    first = scene.tree.by_inner(1)
    trainers = [scene.tree.get(each.id) for each in family.trainers]
    if not scene.checkpoints_closed or first is None or not trainers:
        return None
    if any(each is None or each.uid != first.uid for each in trainers):
        return None
    names = ", ".join(str(each.pid) for each in family.trainers)
    shifted = f" (host user {first.uid})" if first.uid else ""
    return f"{names} can write nothing there: it is closed to the container's root{shifted}"


def _blind_spots(scope: Scope, scene: Scene) -> list[str]:
    """Whose open files could not be seen for want of root."""
    why = scope.place.without_root
    seen = (scene.tree.get(kin.id) for family in scene.found.families for kin in family.members)
    blind = [
        str(each.pid)
        for each in seen
        if each is not None and each.alive and (each.detail is None or each.detail.files is None)
    ]
    if why is None or not blind:
        return []
    return [f"open files and I/O of {', '.join(blind)} could not be seen: {why}"]


def gpu_strangers(scene: Scene) -> str:
    """Who in this place holds a GPU though nothing matched; empty where nobody is seen to."""
    held = {pid: each for pid, each in scene.tree.processes.items() if each.gpus}
    # workers are told by the one they come from, while it is there
    tops = [each for each in held.values() if not (each.forked and each.ppid in held)]
    return ", ".join(f"{each.pid} {redact.brief(each.argv or (each.comm,))}" for each in tops)


def left_behind(scene: Scene) -> str:
    """`; but 6, 7 were left behind …`, said where nothing matches; empty where nobody is."""
    pids = ", ".join(str(each.pid) for each in abandoned(scene.tree))
    said = "left behind by a Python that has ended (multiprocessing), of this job or another"
    return f"; but {pids} were {said}" if pids else ""


def members(family: Family, judged: Judged | None) -> tuple[Member, ...]:
    return tuple(
        Member(
            pid=kin.pid,
            host_pid=kin.id.pid,
            start=kin.id.start,
            role=kin.role,
            verdict=judged.members.get(kin.id) if judged else None,
            cmd=redact.command(kin.argv),
        )
        for kin in family.members
    )


def seen(family: Family, judged: Judged) -> dict[str, object]:
    """What was seen of it last, as an outcome tells it."""
    return {
        "verdict": judged.verdict,
        "evidence": judged.evidence,
        "family": members(family, judged),
    }


def above(tree: ProcessTree, family: Family, notes: Notes) -> tuple[AboveRecord, ...]:
    """What stands above the trainers, the farthest first, as reports carry it."""
    return tuple(
        AboveRecord(
            pid=each.pid,
            kind=each.kind,
            cmd=redact.text(each.name) if each.name else redact.command(each.argv),
            will=redact.text(each.will),
            again=each.again,
        )
        for each in standing_above(tree, family, notes)
    )


def promises(scene: Scene, family: Family) -> list[str]:
    """What a stop of these ranks does not promise, and what it does not reach."""
    said = promise(family, scene.tree)
    left = orphaned(scene)
    return [each for each in (said, left) if each is not None]


def orphaned(scene: Scene) -> str | None:
    """That some of what matches is what a trainer left behind; None where nobody is."""
    if not scene.found.orphans:
        return None
    pids, many = ", ".join(str(each.pid) for each in scene.found.orphans), scene.found.orphans[1:]
    trains = any(family.trainers for family in scene.found.families)
    more = f"; {'they are' if many else 'it is'} left alone" if trains else "; no trainer runs"
    were = "were" if many else "was"
    return f"{pids} {were} forked by a trainer that has ended, and left behind{more}"


def landings(scene: Scene, family: Family) -> dict[str, Landing]:
    """The worst landing of INT and of TERM over all trainers; absent where unseen."""
    trainers = [scene.tree.get(kin.id) for kin in family.trainers]
    found = {}
    for signal in ("INT", "TERM"):
        how = [each.landing(signal) if each is not None else None for each in trainers]
        seen = [each for each in how if each is not None]
        if seen and len(seen) == len(how):
            found[signal] = worst(seen)
    return found


def first_judgement(scope: Scope, scene: Scene, family: Family, ladder: Ladder | None) -> Judged:
    signals: tuple[str, ...] = ("INT", "TERM")
    if ladder is not None:
        signals = requests(ladder.playbook, ladder.stop_signal) or signals
    job = scope.target.job
    return judge(
        None,
        Look(at=scene.at, tree=scene.tree, real=scene.real, log=scene.log),
        family,
        stop_signals=signals,
        checkpoints=job.checkpoints if job else None,
        heard=earlier_marks(scene.tree, ladder.past) if ladder is not None else None,
    )


def located(
    scope: Scope,
    scene: Scene,
    family: Family,
    ladder: Ladder | None,
    graceful: bool,
    dry_run: bool,
    judged: Judged | None = None,
    code: CodeSeen | None = None,
) -> dict[str, object]:
    """The fields of events.Located."""
    job = scope.target.job
    judged = judged or first_judgement(scope, scene, family, ladder)
    lead = family.trainers[0] if family.trainers else family.members[0]
    process = scene.tree.get(lead.id)
    gpus = gpu_records(scene, family)
    return {
        "host": scope.target.host.name,
        "vmid": scope.target.vmid,
        "job": scope.target.job_name,
        "playbook": ladder.playbook.name if ladder else None,
        "lossless": ladder.playbook.lossless if ladder else False,
        "graceful": graceful,
        "dry_run": dry_run,
        "family": members(family, judged),
        "verdict": judged.verdict,
        "evidence": judged.evidence,
        "up_s": lead.up_s,
        "threads": process.threads if process else None,
        "stops_on": heard_by_all(family, scene.tree),
        "landings": landings(scene, family),
        "log": log_seen(scope, scene),
        "checkpoint": checkpoint_seen(scene),
        "checkpoints_declared": bool(job and job.checkpoints),
        "checkpoints_unseen": scene.listing.reason if isinstance(scene.listing, Unseen) else None,
        "gpus": gpus,
        "gpu_total_mib": _total(scene, gpus),
        "above": above(scene.tree, family, scene.notes),
        "code": code,
        "own_playbook": job.playbook if job else "standard",
        "typed": job is not None and not job.name and not job.match.gpu,
    }


def log_seen(scope: Scope, scene: Scene) -> LogSeen | None:
    job = scope.target.job
    if scene.log is None or job is None or job.log is None:
        return None
    return LogSeen(path=job.log, age_s=scene.log.age_s, line=redact.text(scene.log.last))


def checkpoint_seen(scene: Scene) -> CheckpointSeen | None:
    one, risk = scene.newest, scene.risk or AtRisk()
    if one is None:
        return None
    other = not scene.newest_complete and risk.name is not None
    return CheckpointSeen(
        path=spelled(one.path),
        name=spelled(one.name),
        age_s=_age(scene),
        complete=scene.newest_complete,
        size=one.size,
        known_format=scene.newest_known,
        usual_s=risk.usual_s,
        whole=risk.name if other else None,
        whole_age_s=risk.age_s if other else None,
    )


def gpu_records(scene: Scene, family: Family) -> tuple[GpuRecord, ...] | None:
    """None: nvidia-smi could not be asked, so nothing is known."""
    if isinstance(scene.gpus, Unseen):
        return None
    pids = frozenset(kin.id.pid for kin in family.members)
    return records(scene.gpus, pids, indexes_of(scene.gpus, pids))


def _total(scene: Scene, gpus: tuple[GpuRecord, ...] | None) -> int | None:
    if gpus is None or isinstance(scene.gpus, Unseen):
        return None
    known = {each.index: each.total_mib for each in scene.gpus.gpus}
    totals = [known.get(each.index) for each in gpus]
    return None if None in totals else sum(each or 0 for each in totals)
