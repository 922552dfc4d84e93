"""New files into the place of a job, and proved there, before anything of the job is touched.

Survey, send what differs, fill in what does not, prove. Whatever fails, nothing of it is left: in
the container, on the host. Knows neither which files are meant nor how they are swapped in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec import Struct

from fleetstop import events
from fleetstop.actions import pushing
from fleetstop.actions.interpreter import QUIET_S, ask, failed, last, lines
from fleetstop.actions.tarring import Read, length, named, packed, tar, unhurried
from fleetstop.actions.telling import Scope
from fleetstop.actions.underway import Underway
from fleetstop.core import redact
from fleetstop.core.code_lines import masked
from fleetstop.core.commands import Command
from fleetstop.core.releases.payload import File
from fleetstop.core.releases.survey import (
    Proof,
    Survey,
    There,
    amount,
    obstacle,
    unchanged,
)
from fleetstop.core.spelling import plain
from fleetstop.errors import CouldNotLook, DeployFailed, FleetstopError

CLEAN_S = 30.0
T = TypeVar("T")


class Wish(Struct, frozen=True):
    """Where files go: `dest` their directory, `base` ours below it (DEST/.fleetstop/JOB).

    `interpreter`: the job's own. `prove`: shell text that is to succeed, run in the directory of
    the staged files with FLEETSTOP_STAGE set to it and FLEETSTOP_PYTHON to the interpreter, as
    whom we enter (root, mostly). `prove_s`: how long it may take in all. `others`: runs whose
    stages lie there, left behind: under the container's lock nobody else is at work. `kept`: a
    directory there that has all the files by their `rel`, a release; then nothing is sent.
    """

    dest: str
    base: str
    interpreter: str
    prove: str | None = None
    prove_s: float = 300.0
    others: tuple[str, ...] = ()
    kept: str | None = None


class Placed(Struct, frozen=True):
    """One file as it lies in the stage; `there`: what was at its destination before."""

    file: File
    there: There
    staged: str
    same: bool


class Stage(Struct, frozen=True):
    """What was staged. `sent`: bytes of files that were carried over."""

    path: str
    files: tuple[Placed, ...]
    survey: Survey
    by: tuple[str, ...]
    sent: int


async def survey(scope: Scope, files: Sequence[File], wish: Wish) -> Survey:
    """What is there now; changes nothing. Raises DeployFailed where they cannot be put there."""
    question = {
        "ask": "survey",
        "dest": wish.dest,
        "files": [
            {
                "path": f"{wish.dest.rstrip('/')}/{each.rel}",
                "size": each.size,
                "sha256": each.sha256,
            }
            for each in files
        ],
    }
    size = sum(each.size for each in files)
    found = await ask(scope, wish.interpreter, question, Survey, size)
    if (why := obstacle(found, files)) is not None:
        raise failed(why.sentence, hint=why.hint)
    return found


async def stage(
    scope: Scope, files: Sequence[File], read: Read, wish: Wish, found: Survey | None = None
) -> Stage:
    """Brings them there and proves them. Raises DeployFailed, with nothing left behind. `found`:
    the survey, where it has just been made."""
    found = found or await survey(scope, files, wish)
    staging = _Staging(scope, tuple(files), read, wish, found)
    try:
        await staging.clear_others()
        return await staging.whole()
    except BaseException as exc:
        left = await staging.undo()
        told = _told(exc, left)
        if told is exc:
            raise
        raise told from exc


def _told(exc: BaseException, left: str) -> BaseException:
    """As a failed deploy where it is one, with what is left of it; all else as it is."""
    if isinstance(exc, CouldNotLook):
        exc = failed(exc.message, hint=exc.hint or "run the same command again")
    if isinstance(exc, DeployFailed) and left:
        return DeployFailed(f"{exc.message}. {left}", hint=exc.hint, evidence=exc.evidence)
    return exc


async def clear_others(scope: Scope, wish: Wish) -> None:
    """For whoever finds that there is nothing to stage."""
    await _Staging(scope, (), lambda _: iter(()), wish, None).clear_others()


async def unstage(scope: Scope, wish: Wish) -> str:
    """Removes what `stage` made, for whoever goes no further; empty, or what is left of it."""
    return await _Staging(scope, (), lambda _: iter(()), wish, None).undo()


class _Staging:
    """One stage of one run, from the survey on."""

    def __init__(
        self, scope: Scope, files: tuple[File, ...], read: Read, wish: Wish, found: Survey | None
    ) -> None:
        self._scope = scope
        self._read = read
        self._wish = wish
        self._run = scope.run.id
        self._path = f"{wish.base}/stage-{self._run}"
        self._into = f"{self._path}/files"
        self._files = files
        self._survey = found
        self._pushed = ""
        self._pushing = False
        pairs = zip(files, found.files if found else (), strict=True)
        self._placed = tuple(
            Placed(
                file, there, f"{self._into}/{file.rel}", bool(wish.kept) or unchanged(file, there)
            )
            for file, there in pairs
        )

    def _has(self, file: File, there: There) -> bool:
        """It need not be sent: its bytes are there already."""
        return self._wish.kept is not None or unchanged(file, there)

    async def clear_others(self) -> None:
        if self._wish.others:
            runs = ", ".join(map(plain, self._wish.others))
            if await self._do("unstage", self._wish.base, *self._wish.others) == 0:
                self._scope.teller.finding(f"removed what run {runs} had staged and left behind")
            else:
                self._scope.teller.finding(f"what run {runs} had staged could not be removed")

    async def whole(self) -> Stage:
        assert self._survey is not None
        since = self._scope.clock.now()
        await self._make()
        new = tuple(each.file for each in self._placed if not each.same)
        packed = await self._packed(new) if new else None
        if new and packed is None:
            await self._send(new)
        proof = await self._compare(new if packed is not None else (), packed)
        now = self._scope.clock.now()
        sent = sum(each.size for each in new)
        self._scope.teller.tell(
            events.Staged,
            files=len(self._files),
            size=sent,
            same=len(self._files) - len(new),
            seconds=round(now - since, 3),
        )
        by = await self._prove(proof)
        seconds = round(self._scope.clock.now() - now, 3)
        self._scope.teller.tell(events.Proved, by=by, seconds=seconds)
        return Stage(self._path, self._placed, self._survey, by, sent)

    async def undo(self) -> str:
        """Empty, or a sentence about what may be left; it takes a while at the most."""
        place, where = self._scope.place, plain(self._path)
        try:
            async with asyncio.timeout(CLEAN_S):
                hands = await place.hands()
                # what only looks is asked again over another connection: that one comes back first
                await hands.run(Command("clock"))
                words = (self._wish.base, self._run)
                done = await hands.run(Command("unstage", words, changes=True))
                swept = not self._pushing or await pushing.swept(place, self._scope.target)
        except (FleetstopError, TimeoutError) as exc:
            why = exc.message if isinstance(exc, FleetstopError) else "no answer in time"
            return f"{where} could not be removed ({why}); the next run does that"
        if done.status != 0:
            return f"{where} could not be removed whole (status {done.status})"
        return "" if swept else "what was pushed may still lie on the host; the next run removes it"

    async def _make(self) -> None:
        folders = {each.rel.rpartition("/")[0] for each in self._files} - {""}
        status = await self._do("stage", self._wish.base, self._run, *sorted(folders))
        if status != 0:
            why = {
                21: "a link stands in its way",
                40: f"{plain(self._wish.dest)} is gone",
                41: "it is there already",
            }.get(status, f"no directory could be made there (status {status})")
            raise failed(f"{plain(self._path)} could not be made: {why}")

    async def _send(self, new: tuple[File, ...]) -> None:
        scope, into = self._scope, self._into
        assert self._survey is not None
        underway = Underway(scope, length(new), len(new), len(self._files) - len(new))
        if self._survey.tar:
            words = ("tar", "-x", "-p", "-o", "-m", "-f", "-", "-C", into)
            stream = unhurried(tar(named(new), self._read))
            done = await scope.place.carry(words, stream, QUIET_S, underway.upto)
            what = "tar could not unpack it there"
        elif scope.target.vmid is not None:
            self._pushing = True
            done = await pushing.push(
                scope.place, scope.target, self._run, into, new, self._read, underway.upto
            )
            self._pushed = last(done.err)
            what = "there is no tar in the container, and pct push failed"
        else:
            raise failed("there is no tar on the host")
        if done.status != 0:
            # the reason comes first; what comes last is that there was one
            said = lines(done.err) or ("it said nothing",)
            told = f"{what} (status {done.status}): {said[0]}{await self._room()}"
            raise failed(told, evidence=said)
        underway.done()

    async def _room(self) -> str:
        """What is free there by now: tar says `Wrote only 512 of 10240 bytes` of a full disk."""
        question = {"ask": "survey", "dest": self._wish.dest, "files": []}
        try:
            free = (await self._ask(question, Survey, 0)).dest.free
        except FleetstopError:
            return ""  # what is told without it is the reason all the same
        return "" if free is None else f" ({amount(free)} are free there)"

    async def _packed(self, new: tuple[File, ...]) -> str | None:
        """What is short comes along with the question that proves it."""
        assert self._survey is not None
        if not self._survey.unpacks:
            return None
        return await asyncio.to_thread(packed, new, self._read)

    def _pairs(self) -> list[list[str | int]]:
        """What is there already: from where, as what, and its mode."""
        kept = self._wish.kept
        return [
            [
                f"{kept}/{each.file.rel}" if kept is not None else each.there.real,
                each.file.rel,
                each.file.mode,
            ]
            for each in self._placed
            if each.same
        ]

    async def _compare(self, sent: tuple[File, ...], packed: str | None) -> Proof:
        files = [
            {"rel": each.rel, "size": each.size, "sha256": each.sha256} for each in self._files
        ]
        size = sum(each.size for each in self._files)
        question: dict[str, Any] = {"ask": "prove", "stage": self._into, "files": files}
        if (pairs := self._pairs()) or sent:
            rows = [[each.rel, each.size, each.mode] for each in sent]
            question |= {"ask": "fill", "pairs": pairs, "sent": rows, "packed": packed}
        underway = Underway(self._scope, length(sent), len(sent), 0) if sent else None
        proof = await self._ask(question, Proof, 2 * size)
        if proof.unwritten is not None:
            rel, why = proof.unwritten
            raise failed(f"{plain(rel)} could not be written there: {why}{await self._room()}")
        if underway is not None:
            underway.done()
        if proof.wrong:
            rel, why = proof.wrong[0]
            told = f"what came is not what was sent: {plain(rel)} {why}"
            told += f" (and {len(proof.wrong) - 1} more)" if proof.wrong[1:] else ""
            told += f"; pct push said: {self._pushed}" if self._pushed else ""
            every = tuple(f"{plain(name)} {said}" for name, said in proof.wrong)
            raise failed(told, evidence=every)
        return proof

    async def _prove(self, proof: Proof) -> tuple[str, ...]:
        assert self._survey is not None
        name = f"{self._wish.interpreter} ({self._survey.python})"
        if proof.broken:
            every = tuple(redact.text(masked(each, "code")) for each in proof.broken)
            more = f" (and {len(every) - 1} more)" if every[1:] else ""
            told = f"{name} cannot compile {every[0]}{more}"
            raise failed(told, evidence=every)
        by = []
        if proof.compiled:
            by.append(f"compiled with {name}")
        if self._wish.prove is not None:
            await self._run_proof(self._wish.prove)
            by.append(f"ran {redact.text(self._wish.prove)}")
        return tuple(by)

    async def _run_proof(self, text: str) -> None:
        # an import must not leave pycs that would become part of the release
        begin = (
            'cd -- "$1" && FLEETSTOP_STAGE=$1 FLEETSTOP_PYTHON=$2 PYTHONDONTWRITEBYTECODE=1 '
            'exec sh -c "$3" 2>&1'
        )
        words = ("sh", "-c", begin, "fleetstop-prove", self._into, self._wish.interpreter, text)
        limit = self._wish.prove_s
        shown = redact.text(text)
        try:
            async with asyncio.timeout(limit):
                done = await self._scope.place.carry(words, b"", limit + QUIET_S)
        except TimeoutError as exc:
            told = f"`{shown}` was not done within {limit:g} s, and was ended"
            raise failed(told) from exc
        if done.status != 0:
            said = lines(done.out)
            told = f"`{shown}` ended with status {done.status}: {said[-1] if said else 'no words'}"
            raise failed(told, evidence=said)

    async def _do(self, verb: str, *words: str) -> int:
        hands = await self._scope.place.hands()
        return (await hands.run(Command(verb, words, deadline_s=QUIET_S, changes=True))).status

    async def _ask(self, question: dict[str, Any], kind: type[T], size: int) -> T:
        return await ask(self._scope, self._wish.interpreter, question, kind, size)
