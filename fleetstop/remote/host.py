"""A host as a place: one connection, root's shell on it; knows nothing of jobs."""

from __future__ import annotations

from fleetstop.core.inventory import Host
from fleetstop.errors import ConnectionLost, PrivilegeMissing
from fleetstop.remote.shell import FramedShell, ShellEnded, loader_words, quoted
from fleetstop.remote.ssh import Connection

BOOT_S = 20.0


class HostShell:
    """Root's framed shell on a host, and what it said about itself."""

    def __init__(self, shell: FramedShell, fields: dict[str, str]) -> None:
        self.shell = shell
        self.pid = int(fields["pid"])
        self.start = int(fields["start"])
        self.hz = int(fields.get("hz", "100") or "100")


async def open_shell(connection: Connection, host: Host) -> HostShell:
    """Root's shell: as the login itself, else through `sudo -n` where the inventory allows it.

    Raises PrivilegeMissing where root cannot be had.
    """
    channel = await connection.open(_as_root(host))
    shell = FramedShell(channel, host.name)
    try:
        fields = await shell.boot(BOOT_S)
    except ShellEnded as exc:
        raise _no_root(host, exc) from exc
    if fields.get("uid") != "0":
        await shell.close()
        raise PrivilegeMissing(
            f"{host.name}: root is needed to see and signal other people's processes",
            hint=f"let {host.ssh} run `sudo -n sh`, or log in as root",
        )
    return HostShell(shell, fields)


def _as_root(host: Host) -> str:
    inner = quoted(loader_words())
    if host.sudo == "never":
        return quoted(["/bin/sh", "-c", f"exec {inner}"])
    text = f'[ "$(id -u)" = 0 ] && exec {inner}; exec sudo -n {inner}'
    return quoted(["/bin/sh", "-c", text])


def _no_root(host: Host, exc: ShellEnded) -> PrivilegeMissing | ConnectionLost:
    if "sudo" in exc.said or exc.status in (1, 127):
        return PrivilegeMissing(
            f"{host.name}: root is needed, and sudo refused: {exc.said or 'no reason given'}",
            hint=f"allow {host.ssh} to run `sudo -n sh` on {host.name}, or log in as root",
        )
    return exc
