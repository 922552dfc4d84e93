"""The fleet from Python: the one place where files, SSH and actions are put together.

    async with Fleet.load("inventory/") as fleet:
        report = await fleet.stop("ct200", graceful=True)

It never prints, never exits, and asks only through what it is given to ask with.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

import platformdirs

from fleetstop import config, events
from fleetstop.actions import refusals
from fleetstop.actions.asking import Desk
from fleetstop.actions.fleet import Action, Allowed, Crew, anything
from fleetstop.actions.status import status
from fleetstop.actions.stop import Wish, stop
from fleetstop.actions.telling import Run, Scope
from fleetstop.api.consent import agreed
from fleetstop.api.machine import SystemClock, log_fault, operator
from fleetstop.core.durations import FOREVER, parse_duration
from fleetstop.core.inventory import Inventory, Match, Target
from fleetstop.core.playbook import Playbook, ladder_playbook, parse_signal
from fleetstop.core.report import Outcome, Report
from fleetstop.core.report import report as make_report
from fleetstop.core.selection import select
from fleetstop.errors import BadUsage, Refused
from fleetstop.events import AnyEvent, Emit
from fleetstop.ports import Choose, Confirm, Place
from fleetstop.remote.site import Site
from fleetstop.remote.ssh import Tunnels


def _nobody(event: AnyEvent) -> None:
    """Hears everything and says nothing."""


class Fleet:
    """An inventory with its connections. Use as an async context manager."""

    def __init__(
        self,
        inventory: Inventory,
        *,
        emit: Emit = _nobody,
        ssh_config: Path | None = None,
        parallel: int = 20,
        named: str | None = None,
        confirm: Confirm | None = None,
        choose: Choose | None = None,
    ) -> None:
        self.inventory = inventory
        self._named = named
        self._emit = emit
        self._ssh_config = ssh_config
        self._parallel = parallel
        self._clock = SystemClock()
        self._sites: dict[tuple[object, ...], Site] = {}
        self._listener_failed = False
        self._tunnels = Tunnels()
        self._desk = Desk(confirm, choose)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        emit: Emit = _nobody,
        ssh_config: Path | None = None,
        parallel: int = 20,
        confirm: Confirm | None = None,
        choose: Choose | None = None,
    ) -> Fleet:
        """Reads the inventory at `path`, or where the README says it is looked for.

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
        return cls(
            inventory,
            emit=emit,
            ssh_config=ssh_config,
            parallel=parallel,
            named=named,
            confirm=confirm,
            choose=choose,
        )

    async def __aenter__(self) -> Fleet:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await asyncio.gather(*(site.close() for site in self._sites.values()))
        await self._tunnels.close()

    def select(
        self,
        words: Sequence[str],
        *,
        purpose: str = "stop",
        match: Match | None = None,
        limit: Sequence[str] = (),
        exclude: Sequence[str] = (),
        all_jobs: bool = False,
    ) -> tuple[Target, ...]:
        """Names, globs, groups and addresses into targets; raises BadUsage, never means all."""
        return select(
            self.inventory,
            words,
            limit=limit,
            exclude=exclude,
            all_jobs=all_jobs,
            adhoc_match=match,
            purpose=purpose,  # type: ignore[arg-type]
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
        match: Match | None = None,
        limit: Sequence[str] = (),
        exclude: Sequence[str] = (),
        all_jobs: bool = False,
        timeout: float | str | None = None,
        break_lock: bool = False,
    ) -> Report:
        """Stops each target by its playbook. `force` consents to what may lose work,
        `graceful` refuses it; without either such rungs are asked for, or skipped.

        `max_loss` ("10m", or seconds): consent while the newest complete checkpoint is younger.
        `after_checkpoint`: waits for the next one, `at_most` so long, and ends the job then.
        `timeout`: seconds, or `30m`, for each target from connecting on; then it gives up
        watching and sends nothing more. `break_lock`: takes the lock of another live run."""
        within_s = _limit(timeout)
        consent, terms = agreed(
            graceful=graceful,
            force=force,
            max_loss=max_loss,
            after_checkpoint=after_checkpoint,
            at_most=at_most,
        )
        try:
            targets = self.select(
                words, match=match, limit=limit, exclude=exclude, all_jobs=all_jobs
            )
        except Refused as exc:
            return self._refused(words, exc)
        named = _stop_signal(signal)
        wishes = {
            each.name: Wish(
                playbook=self._playbook_for(each, playbook, ladder),
                consent=consent,
                terms=terms,
                graceful=graceful,
                signal=named,
                dry_run=dry_run,
                break_lock=break_lock,
            )
            for each in targets
        }

        async def action(scope: Scope) -> Outcome:
            return await stop(scope, wishes[scope.target.name], self._desk)

        return await self._run(
            "stop", words, targets, action, dry_run, refusals.protected, within_s
        )

    def _refused(self, words: Sequence[str], exc: Refused) -> Report:
        """Several jobs where one was meant: nothing was even connected to."""
        run, at = secrets.token_hex(4), self._clock.wall()
        name = " ".join(words)
        outcome = Outcome(
            target=name,
            host=None,
            vmid=None,
            job=None,
            result="refused",
            reason=exc.message,
            evidence=exc.evidence,
            hint=exc.hint or None,
        )
        done = make_report(run, [outcome])
        self._tell(
            events.Started(
                at=at,
                target=None,
                run=run,
                command="stop",
                targets=(name,),
                asked=tuple(words),
                inventory=self._named,
            )
        )
        self._tell(events.TargetFinished(at=at, target=name, outcome=outcome))
        self._tell(done)
        return done

    def _playbook_for(self, target: Target, name: str | None, ladder: str | None) -> Playbook:
        if ladder is not None:
            return ladder_playbook(ladder)
        return self.playbook(name or (target.job.playbook if target.job else "standard"))

    def playbook(self, name: str) -> Playbook:
        """By name (./playbooks, beside the inventory, stock) or by path; raises BadConfig."""
        cwd = Path.cwd()
        return config.load_playbook(name, cwd=cwd, dirs=config.playbook_dirs(self.inventory, cwd))

    async def status(
        self,
        *words: str,
        match: Match | None = None,
        limit: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> Report:
        targets = self.select(words, purpose="status", match=match, limit=limit, exclude=exclude)
        return await self._run("status", words, targets, status, True)

    async def _run(
        self,
        command: str,
        asked: Sequence[str],
        targets: Sequence[Target],
        action: Action,
        dry_run: bool,
        allowed: Allowed = anything,
        limit_s: float | None = None,
    ) -> Report:
        run = Run(id=secrets.token_hex(4), operator=operator(), origin=socket.gethostname())
        self._tell(
            events.Started(
                at=self._clock.wall(),
                target=None,
                run=run.id,
                command=command,
                targets=tuple(each.name for each in targets),
                asked=tuple(asked),
                inventory=self._named,
            )
        )
        crew = Crew(
            run,
            self._clock,
            self._tell,
            partial(self._open, dry_run=dry_run),
            lambda target: self._site(target).turn,
            partial(log_fault, run.id),
            self._parallel,
            limit_s,
        )
        try:
            outcomes = await crew.run_all(targets, action, allowed, exclusive=not dry_run)
        except asyncio.CancelledError:
            # tell how far it came, then let the interruption pass
            self._tell(make_report(run.id, crew.so_far(targets)))
            raise
        done = make_report(run.id, outcomes)
        self._tell(done)
        return done

    async def _open(self, target: Target, *, dry_run: bool) -> Place:
        return await self._site(target).place(target.vmid, dry_run=dry_run)

    def _site(self, target: Target) -> Site:
        host = target.host
        # an ad-hoc host may bear the same name as another with another port or login
        key = (host.ssh, host.port, host.jump, host.identity, host.known_hosts, host.sudo, host.pct)
        if key not in self._sites:
            self._sites[key] = Site(host, self._tunnels, self._ssh_config)
        return self._sites[key]

    def _tell(self, event: AnyEvent) -> None:
        """A listener can never hurt the work: what it raises is kept from the run."""
        try:
            self._emit(event)
        except Exception:
            if not self._listener_failed:
                log_fault("listener", traceback.format_exc())
            self._listener_failed = True


def _limit(timeout: float | str | None) -> float | None:
    """In seconds; None for no limit."""
    seconds = parse_duration(timeout) if isinstance(timeout, str) else timeout
    if seconds is not None and not seconds > 0:
        raise BadUsage(f"a timeout of {timeout} leaves no time", hint="leave it out, or give 30m")
    return None if seconds in (None, FOREVER) else seconds


def _stop_signal(name: str | None) -> str | None:
    if name is None:
        return None
    signal = parse_signal(name)
    if signal == "KILL":
        raise BadUsage(
            "--signal KILL: nothing can be saved on KILL, so it is no stop signal",
            hint="if that is what you want: --playbook now --force, or --ladder 'KILL:tree/30s'",
        )
    return signal
