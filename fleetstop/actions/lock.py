"""The lock on a place and the ledger of what was sent; one directory on the login host."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from fleetstop.actions.refusals import no_lock
from fleetstop.actions.telling import Run
from fleetstop.core.climbing.rungs import Send
from fleetstop.core.commands import Command
from fleetstop.core.kin.family import Kin
from fleetstop.core.ledger import (
    STALE_S,
    Heard,
    Ledger,
    RunFile,
    broke_at,
    broken_by,
    file_of,
    has_line,
    heard_before,
    holder,
    keeps_broken,
    last_line,
    parse_ledger,
    spent,
    undecided,
)
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.errors import (
    ConnectionLost,
    CouldNotLook,
    FrameTimedOut,
    LockTaken,
    PrivilegeMissing,
    Refused,
    RemoteFailed,
)
from fleetstop.ports import Clock, Shell

STAMP_S = 5.0
_TRIES = 20
# below the frame's own deadline, and far below the 30 s after which another may hold the lock
IN_TIME_S = 8
# an older claim is not renewed but made anew: another run may have the lock by now
_RENEWED_S = 25


class Answered(Struct, frozen=True):
    """What became of a send. All unset: it is out. `refused`: somebody ended, became another,
    or its masks changed. `heard`: another run has signalled meanwhile. `doubt`: it is out, but
    perhaps not to all."""

    refused: str | None = None
    heard: dict[ProcessId, Heard] = {}
    doubt: str | None = None

    @property
    def out(self) -> bool:
        return self.refused is None and not self.heard


class Lock:
    """Held by this run for a whole container (`vmid`) or the host itself."""

    def __init__(self, shell: Shell, run: Run, vmid: int | None, clock: Clock) -> None:
        self._shell = shell
        self._run = run
        self._where = "host" if vmid is None else str(vmid)
        self._scope = "host" if vmid is None else f"lxc:{vmid}"
        self._clock = clock
        self._stamped = clock.now()
        self._next = 1
        self._own: set[tuple[str, int]] = set()
        self._renew_by: int | None = None
        self.claimed = False
        self.unsure = False
        self.dead: set[str] = set()  # runs whose lock was taken over as their process was gone
        self.alive: frozenset[ProcessId] | None = None
        """Who lived in the place when it was last looked at by who has borrowed the lock."""
        self.before: Callable[[], Awaitable[None]] | None = None
        """Done before anything goes out; what it raises keeps it in. Also where the job is found to
        have heard an earlier run."""

    async def read(self) -> Ledger:
        answer = await self._shell.run(Command("ledger", (self._where,)))
        found = parse_ledger(answer.data) if answer.status == 0 else None
        if found is None:
            raise no_lock(self._where, "read", answer.status)
        return found

    async def claimable(self) -> None:
        """Raises what `claim` would, as far as looking tells, for who only plans."""
        answer = await self._shell.run(Command("claimable", (self._where, self._run.id)))
        if answer.status != 0:
            raise no_lock(self._where, "written", answer.status)

    async def claim(self, broken: RunFile | None = None) -> Ledger:
        """Takes the lock or raises Refused; nobody is ever waited for longer than 2 s. `broken`:
        whose claim does not count any more."""
        header = f"{self._run.operator}@{self._run.origin}".replace(" ", "_").replace("|", "_")
        header += f"|{self._run.client}" if self._run.client else ""
        words = [self._where, self._run.id, header, *([broken.run] if broken else [])]
        # before its answer: an interruption must give back what may have been written
        self.claimed = True
        answer = await self._shell.run(Command("claim", tuple(words), changes=True))
        if answer.status != 0:
            self.claimed = False
            raise no_lock(self._where, "written", answer.status)
        self._stamped = self._clock.now()
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
        self._next = max(self._next, last_line(ledger, self._run.id) + 1)
        self._renew_by = int(first.stamp) + _RENEWED_S
        return ledger

    def owner_is_dead(self, by: RunFile) -> bool:
        """For certain; it sends nothing more but what is on its way."""
        return bool(by.client and self._run.dead is not None and self._run.dead(by.client))

    async def break_in(self, other: RunFile) -> Ledger:
        """Takes the lock although another live run holds it.

        That run looks at the ledger before each send. What it was about to send when it had
        just looked is waited for: it is in the ledger then, and counts as heard.
        """
        ledger = await self.claim(other)
        while ledger.uptime <= broke_at(ledger, self._run.id) + IN_TIME_S + 1:
            await self._clock.sleep(1.0)
            await self.stamp()
            ledger = await self.read()
        return ledger

    def locked(self, by: RunFile | None, ledger: Ledger) -> Refused:
        if by is None:
            return Refused("the lock could not be had; nothing was sent", hint="try again")
        age = max(0.0, ledger.uptime - (by.since or by.stamp))
        left = max(1, math.ceil(STALE_S - (ledger.uptime - by.stamp)))
        return Refused(
            f"{by.header or 'somebody'} is working on it since {age:.0f} s ago (run {by.run})",
            hint=f"wait for that run; should it be dead, its lock is free in at most {left} s. "
            "To take it over: --break-lock",
        )

    async def mine(self) -> None:
        """This run holds it, still or again; raises Refused, or LockTaken if it has sent."""
        await self._kept(await self.read())

    async def arm(self) -> None:
        if self.before is not None:
            await self.before()

    async def stamp(self) -> None:
        """A sign of life; cheap to call often. One that comes late, after a sleep or a lost
        connection, is none: then the lock is claimed anew, or another run has it."""
        if self._clock.now() - self._stamped < STAMP_S:
            return
        self._stamped = self._clock.now()
        words = [self._where, self._run.id]
        words += [] if self._renew_by is None else [str(self._renew_by)]
        answer = await self._shell.run(Command("stamp", tuple(words), changes=True))
        if answer.status == 13:
            await self._kept(await self.read())
        elif answer.status != 0:
            raise RemoteFailed("the lock could not be renewed; nothing more is sent")
        elif (at := answer.data.strip().partition(b".")[0]).isdigit():
            self._renew_by = int(at) + _RENEWED_S

    async def send(
        self,
        send: Send,
        tree: ProcessTree,
        known: Mapping[ProcessId, Heard],
        go: Callable[[], bool] = lambda: True,
    ) -> Answered:
        """The ledger line and the signal, in one remote function, after asking the ledger once
        more: `known` is what its recipients are known to have heard before this ladder. `go`
        is asked last: False takes it back."""
        ledger, late = await self._heard_meanwhile(send, known)
        if late:
            return Answered(heard=late)
        await self.arm()
        if not go():
            return Answered(refused="taken back")
        number = self._next
        # a host shell that is stalled must not send it when we have long given up
        latest = int(ledger.uptime) + IN_TIME_S
        words = [self._where, self._run.id, f"{number}@{latest}", send.signal, send.landing]
        words += ["cont" if send.resume else "-", self._scope]
        for kin in send.recipients:
            words += _words(kin, tree, checked=send.signal != "KILL" and send.does == "signal")
        for kin in send.passed_on:
            # should their launcher be gone by then, a later run must know what they have heard
            *front, caught = _words(kin, tree, checked=True)
            words += [*front, f"+{caught}"]
        self._own |= {(self._run.id, number)}
        self._next += 1
        verb = "send" if send.does == "signal" else "note"
        self.unsure = True
        try:
            answer = await self._shell.run(Command(verb, tuple(words), changes=True))
        except (ConnectionLost, FrameTimedOut) as lost:
            return await self._by_its_line(number, latest, lost)
        self.unsure = False
        text = answer.data.decode("ascii", "replace").strip()
        if answer.status in (10, 11, 12):
            return Answered(refused=f"changed just before the signal: {text}")
        if answer.status == 14:
            raise PrivilegeMissing(
                f"{send.signal} was not sent: this login may not signal {_names(send)}",
                hint="log in as root or as its owner, or allow `sudo -n sh`",
            )
        if answer.status == 13:
            raise RemoteFailed(f"{send.signal} was not sent: the host took too long; look again")
        if answer.status != 0 and has_line(await self.read(), self._run.id, number):
            # without root line and signal are two steps, and this was the answer to the second
            return Answered(doubt=f"it ended with status {answer.status}; the ledger has its line")
        if answer.status != 0:
            raise RemoteFailed(
                f"{send.signal} was not sent: the ledger could not be written "
                f"(status {answer.status})"
            )
        if text.split()[-1:] != ["0"]:
            return Answered(doubt=f"kill could not reach all of {_names(send)}")
        return Answered()

    async def _by_its_line(self, number: int, latest: int, lost: CouldNotLook) -> Answered:
        """The answer never came: a line in the ledger counts as sent. Without one it was not
        sent, once it is too late for any shell of ours to write it: then the next look decides.
        """
        tell_by = self._clock.now() + 3 * IN_TIME_S
        try:
            while True:
                ledger = await self.read()
                if has_line(ledger, self._run.id, number):
                    self.unsure = False
                    return Answered(doubt="its answer was lost; the ledger has its line")
                if ledger.uptime > latest + 1:
                    break
                if self._clock.now() > tell_by:
                    raise lost
                await self._clock.sleep(0.5)
        except CouldNotLook as exc:
            raise lost from exc
        self.unsure = False
        self._own.discard((self._run.id, number))
        return Answered(refused="the connection was lost just before it")

    async def take_back(self) -> None:
        """The line of an ask that, for certain, nobody was asked. Where it cannot be taken back it
        stands, and counts as asked for every other run."""
        words = (self._where, self._run.id, str(self._next - 1))
        await self._shell.run(Command("unsent", words, changes=True))

    async def _heard_meanwhile(
        self, send: Send, known: Mapping[ProcessId, Heard]
    ) -> tuple[Ledger, dict[ProcessId, Heard]]:
        """After a pause of more than 30 s, a laptop asleep say, another run may have held the
        lock, and may have signalled. Then the lock is claimed anew, or refused."""
        ledger = await self._kept(await self.read())
        ids = frozenset(kin.id for kin in (*send.recipients, *send.passed_on))
        heard = heard_before(ledger, ids, frozenset(self._own))
        # who had heard one before may have been sent another since
        late = {e: by for e, by in heard.items() if e not in known or by.times > known[e].times}
        return ledger, late

    async def _kept(self, ledger: Ledger) -> Ledger:
        """This run holds the lock, still or again; else Refused, or LockTaken if it has sent."""
        first = holder(ledger)
        if first is not None and first.run == self._run.id:
            return ledger
        mine = file_of(ledger, self._run.id)
        breaker = broken_by(ledger, mine) if mine is not None else None
        other = breaker or first
        if other is not None and self._own:
            raise LockTaken(
                f"run {other.run} has taken the lock over; nothing more is sent",
                hint=f"it is up to {other.header or 'that run'} now",
            )
        if breaker is not None:
            raise Refused(
                f"run {breaker.run} ({breaker.header or 'somebody'}) has taken the lock over",
                hint="it was told to, with --break-lock",
            )
        try:
            return await self.claim()
        except Refused as exc:
            if self._own:
                raise LockTaken(f"{exc.message}; nothing more is sent") from exc
            raise

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
        mine = file_of(ledger, self._run.id)
        old = [] if alive is None else list(spent(ledger, alive, self._run.id))
        asked = {each for sent in (mine.sends if mine else ()) for each in sent.ids}
        memory = alive is None or bool(asked & alive)
        if not (asked and memory) and not (mine and keeps_broken(ledger, mine)):
            old.append(self._run.id)
        if old:
            await self._shell.run(Command("forget", (self._where, *old), changes=True))


def held(by: RunFile, ledger: Ledger) -> str:
    """Whose lock it is: operator, from where, which run, since when."""
    age = max(0.0, ledger.uptime - (by.since or by.stamp))
    return f"{by.header or 'somebody'} (run {by.run}, since {age:.0f} s ago)"


def _names(send: Send) -> str:
    return ", ".join(str(kin.pid) for kin in send.recipients)


def _words(kin: Kin, tree: ProcessTree, *, checked: bool) -> list[str]:
    process = tree.get(kin.id)
    words = [str(kin.id.pid), str(kin.id.start)]
    if not checked or process is None or process.masks is None:
        return [*words, "-", "-"]
    return [*words, f"{process.masks.ignored:016x}", f"{process.masks.caught:016x}"]
