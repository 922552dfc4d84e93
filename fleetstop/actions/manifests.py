"""What is kept of a release beside its files: how it is started, by whom, when. Sends nothing."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from fleetstop.actions.errand import Errand
from fleetstop.actions.lots import Lot
from fleetstop.core import redact
from fleetstop.core.launching.recipe import Known, Recipe
from fleetstop.core.releases.landing import replaced
from fleetstop.core.releases.manifest import BEFORE, Release, encoded, told_argv, told_env
from fleetstop.core.releases.own_start import Start, by_manifest
from fleetstop.core.releases.survey import Survey


def of_new(lot: Lot, errand: Errand, new: Recipe) -> Release:
    assert lot.release is not None
    env, secrets = told_env(new.spec.env)
    return Release(
        id=lot.release,
        files=lot.files,
        dest=lot.dest,
        when=lot.scope.clock.wall(),
        who=f"{lot.scope.run.operator}@{lot.scope.run.origin}",
        argv=told_argv(new.spec.argv),
        cwd=new.spec.cwd,
        env=env,
        secrets=secrets,
        resume=new.resume,
        interpreter=lot.python,
        git=errand.git,
        from_release=lot.source.id if lot.source is not None else None,
    )


def of_before(lot: Lot, place: Known, old: Recipe | None, found: Survey) -> dict[str, Any] | None:
    """Of what lies there now, should it be no kept release yet. `old`: as it would come back."""
    if lot.before is None:
        return None
    origin = place.origin
    env, secrets = told_env((origin.env if origin is not None else None) or {})
    release = Release(
        id=lot.before,
        files=replaced(lot.files, found, lot.ground.on_disk),
        dest=lot.dest,
        when=lot.scope.clock.wall(),
        who=BEFORE,
        argv=told_argv(origin.argv) if origin is not None else None,
        cwd=origin.cwd if origin is not None else None,
        env=env if origin is not None else None,
        secrets=secrets,
        resume=old.resume if old is not None else (),
        interpreter=lot.python,
    )
    told: dict[str, Any] = json.loads(encoded(release))
    return told


def as_begun(lot: Lot, place: Known) -> Known:
    """Of a job that has put itself into the background what is left does not tell how it is
    started; the manifest of its release does, if that is of this very start. Which is told."""
    state, record, origin = lot.state, lot.ground.last, place.origin
    who = state.trainer if state is not None and lot.started else None
    if who is None or origin is None or record is None or record.trainer is None:
        return place
    own = (record.trainer.pid, record.trainer.start) == (who.pid, who.start)
    if own or record.mark != who.mark or record.ended_at is None:
        return place
    kept = lot.ground.releases.get(lot.runs or "")
    of_this = kept is not None and state is not None and state.release == kept.id
    argv = kept.argv if kept is not None and of_this else None
    ended = f"what started {who.pid} has ended"
    if kept is None or not argv or any(redact.MASK in word for word in argv):
        left = redact.brief(origin.argv)
        lot.finding(f"{ended}, and is not known any more: as it runs, it is started by {left}")
        return place
    lot.finding(f"{ended}: by release {kept.id} it is started by {redact.brief(argv)}")
    made = msgspec.structs.replace(origin, argv=argv, cwd=kept.cwd or origin.cwd)
    return msgspec.structs.replace(place, origin=made)


def starts_as_kept(lot: Lot, release: str | None, place: Known, made: Recipe) -> bool:
    """Whether this is the start by which that kept release is gone back to: only of that tells how
    it does. True where no such one is kept: then its manifest is written by this very start."""
    kept = lot.ground.releases.get(release or "")
    spec = made.spec
    start = Start(spec.argv, spec.cwd, spec.env, made.resume)
    return kept is None or by_manifest(kept, start, place.login, place.person)


def ran_as_kept(lot: Lot, release: str | None, place: Known) -> bool:
    """The same of what runs now."""
    kept, origin = lot.ground.releases.get(release or ""), place.origin
    if kept is None or origin is None:
        return kept is None
    start = Start(origin.argv, origin.cwd, origin.env, place.resume)
    return by_manifest(kept, start, place.login, place.person)
