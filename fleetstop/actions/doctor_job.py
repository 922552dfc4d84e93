"""Looks over one job as a stop would meet it; what is said of what is seen core knows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fleetstop.actions.locate import Scene, locate
from fleetstop.actions.present import gpu_strangers, landings
from fleetstop.actions.status import heard
from fleetstop.actions.telling import Scope
from fleetstop.core.checkup import job as judge
from fleetstop.core.checkup.checks import Check, Name
from fleetstop.core.climbing.requests import heard_by_all
from fleetstop.core.commands import Command
from fleetstop.core.inventory import Job
from fleetstop.core.judging.evidence import deafness
from fleetstop.core.kin.family import Family, find
from fleetstop.core.process import Process
from fleetstop.core.redact import brief
from fleetstop.errors import CouldNotLook
from fleetstop.ports import Shell

_OUTPUTS = (1, 2)


async def look_over(
    scope: Scope, inside: Shell | None, why: str | None, others: Sequence[Job] = ()
) -> list[Check]:
    """`inside`: where the job's files are; None: they are not asked for, or, with `why`, cannot
    be looked at. Its processes are seen from the host all the same. `others`: the other jobs that
    the inventory has in the same place."""
    job = scope.target.job
    assert job is not None
    # without its files: what cannot be entered still tells whom a signal would reach
    bare = msgspec.structs.replace(job, log=None, checkpoints=None)
    aim = msgspec.structs.replace(scope.target, job=bare)
    scene: Scene | None = None
    try:
        scene = await locate(msgspec.structs.replace(scope, target=aim), gpus=False)
        checks = await _found(scope, scene, others)
    except CouldNotLook as exc:
        checks = [Check("job", None, exc.message, exc.hint or None)]
    return checks + await _files(scope, scene, inside, why)


async def _found(scope: Scope, scene: Scene, others: Sequence[Job]) -> list[Check]:
    found, status = scene.found, scope.run.typed("status", scope.target.name)
    if found.unclear is not None:
        return [Check("job", False, found.unclear, status)]
    families = [each for each in found.families if each.trainers]
    if not families:
        strangers = _strangers(scene, others)
        if strangers and not found.leftovers:
            says = f"nothing matches, and {strangers} holds a GPU here"
            place = scope.target.name.partition(":")[0]
            adopt = scope.run.typed("adopt", place, "--pid", strangers.split()[0], "--as", "NAME")
            return [Check("job", False, says, adopt)]
        return [Check("job", True, "it does not run")]
    job = scope.target.job
    if len(families) > 1 and not (job is not None and job.match.all):
        many = f"{len(families)} unrelated trees match: a stop would refuse"
        return [Check("job", False, many, status)]
    lead = families[0].trainers[0]
    checks = [Check("job", True, f"runs as {lead.pid} {brief(lead.argv)}")]
    return [*checks, *[await _stops(scope, scene, each) for each in families]]


def _strangers(scene: Scene, others: Sequence[Job]) -> str:
    """Who holds a GPU there and is of no job; empty too where that cannot be told: what a pgrep, a
    tmux session or a pid file of another job names was not asked."""
    if any(each.match.pgrep or each.match.tmux or each.match.pidfile for each in others):
        return ""
    found = [find(scene.tree, each.match, each) for each in others]
    theirs = {kin.id.pid for one in found for family in one.families for kin in family.members}
    return gpu_strangers(msgspec.structs.replace(scene, tree=scene.tree.without(theirs)))


async def _stops(scope: Scope, scene: Scene, family: Family) -> Check:
    """Whom a signal would reach, judged as `status` judges it."""
    target, job = scope.target, scope.target.job
    assert job is not None
    marks = await heard(scope, scene, scene.tree)
    if any(kin.id in marks for kin in family.trainers):
        return Check("stops", True, "an earlier run has sent its stop signal: it is on its way")
    signals = tuple(sorted({job.stop_signal or "INT", "INT", "TERM"}))
    trainers = [(kin, scene.tree.get(kin.id)) for kin in family.trainers]
    deaf = [
        f"{kin.pid} {why}"
        for kin, process in trainers
        if process is not None and (why := deafness(process, signals))
    ]
    again = scope.run.typed("restart", target.name, "--after-checkpoint")
    if job.checkpoints is None:
        again = scope.run.typed("restart", target.name, "--force")
        again += "   # loses what was not saved"
    hears = heard_by_all(family, scene.tree)
    seen = bool(landings(scene, family))
    return judge.stops(target, "; ".join(deaf) or None, hears, again, seen)


async def _files(
    scope: Scope, scene: Scene | None, inside: Shell | None, why: str | None
) -> list[Check]:
    job = scope.target.job
    assert job is not None
    wanted: dict[Name, str] = {"log": job.log or "", "checkpoints": job.checkpoints or ""}
    asked = {name: path for name, path in wanted.items() if path}
    if not asked:
        return []
    lead = _lead(scene)
    who = f"pid:{lead.pid}" if lead is not None else (job.launch and job.launch.user) or "-"
    seen, lost = None, why
    if inside is not None:
        try:
            command = Command("paths", (who, *asked.values()))
            answer = await inside.run(command)
            seen = judge.parse_paths(answer.data, len(asked)) if answer.status == 0 else None
            lost = f"there is no user {who} there" if answer.status == 40 else "no answer"
        except CouldNotLook as exc:
            lost = exc.message
    if seen is None:
        return [Check(each, None, f"could not be looked at: {lost}") for each in asked]
    uid, found = seen
    user = "root" if uid == "0" else who if ":" not in who and who != "-" else f"uid {uid}"
    pid = lead.pid if lead is not None else None
    checks = []
    for name, path in zip(asked, found, strict=True):
        if name == "log":
            checks.append(judge.log(scope.target, path, pid, user, _writes(lead)))
        else:
            checks.append(judge.checkpoints(scope.target, path, user))
    return checks


def _lead(scene: Scene | None) -> Process | None:
    """A trainer that lives: by its rights the files are written."""
    if scene is None:
        return None
    for family in scene.found.families:
        for kin in family.trainers:
            process = scene.tree.get(kin.id)
            if process is not None and process.alive:
                return process
    return None


def _writes(process: Process | None) -> str | None:
    """The file that its output goes to, where that is one."""
    files = process.detail.files if process is not None and process.detail else None
    for each in files or ():
        if (
            each.fd in _OUTPUTS
            and each.target.startswith("/")
            and not each.target.startswith("/dev/")
        ):
            return each.target
    return None
