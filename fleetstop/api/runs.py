"""How a run is made: its events, its targets all at once, its report, its record."""

from __future__ import annotations

import asyncio
import secrets
import socket
import traceback
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from fleetstop import events
from fleetstop.actions.asking import Desk
from fleetstop.actions.fleet import Action, Allowed, Crew, Rolling, anything
from fleetstop.actions.telling import Run, Scope, Teller
from fleetstop.api import oneself
from fleetstop.api.machine import SystemClock, log_fault, operator
from fleetstop.api.past import Records
from fleetstop.core.inventory import Inventory, Target
from fleetstop.core.report import Outcome, Report, Result
from fleetstop.core.report import report as make_report
from fleetstop.errors import CouldNotLook, DeployFailed, HostUnreachable, Refused
from fleetstop.events import AnyEvent, Emit
from fleetstop.ports import Choose, Confirm, Place
from fleetstop.remote.site import Site
from fleetstop.remote.ssh import Tunnels

T = TypeVar("T")


def nobody(event: AnyEvent) -> None:
    """Hears everything and says nothing."""


class Runs:
    """An inventory with its connections, and how one action is run on some of it."""

    def __init__(
        self,
        inventory: Inventory,
        *,
        emit: Emit = nobody,
        ssh_config: Path | None = None,
        parallel: int = 20,
        named: str | None = None,
        confirm: Confirm | None = None,
        choose: Choose | None = None,
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
        self._desk = Desk(confirm, choose)
        self._records = Records(history)

    async def __aenter__(self) -> Self:
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
        await self._records.close()

    @property
    def unrecorded(self) -> str | None:
        """Why a run left no whole record; None while all is well."""
        return self._records.problem

    async def _refused(
        self,
        words: Sequence[str],
        exc: Refused | DeployFailed | CouldNotLook,
        command: str = "stop",
        more: tuple[str, ...] | None = (),
    ) -> Report:
        """Several jobs where one was meant, or nothing that could be sent: nothing was even
        connected to."""
        result: Result = "refused" if isinstance(exc, Refused) else "deploy_failed"
        if isinstance(exc, CouldNotLook):
            result = "unreachable"
        outcome = Outcome(
            target=" ".join(words),
            host=None,
            vmid=None,
            job=None,
            result=result,
            verdict="unknown" if result == "unreachable" else None,
            reason=exc.message,
            evidence=getattr(exc, "evidence", ()),
            hint=exc.hint or None,
        )
        return await self._told(words, outcome, command, more)

    async def _told(
        self,
        words: Sequence[str],
        outcome: Outcome,
        command: str,
        more: tuple[str, ...] | None = (),
    ) -> Report:
        """A run of which all is known before it begins."""
        run, at = secrets.token_hex(4), self._clock.wall()
        done = make_report(run, [outcome])
        tell = self._records.telling(run, self._tell)
        tell(
            events.Started(
                at=at,
                target=None,
                run=run,
                command=command,
                targets=(outcome.target,),
                asked=tuple(words),
                inventory=self._named,
                more=more,
            )
        )
        tell(events.TargetFinished(at=at, target=outcome.target, outcome=outcome))
        tell(done)
        await self._records.settle()
        return done

    async def _run(
        self,
        command: str,
        asked: Sequence[str],
        targets: Sequence[Target],
        action: Action,
        dry_run: bool,
        allowed: Allowed = anything,
        limit_s: float | None = None,
        more: tuple[str, ...] | None = (),
        rolling: Rolling | None = None,
    ) -> Report:
        """`more`: as events.Started tells it."""
        run = Run(
            id=secrets.token_hex(4),
            operator=operator(),
            origin=socket.gethostname(),
            inventory=self._named,
            client=oneself.here(),
            dead=oneself.dead,
        )
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
                more=more,
            )
        )
        crew = Crew(
            run,
            self._clock,
            tell,
            partial(self._open, dry_run=dry_run, shares=command == "status"),
            lambda target: self._site(target).turn_of(command),
            partial(log_fault, run.id),
            self._parallel,
            limit_s,
            rolling,
        )
        try:
            outcomes = await crew.run_all(targets, action, allowed, exclusive=not dry_run)
        except asyncio.CancelledError:
            # tell how far it came, then let the interruption pass
            tell(make_report(run.id, crew.so_far(targets)))
            raise
        done = make_report(run.id, outcomes)
        tell(done)
        await self._records.settle()
        return done

    async def _quietly(
        self, target: Target, ask: Callable[[Scope], Awaitable[T]], limit_s: float | None = None
    ) -> T:
        """One look that is no run: nothing is told or recorded of it. What it raises is raised."""
        run = Run(id=secrets.token_hex(4), operator=operator(), origin=socket.gethostname())
        try:
            async with asyncio.timeout(limit_s):
                place = await self._open(target, dry_run=True, shares=False)
                try:
                    teller = Teller(target.name, nobody, self._clock)
                    log = partial(log_fault, run.id)
                    return await ask(Scope(run, target, place, self._clock, teller, log))
                finally:
                    await place.close()
        except TimeoutError as exc:
            raise HostUnreachable(f"{target.host.name}: no look within the --timeout") from exc

    async def _open(self, target: Target, *, dry_run: bool, shares: bool) -> Place:
        return await self._site(target).place(target.vmid, dry_run=dry_run, shares=shares)

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
