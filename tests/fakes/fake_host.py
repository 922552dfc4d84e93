"""A small simulated Proxmox host: answers as the boot script does, from processes in virtual time.

What it prints is the text that the real verbs print, so everything above the shell is real. A
`send` checks identities and masks, writes its ledger line, then signals: in that order.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import zipfile
from collections import defaultdict
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeAlias

from msgspec import Struct

from fleetstop.core.commands import Answer, Command
from fleetstop.core.signals import NUMBERS
from fleetstop.errors import ConnectionLost, FleetstopError
from fleetstop.ports import Shell
from tests.fakes.fake_place import FakeClock, FakePlace
from tests.fakes.fake_shell import FakeShell

EPOCH = 1_700_000_000.0
WRITE_ONLY = 0o100001
APPENDING = 0o102001
Hook: TypeAlias = Callable[[Command], "Answer | Awaitable[None] | None"]


def whole(size: int = 2000) -> bytes:
    """What `torch.save` leaves: a zip."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        # the same bytes whenever it is made: a member is dated to two seconds else
        archive.writestr(zipfile.ZipInfo("data.pkl"), b"x" * size)
    return made.getvalue()


def torn(size: int = 2000) -> bytes:
    """The same, cut before its end record."""
    return whole(size)[:-40]


def nothing(command: Command) -> None:
    """A turn that changes nothing."""


class File(Struct):
    data: bytes
    inode: int
    mtime: float


class Open(Struct):
    """An open file. Its position grows by `rate` bytes a second since `since`."""

    target: str
    flags: int = WRITE_ONLY
    since: float = 0.0
    rate: float = 0.0


class Proc:
    """A process with masks, files, and what it does when a signal is heard."""

    def __init__(
        self,
        pid: int,
        ppid: int,
        argv: tuple[str, ...],
        *,
        hears: tuple[str, ...] = (),
        ignores: tuple[str, ...] = (),
        vmid: int | None = 200,
        flags: int = 0,
    ) -> None:
        self.pid, self.ppid, self.argv, self.vmid = pid, ppid, argv, vmid
        self.start = pid * 10
        self.hears, self.ignores = set(hears), set(ignores)
        self.flags = flags
        self.state = "S"
        self.sid = pid
        self.group = ""
        self.idle = False
        self.survives_kill = False
        self.ends_with_children = False
        self.files: dict[int, Open] = {1: Open("/train.log")}
        self.heard: list[str] = []
        self.on_signal: Callable[[str], None] | None = None
        self.on_file: Callable[[str], None] | None = None

    @property
    def inner(self) -> int:
        return 1 if self.pid % 1000 == 0 else self.pid % 1000

    @property
    def word(self) -> str:
        return f"{self.pid}:{self.start}"


def _mask(names: set[str]) -> str:
    return f"{sum(1 << (NUMBERS[each] - 1) for each in names):016x}"


class WorldShell(FakeShell):
    """One frame at a time, answered by the host; `before` and `after` one get their turn each.

    A hook may raise, may answer instead (`before`) or otherwise (`after`), may be a coroutine.
    A verb with scripted replies (`on`) is not the host's any more.
    """

    def __init__(self, host: FakeHost) -> None:
        super().__init__()
        self._host = host
        self._one = asyncio.Lock()
        self._before: dict[str, list[Hook]] = defaultdict(list)
        self._after: dict[str, list[Hook]] = defaultdict(list)
        self.lost: FleetstopError | None = None

    def before(self, verb: str, *hooks: Hook) -> None:
        self._before[verb] += hooks

    def after(self, verb: str, *hooks: Hook) -> None:
        self._after[verb] += hooks

    def forget_turns(self) -> None:
        self._before.clear()
        self._after.clear()

    def scripted(self, verb: str, answer: Answer) -> None:
        """From now on the same answer, whatever the world is like."""
        self.on(verb, answer)

    async def run(self, command: Command) -> Answer:
        async with self._one:
            await asyncio.sleep(0)
            if self.lost is not None:
                raise self.lost
            if self._replies[command.verb]:
                return await super().run(command)
            self.commands.append(command)
            self._host.frames.append(command)
            instead = await self._turn(self._before, command)
            if instead is not None:
                return instead
            answer = self._host.answer(command)
            return await self._turn(self._after, command) or answer

    async def _turn(self, hooks: dict[str, list[Hook]], command: Command) -> Answer | None:
        if not hooks[command.verb]:
            return None
        told = hooks[command.verb].pop(0)(command)
        if isinstance(told, Answer) or told is None:
            return told
        assert isawaitable(told)
        await told
        return None


