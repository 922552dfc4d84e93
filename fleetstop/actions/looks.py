"""Asking a place and parsing its answers; every function is one frame, or says why not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from fleetstop.core.commands import Answer, Command
from fleetstop.core.gpu import GpuView, Unseen, parse_apps, parse_gpus, view
from fleetstop.core.gpus.openers import parse_openers
from fleetstop.core.inventory import Match
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.core.procfs import (
    parse_argv,
    parse_detail,
    parse_look,
    text,
    with_argv,
    with_detail,
)
from fleetstop.errors import FrameTimedOut, PrivilegeMissing, RemoteFailed
from fleetstop.ports import Clock, Place, Shell

NOT_ENTERED = (RemoteFailed, FrameTimedOut, PrivilegeMissing)
"""How `inside()` fails where a container runs and cannot be entered. It may be unable to fork, or
out of memory: its processes are seen and signalled from the host all the same."""

_TORN_S = (0.3, 0.3, 0.6, 1.2, 2.4)
_STABLE = 3


async def together(*work: Awaitable[Any]) -> list[Any]:
    """All to their end, then the first failure: none is left running on a shell behind us."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return done


def scope_of(vmid: int | None) -> str:
    return "host" if vmid is None else f"lxc:{vmid}"


def _good(answer: Answer, what: str) -> bytes:
    if answer.status != 0:
        raise RemoteFailed(f"{what} could not be read (status {answer.status})")
    return answer.data


async def look(place: Place, vmid: int | None) -> ProcessTree:
    """All processes of the place, without argv and details. Empty: nothing runs there."""
    tree = await _looked(place, scope_of(vmid))
    if vmid is not None:
        return tree
    outside = {
        pid: each
        for pid, each in tree.processes.items()
        if not any(group.startswith("/lxc/") for group in each.cgroups)
    }
    return ProcessTree(processes=outside, uptime=tree.uptime, hz=tree.hz)


async def everything(place: Place) -> ProcessTree:
    """All processes of the host, those of all its containers among them."""
    return await _looked(place, scope_of(None))


async def _looked(place: Place, scope: str) -> ProcessTree:
    answer = await place.host.run(Command("look", (scope,)))
    tree = parse_look(_good(answer, "the process table"), place.hz)
    if tree is None:
        raise RemoteFailed("the process table could not be read: no clock in the answer")
    return tree


async def of_processes(place: Place, verb: str, words: list[str]) -> Answer:
    """A frame about files of these processes. One whose files hang (its memory map is locked in
    the kernel) is skipped and named, at the most three of them."""
    for _ in range(3):
        asked = tuple(w for w in words if int(w.removeprefix("deep:")) not in place.hanging)
        try:
            return await place.host.run(Command(verb, asked, deadline_s=8.0))
        except FrameTimedOut:
            found = await place.unstick()
            if found is not None and not found:
                raise
    raise RemoteFailed(f"the files of {len(place.hanging)} processes hang; look on the host")


async def add_argv(place: Place, tree: ProcessTree, only: set[int] | None = None) -> ProcessTree:
    """The command lines of `only` these host PIDs, or of all."""
    words = [
        word(each)
        for pid, each in tree.processes.items()
        if not each.kernel_thread and (only is None or pid in only)
    ]
    if not words:
        return tree
    answer = await of_processes(place, "argv", words)
    return with_argv(tree, parse_argv(_good(answer, "the command lines")))


def word(process: Process) -> str:
    """A dead leader with living threads has no words and no files of its own; they have."""
    return f"deep:{process.id.pid}" if process.headless else str(process.id.pid)


async def add_detail(place: Place, tree: ProcessTree, pids: set[int]) -> ProcessTree:
    here = [word(tree.processes[pid]) for pid in sorted(pids) if pid in tree.processes]
    if not here:
        return tree
    answer = await of_processes(place, "detail", here)
    return with_detail(tree, parse_detail(_good(answer, "open files")))


async def listed(place: Place, match: Match) -> frozenset[int]:
    """The container's own PIDs that its pgrep, a pid file, or a tmux session's panes name."""
    if match.pgrep is not None:
        answer = await (await place.inside()).run(Command("pgrep", (match.pgrep,)))
        # procps pgrep(1): 1 is "none matched", 2 a bad expression, 3 fatal; 127: no pgrep there
        if answer.status == 127:
            raise RemoteFailed("there is no pgrep in the container", hint="match: {script: …}")
        if answer.status not in (0, 1):
            raise RemoteFailed(f"pgrep did not take the expression {match.pgrep!r}")
        return frozenset(int(word) for word in answer.data.split() if word.isdigit())
    if match.tmux is not None:
        answer = await (await place.inside()).run(Command("panes", (match.tmux,)))
        if answer.status == 127:
            raise RemoteFailed("there is no tmux in the container", hint="match: {script: …}")
        return frozenset(int(word) for word in answer.data.split() if word.isdigit())
    if match.pidfile is not None:
        answer = await (await place.files()).run(Command("pidfile", (match.pidfile,)))
        word = answer.data.strip()
        return frozenset([int(word)]) if answer.status == 0 and word.isdigit() else frozenset()
    return frozenset()


