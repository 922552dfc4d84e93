"""The asks that are no signals: a command, a stop file, keys; done in the container."""

from __future__ import annotations

import re
import shlex

import msgspec

from fleetstop import events
from fleetstop.actions import reading
from fleetstop.actions.lock import IN_TIME_S, Answered
from fleetstop.actions.telling import Scope
from fleetstop.core.climbing.rungs import Send
from fleetstop.core.commands import Command
from fleetstop.core.ladder import Ladder
from fleetstop.core.playbook import FOREVER
from fleetstop.core.process import ProcessTree
from fleetstop.core.redact import text as harmless
from fleetstop.errors import ConnectionLost, CouldNotLook, FrameTimedOut, RemoteFailed
from fleetstop.ports import Shell

_ASSIGNS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SHELLS_OWN = re.compile(r"[^A-Za-z0-9_./+@%:,-]")
_LONGEST_S = 7 * 86400.0
_NO_PROGRAM = {127: "is no command there", 126: "is there and cannot be run"}
_LATE, _STILL_RUNS, _NO_PANE, _NO_TMUX = 13, 47, 46, 127


def first_word(text: str) -> str | None:
    """The program that a line of shell begins with; None where that takes a shell to tell."""
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    named = (word for word in words if not _ASSIGNS.match(word))
    first = next(named, None)
    return first if first and not _SHELLS_OWN.search(first) else None


class Asks:
    """Of one climb. A command runs beside the looks, which `poll` it. What failed of it goes to
    the climb's `doubts`."""

    def __init__(self, scope: Scope, doubts: list[str]) -> None:
        self._scope = scope
        self._running: tuple[str, Send] | None = None
        self._doubts = doubts
        self._panes: tuple[str, ...] = ()
        self._latest = 0

    async def ready(self, send: Send, tree: ProcessTree) -> None:
        """What an ask needs, looked at before its line is written: once that stands there, the
        trainer counts as asked. Raises RemoteFailed where it cannot be asked this way."""
        shell = await self._scope.place.inside()
        self._panes = await self._panes_of(shell, send, tree) if send.does == "keys" else ()
        if send.does == "touch":
            answer = await shell.run(Command("touchable", (send.argument,)))
            if answer.status == reading.NOT_TOUCHABLE:
                where = harmless(send.argument, 80)
                raise RemoteFailed(f"{where} cannot be made there: no such directory, or read-only")
        if send.does == "run" and (program := first_word(send.argument)) is not None:
            answer = await shell.run(Command("runnable", (program,)))
            if answer.status in _NO_PROGRAM:
                raise RemoteFailed(f"{harmless(program, 80)} {_NO_PROGRAM[answer.status]}")
        self._latest = await self._clock(shell) + IN_TIME_S

    async def _clock(self, shell: Shell) -> int:
        answer = await shell.run(Command("clock"))
        found = answer.data.removeprefix(b"uptime:").partition(b".")[0]
        if answer.status != 0 or not found.isdigit():
            raise RemoteFailed("the container's clock could not be read")
        return int(found)

    async def _panes_of(self, shell: Shell, send: Send, tree: ProcessTree) -> tuple[str, ...]:
        """The panes below whose first process the trainers are: no neighbour's."""
        job = self._scope.target.job
        session = job.match.tmux if job is not None else None
        if session is None:
            raise RemoteFailed("the job is not found through a tmux session (match: tmux)")
        answer = await shell.run(Command("panes", (session,)))
        if answer.status == _NO_TMUX:
            raise RemoteFailed("there is no tmux in the container")
        above = {
            process.pid
            for kin in send.recipients
            for process in (*tree.above(kin.id.pid), tree.get(kin.id))
            if process is not None
        }
        found = tuple(
            word
            for word in answer.data.decode("ascii", "replace").split()
            if word.isdigit() and int(word) in above
        )
        if not found:
            raise RemoteFailed(f"no pane of the tmux session {session} holds the job")
        return found

    async def do(self, send: Send) -> Answered:
        """After its line was written. `refused`: for certain it was not asked, and the next look
        decides anew; `doubt`: what went wrong, as a sentence."""
        try:
            shell = await self._scope.place.inside()
        except CouldNotLook as exc:
            return Answered(refused=exc.message)
        words = (str(self._latest), send.does, *self._words(send))
        try:
            answer = await shell.run(Command("before", words, changes=True))
        except (ConnectionLost, FrameTimedOut):
            # its line stands, so it counts as asked; asked again it would be a second time
            return Answered(doubt="the connection was lost just then")
        if answer.status == _LATE:
            return Answered(refused="the container took too long")
        if answer.status == 0:
            if send.does == "run":
                self._running = answer.data.decode().strip(), send
            return Answered()
        what = harmless(send.argument, 80)
        if answer.status == _NO_PANE:
            return Answered(doubt=f"{what} was not typed: the pane has gone")
        return Answered(doubt=f"{send.does} {what} failed (status {answer.status})")

    def _words(self, send: Send) -> tuple[str, ...]:
        job = self._scope.target.job
        match send.does:
            case "touch":
                return (send.argument,)
            case "keys":
                session = (job.match.tmux if job is not None else None) or ""
                return (session, ",".join(self._panes), *send.argument.split())
            case _:
                seconds = _LONGEST_S if send.wait_s == FOREVER else min(send.wait_s, _LONGEST_S)
                return (str(int(seconds * 1000)), send.argument)

    async def poll(self, ladder: Ladder) -> Ladder:
        """Tells how the command ended, if it has; the ladder remembers one that failed."""
        if self._running is None:
            return ladder
        place, send = self._running
        try:
            shell = await self._scope.place.inside()
            answer = await shell.run(Command("ran", (place,), changes=True))
        except CouldNotLook:
            return self._ended(ladder, send, "unseen", "")
        if answer.status == _STILL_RUNS:
            return ladder
        head, _, said = answer.data.decode("utf-8", "backslashreplace").partition("\n")
        lines = [line for line in said.splitlines() if line.strip()]
        how = head.strip() if answer.status == 0 else "unseen"
        return self._ended(ladder, send, how or "unseen", harmless(lines[-1], 160) if lines else "")

    def _ended(self, ladder: Ladder, send: Send, how: str, line: str) -> Ladder:
        self._running = None
        self._scope.teller.tell(events.CommandEnded, how=how, line=line)
        if how == "0":
            return ladder
        if how.isdigit():
            said = f": {line}" if line else ""
            text = f"`{harmless(send.argument, 80)}` failed with status {how}{said}"
            self._doubts.append(self._scope.teller.finding(text))
        return msgspec.structs.replace(ladder, vain=ladder.vain | {send.rung})