class WorldPlace(FakePlace):
    """A connection of one run to the host; the container's state is the host's."""

    def __init__(self, host: FakeHost) -> None:
        super().__init__(own_pid=90_000)
        self._world = host
        self.host: WorldShell = WorldShell(host)
        self.within: WorldShell = WorldShell(host)

    def cut(self, error: FleetstopError | None = None) -> None:
        """The connection goes away: every frame from now on fails, until `again`."""
        self.host.lost = self.within.lost = error or ConnectionLost("pve1: the connection was lost")
        raise self.host.lost

    async def again(self) -> bool:
        made = await super().again()
        self.host.lost = self.within.lost = None
        return made

    async def inside(self) -> Shell:
        self.frozen = self._world.frozen
        return await super().inside()

    async def is_frozen(self) -> bool:
        return self._world.frozen


class FakeHost:
    """Processes, files, GPUs and the lock directories of one host; time is the clock's."""

    def __init__(self, clock: FakeClock | None = None, *, latency_s: float = 0.01) -> None:
        self.clock = clock or FakeClock()
        self.latency_s = latency_s
        self.procs: dict[int, Proc] = {}
        self.files: dict[str, File] = {}
        self.links: dict[str, str] = {}
        self.ledgers: dict[str, dict[str, list[str]]] = {}
        self.gpus: list[dict[int, int]] = []
        self.unlisted_mib = 10
        self.held_for_good: set[int] = set()
        self.frozen = False
        self.kill_status = 0
        self.lock_status = 0
        self.kills: list[tuple[str, int]] = []
        self.frames: list[Command] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self.panes: dict[int, int] = {}  # first process of each tmux pane, as the container counts
        self.typed: list[tuple[str, ...]] = []
        self.commands: dict[str, tuple[float, str, str]] = {}  # due, status, words, by directory
        self.on_command: Callable[[str], tuple[float, str, str]] = lambda text: (0.0, "0", "")
        self._count = 0
        self._verbs: dict[str, Callable[[tuple[str, ...]], Answer]] = {
            "look": self._look,
            "argv": self._argv,
            "detail": self._detail,
            "watch": self._watch,
            "claim": self._claim,
            "claimable": lambda _: Answer(status=self.lock_status, data=b""),
            "ledger": self._ledger,
            "stamp": self._stamp,
            "done": self._done,
            "forget": self._forget,
            "send": self._send,
            "note": self._send,
            "unsent": self._unsent,
            "clock": lambda _: _text(f"uptime:{self.uptime}\n"),
            "before": self._before,
            "touchable": self._touchable,
            "runnable": self._runnable,
            "ran": self._ran,
            "panes": self._panes,
            "gpus": self._gpus,
            "openers": self._openers,
            "list": self._list,
            "ends": self._ends,
            "log": self._log,
            "wchan": self._wchan,
            "stacks": self._stacks,
            "source": self._source,
            "through": lambda words: self._verbs[words[3]](words[4:]),
            "code": self._code,
            "body": self._body,
            "sums": self._sums,
        }

    # the world, for tests

    def place(self) -> WorldPlace:
        return WorldPlace(self)

    def add(self, proc: Proc) -> Proc:
        self.procs[proc.pid] = proc
        return proc

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        self._count += 1
        self._due.append((self.clock.now() + seconds, self._count, act))

    def end(self, proc: Proc) -> None:
        if self.procs.get(proc.pid) is proc:
            del self.procs[proc.pid]
        for kid in self.procs.values():
            kid.ppid = 1000 if kid.ppid == proc.pid else kid.ppid
        for gpu in self.gpus:
            if proc.pid not in self.held_for_good:
                gpu.pop(proc.pid, None)
        above = self.procs.get(proc.ppid)
        if above is not None and above.ends_with_children and not self._kids(above):
            self.later(0.05, lambda: self.end(above))

    def _kids(self, proc: Proc) -> list[Proc]:
        return [each for each in self.procs.values() if each.ppid == proc.pid]

    def write(self, path: str, data: bytes, *, age_s: float = 0.0) -> None:
        self._count += 1
        when = EPOCH + self.clock.now() - age_s
        self.files[path] = File(data=data, inode=self._count, mtime=when)

    def sends(self, where: str = "200") -> list[str]:
        """Every ledger line of a signal, of all runs, as it stands there."""
        lines = (line for run in self.ledgers.get(where, {}).values() for line in run)
        return [line for line in lines if line.startswith("send ")]

    def settle(self) -> None:
        """Lets everything happen that is due."""
        while self._due and min(self._due)[0] <= self.clock.now():
            first = min(self._due, key=lambda each: each[:2])
            self._due.remove(first)
            first[2]()

    def kill(self, signal: str, pid: int) -> None:
        proc = self.procs.get(pid)
        if proc is None or proc.state == "Z":
            return
        self.kills.append((signal, pid))
        if signal == "CONT":
            proc.state = "S" if proc.state == "T" else proc.state
        elif signal == "KILL":
            if not proc.survives_kill:
                self.end(proc)
        elif signal in proc.ignores:
            return
        elif signal in proc.hears:
            proc.heard.append(signal)
            if proc.on_signal is not None:
                proc.on_signal(signal)
        else:
            self.end(proc)

    # the far end

    def answer(self, command: Command) -> Answer:
        self.clock.advance(self.latency_s)
        self.settle()
        return self._verbs[command.verb](command.words)

    @property
    def uptime(self) -> str:
        return f"{self.clock.now():.2f}"

    def _in(self, proc: Proc, scope: str) -> bool:
        return scope == "host" if proc.vmid is None else scope in ("host", f"lxc:{proc.vmid}")

    def _look(self, words: tuple[str, ...]) -> Answer:
        out = [f"uptime:{self.uptime}"]
        here = [each for each in self.procs.values() if self._in(each, words[0])]
        for p in here:
            ticks = 0 if p.idle else int(self.clock.now() * 50)
            out.append(
                f"/proc/{p.pid}/stat:{p.pid} ({p.argv[0]}) {p.state} {p.ppid} {p.sid} {p.sid} 0 0 "
                f"{p.flags} 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {p.start}"
            )
            group = "user.slice" if p.vmid is None else f"lxc/{p.vmid}"
            out.append(f"/proc/{p.pid}/cgroup:0::/{group}{p.group}")
            nested = "" if p.vmid is None else f"\t{p.inner}"
            fields = {
                "Uid": "0\t0\t0\t0",
                "TracerPid": "0",
                "NSpid": f"{p.pid}{nested}",
                "SigPnd": _mask(set()),
                "ShdPnd": _mask(set()),
                "SigBlk": _mask(set()),
                "SigIgn": _mask(p.ignores),
                "SigCgt": _mask(p.hears - p.ignores),
                "VmRSS": "1000 kB",
            }
            out += [f"/proc/{p.pid}/status:{name}:\t{value}" for name, value in fields.items()]
        return _text("\n".join(out) + "\n")

    def _argv(self, words: tuple[str, ...]) -> Answer:
        here = [self.procs[int(word)] for word in words if int(word) in self.procs]
        lines = [f"/proc/{each.pid}/cmdline:" + "\0".join(each.argv) + "\0" for each in here]
        return _text("\n".join(lines) + "\n")

    def _detail(self, words: tuple[str, ...]) -> Answer:
        lines, records = [], []
        for proc in [self.procs[int(word)] for word in words if int(word) in self.procs]:
            at = f"/proc/{proc.pid}"
            lines += [f"{at}/task/{proc.pid}/status:State:\t{proc.state}"]
            lines += [f"{at}/task/{proc.pid}/status:SigBlk:\t{_mask(set())}"]
            records += [f"{at}/cwd", "/root"]
            written = 0
            for fd, file in proc.files.items():
                pos = int((self.clock.now() - file.since) * file.rate)
                written += pos
                lines += [
                    f"{at}/fdinfo/{fd}:pos:\t{pos}",
                    f"{at}/fdinfo/{fd}:flags:\t{file.flags:o}",
                ]
                records += [f"{at}/fd/{fd}", file.target]
            lines.append(f"{at}/io:wchar: {written}")
        return _text("\n".join(lines) + "\n\n\0" + "".join(each + "\0" for each in records))

    def _openers(self, words: tuple[str, ...]) -> Answer:
        return _text(
            "".join(
                f"/proc/{proc.pid}/fd/{fd}\0{file.target}\0"
                for proc in self.procs.values()
                for fd, file in proc.files.items()
                if file.target.startswith("/dev/nvidia")
            )
        )

    def _wchan(self, words: tuple[str, ...]) -> Answer:
        here = (int(word) for word in words if int(word) in self.procs)
        return _text("".join(f"{pid} do_sleep\n" for pid in here))

    def _stacks(self, words: tuple[str, ...]) -> Answer:
        return Answer(status=30, data=b"")

    def _same(self, word: str) -> Proc | None:
        pid, _, start = word.partition(":")
        found = self.procs.get(int(pid))
        return found if found is not None and found.start == int(start) else None

    def _watch(self, words: tuple[str, ...]) -> Answer:
        left, _, every = words[0].partition("/")
        until = self.clock.now() + int(left) / 1000
        while True:
            self.settle()
            told = [line for word in words[1:] if (line := self._ended(word))]
            if told or self.clock.now() >= until - 1e-9:
                return _text("".join(line + "\n" for line in told))
            self.clock.advance(min(int(every or 100) / 1000, until - self.clock.now()))

    def _ended(self, word: str) -> str | None:
        proc = self._same(word)
        if proc is not None:
            return f"{word} 0 Z" if proc.state == "Z" else None
        return f"{word} {4 if int(word.partition(':')[0]) in self.procs else 3} "

    def _claim(self, words: tuple[str, ...]) -> Answer:
        if self.lock_status:
            return Answer(status=self.lock_status, data=b"")
        lines = self.ledgers.setdefault(words[0], {}).setdefault(words[1], [])
        lines += [f"header {words[2]}", f"stamp {self.uptime}"]
        lines += [f"break {self.uptime} {each}" for each in words[3:]]
        lines += [f"since {self.uptime}"]
        self.clock.advance(0.01)
        return _text("")

    def _ledger(self, words: tuple[str, ...]) -> Answer:
        out = [f"uptime:{self.uptime}", f"wall:{EPOCH + self.clock.now():.3f} {self.uptime}"]
        for run, lines in sorted(self.ledgers.get(words[0], {}).items()):
            out += [f"/run/lock/fleetstop.{words[0]}/{run}:{line}" for line in lines]
        return _text("\n".join(out) + "\n")

    def _note(self, where: str, run: str, line: str) -> Answer:
        lines = self.ledgers.get(where, {}).get(run)
        if lines is None:
            return Answer(status=20, data=b"")
        lines.append(line)
        return _text("")

    def _stamp(self, words: tuple[str, ...]) -> Answer:
        if words[2:] and int(self.clock.now()) > int(words[2]):
            return Answer(status=13, data=b"")
        noted = self._note(words[0], words[1], f"stamp {self.uptime}")
        return noted if noted.status else _text(f"{self.uptime}\n")

    def _done(self, words: tuple[str, ...]) -> Answer:
        return self._note(words[0], words[1], f"done {self.uptime}")

    def _forget(self, words: tuple[str, ...]) -> Answer:
        there = self.ledgers.get(words[0], {})
        for run in words[1:]:
            there.pop(run, None)
        if not there:
            self.ledgers.pop(words[0], None)
        return _text("")

    def _send(self, words: tuple[str, ...]) -> Answer:
        where, run, numbered, signal, landing, cont, scope, *rest = words
        number, _, latest = numbered.partition("@")
        groups = [rest[at : at + 4] for at in range(0, len(rest), 4)]
        for pid, start, ignored, caught in groups:
            proc = self._same(f"{pid}:{start}")
            if proc is None:
                return Answer(status=10, data=f"{pid}:{start} 3\n".encode())
            if not self._in(proc, scope) or (scope == "host" and proc.vmid is not None):
                return Answer(status=11, data=f"{pid}:{start} scope\n".encode())
            now = _mask(proc.ignores), _mask(proc.hears - proc.ignores)
            if ignored + caught.removeprefix("+") != "--" and now != (
                ignored,
                caught.removeprefix("+"),
            ):
                return Answer(status=12, data=f"{pid}:{start} masks\n".encode())
        if run not in self.ledgers.get(where, {}):
            return Answer(status=20, data=b"")
        if latest and int(self.clock.now()) > int(latest):
            return Answer(status=13, data=b"")
        ids = " ".join(f"{pid}:{start}" for pid, start, _, _ in groups)
        self._note(where, run, f"send {number} {signal} {landing} {self.uptime} {ids}")
        if signal in ("RUN", "TOUCH", "KEYS"):
            return _text(f"noted {self.uptime} 0\n")
        for pid, _, _, caught in groups:
            if caught.startswith("+"):
                continue
            self.kill(signal, int(pid))
            if cont == "cont":
                self.kill("CONT", int(pid))
        return _text(f"sent {self.uptime} {self.kill_status}\n")

    def _unsent(self, words: tuple[str, ...]) -> Answer:
        return self._note(words[0], words[1], f"unsent {words[2]}")

    def _before(self, words: tuple[str, ...]) -> Answer:
        if int(self.clock.now()) > int(words[0]):
            return Answer(status=13, data=b"")
        asks = {"touch": self._touch, "run": self._run, "keys": self._keys}
        return asks[words[1]](words[2:])

    def _touchable(self, words: tuple[str, ...]) -> Answer:
        return Answer(status=44 if words[0].startswith("/missing") else 0, data=b"")

    def _runnable(self, words: tuple[str, ...]) -> Answer:
        return Answer(status=127 if words[0].startswith("/missing") else 0, data=b"")

    def _touch(self, words: tuple[str, ...]) -> Answer:
        if words[0].startswith("/readonly"):
            return Answer(status=44, data=b"")
        self.write(words[0], b"")
        for proc in list(self.procs.values()):
            if proc.on_file is not None:
                proc.on_file(words[0])
        return _text("")

    def _run(self, words: tuple[str, ...]) -> Answer:
        takes, status, said = self.on_command(words[1])
        limit = int(words[0]) / 1000
        late = takes > limit
        due = self.clock.now() + min(takes, limit)
        where = f"/tmp/fleetstop-run.{len(self.commands)}"
        self.commands[where] = (due, "late" if late else status, said)
        return _text(where + "\n")

    def _ran(self, words: tuple[str, ...]) -> Answer:
        due, status, said = self.commands[words[0]]
        if self.clock.now() < due:
            return Answer(status=47, data=b"")
        return _text(f"{status}\n{said}\n")

    def _panes(self, words: tuple[str, ...]) -> Answer:
        return _text("".join(f"{pid}\n" for pid in self.panes))

    def _keys(self, words: tuple[str, ...]) -> Answer:
        self.typed.append(words)
        for pane in map(int, words[1].split(",")):
            proc = self.procs.get(self.panes[pane])
            if proc is not None and proc.on_file is not None:
                proc.on_file("keys")
        return _text("")

    def _gpus(self, words: tuple[str, ...]) -> Answer:
        if not self.gpus:
            return Answer(status=30, data=b"")
        table = [
            f"{index}, GPU-{index}, 40, {sum(held.values()) + self.unlisted_mib}, 80000"
            for index, held in enumerate(self.gpus)
        ]
        apps = [
            f"GPU-{index}, {pid}, {mib}"
            for index, held in enumerate(self.gpus)
            for pid, mib in held.items()
        ]
        return _text("\n".join(["gpus 0", *table]) + "\n\n\0" + "\n".join(["apps 0", *apps]) + "\n")

    def _list(self, words: tuple[str, ...]) -> Answer:
        root = words[0].rstrip("/")
        now = f"{EPOCH + self.clock.now():.3f}\n"
        files = {path: file for path, file in self.files.items() if path.startswith(root + "/")}
        if not files and root not in self.links:
            return Answer(status=40, data=now.encode())
        rows = [f"d\x001\x000\x00{EPOCH}\0{root}/\0"]
        folders = {path.rpartition("/")[0] for path in files} - {root}
        rows += [f"d\x002\x000\x00{EPOCH}\0{each}\0" for each in sorted(folders)]
        rows += [
            f"f\0{each.inode}\0{len(each.data)}\0{each.mtime:.3f}\0{path}\0"
            for path, each in sorted(files.items())
        ]
        return _text(now + self.links.get(root, root) + "\n\0" + "".join(rows))

    def _ends(self, words: tuple[str, ...]) -> Answer:
        file = self.files.get(words[0])
        if file is None:
            return Answer(status=1, data=b"")
        return Answer(status=0, data=file.data[: int(words[1])] + file.data[-1024:])

    def _source(self, words: tuple[str, ...]) -> Answer:
        """Files by name, or as a process holds them open."""
        out = b""
        for word in words:
            path = word
            if word.startswith("/proc/"):
                _, _, pid, _, fd = word.split("/")
                path = self.procs[int(pid)].files[int(fd)].target
            if path in self.files:
                out += f"\0{word}\n".encode() + self.files[path].data
        return Answer(status=0, data=out)

    def _code(self, words: tuple[str, ...]) -> Answer:
        """As boot.sh has it; a file's date is its change of status too."""
        cut = words.index("-")
        # a field of /proc/self/stat for each of those that proc(5) has before the start
        stat = "1 (cat) R " + "0 " * 18 + str(int(self.clock.now() * 100))
        out = [b"n", stat.encode(), f"{EPOCH + self.clock.now():.6f}".encode()]
        for base in words[:cut]:
            if (state := self.files.get(f"{base}/state.json")) is not None:
                out += [b"s", base.encode(), state.data]
            if (beat := self.files.get(f"{base}/beat")) is not None:
                out += [b"b", base.encode(), _stamps(beat), b"./beat"]
        found = next((each for each in words[cut + 1 :] if each in self.files), None)
        if found is not None:
            folder = found.rpartition("/")[0]
            out += [b"p", found.encode(), found.encode(), _stamps(self.files[found]), b"./it"]
            out += [b"d", folder.encode()]
            beside = [e for e in sorted(self.files) if e.rpartition("/")[0] == folder]
            names = [each for each in beside if each.endswith(".py")]
            for each in names:
                out += [_stamps(self.files[each]), f"./{each.rpartition('/')[2]}".encode()]
            lines = [
                f"./{each.rpartition('/')[2]}:".encode() + line
                for each in names
                for line in self.files[each].data.splitlines()
                if line.strip().startswith((b"import ", b"from "))
            ]
            out += [b"i", b"\n".join(lines)]
        return Answer(status=0, data=b"\0".join(out) + b"\0")

    def _body(self, words: tuple[str, ...]) -> Answer:
        file = self.files.get(words[0])
        return Answer(40, b"") if file is None else Answer(0, file.data[: int(words[1])])

    def _sums(self, words: tuple[str, ...]) -> Answer:
        found = [self.files.get(each) for each in words]
        sums = [hashlib.sha256(each.data).hexdigest() if each else "-" for each in found]
        return _text("".join(f"{each}  -\n" for each in sums))

    def _log(self, words: tuple[str, ...]) -> Answer:
        file = self.files.get(words[0])
        if file is None:
            return Answer(status=40, data=b"")
        now = EPOCH + self.clock.now()
        head = f"{now:.3f}\n{file.mtime:.3f} {len(file.data)}\n".encode()
        return Answer(status=0, data=head + file.data[-8192:])


