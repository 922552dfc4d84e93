"""The fleet from Python: the one place where files, SSH and actions are put together.

    async with Fleet.load("inventory/") as fleet:
        report = await fleet.stop("ct200", graceful=True)

It never prints, never exits, never asks.
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
from fleetstop.actions.fleet import Action, Allowed, Crew, anything
from fleetstop.actions.status import status
from fleetstop.actions.stop import Wish, stop
from fleetstop.actions.telling import Run, Scope
from fleetstop.actions.wait import Aim, What, wait
from fleetstop.api.machine import SystemClock, log_fault, operator
from fleetstop.api.past import Records, records_directory
from fleetstop.core.inventory import Inventory, Match, Target
from fleetstop.core.playbook import Playbook, ladder_playbook, parse_signal
from fleetstop.core.report import Outcome, Report
from fleetstop.core.report import report as make_report
from fleetstop.core.rungs import Consent
from fleetstop.core.selection import select
from fleetstop.errors import BadUsage, Refused
from fleetstop.events import AnyEvent, Emit
from fleetstop.ports import Place
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
        history: Path | None = None,
    ) -> None:
        """`history`: the directory where each run leaves its record; None: it leaves none."""
        self.inventory = inventory
        self._named = named
        self._emit = emit
        self._ssh_config = ssh_config
        self._parallel = parallel
        self._clock = SystemClock()
        self._sites: dict[tuple[object, ...], Site] = {}
        self._listener_failed = False
        self._tunnels = Tunnels()
        self._records = Records(history)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        emit: Emit = _nobody,
        ssh_config: Path | None = None,
        parallel: int = 20,
        record: bool = True,
    ) -> Fleet:
        """Reads the inventory at `path`, or where the README says it is looked for. `record`:
        each run leaves its record in the user's state directory.

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
            history=history,
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
        self._records.close()

    @property
    def unrecorded(self) -> str | None:
        """Why a run left no whole record; None while all is well."""
        return self._records.problem

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
        dry_run: bool = False,
        playbook: str | None = None,
        ladder: str | None = None,
        signal: str | None = None,
        match: Match | None = None,
        limit: Sequence[str] = (),
        exclude: Sequence[str] = (),
        all_jobs: bool = False,
    ) -> Report:
        """Stops each target by its playbook. `force` consents to what may lose work,
        `graceful` refuses it; without either such rungs are skipped."""
        if graceful and force:
            raise BadUsage(
                "--graceful and --force contradict each other",
                hint="--graceful never loses work; --force agrees to it. Choose one",
            )
        try:
            targets = self.select(
                words, match=match, limit=limit, exclude=exclude, all_jobs=all_jobs
            )
        except Refused as exc:
            return self._refused(words, exc)
        consent: Consent = "given" if force else "refused" if graceful else "absent"
        named = _stop_signal(signal)
        wishes = {
            each.name: Wish(
                playbook=self._playbook_for(each, playbook, ladder),
                consent=consent,
                graceful=graceful,
                signal=named,
                dry_run=dry_run,
            )
            for each in targets
        }

        async def action(scope: Scope) -> Outcome:
            return await stop(scope, wishes[scope.target.name])

        return await self._run(
            "stop", words, targets, action, dry_run=dry_run, allowed=refusals.protected
        )

    def _refused(self, words: Sequence[str], exc: Refused, command: str = "stop") -> Report:
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
        tell = self._records.telling(run, self._tell)
        tell(
            events.Started(
                at=at,
                target=None,
                run=run,
                command=command,
                targets=(name,),
                asked=tuple(words),
                inventory=self._named,
            )
        )
        tell(events.TargetFinished(at=at, target=name, outcome=outcome))
        tell(done)
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
        stacks: bool = False,
    ) -> Report:
        """`stacks`: where each trainer is in its Python code too, by py-spy."""
        targets = self.select(words, purpose="status", match=match, limit=limit, exclude=exclude)
        action = partial(status, with_stacks=stacks)
        return await self._run("status", words, targets, action, dry_run=True)

    async def wait(
        self,
        *words: str,
        until: What = "gone",
        timeout_s: float | None = None,
        match: Match | None = None,
        limit: Sequence[str] = (),
        exclude: Sequence[str] = (),
        all_jobs: bool = False,
    ) -> Report:
        """Sends nothing, takes no lock. `timeout_s`: for all targets together; None: for ever."""
        try:
            targets = self.select(
                words, match=match, limit=limit, exclude=exclude, all_jobs=all_jobs
            )
        except Refused as exc:
            return self._refused(words, exc, "wait")
        last = None if timeout_s is None else self._clock.now() + timeout_s
        aim = Aim(what=until, until=last, limit_s=timeout_s)
        return await self._run("wait", words, targets, lambda s: wait(s, aim), dry_run=True)

    async def _run(
        self,
        command: str,
        asked: Sequence[str],
        targets: Sequence[Target],
        action: Action,
        *,
        dry_run: bool,
        allowed: Allowed = anything,
    ) -> Report:
        run = Run(id=secrets.token_hex(4), operator=operator(), origin=socket.gethostname())
        tell = self._records.telling(run.id, self._tell)
        tell(
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
            tell,
            partial(self._open, dry_run=dry_run),
            lambda target: self._site(target).turn_of(command),
            partial(log_fault, run.id),
            self._parallel,
        )
        try:
            outcomes = await crew.run_all(targets, action, allowed, exclusive=not dry_run)
        except asyncio.CancelledError:
            # tell how far it came, then let the interruption pass
            tell(make_report(run.id, crew.so_far(targets)))
            raise
        done = make_report(run.id, outcomes)
        tell(done)
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
