"""A simulated activator and supervisor in a simulated container, in virtual time.

They follow what remote/scripts/activate.py and supervise.py promise: orders by a file, beats by a
file's time, the state by a file; the supervisor adopts orphans and records the exact end.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from collections.abc import Callable
from typing import Any

from fleetstop.core.commands import Answer
from fleetstop.core.launching.activation import state_of
from tests.fakes.fake_host import EPOCH, FakeHost, Proc
from tests.fakes.fake_place import FakeClock

BASE = "/root/.fleetstop/train"
Birth = Callable[["LaunchHost", int], Proc]
"""Adds what is launched below this supervisor, and returns what was started itself."""


class SharedClock(FakeClock):
    """The time moves by what is asked and by sleeping, but for whoever only shows that he lives:
    he sleeps until somebody else has moved it so far."""

    def __init__(self, now: float = 1000.0) -> None:
        super().__init__(now)
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        while self._sleepers and self._sleepers[0][0] <= self.now():
            waiter = heapq.heappop(self._sleepers)[2]
            if not waiter.done():
                waiter.set_result(None)

    async def sleep(self, seconds: float) -> None:
        task = asyncio.current_task()
        coro = task.get_coro() if task is not None else None
        if getattr(coro, "__qualname__", "").endswith("._beats"):
            self._count += 1
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._sleepers, (self.now() + seconds, self._count, waiter))
            await waiter
            return
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)


class LaunchHost(FakeHost):
    """`births`: what comes to life at each launch, in order. `refuses`: how the activator fails
    before it waits. `killed_at`: the step at which somebody kills the activator."""

    def __init__(self) -> None:
        super().__init__(SharedClock())
        self.births: list[Birth] = []
        self.refuses: str | None = None
        self.no_python: str | None = None
        self.unwritable: int = 0
        self.killed_at: str | None = None
        self.instant: int | None = None  # the new one ends with this before anybody can look
        self.activators: list[FakeActivator] = []
        self.supervisors: dict[int, tuple[int, str]] = {}  # by PID: the trainer's, the state file
        self.exits: dict[int, int] = {}
        self.died_by: dict[int, str] = {}
        self.environs: dict[int, dict[str, str]] = {}
        self.modes: dict[str, str] = {}
        self.orders: list[str] = []
        self.beats: list[float] = []
        self.unreadable: set[str] = set()
        self._next_pid = 1400
        self._verbs |= {
            "stage": self._stage, "unstage": self._unstage, "put": self._put,
            "order": self._order, "beat": self._beat, "py": self._py,
        }  # fmt: skip

    def new_pid(self) -> int:
        self._next_pid += 1
        return self._next_pid

    def text_of(self, path: str) -> str:
        return self.files[path].data.decode()

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text_of(f"{BASE}/state.json"))
        return found

    # the verbs of the boot script

    def _stage(self, words: tuple[str, ...]) -> Answer:
        mark = f"{words[0]}/stage-{words[1]}/."
        if mark in self.files:
            return Answer(status=41, data=b"")
        self.write(mark, b"")
        return Answer(status=0, data=b"")

    def _unstage(self, words: tuple[str, ...]) -> Answer:
        for run in words[1:]:
            for path in [p for p in self.files if p.startswith(f"{words[0]}/stage-{run}/")]:
                del self.files[path]
        return Answer(status=0, data=b"")

    def forget_stage(self, run: str) -> None:
        self._unstage((BASE, run))

    def _put(self, words: tuple[str, ...]) -> Answer:
        for path, mode, text in zip(words[::3], words[1::3], words[2::3], strict=True):
            if self.unwritable:
                return Answer(status=self.unwritable, data=path.encode())
            self.write(path, text.encode("utf-8", "surrogateescape"))
            self.modes[path] = mode
        return Answer(status=0, data=b"")

    def _order(self, words: tuple[str, ...]) -> Answer:
        base, word = words[0], words[2]
        self.write(f"{base}/order", " ".join(words[1:]).encode() + b"\n")
        self.write(f"{base}/beat", b"")
        self.orders.append(word)
        return Answer(status=0, data=b"")

    def _beat(self, words: tuple[str, ...]) -> Answer:
        self.write(f"{words[0]}/beat", b"")
        self.beats.append(self.clock.now())
        return Answer(status=0, data=b"")

    def _py(self, words: tuple[str, ...]) -> Answer:
        script, spec = json.loads(words[2])
        assert script in self.files
        assert self.modes[spec] == "600"
        if self.no_python is not None:
            return Answer(status=127, data=f"\n{self.no_python}\n".encode())
        if self.refuses is not None:
            self._unstage((BASE, json.loads(self.text_of(spec))["run"]))
            return Answer(status=1, data=f"failed {self.refuses}\n".encode())
        made = FakeActivator(self, json.loads(self.text_of(spec)))
        del self.files[spec]
        self.activators.append(made)
        return Answer(status=0, data=f"waiting {made.proc.inner} {made.proc.start}\n".encode())

    def _source(self, words: tuple[str, ...]) -> Answer:
        out = b""
        for word in words:
            if word.startswith("/proc/") and word.endswith("/environ"):
                inner = int(word.split("/")[2])
                found = next((p for p in self.procs.values() if p.inner == inner), None)
                env = self.environs.get(found.pid) if found is not None else None
                if env is not None:
                    body = "".join(f"{k}={v}\0" for k, v in env.items())
                    out += f"\0{word}\n{body}".encode()
                continue
            out += super()._source((word,)).data
        return Answer(status=0, data=out)

    def _log(self, words: tuple[str, ...]) -> Answer:
        return Answer(status=1, data=b"") if words[0] in self.unreadable else super()._log(words)

    # processes

    def dies(self, proc: Proc, *, exit_: int = 0) -> None:
        self.exits[proc.pid] = exit_
        self.end(proc)

    def kill(self, signal: str, pid: int) -> None:
        before = self.procs.get(pid)
        if before is not None:
            self.died_by[pid] = signal
        super().kill(signal, pid)
        if pid in self.procs:
            self.died_by.pop(pid, None)

    def end(self, proc: Proc) -> None:
        if self.procs.get(proc.pid) is not proc:
            return
        kids, above = self._kids(proc), self._supervisor_of(proc)
        super().end(proc)
        for kid in kids:
            if above is not None and kid.pid in self.procs:
                kid.ppid = above
        if above is not None:
            self._record(above, proc)
            if not any(each.ppid == above for each in self.procs.values()):
                self.end(self.procs[above])

    def _supervisor_of(self, proc: Proc) -> int | None:
        here: Proc | None = proc
        while here is not None:
            if here.ppid in self.supervisors and here.ppid in self.procs:
                return here.ppid
            here = self.procs.get(here.ppid)
        return None

    def _record(self, supervisor: int, proc: Proc) -> None:
        root, path = self.supervisors[supervisor]
        if proc.pid != root:
            return
        told = json.loads(self.text_of(path))
        signal = self.died_by.get(root)
        told |= {"ended_at": "2026-01-01T00:01:00+00:00", "signal": signal,
                 "exit": None if signal else self.exits.get(root, 0)}  # fmt: skip
        self.write(path, json.dumps(told).encode())

    def launch(self, spec: dict[str, Any]) -> Proc:
        above = self.add(Proc(self.new_pid(), 1000, ("python3", "-I", f"{BASE}/supervise.py", "s")))
        root = self.births.pop(0)(self, above.pid)
        self.supervisors[above.pid] = (root.pid, spec["status"])
        for each in [root, *self.all_below(root)]:
            self.environs.setdefault(each.pid, {**spec["env"], "FLEETSTOP_MARK": spec["mark"]})
        told = {"schema": 1, "mark": spec["mark"], "started_at": "2026-01-01T00:00:00+00:00",
                "supervisor": {"pid": above.inner, "start": above.start},
                "trainer": {"pid": root.inner, "start": root.start}, "ended_at": None,
                "exit": None, "signal": None, "failed": None}  # fmt: skip
        self.write(spec["status"], json.dumps(told).encode())
        return root

    def all_of(self, mark: str) -> list[Proc]:
        return [each for each in self.procs.values()
                if self.environs.get(each.pid, {}).get("FLEETSTOP_MARK") == mark]  # fmt: skip

    def all_below(self, proc: Proc) -> list[Proc]:
        return [each for kid in self._kids(proc) for each in (kid, *self.all_below(kid))]


class FakeActivator:
    """One activation, a turn every 0.1 s."""

    def __init__(self, host: LaunchHost, spec: dict[str, Any]) -> None:
        self.host, self.spec = host, spec
        argv = ("python3", "-I", f"{BASE}/activate.py", "spec.json")
        self.proc = host.add(Proc(host.new_pid(), 1000, argv))
        # as the one was whose place it takes
        self.armed_at = host.clock.now() if spec.get("succeeds") else None
        self.alone, self.why = False, ""
        self.launched_at = 0.0
        self.root: Proc | None = None
        self.told: dict[str, Any] = {
            "schema": 1, "run": spec["run"], "release": spec["release"], "before": spec["before"],
            "activator": {"pid": self.proc.inner, "start": self.proc.start}, "trainer": None,
            "exit": None, "signal": None, "reason": None, "findings": [], "at": None,
            "gone": spec["gone"], "order": None, "running": spec["before"], "log_rotated": None,
            "confirmed_by": None,
        }  # fmt: skip
        self.turn: Callable[[], None] = self.waiting
        host.write(f"{BASE}/beat", b"")
        host.files.pop(f"{BASE}/order", None)
        self.step("waiting")
        host.later(0.1, self.take_turn)

    def step(self, step: str, **facts: Any) -> None:
        self.told |= {"step": step, **facts}
        text = json.dumps(self.told).encode()
        assert state_of(text.decode()) is not None
        self.host.write(f"{BASE}/state.json", text)
        if self.host.killed_at == step:
            self.host.end(self.proc)

    def leave(self, step: str, **facts: Any) -> None:
        self.step(step, **facts)
        self.host.end(self.proc)

    def take_turn(self) -> None:
        if self.proc.pid in self.host.procs:
            self.turn()
            self.host.later(0.1, self.take_turn)

    @property
    def order(self) -> str | None:
        file = self.host.files.get(f"{BASE}/order")
        run, word, *rest = (file.data.decode().split() if file else []) + ["", ""]
        if run != self.spec["run"]:
            return None
        self.alone = rest[:1] == ["alone"]
        self.why = " ".join(rest[self.alone :]).strip()
        self.told["order"] = word
        return word

    @property
    def stale(self) -> bool:
        last = self.host.files[f"{BASE}/beat"].mtime - EPOCH
        return self.alone or self.host.clock.now() - last >= float(self.spec["stale_s"])

    def gone(self) -> bool:
        there = {(each.inner, each.start) for each in self.host.procs.values()}
        return not any((each["pid"], each["start"]) in there for each in self.spec["gone"])

    def waiting(self) -> None:
        order, now = self.order, self.host.clock.now()
        if order == "armed" and self.armed_at is None:
            self.armed_at = now
        patient = self.armed_at is not None and now - self.armed_at < self.spec["patience_s"]
        goes_on = patient or (self.armed_at is not None and self.gone()) or order == "go"
        if order == "cancel" or (self.stale and not goes_on):
            self.clean()
            self.leave("cancelled")
        elif order == "go" and not self.gone():
            self.clean()
            self.leave("failed", reason="what was to be gone lives")
        elif order == "go" or (self.stale and self.armed_at is not None and self.gone()):
            self.activate()

    def clean(self) -> None:
        self.host.forget_stage(self.spec["run"])

    def activate(self) -> None:
        self.clean()
        for step in ("swapping", "swapped", "launching"):
            self.step(step)
            if self.proc.pid not in self.host.procs:
                return
        self.root = self.host.launch(self.spec["launch"])
        self.launched_at = self.host.clock.now()
        self.step(
            "launched",
            trainer=self._trainer("launch"),
            running=self.spec["release"] or self.spec["stays"],
        )
        self.turn = self.watching
        if self.host.instant is not None:
            self.host.settle()  # what it says, it says before its end
            self.host.exits[self.root.pid] = self.host.instant
            for each in (*self.host.all_below(self.root), self.root):
                self.host.dies(each, exit_=self.host.instant)
            self.turn()  # nobody has seen that it was launched

    def _trainer(self, name: str) -> dict[str, Any]:
        assert self.root is not None
        return {"pid": self.root.inner, "start": self.root.start, "mark": self.spec[name]["mark"]}

    def _runs(self) -> bool:
        assert self.root is not None
        return self.host.procs.get(self.root.pid) is self.root

    def watching(self) -> None:
        assert self.root is not None
        order = self.order
        if order == "done" and self._runs():
            self.leave("healthy", confirmed_by="client")
        elif order == "done" and (judged := self._judged()) is not None:
            told = {
                "pid": judged.inner,
                "start": judged.start,
                "mark": self.told["trainer"]["mark"],
            }
            self.leave("healthy", confirmed_by="client", trainer=told)
        elif order == "done" and self.host.all_of(self.spec["launch"]["mark"]):
            self.leave("unconfirmed", reason="it ended, before the client had judged")
        elif not self._runs() and not self.host.all_of(self.spec["launch"]["mark"]):
            signal = self.host.died_by.get(self.root.pid)
            how = {"signal": signal, "exit": None if signal else self.host.exits.get(self.root.pid)}
            if self.spec["roll_back"] and self.spec["launch_old"]:
                self.back(**how)
            else:
                self.leave("unhealthy", running=None, **how)
        elif order == "back":
            self.leave("unhealthy", reason="what was launched lives still")
        elif order == "keep":
            self.leave("unhealthy", reason="the client found it so, and left it running")
        elif self.stale and order != "unwell":
            late = self.host.clock.now() - self.launched_at >= self.spec["health"]["within_s"]
            if late and self.spec["health"]["log_matches"] is None:
                self.leave("healthy", confirmed_by="activator")
            elif late:
                self.leave("unconfirmed")

    def _judged(self) -> Proc | None:
        named = [each for each in self.host.procs.values()
                 if self.why == f"{each.inner} {each.start}"]  # fmt: skip
        return named[0] if named else None

    def back(self, **how: Any) -> None:
        log = self.host.files.get(str(self.spec["log"]))
        self.step("rolling_back", log_end=len(log.data) if log is not None else None, **how)
        if self.proc.pid not in self.host.procs:
            return
        if not self.host.births:
            self.leave("failed", reason="cannot run python3: No such file", trainer=None)
            return
        self.root = self.host.launch(self.spec["launch_old"])
        came = self.spec["before"] or self.spec["stays"]
        facts = {"trainer": self._trainer("launch_old"), "running": came}
        self.leave("rolled_back", **facts)
