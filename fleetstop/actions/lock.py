"""The lock on a place and the ledger of what was sent; one directory on the login host."""

from __future__ import annotations

from fleetstop.actions.telling import Run
from fleetstop.core.commands import Command
from fleetstop.core.family import Kin
from fleetstop.core.ledger import Ledger, RunFile, holder, parse_ledger, spent, undecided
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.rungs import Send
from fleetstop.errors import Refused, RemoteFailed
from fleetstop.ports import Clock, Shell

STAMP_S = 5.0
_TRIES = 20


class Lock:
    """Held by this run for a whole container (`vmid`) or the host itself."""

    def __init__(self, shell: Shell, run: Run, vmid: int | None, clock: Clock) -> None:
        self._shell = shell
        self._run = run
        self._where = "host" if vmid is None else str(vmid)
        self._scope = "host" if vmid is None else f"lxc:{vmid}"
        self._clock = clock
        self._stamped = clock.now()
        self._count = 0
        self.claimed = False

    async def read(self) -> Ledger:
        answer = await self._shell.run(Command("ledger", (self._where,)))
        found = parse_ledger(answer.data) if answer.status == 0 else None
        if found is None:
            raise RemoteFailed(
                f"the lock directory /run/lock/fleetstop.{self._where} could not be read "
                f"(status {answer.status}); nothing is sent without it",
                hint="it must be a plain directory, not a link; look at it on the host",
            )
        return found

    async def claim(self) -> Ledger:
        """Takes the lock or raises Refused; nobody is ever waited for longer than 2 s."""
        header = f"{self._run.operator}@{self._run.origin}".replace(" ", "_")
        words = (self._where, self._run.id, header)
        answer = await self._shell.run(Command("claim", words, changes=True))
        if answer.status != 0:
            raise RemoteFailed(
                f"the lock /run/lock/fleetstop.{self._where} could not be written "
                f"(status {answer.status}); nothing is sent without it",
                hint="it must be a plain directory, not a link; is the disk full?",
            )
        self.claimed = True
        ledger = await self.read()
        for _ in range(_TRIES):
            if not undecided(ledger, self._run.id):
                break
            await self._clock.sleep(0.1)
            ledger = await self.read()
        # one that stalls in its claim may turn out to have been the earlier one
        first = None if undecided(ledger, self._run.id) else holder(ledger)
        if first is None or first.run != self._run.id:
            await self.release(None)
            raise self.locked(first, ledger)
        return ledger

    def locked(self, by: RunFile | None, ledger: Ledger) -> Refused:
        if by is None:
            return Refused("the lock could not be had; nothing was sent", hint="try again")
        age = max(0.0, ledger.uptime - (by.since or by.stamp))
        return Refused(
            f"{by.header or 'somebody'} is working on it since {age:.0f} s ago (run {by.run})",
            hint="wait for that run; its lock ends 30 s after its last sign of life",
        )

    async def stamp(self) -> None:
        """A sign of life; cheap to call often."""
        if self._clock.now() - self._stamped >= STAMP_S:
            self._stamped = self._clock.now()
            answer = await self._shell.run(
                Command("stamp", (self._where, self._run.id), changes=True)
            )
            if answer.status != 0:
                raise RemoteFailed("the lock could not be renewed; nothing more is sent")

    async def send(self, send: Send, tree: ProcessTree) -> str | None:
        """The ledger line and the signal, in one remote function; None when it is out.

        Otherwise what spoke against it: somebody ended, became another, or its masks changed.
        """
        await self._still_ours()
        self._count += 1
        words = [self._where, self._run.id, str(self._count), send.signal, send.landing]
        words += ["cont" if send.resume else "-", self._scope]
        for kin in send.recipients:
            words += _words(kin, tree, checked=send.signal != "KILL")
        answer = await self._shell.run(Command("send", tuple(words), changes=True))
        text = answer.data.decode("ascii", "replace").strip()
        if answer.status in (10, 11, 12):
            return f"changed just before the signal: {text}"
        if answer.status != 0:
            raise RemoteFailed(
                f"{send.signal} was not sent: the ledger could not be written "
                f"(status {answer.status})"
            )
        return None

    async def _still_ours(self) -> None:
        """After a pause of more than 30 s, a laptop asleep say, another run may hold it."""
        ledger = await self.read()
        first = holder(ledger)
        if first is None or first.run == self._run.id:
            return
        if self._count == 0:
            raise self.locked(first, ledger)
        raise RemoteFailed(f"run {first.run} has taken the lock over; nothing more is sent")

    async def release(self, alive: frozenset[ProcessId] | None) -> None:
        """Gives the lock back. `alive`: all that live in the place, None where unknown.

        A file stays while somebody it signalled lives: that is the memory of who has heard
        a signal. Files of earlier runs go by the same rule.
        """
        if not self.claimed:
            return
        self.claimed = False
        here = (self._where, self._run.id)
        await self._shell.run(Command("done", here, changes=True))
        ledger = await self.read()
        mine = next((each for each in ledger.runs if each.run == self._run.id), None)
        old = [] if alive is None else list(spent(ledger, alive, self._run.id))
        asked = {each for sent in (mine.sends if mine else ()) for each in sent.ids}
        if not asked or (alive is not None and not asked & alive):
            old.append(self._run.id)
        if old:
            await self._shell.run(Command("forget", (self._where, *old), changes=True))


def _words(kin: Kin, tree: ProcessTree, *, checked: bool) -> list[str]:
    process = tree.get(kin.id)
    words = [str(kin.id.pid), str(kin.id.start)]
    if not checked or process is None or process.masks is None:
        return [*words, "-", "-"]
    return [*words, f"{process.masks.ignored:016x}", f"{process.masks.caught:016x}"]
