"""One run of an action against a fake host, with everything that was told of it."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from fleetstop.actions.asking import Desk
from fleetstop.actions.attempt import Wish
from fleetstop.actions.lock import Lock
from fleetstop.actions.stop import stop
from fleetstop.actions.telling import Run, Scope, Teller
from fleetstop.core.climbing.consent import Consent, Terms
from fleetstop.core.climbing.rungs import Send
from fleetstop.core.commands import Command
from fleetstop.core.inventory import Host, Job, Match, Target
from fleetstop.core.kin.family import Kin
from fleetstop.core.playbook import Playbook, Verify, parse_ladder
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.procfs import parse_look
from fleetstop.core.report import Outcome
from fleetstop.events import AnyEvent, Event
from fleetstop.ports import Place
from tests.fakes.fake_host import FakeHost, Proc, WorldPlace

E = TypeVar("E", bound=Event)
JOB = Job(name="train", match=Match(script="train.py"), stop_signal="INT", checkpoints="/ck")
HOST = Host(name="pve1", ssh="root@pve1")
TARGET = Target(name="ct200:train", host=HOST, vmid=200, job=JOB)
GENTLE = Playbook(name="graceful", lossless=True, ladder=parse_ladder("stop_signal/1m TERM/30s"))
HARD = Playbook(name="standard", ladder=parse_ladder("stop_signal/1m TERM/30s KILL:tree/10s"))
NOW = Playbook(name="now", ladder=parse_ladder("KILL:tree/10s"), hold=None)


def playbook(text: str, **facts: object) -> Playbook:
    return msgspec.structs.replace(Playbook(name="--ladder", ladder=parse_ladder(text)), **facts)


def verifying(within_s: float, text: str = "stop_signal/1m") -> Playbook:
    return playbook(text, verify=Verify(within_s=within_s))


def job(**facts: object) -> Job:
    return msgspec.structs.replace(JOB, **facts)


def target(**facts: object) -> Target:
    return msgspec.structs.replace(TARGET, **facts)


class Stage:
    """A run and its connection."""

    def __init__(
        self,
        host: FakeHost,
        run: str = "run1",
        aim: Target = TARGET,
        place: Place | None = None,
    ) -> None:
        self.host = host
        self.world: WorldPlace = host.place()
        self.told: list[AnyEvent] = []
        self.faults: list[str] = []
        self.run = Run(id=run, operator="ann", origin=f"laptop-{run}")
        self.scope = Scope(
            self.run,
            aim,
            place or self.world,
            host.clock,
            Teller(aim.name, self.told.append, host.clock),
            self._log,
        )

    def _log(self, text: str) -> str | None:
        self.faults.append(text)
        return "/log/fault"

    def of(self, kind: type[E]) -> list[E]:
        return [each for each in self.told if isinstance(each, kind)]

    async def stop(
        self,
        how: Playbook = GENTLE,
        consent: Consent = "absent",
        *,
        dry_run: bool = False,
        desk: Desk | None = None,
        terms: Terms | None = None,
        break_lock: bool = False,
        timeout_s: float | None = None,
    ) -> Outcome:
        until = None if timeout_s is None else self.host.clock.now() + timeout_s
        scope = msgspec.structs.replace(self.scope, limit_s=timeout_s, until=until)
        wish = Wish(
            playbook=how,
            consent=consent,
            terms=terms or Terms(),
            dry_run=dry_run,
            break_lock=break_lock,
        )
        return await stop(scope, wish, desk)

    def lock(self) -> Lock:
        return Lock(self.world.host, self.run, self.scope.target.vmid, self.host.clock)


def tree_of(host: FakeHost) -> ProcessTree:
    tree = parse_look(host.answer(Command("look", ("lxc:200",))).data, 100)
    assert tree is not None
    return tree


def kin(proc: Proc) -> Kin:
    identity = ProcessId(proc.pid, proc.start)
    return Kin(identity, proc.inner, "trainer", proc.argv, ppid=proc.ppid, sid=proc.sid, up_s=1.0)


def a_send(*procs: Proc, signal: str = "INT", resume: bool = False) -> Send:
    return Send(
        rung=0,
        signal=signal,
        to="trainers",
        recipients=tuple(kin(each) for each in procs),
        landing="heard",
        lossy=False,
        resume=resume,
        wait_s=60.0,
    )
