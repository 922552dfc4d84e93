"""How the job is started anew, and the plan with which the activator does it. Starts nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from fleetstop import events
from fleetstop.actions import hands, staging
from fleetstop.actions.errand import Errand, wished
from fleetstop.actions.grounding import newest_whole
from fleetstop.actions.interpreter import scripts
from fleetstop.actions.launch_plan import LaunchPlan
from fleetstop.actions.lots import Lot
from fleetstop.actions.origins import known
from fleetstop.actions.showing import wish
from fleetstop.core.durations import FOREVER
from fleetstop.core.inventory import Healthcheck
from fleetstop.core.launching import launchers
from fleetstop.core.launching.activator import ActivatorSpec, Resume, SwapFile, late_file
from fleetstop.core.launching.dropped import dropped
from fleetstop.core.launching.ended import Born
from fleetstop.core.launching.health import Expected
from fleetstop.core.launching.recipe import (
    Extra,
    Known,
    Recipe,
    alike,
    around_resume,
    as_it_ran,
    recipe,
    resume_words,
    shown,
)
from fleetstop.core.launching.restored import Ran, Restored, restored
from fleetstop.core.launching.resumed import CHECKPOINT, asks_for_one
from fleetstop.core.playbook import Playbook
from fleetstop.core.releases.landing import replaced, swap_file
from fleetstop.core.releases.manifest import BEFORE, Release, encoded, told_argv, told_env
from fleetstop.core.releases.survey import Survey
from fleetstop.core.saves import rules
from fleetstop.errors import Refused

_DAY_S = 86_400.0
Cook = Callable[..., Recipe]


class Equipment:
    """What a launch of this lot needs. `old`: what runs now, exactly as it was started: what comes
    back; None: nothing runs, or nothing changes."""

    def __init__(self, lot: Lot, errand: Errand, place: Known) -> None:
        self._lot, self._errand, self._place = lot, errand, place
        launch = lot.job.launch
        self._words = launch.resume if launch is not None else ()
        self._then = self._restored() if lot.source is not None else None
        self.goes_on_from(place.checkpoint)

    def goes_on_from(self, checkpoint: str | None) -> None:
        """None: where its words to resume name one, from nothing. Also what runs by now goes on
        from what it was told once, not from what it has saved since."""
        resume = bool(self._words) and (checkpoint is not None or not asks_for_one(self._words))
        self._place = msgspec.structs.replace(self._place, checkpoint=checkpoint)
        self._extra = msgspec.structs.replace(self._errand.extra, resume=resume)
        self._bare = Extra(resume=resume)
        self._make()

    def _restored(self) -> Restored:
        source = self._lot.source
        assert source is not None
        ran = Ran(source.argv, source.cwd, source.env, source.secrets)
        return restored(ran, self._place.origin, self._lot.job.launch, self._errand.extra.env)

    def _make(self) -> None:
        lot, origin = self._lot, self._then.origin if self._then is not None else None
        if origin is not None:
            then = msgspec.structs.replace(self._place, origin=origin)
            self.new = self._recipe(as_it_ran, then, self._extra, lot.run)
        else:
            self.new = self._recipe(recipe, self._place, self._extra, lot.run)
        self.old: Recipe | None = None
        if lot.now is not None:
            old = self._recipe(as_it_ran, self._place, self._bare, f"{lot.run}-old")
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
            env=told.env,
            rest=told.rest,
            notes=self._notes(),
            adopted=adopted,
            carrier=launchers.carried_in(lot.job),
            resumes=self._place.checkpoint if self._extra.resume else None,
            added=tuple(name for name in self._extra.env if name in told.env),
            within_s=check.within_s,
            log_matches=check.log_matches,
            roll_back=self._rolls_back,
            as_release=then,
            ran=told_argv(ran.argv) if ran is not None else (),
            ran_in=ran.cwd if ran is not None else None,
            dest=None if lot.placed else lot.dest,
        )
        if not self._as_then:
            for text in dropped(launch, self._place, self.new.spec, self._extra.env):
                lot.finding(text)

    def _notes(self) -> tuple[str, ...]:
        then = self._then.notes if self._then is not None else ()
        old = self.old.notes if self.old is not None and self._rolls_back else ()
        back = [f"should what runs now come back: {e}" for e in old if e not in self.new.notes]
        return (*then, *self.new.notes, *back)

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
        lot, old = self._lot, self.old
        if lot.job.checkpoints is None or not asks_for_one(self._words):
            return None
        return Resume(
            known=self._place.checkpoint,
            directory=lot.job.checkpoints,
            words=self._words,
            launch=self._around(self.new, self._extra),
            launch_old=self._around(old, self._bare) if old is not None else None,
            rules=rules.told(),
            placeholder=CHECKPOINT,
        )

    def _around(self, made: Recipe, extra: Extra) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return around_resume(self._lot.job.launch, made.spec.argv, self._place, extra)

    async def plan(self) -> LaunchPlan:
        """With everything in the container, and proved. Raises DeployFailed, nothing left."""
        lot, errand = self._lot, self._errand
        swaps, manifest = await self._staged() if lot.files else ((), None)
        check = lot.job.healthcheck or Healthcheck()
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
            stays=lot.lies.id if not lot.files and lot.lies is not None else None,
            more=self._more(),
            resume=self._resume(),
            wish=wished(errand, lot.job, lot.wanted),
        )
        return LaunchPlan(
            spec=spec,
            python=lot.python,
            tools=lot.ground.tools,
            scripts=scripts(*(("stay",) if launchers.carrier(lot.job) else ())),
            expected=self.expected,
            expected_old=self._expected(self.old, self._bare) if self.old is not None else None,
            done="redeployed" if lot.files else "running",
        )

    async def _staged(self) -> tuple[tuple[SwapFile, ...], dict[str, Any] | None]:
        lot, errand = self._lot, self._errand
        read = partial(lot.content, errand)
        stage = await staging.stage(lot.scope, lot.files, read, wish(lot, errand), lot.survey)
        try:
            told = encoded(self._release()).decode()
            # an environment is nobody else's
            await self._put(f"{lot.base}/stage-{lot.run}/manifest.json", told, "600")
        except BaseException:
            await staging.unstage(lot.scope, wish(lot, errand))
            raise
        swaps = tuple(swap_file(e.file, e.there, e.staged, stage.survey) for e in stage.files)
        return swaps, self._manifest_before(stage.survey)

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
        return self._expected(self.new, self._extra)

    def _expected(self, made: Recipe, extra: Extra) -> Expected:
        job = self._lot.job
        check = job.healthcheck or Healthcheck()
        said = job.launch.env if job.launch is not None else {}
        # what comes back comes as it was, whatever the inventory says by now
        given = {name: value for name, value in said.items() if made.spec.env.get(name) == value}
        return Expected(
            argv=made.spec.argv,
            arguments=(*resume_words(job.launch, self._place, extra), *extra.words),
            env={**given, **extra.env},
            stop_signal=job.stop_signal,
            log_matches=check.log_matches,
            within_s=check.within_s,
            gpus=job.gpus,
        )

    async def late(self, plan: LaunchPlan) -> LaunchPlan:
        """Once the old run has ended: its last checkpoint is the one to go on from."""
        lot, known = self._lot, self._place.checkpoint
        if not asks_for_one(self._words):
            return plan
        newest = await newest_whole(lot.scope, lot.job.checkpoints, at_rest=True)
        if newest is None and known is not None:
            lot.finding(f"no complete checkpoint is seen by now: it goes on from {known}")
        if newest is None or newest == known:
            return plan
        self.goes_on_from(newest)
        told: dict[str, Any] = {"launch": list(self.new.spec.argv), "checkpoint": newest}
        if self.old is not None:
            told["launch_old"] = list(self.old.spec.argv)
        await self._put(late_file(lot.base, lot.run), json.dumps(told), "600")
        lot.finding(f"it goes on from {newest}")
        return msgspec.structs.replace(
            plan,
            expected=self.expected,
            expected_old=self._expected(self.old, self._bare) if self.old is not None else None,
        )

    def _release(self) -> Release:
        lot, spec = self._lot, self.new.spec
        assert lot.release is not None
        env, secrets = told_env(spec.env)
        return Release(
            id=lot.release,
            files=lot.files,
            dest=lot.dest,
            when=lot.scope.clock.wall(),
            who=f"{lot.scope.run.operator}@{lot.scope.run.origin}",
            argv=told_argv(spec.argv),
            cwd=spec.cwd,
            env=env,
            secrets=secrets,
            interpreter=lot.python,
            git=self._errand.git,
            from_release=lot.source.id if lot.source is not None else None,
        )

    def _manifest_before(self, found: Survey) -> dict[str, Any] | None:
        """Of what lies there now, should it be no kept release yet."""
        lot = self._lot
        if lot.before is None:
            return None
        origin = self._place.origin
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
            interpreter=lot.python,
        )
        told: dict[str, Any] = json.loads(encoded(release))
        return told


async def equipment(lot: Lot, errand: Errand) -> Equipment:
    """Raises Refused where nothing says how the job is started."""
    job, now = lot.job, lot.now
    newest = await newest_whole(lot.scope, job.checkpoints, at_rest=now is None)
    running = (lot.scene.tree, now.family) if now is not None else None
    made = Equipment(lot, errand, await known(lot.scope, job.launch, job.log, running, newest))
    if job.healthcheck is not None and job.healthcheck.log_matches and made.new.spec.log is None:
        raise Refused(
            "its health is to be read in its log, and its output goes nowhere",
            hint="say where it shall log, in the inventory: log: /workspace/train.log",
        )
    return made


def _patience(book: Playbook) -> float:
    """How long what waits goes on waiting for the old run's end without us."""
    waits = [_DAY_S if rung.wait_s == FOREVER else rung.wait_s for rung in book.ladder]
    hold = book.hold.saving_s + book.hold.moving_s if book.hold is not None else 0.0
    return min(sum(waits) + hold + 600.0, _DAY_S)