def _stamps(file: File) -> bytes:
    return f"{file.mtime:.6f} {file.mtime:.6f} 0.0".encode()


def _text(text: str) -> Answer:
    return Answer(status=0, data=text.encode())


class Trainer(Proc):
    """`python train.py` as it ought to be: on its stop signal it writes a temporary file for
    `takes_s`, gives it its name, and leaves `leaves_s` later. A second signal cuts the save."""

    def __init__(
        self,
        host: FakeHost,
        pid: int = 1010,
        ppid: int = 1005,
        *,
        hears: tuple[str, ...] = ("INT",),
        ignores: tuple[str, ...] = (),
        takes_s: float = 2.0,
        leaves_s: float = 0.0,
        saves: str | None = "/ck/last.pt",
        script: str = "train.py",
        vmid: int | None = 200,
    ) -> None:
        super().__init__(pid, ppid, ("python", script), hears=hears, ignores=ignores, vmid=vmid)
        self.lost = False
        self.obeys = True
        self.data = whole()
        self._host, self._takes_s, self._leaves_s, self._saves = host, takes_s, leaves_s, saves
        self._asked = False
        self.on_signal = self.hear

    def hear(self, signal: str) -> None:
        if not self.obeys:
            return
        if self._asked:
            self.lost = True
            self._host.end(self)
            return
        self._asked = True
        if self._saves is not None:
            real = self._saves
            for link, there in self._host.links.items():
                real = real.replace(link, there, 1)
            now = self._host.clock.now()
            self.files[7] = Open(f"{real}.tmp", since=now - 0.1, rate=1e6)
            self._host.write(f"{self._saves}.tmp", b"half")
        self._host.later(self._takes_s, self._finish)

    def _finish(self) -> None:
        if self.lost or self._host.procs.get(self.pid) is not self:
            return
        if self._saves is not None:
            self._host.files.pop(f"{self._saves}.tmp", None)
            self._host.write(self._saves, self.data)
        self.files.pop(7, None)
        self._host.later(self._leaves_s, lambda: self._host.end(self))


def a_job(host: FakeHost, trainer: Trainer | None = None, *, wrapper: bool = True) -> Trainer:
    """Container 200: its init, `bash run.sh`, the trainer, somebody's vim beside them; and a
    checkpoint of 500 s ago."""
    host.write("/ck/old.pt", whole(1000), age_s=500.0)
    host.add(Proc(1000, 1, ("init",)))
    host.add(Proc(1090, 1000, ("vim", "train.py")))
    if wrapper:
        host.add(Proc(1005, 1000, ("bash", "run.sh"))).ends_with_children = True
    made = trainer or Trainer(host)
    made.ppid = 1005 if wrapper else 1000
    host.add(made)
    return made
