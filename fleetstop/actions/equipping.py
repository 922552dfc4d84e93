"""How the job is started anew, and the plan with which the activator does it. Starts nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from fleetstop import events
from fleetstop.actions import hands, manifests, staging
from fleetstop.actions.errand import Errand, wished
from fleetstop.actions.foreseen import deaf_again, must_be_read
from fleetstop.actions.grounding import saves
from fleetstop.actions.interpreter import scripts
from fleetstop.actions.lastly import comes_no_more
from fleetstop.actions.launch_plan import LaunchPlan
from fleetstop.actions.lots import Lot
from fleetstop.actions.origins import known
from fleetstop.actions.showing import wish
from fleetstop.actions.start_script import by_its_script
from fleetstop.core import redact
from fleetstop.core.durations import FOREVER
from fleetstop.core.inventory import Healthcheck
from fleetstop.core.launching import launchers
from fleetstop.core.launching.activator import ActivatorSpec, Resume, SwapFile, late_file
from fleetstop.core.launching.ended import Born
from fleetstop.core.launching.health import Expected
from fleetstop.core.launching.older import Saves, from_older, named
from fleetstop.core.launching.output import reads
from fleetstop.core.launching.recipe import (
    Extra,
    Known,
    Recipe,
    alike,
    as_it_ran,
    recipe,
    resumes,
    shown,
)
from fleetstop.core.launching.restored import Ran, Restored, restored
from fleetstop.core.launching.resumed import CHECKPOINT, asks_for_one
from fleetstop.core.playbook import Playbook
from fleetstop.core.releases.landing import swap_file
from fleetstop.core.releases.manifest import encoded, told_argv
from fleetstop.core.saves import rules

_DAY_S = 86_400.0
Cook = Callable[..., Recipe]


class Equipment:
    """What a launch of this lot needs. `old`: what runs now, exactly as it was started: what comes
    back; None: nothing runs, or nothing changes."""

    def __init__(self, lot: Lot, errand: Errand, place: Known, there: Saves | None = None) -> None:
        self._lot, self._errand, self._saves = lot, errand, there or Saves()
        launch = lot.job.launch
        self._words = launch.resume if launch is not None else ()
        self._place = msgspec.structs.replace(place, resume=lot.resumes)
        self._then = self._restored() if lot.source is not None else None
        self.goes_on_from(place.checkpoint)

    def goes_on_from(self, checkpoint: str | None) -> None:
        """None: where its words to resume name one, from nothing. Also what runs by now goes on
        from what it was told once, not from what it has saved since."""
        self._place = msgspec.structs.replace(self._place, checkpoint=checkpoint)
        self._make()

    def _restored(self) -> Restored:
        source = self._lot.source
        assert source is not None
        ran = Ran(source.argv, source.cwd, source.env, source.secrets)
        return restored(ran, self._place.origin, self._lot.job.launch, self._errand.extra.env)

    def _make(self) -> None:
        lot, origin = self._lot, self._then.origin if self._then is not None else None
        extra = self._errand.extra
        if origin is not None and lot.source is not None:
            then = msgspec.structs.replace(self._place, origin=origin, resume=lot.source.resume)
            self.new = self._recipe(as_it_ran, then, _going_on(extra), lot.run)
        else:
            goes = msgspec.structs.replace(extra, resume=resumes(self._words, self._place))
            self.new = self._recipe(recipe, self._place, goes, lot.run)
        self.old: Recipe | None = None
        if lot.now is not None:
            old = self._recipe(as_it_ran, self._place, _going_on(Extra()), f"{lot.run}-old")
            self.old = old if lot.files or not alike(self.new.spec, old.spec) else None

    def show(self) -> None:
        lot, check = self._lot, self._lot.job.healthcheck or Healthcheck()
        told, launch = shown(self.new.spec, self._place.person), lot.job.launch
        then = lot.source.id if lot.source is not None and self._as_then else None
        adopted = then is None and (launch is None or not launch.run)
        ran = self._place.origin if adopted else None
        lot.scope.teller.tell(
            events.LaunchShown,
            command=told.command,
            cwd=told.cwd,
            user=told.user,
            log=told.log,
            reads=redact.text(self.new.reads) if self.new.reads is not None else None,
            env=told.env,
            rest=told.rest,
            notes=self._notes(),
            adopted=adopted,
            carrier=launchers.carried_in(lot.job),
            resumes=self._place.checkpoint if self.new.added else None,
            added=tuple(name for name in self._errand.extra.env if name in told.env),
            within_s=check.within_s,
            log_matches=check.log_matches,
            roll_back=self._rolls_back,
            as_release=then,
            ran=told_argv(ran.argv) if ran is not None else (),
            ran_in=ran.cwd if ran is not None else None,
            dest=None if lot.placed else lot.dest,
        )
        if not self._as_then:
            for text in comes_no_more(lot, self._place, self.new.spec, self._errand.extra.env):
                lot.finding(text)
        sent = {f"{lot.dest}/{each.rel}" for each in lot.files}
        if (deaf := deaf_again(self.new, self._place, sent)) is not None:
            lot.finding(deaf)
        self._tell_older()

    def _tell_older(self) -> None:
        """Once each: before the stop, and what the stop has saved after it."""
        for text in from_older(self.new, self._saves):
            if text not in self._lot.findings:
                self._lot.finding(text)

    def _notes(self) -> tuple[str, ...]:
        then = self._then.notes if self._then is not None else ()
        old: tuple[str, ...] = ()
        if self.old is not None and self._rolls_back:
            told = from_older(self.new, self._saves)
            stale = from_older(self.old, self._saves)
            old = (*self.old.notes, *(each for each in stale if each not in told))
        back = [f"should what runs now come back: {e}" for e in old if e not in self.new.notes]
        return (*then, *self.new.notes, *self._not_resumed(), *back)

    def _not_resumed(self) -> tuple[str, ...]:
        """What the inventory says of resuming is of the new version: another may not know it."""
        without, found = f"without {redact.command(self._words)}", []
        if self._words and self._as_then and not self.new.resume:
            found.append(f"it starts as it did then: {without}")
        if self._words and self._rolls_back and self.old is not None and not self.old.resume:
            found.append(f"should what runs now come back, it starts as it ran: {without}")
        return tuple(found)

    @property
    def _asks(self) -> bool:
        """Whether a checkpoint is named in what may be started."""
        return any(asks_for_one(each.resume) for each in (self.new, self.old) if each is not None)

    @property
    def _as_then(self) -> bool:
        return self._then is not None and self._then.origin is not None

    @property
    def _rolls_back(self) -> bool:
        return self._errand.roll_back and self.old is not None

    def _recipe(self, how: Cook, place: Known, extra: Extra, mark: str) -> Recipe:
        lot = self._lot
        status = f"{lot.base}/status/{mark}.json"
        return how(lot.job.launch, place, extra, log=lot.job.log, mark=mark, status=status)

    def _resume(self) -> Resume | None:
        """For an activator that will be on its own once the old run has ended."""
        directory, new, old = self._lot.job.checkpoints, self.new, self.old
        own = named(new, self._saves)
        if directory is None or not (self._asks or own):
            return None
        launch = new.around if asks_for_one(new.resume) else None
        return Resume(
            known=self._place.checkpoint,
            directory=directory,
            words=() if own else new.resume,
            launch=(new.spec.argv, ()) if own else launch,
            launch_old=old.around if old is not None and asks_for_one(old.resume) else None,
            rules=rules.told(),
            placeholder=CHECKPOINT,
            words_old=old.resume if old is not None else None,
            named=own,
        )

    async def plan(self) -> LaunchPlan:
        """With everything in the container, and proved. Raises DeployFailed, nothing left."""
        lot, errand = self._lot, self._errand
        swaps, manifest = await self._staged() if lot.files else ((), None)
        check = lot.job.healthcheck or Healthcheck()
        stays = lot.lies.id if not lot.files and lot.lies is not None else None
        living = lot.now.family.members if lot.now is not None else ()
        spec = ActivatorSpec(
            run=lot.run,
            base=lot.base,
            dest=lot.dest,
            launch=self.new.spec,
            launch_old=self.old.spec if self.old is not None else None,
            release=lot.release,
            before=lot.before,
            files=swaps,
            gone=tuple(Born(kin.pid, kin.id.start) for kin in living),
            log=self.new.spec.log,
            within_s=check.within_s,
            log_matches=check.log_matches,
            roll_back=self._rolls_back,
            patience_s=_patience(errand.stop.playbook),
            before_manifest=manifest,
            before_lies=lot.before_lies,
            stays=stays,
            as_kept=self.as_kept(stays, self.new),
            ran_as_kept=manifests.ran_as_kept(lot, lot.before, self._place),
            more=self._more(),
            resume=self._resume(),
            reads=reads(self.new.reads, self.old.reads if self.old is not None else None),
            resumes={
                name: made.resume
                for name, made in (("launch", self.new), ("launch_old", self.old))
                if made is not None
            },
            wish=wished(errand, lot.job, lot.wanted),
            succeeds=lot.succeeds,
            by_script=lot.job.match.script is not None,
        )
        return LaunchPlan(
            spec=spec,
            python=lot.python,
            tools=lot.ground.tools,
            scripts=scripts(*(("stay",) if launchers.carrier(lot.job) else ())),
            expected=self.expected,
            expected_old=self.expected_old,
            done="redeployed" if lot.files else "running",
        )

    def as_kept(self, release: str | None, made: Recipe) -> bool:
        """Whether how this start does tells how that kept release does."""
        return manifests.starts_as_kept(self._lot, release, self._place, made)

    async def _staged(self) -> tuple[tuple[SwapFile, ...], dict[str, Any] | None]:
        lot, errand = self._lot, self._errand
        read = partial(lot.content, errand)
        stage = await staging.stage(lot.scope, lot.files, read, wish(lot, errand), lot.survey)
        try:
            told = encoded(manifests.of_new(lot, errand, self.new)).decode()
            # an environment is nobody else's
            await self._put(f"{lot.base}/stage-{lot.run}/manifest.json", told, "600")
        except BaseException:
            await staging.unstage(lot.scope, wish(lot, errand))
            raise
        swaps = tuple(swap_file(e.file, e.there, e.staged, stage.survey) for e in stage.files)
        return swaps, manifests.of_before(lot, self._place, self.old, stage.survey)

    async def _put(self, path: str, text: str, mode: str) -> None:
        shell = await self._lot.scope.place.hands()
        await hands.surely(self._lot.scope, lambda: hands.put(shell, path, text, mode))

    def _more(self) -> dict[str, dict[str, Any]]:
        """For a tmux session or a unit: how it is entered, and what the one in it has to know."""
        lot = self._lot
        stop = lot.scope.run.typed("stop", lot.scope.target.name)
        specs = {"launch": self.new.spec}
        specs |= {"launch_old": self.old.spec} if self.old is not None else {}
        made = {}
        for name, spec in specs.items():
            plain, told = spec.words(), launchers.words(lot.job, spec, stop)
            made[name] = {key: told[key] for key in told if key not in plain}
        return made

    @property
    def expected(self) -> Expected:
        return self._expected(self.new, self._errand.extra)

    @property
    def expected_old(self) -> Expected | None:
        return self._expected(self.old, Extra()) if self.old is not None else None

    def _expected(self, made: Recipe, extra: Extra) -> Expected:
        job = self._lot.job
        check = job.healthcheck or Healthcheck()
        said = job.launch.env if job.launch is not None else {}
        # what comes back comes as it was, whatever the inventory says by now
        given = {name: value for name, value in said.items() if made.spec.env.get(name) == value}
        return Expected(
            argv=made.spec.argv,
            arguments=(*made.added, *extra.words),
            env={**given, **extra.env},
            stop_signal=job.stop_signal,
            log_matches=check.log_matches,
            within_s=check.within_s,
            gpus=job.gpus,
        )

    async def late(self, plan: LaunchPlan) -> LaunchPlan:
        """Once the old run has ended: its last checkpoint is the one to go on from."""
        lot, known = self._lot, self._place.checkpoint
        if not self._asks and not named(self.new, self._saves):
            return plan
        self._saves = await saves(lot.scope, lot.job.checkpoints, at_rest=True)
        self._tell_older()
        if not self._asks:
            return plan
        newest = self._saves.newest
        if newest is None and known is not None and self.new.added:
            lot.finding(f"no complete checkpoint is seen by now: it goes on from {known}")
        if newest is None or newest == known:
            return plan
        self.goes_on_from(newest)
        told: dict[str, Any] = {"launch": list(self.new.spec.argv), "checkpoint": newest}
        if self.old is not None:
            told["launch_old"] = list(self.old.spec.argv)
        await self._put(late_file(lot.base, lot.run), json.dumps(told), "600")
        if self.new.added:
            lot.finding(f"it goes on from {newest}")
        return msgspec.structs.replace(plan, expected=self.expected, expected_old=self.expected_old)


def _going_on(extra: Extra) -> Extra:
    """From the newest checkpoint, where the start is known to know the words for that."""
    return msgspec.structs.replace(extra, resume=True)


async def equipment(lot: Lot, errand: Errand) -> Equipment:
    """Raises Refused where nothing says how the job is started."""
    job, now = lot.job, lot.now
    there = await saves(lot.scope, job.checkpoints, at_rest=now is None)
    running = (lot.scene.tree, now.family) if now is not None else None
    place = await known(lot.scope, job.launch, job.log, running, there.newest)
    place = await by_its_script(lot.scope, place, running)
    place = manifests.as_begun(lot, place)
    made = Equipment(lot, errand, place, there)
    if job.healthcheck is not None and job.healthcheck.log_matches:
        must_be_read(made.new, place)
    return made


def _patience(book: Playbook) -> float:
    """How long what waits goes on waiting for the old run's end without us."""
    waits = [_DAY_S if rung.wait_s == FOREVER else rung.wait_s for rung in book.ladder]
    hold = book.hold.saving_s + book.hold.moving_s if book.hold is not None else 0.0
    return min(sum(waits) + hold + 600.0, _DAY_S)
