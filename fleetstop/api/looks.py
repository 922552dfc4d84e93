"""What only looks, from Python: status, gpus, doctor, discover, wait, adopt, words for targets."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Unpack

from fleetstop.actions.doctor import Rounds
from fleetstop.actions.gpus import gpus
from fleetstop.actions.status import status
from fleetstop.actions.telling import Run
from fleetstop.actions.wait import Aim, What, wait
from fleetstop.api import given
from fleetstop.api.adopting import Adopted, adopted
from fleetstop.api.discovering import Discovered, discovered
from fleetstop.api.examining import examined, visits
from fleetstop.api.gpus import hosts_of
from fleetstop.api.machine import log_fault, operator
from fleetstop.api.past import failed_in
from fleetstop.api.runs import Runs
from fleetstop.core.address import Named, parse_address
from fleetstop.core.checkup.checks import Checkup
from fleetstop.core.inventory import Match, Target
from fleetstop.core.redact import typed
from fleetstop.core.report import Report
from fleetstop.core.selection import select
from fleetstop.errors import BadUsage, Refused


class Looks(Runs):
    """Nothing here sends a signal."""

    def select(
        self,
        words: Sequence[str],
        *,
        purpose: str = "stop",
        **which: Unpack[given.Selects],
    ) -> tuple[Target, ...]:
        """Names, globs, groups and addresses into targets; raises BadUsage, never means all."""
        failed = which.get("failed_in")
        try:
            return select(
                self.inventory,
                given.words("the target", words, example='"ct200", "ct201:train"'),
                tags=given.words("tags", which.get("tags", ()), example='tags=["gpu"]'),
                failed=failed_in(failed) if failed is not None else None,
                limit=given.words("limit", which.get("limit", ()), example='limit=["ct2*"]'),
                exclude=given.words("exclude", which.get("exclude", ()), example='exclude=["ct1"]'),
                all_jobs=which.get("all_jobs", False),
                adhoc_match=which.get("match"),
                purpose=purpose,  # type: ignore[arg-type]
            )
        except BadUsage as exc:
            if self._named is None:
                raise
            # a command that is pasted must find the same names
            named = f"`{typed(('ls',), self._named)}`"
            raise BadUsage(exc.message, hint=exc.hint.replace("`fleetstop ls`", named)) from exc

    async def status(
        self,
        *words: str,
        stacks: bool = False,
        **which: Unpack[given.Selects],
    ) -> Report:
        """`stacks`: where each trainer is in its Python code too, by py-spy."""
        targets = self.select(words, purpose="status", **which)
        action = partial(status, with_stacks=stacks)
        return await self._run("status", words, targets, action, True)

    async def gpus(self, *words: str) -> Report:
        """What is on each GPU of these hosts, or of all: whose process in which container. A
        container or job among the words stands for its host."""
        targets = self.select(words, purpose="status") if words else None
        hosts = hosts_of(self.inventory, targets)
        action = partial(gpus, inventory=self.inventory)
        return await self._run("gpus", words, hosts, action, True)

    async def doctor(self, *words: str, **which: Unpack[given.Selects]) -> Checkup:
        """Looks these places over, all of the inventory without a word. Nothing is changed, no
        signal sent, no record kept."""
        everything = (*self.inventory.hosts, *self.inventory.containers)
        named = words if words or which.get("failed_in") else everything
        targets = self.select(named, purpose="status", **which)
        rounds = Rounds(
            Run(id=secrets.token_hex(4), operator=operator(), origin="", inventory=self._named),
            self._clock,
            partial(self._open, dry_run=True, shares=False),
            lambda target: self._site(target).turn_of("doctor"),
            partial(log_fault, "doctor"),
        )
        return await examined(rounds, visits(self.inventory, targets), self._parallel)

    async def adopt(self, word: str, *, pid: int, name: str) -> Adopted:
        """How the job of this PID (as the container counts) would stand in the inventory, as
        `name` or PLACE:NAME. Nothing is written before `write()` of what is returned."""
        address = parse_address(word)
        targets = self.select((word,), purpose="status", match=Match(pid=pid))
        if len(targets) != 1 or (isinstance(address, Named) and address.job is not None):
            raise BadUsage(f"{word}: name one container or host; the job's name goes to --as")
        return await adopted(self._run, self.inventory, self._named, targets[0], pid, name)

    async def discover(self, *hosts: str, change: bool = False) -> Discovered:
        """What the Proxmox clusters of these hosts have, by their `api:`; of all that have one,
        where none is named. `change`: with what `write()` of it would add to the inventory."""
        return await discovered(self.inventory, self._named, hosts, change=change)

    async def wait(
        self,
        *words: str,
        until: What = "gone",
        timeout_s: float | None = None,
        **which: Unpack[given.Selects],
    ) -> Report:
        """Sends nothing, takes no lock. `timeout_s`: for all targets together; None: for ever."""
        try:
            targets = self.select(words, **which)
        except Refused as exc:
            return await self._refused(words, exc, "wait")
        last = None if timeout_s is None else self._clock.now() + timeout_s
        aim = Aim(what=until, until=last, limit_s=timeout_s)
        return await self._run("wait", words, targets, lambda s: wait(s, aim), True)
