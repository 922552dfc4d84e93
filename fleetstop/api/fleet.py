"""The fleet from Python: the one place where files, SSH and actions are put together.

    async with Fleet.load("inventory/") as fleet:
        report = await fleet.stop("ct200", graceful=True)

It never prints, never exits, and asks only through what it is given to ask with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Unpack

import platformdirs

from fleetstop import config
from fleetstop.actions import refusals
from fleetstop.actions.attempt import Wish
from fleetstop.actions.bringing import bring
from fleetstop.actions.fleet import Rolling
from fleetstop.actions.gpus import held_by_one, still_there
from fleetstop.actions.stop import stop
from fleetstop.actions.telling import Scope
from fleetstop.api import given
from fleetstop.api.bringing import SELECTS, Asked, How, More, errands, typed_more
from fleetstop.api.consent import agreed
from fleetstop.api.gpus import host_of, nobody_on, target_of
from fleetstop.api.looks import Looks
from fleetstop.api.past import records_directory
from fleetstop.api.runs import nobody
from fleetstop.core.gpus.sole import Held
from fleetstop.core.inventory import Target
from fleetstop.core.playbook import Playbook, ladder_playbook
from fleetstop.core.report import Outcome, Report
from fleetstop.errors import BadUsage, CouldNotLook, DeployFailed, Refused
from fleetstop.events import Emit
from fleetstop.ports import Choose, Confirm


class Fleet(Looks):
    """An inventory with its connections. Use as an async context manager."""

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        emit: Emit = nobody,
        ssh_config: Path | None = None,
        parallel: int = 20,
        confirm: Confirm | None = None,
        choose: Choose | None = None,
        record: bool = True,
    ) -> Fleet:
        """Reads the inventory at `path`, or where the README says it is looked for. `record`:
        each run leaves its record in the user's state directory.

        `confirm` is asked, one question at a time, before anything that may lose work; without
        it nobody is asked and such rungs are skipped. It is cancelled when the question is
        withdrawn. `choose` is asked which signal makes a job save where that cannot be seen.

        Raises BadConfig with file, line and path of the first mistake.
        """
        inventory = config.load_inventory(
            Path(path) if path is not None else None,
            env=os.environ,
            cwd=Path.cwd(),
            user_dir=Path(platformdirs.user_config_dir("fleetstop")),
        )
        named = str(path) if path is not None else None
        history = records_directory() if record else None
        return cls(
            inventory,
            emit=emit,
            ssh_config=ssh_config,
            parallel=parallel,
            named=named,
            confirm=confirm,
            choose=choose,
            history=history,
        )

    async def stop(
        self,
        *words: str,
        graceful: bool = False,
        force: bool = False,
        max_loss: str | float | None = None,
        after_checkpoint: bool = False,
        at_most: str | float | None = None,
        dry_run: bool = False,
        playbook: str | None = None,
        ladder: str | None = None,
        signal: str | None = None,
        timeout: float | str | None = None,
        break_lock: bool = False,
        batch: int | None = None,
        max_failures: int | None = None,
        gpu: int | None = None,
        **which: Unpack[given.Selects],
    ) -> Report:
        """Stops each target by its playbook. `force` consents to what may lose work,
        `graceful` refuses it; without either such rungs are asked for, or skipped.

        `max_loss` ("10m", or seconds): consent while the newest complete checkpoint is younger.
        `after_checkpoint`: waits for the next one, `at_most` so long, and ends the job then.
        `timeout`: seconds, or `30m`, for each target from connecting on; then it gives up
        watching and sends nothing more. `break_lock`: takes the lock of another live run.
        `batch`: so many at a time; `max_failures`: once so many have failed no more is begun.
        `gpu`: the target is a host, and the one job on this GPU of it is meant."""
        how = How(
            graceful=graceful,
            force=force,
            max_loss=max_loss,
            after_checkpoint=after_checkpoint,
            at_most=at_most,
            dry_run=dry_run,
            playbook=playbook,
            ladder=ladder,
            signal=signal,
            break_lock=break_lock,
        )
        within_s, rolling = given.seconds(timeout), _rolling(batch, max_failures)
        if gpu is not None:
            if any(which.values()):
                raise BadUsage("--gpu names the job by itself; nothing else can narrow it")
            return await self._stop_on_gpu(words, gpu, how, within_s)
        wish = self._wishes(how)
        try:
            targets = self.select(words, **which)
        except Refused as exc:
            return await self._refused(words, exc)
        return await self._stop(words, targets, wish, how.dry_run, within_s, rolling=rolling)

    async def _stop(
        self,
        words: Sequence[str],
        targets: Sequence[Target],
        wish: Callable[[Target], Wish],
        dry_run: bool,
        within_s: float | None,
        held: Held | None = None,
        rolling: Rolling | None = None,
    ) -> Report:
        """`held`: the process by which the one target was found; it must be there still."""
        wishes = {each.name: wish(each) for each in targets}

        async def action(scope: Scope) -> Outcome:
            if held is not None:
                await still_there(scope, held)
            return await stop(scope, wishes[scope.target.name], self._desk)

        return await self._run(
            "stop", words, targets, action, dry_run, refusals.protected, within_s, rolling=rolling
        )

    async def _stop_on_gpu(
        self, words: Sequence[str], gpu: int, how: How, within_s: float | None
    ) -> Report:
        """The job on this GPU of one host, whichever container it is in."""
        wish, host = self._wishes(how), host_of(self.inventory, words)
        asks = partial(held_by_one, inventory=self.inventory, index=gpu)
        try:
            held = await self._quietly(host, asks, within_s)
            target = target_of(self.inventory, host, held) if held is not None else None
        except (Refused, CouldNotLook) as exc:
            return await self._refused(words, exc)
        if target is None:
            return await self._told(words, nobody_on(host, gpu), "stop")
        return await self._stop((target.name,), (target,), wish, how.dry_run, within_s, held)

    def _wishes(self, how: How) -> Callable[[Target], Wish]:
        """What is asked of the stop of each; raises BadUsage for what contradicts itself."""
        consent, terms = agreed(
            graceful=how.graceful,
            force=how.force,
            max_loss=how.max_loss,
            after_checkpoint=how.after_checkpoint,
            at_most=how.at_most,
        )
        signal = given.stop_signal(how.signal)
        return lambda target: Wish(
            playbook=self._playbook_for(target, how.playbook, how.ladder),
            consent=consent,
            terms=terms,
            graceful=how.graceful,
            signal=signal,
            dry_run=how.dry_run,
            break_lock=how.break_lock,
        )

    async def launch(self, *words: str, how: How | None = None, **more: Unpack[More]) -> Report:
        """Starts a job that does not run, and sees whether it is well."""
        return await self._bring(Asked("launch", **typed_more(more)), words, how, more)

    async def restart(self, *words: str, how: How | None = None, **more: Unpack[More]) -> Report:
        """Stops it and starts it again; one that does not run is only started."""
        return await self._bring(Asked("restart", **typed_more(more)), words, how, more)

    async def redeploy(
        self,
        *words: str,
        files: Sequence[str | Path] | str | Path,
        to: str | Path | None = None,
        diff: bool = False,
        how: How | None = None,
        **more: Unpack[More],
    ) -> Report:
        """New files in, the old run out by its playbook, the new one started and looked after.

        `files` and directories of this machine, or one of them; `to`: the directory there, instead
        of the one that the running process loads from; `diff`: only shows what would change."""
        named = given.words("files", files, example='files=["train.py", "configs"]')
        there = str(to) if isinstance(to, Path) else to
        asked = Asked("redeploy", files=named, to=there, diff=diff, **typed_more(more))
        return await self._bring(asked, words, how, more)

    async def rollback(
        self,
        *words: str,
        to: str | None = None,
        diff: bool = False,
        how: How | None = None,
        **more: Unpack[More],
    ) -> Report:
        """The files of a kept release again, the one before unless `to` names another."""
        asked = Asked("rollback", release=to, diff=diff, **typed_more(more))
        return await self._bring(asked, words, how, more)

    async def _bring(
        self, asked: Asked, words: Sequence[str], how: How | None, more: More
    ) -> Report:
        how = how or How()
        within_s, wish = given.seconds(more.get("timeout")), self._wishes(how)
        selection = {name: more[name] for name in SELECTS if name in more}  # type: ignore[literal-required]
        rolling = _rolling(more.get("batch"), more.get("max_failures"))
        try:
            targets = self.select(words, **selection)
            made = await errands(asked, targets, wish)
        except (Refused, DeployFailed) as exc:
            return await self._refused(words, exc, asked.command, asked.more)

        async def action(scope: Scope) -> Outcome:
            return await bring(scope, made[scope.target.name], self._desk)

        dry_run = how.dry_run or asked.diff
        return await self._run(
            asked.command, words, targets, action, dry_run, refusals.protected, within_s,
            asked.more, rolling,
        )  # fmt: skip

    def _playbook_for(self, target: Target, name: str | None, ladder: str | None) -> Playbook:
        if ladder is not None:
            return ladder_playbook(ladder)
        if name is None:
            name = target.job.playbook if target.job else "standard"
        return self.playbook(name)

    def playbook(self, name: str) -> Playbook:
        """By name (./playbooks, beside the inventory, stock) or by path; raises BadConfig."""
        if not name:  # a variable of a script that was never set; its ladder may not be the job's
            raise BadUsage("the playbook's name is empty", hint="fleetstop playbook ls")
        cwd = Path.cwd()
        return config.load_playbook(name, cwd=cwd, dirs=config.playbook_dirs(self.inventory, cwd))


def _rolling(batch: int | None, max_failures: int | None) -> Rolling:
    for name, number in (("batch", batch), ("max_failures", max_failures)):
        if number is not None and number < 1:
            raise BadUsage(f"{name} is {number}: nothing would be begun", hint="leave it out, or 1")
    return Rolling(batch, max_failures)
