"""The shell inside a container, through one `pct exec`; knows how entering can go wrong."""

from __future__ import annotations

import re

from fleetstop.core.commands import Command
from fleetstop.core.inventory import Host
from fleetstop.core.process import ProcessId
from fleetstop.core.procfs import parse_look
from fleetstop.errors import (
    ContainerFrozen,
    ContainerMissing,
    ContainerStopped,
    CouldNotLook,
    PrivilegeMissing,
    RemoteFailed,
    ToolMissing,
)
from fleetstop.ports import Shell
from fleetstop.remote.shell import FramedShell, ShellEnded, loader_words, quoted
from fleetstop.remote.ssh import Connection

ENTER_S = 20.0
# sudo's own words, the shell's where there is no sudo, and pct's (pve-common RESTEnvironment.pm)
_NO_RIGHTS = re.compile(r"^sudo: (?!.*command not found)|sudo: not found|please run as root", re.M)
_MISSING = re.compile(r"Configuration file '.*' does not exist")
_STATUS = re.compile(r"^status: (\w+)", re.MULTILINE)


class CannotEnter(RemoteFailed):
    """It runs, and nothing can be started in it: no PIDs left, no memory, a dead disk."""


class InsideShell:
    """A framed shell in the container; `attach` is its lxc-attach on the host, by identity
    (start 0: not known), `pid` and `start` its own by the container's numbers (0: never lived)."""

    def __init__(self, shell: FramedShell, attach: ProcessId) -> None:
        self.shell = shell
        self.attach = attach
        self.pid = self.start = 0


async def enter(
    connection: Connection,
    host: Host,
    vmid: int,
    outside: Shell,
    opened: list[InsideShell],
    *,
    root: bool = True,
) -> InsideShell:
    """Opens the shell inside, and notes it in `opened` before anything can hang.

    The caller has made sure that the container is not frozen: lxc-attach would hang for good.
    Without `root` it is `sudo -n PCT exec VMID -- …`, which a line in sudoers can allow.
    """
    if not root:
        return await _enter_by_sudo(connection, host, vmid, opened)
    # pct ends in exec(lxc-attach): the PID said here stays its PID (pve-container pct.pm exec)
    text = 'echo "hostpid=$$"; exec "$0" exec "$@"'
    words = ["/bin/sh", "-c", text, host.pct, str(vmid), "--", *loader_words()]
    channel = await connection.open(rooted(host, words))
    shell = FramedShell(channel, f"{host.name}/{vmid}")
    inside: InsideShell | None = None
    try:
        pid = int(await shell.first_line(b"hostpid=", ENTER_S))
        look = await outside.run(Command("look", ("pids", str(pid))))
        tree = parse_look(look.data, hz=100)
        found = tree.processes.get(pid) if tree else None
        inside = InsideShell(shell, found.id if found else ProcessId(pid, 0))
        opened.append(inside)
        await _boot(inside)
    except ShellEnded as exc:
        if inside is not None:
            opened.remove(inside)  # it never came to life, and is over: the next one may
        raise explain(host, vmid, exc.said, exc.status) from exc
    except BaseException:
        if inside is None:
            channel.close()
        raise
    return inside


async def _boot(inside: InsideShell) -> None:
    fields = await inside.shell.boot(ENTER_S)
    inside.pid, inside.start = int(fields["pid"]), int(fields["start"])


async def _enter_by_sudo(
    connection: Connection, host: Host, vmid: int, opened: list[InsideShell]
) -> InsideShell:
    words = [host.pct, "exec", str(vmid), "--", *loader_words()]
    sudo = [] if host.sudo == "never" else ["sudo", "-n"]
    channel = await connection.open(quoted(["/bin/sh", "-c", f"exec {quoted([*sudo, *words])}"]))
    inside = InsideShell(FramedShell(channel, f"{host.name}/{vmid}"), ProcessId(0, 0))
    opened.append(inside)
    try:
        await _boot(inside)
    except ShellEnded as exc:
        opened.remove(inside)
        raise explain(host, vmid, exc.said, exc.status) from exc
    return inside


async def pct_status(connection: Connection, host: Host, vmid: int) -> str:
    """`running` or `stopped` as pct says; raises ContainerMissing where it has no such one."""
    words = [host.pct, "status", str(vmid)]
    done = await connection.run(rooted(host, words), deadline_s=ENTER_S)
    text = done.out.decode("utf-8", "backslashreplace")
    found = _STATUS.search(text)
    if done.status == 0 and found:
        return found[1]
    raise explain(host, vmid, done.err.decode("utf-8", "backslashreplace"), done.status)


def explain(host: Host, vmid: int, said: str, status: int | None) -> CouldNotLook:
    """pct's and lxc-attach's words into one sentence; their exit codes are no contract."""
    said = said.strip()
    if _MISSING.search(said):
        return ContainerMissing(
            f"{host.name} has no container {vmid}",
            hint=f"`pct list` on {host.name} shows what it has; it may have moved to another node",
        )
    if "not running" in said or "Failed to get init pid" in said:
        return ContainerStopped(f"container {vmid} on {host.name} is not running")
    if _NO_RIGHTS.search(said):
        return PrivilegeMissing(
            f"{host.name}: container {vmid} could not be entered without root: {said}",
            hint=f"in sudoers on {host.name}: LOGIN ALL=(root) NOPASSWD: {host.pct}",
        )
    if "not found" in said or status == 127:
        return ToolMissing(
            f"{host.name}: {host.pct} was not found ({said or 'status 127'})",
            hint="name it in the inventory: hosts: NAME: {pct: /path/to/pct}",
        )
    return CannotEnter(f"{host.name}: pct could not enter container {vmid}: {said or status}")


def frozen(host: Host, vmid: int) -> ContainerFrozen:
    return ContainerFrozen(
        f"container {vmid} on {host.name} is frozen; entering it would hang",
        hint=f"on {host.name}: `lxc-info -n {vmid} -s`, and once you know why: "
        f"`lxc-unfreeze -n {vmid}`",
    )


def is_frozen(text: bytes) -> bool:
    """The answer of `frozen`: v2 says `frozen 1`, v1 says FROZEN or FREEZING."""
    return any(
        line.endswith((b":frozen 1", b":FROZEN", b":FREEZING")) for line in text.split(b"\n")
    )


def rooted(host: Host, words: list[str]) -> str:
    """A command line that runs these words as root, by `sudo -n` where the login is not."""
    plain = quoted(words)
    if host.sudo == "never":
        return plain
    return quoted(["/bin/sh", "-c", f'[ "$(id -u)" = 0 ] && exec {plain}; exec sudo -n {plain}'])