async def gpus(place: Place) -> GpuView | Unseen:
    """nvidia-smi as the host sees it: host PIDs. Bounded, it may hang in the driver."""
    answer = await place.host.run(Command("gpus", ("8000",), deadline_s=15.0))
    if answer.status == 30:
        return Unseen("there is no nvidia-smi on the host")
    if answer.status == 33:
        pid = text(answer.data).strip()
        return Unseen(
            f"an nvidia-smi (host PID {pid}) hangs in the driver already, so none was started; "
            "look on the host: dmesg | grep Xid"
        )
    if answer.status == 31:
        return Unseen("nvidia-smi did not answer within 8 s; it may hang in the driver")
    if answer.status != 0:
        return Unseen(f"nvidia-smi could not be asked (status {answer.status})")
    table, _, apps = answer.data.partition(b"\n\0")
    return view(parse_gpus(*_block(table)), parse_apps(*_block(apps)))


async def openers(place: Place) -> dict[int, frozenset[int]] | Unseen:
    """Who on the host has which /dev/nvidiaN open, by host PID."""
    if place.without_root is not None:
        return Unseen(place.without_root)
    answer = await place.host.run(Command("openers", (), deadline_s=15.0))
    if answer.status != 0:
        return Unseen(f"it could not be asked (status {answer.status})")
    return parse_openers(answer.data)


async def first_gpus(place: Place, clock: Clock) -> GpuView | Unseen:
    """The look that later ones are compared with. One that does not fit together would make every
    later one look like memory that nobody gives back: it is asked again, the longer the more start
    beside it. A driver that lists too much for good says the same again and again: it is kept."""
    looks = [await gpus(place)]
    for wait in _TORN_S:
        if isinstance(looks[-1], Unseen) or looks[-1].fits:
            break
        if len(looks) >= _STABLE and all(each == looks[-1] for each in looks[-_STABLE:]):
            break
        await clock.sleep(wait)
        looks.append(await gpus(place))
    return looks[-1]


def _block(data: bytes) -> tuple[bytes, int]:
    """`gpus RC` or `apps RC`, then what nvidia-smi printed."""
    head, _, text = data.partition(b"\n")
    code = head.split()[-1:] or [b""]
    return text, int(code[0]) if code[0].isdigit() else 255


async def unit(shell: Shell, name: str, properties: str) -> str | None:
    """`systemctl show` of one unit; None without systemctl, or where it does not answer."""
    answer = await shell.run(Command("unit", (name, properties), deadline_s=20.0))
    return text(answer.data) if answer.status == 0 else None


def from_host(place: Place) -> str | None:
    """That log and checkpoints are not read inside, a sentence; None where they are."""
    why = place.files_from_host
    said = "the container is not entered; its files are seen from the host"
    return None if why is None else f"{said}: {why}"


async def wchan(place: Place, pids: list[int]) -> dict[int, str]:
    """Where each of these host PIDs sleeps in the kernel (proc(5)); absent where unseen."""
    answer = await place.host.run(Command("wchan", tuple(map(str, pids)))) if pids else None
    if answer is None:
        return {}
    pairs = (line.split() for line in text(_good(answer, "where they sleep")).splitlines())
    return {int(pid): where for pid, where in (each for each in pairs if len(each) == 2)}


async def watch(
    place: Place, ids: list[ProcessId], seconds: float, every_s: float = 0.1
) -> frozenset[ProcessId]:
    """Returns after `seconds`, or when one of these ends; those of which nothing is left. The
    far end looks at them every `every_s` seconds (20 ms to 2 s)."""
    ms = max(0, min(2000, int(seconds * 1000)))
    step = max(20, min(2000, int(every_s * 1000)))
    words = (f"{ms}/{step}", *(f"{each.pid}:{each.start}" for each in ids))
    answer = await place.host.run(Command("watch", words, deadline_s=ms / 1000 + 10.0))
    if answer.status not in (0, 8):
        raise RemoteFailed(f"the processes could not be watched (status {answer.status})")
    told = _told(answer)
    return frozenset(each for each in ids if told.get(_identity_word(each), ["0"])[0] in ("3", "4"))


def _identity_word(each: ProcessId) -> str:
    return f"{each.pid}:{each.start}"


def _told(answer: Answer) -> dict[str, list[str]]:
    """A line of `watch` for each that is not as it was: its code (see `same`) and state."""
    lines = answer.data.decode("ascii", "replace").splitlines()
    return {line.partition(" ")[0]: line.split()[1:] or ["0"] for line in lines}


async def all_gone(place: Place, ids: list[ProcessId]) -> bool:
    """Whether each is gone, another process by now, or dead; False where one lives.

    Raises RemoteFailed where one could not be looked at: that is not gone.
    """
    words = ("0", *(f"{each.pid}:{each.start}" for each in ids))
    answer = await place.host.run(Command("watch", words))
    told = _told(answer)
    for each in ids:
        code, *state = told.get(_identity_word(each), ["0"])
        if code == "5":
            raise RemoteFailed(f"whether {each.pid} still runs could not be seen")
        if code == "0" and state not in (["Z"], ["X"]):
            return False
    return True
