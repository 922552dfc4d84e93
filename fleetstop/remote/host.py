"""A host as a place: one connection, a shell on it, root's where that can be had; knows no job."""

from __future__ import annotations

from fleetstop.core.inventory import Host
from fleetstop.errors import ConnectionLost, PrivilegeMissing
from fleetstop.remote.shell import FramedShell, ShellEnded, loader_words, quoted
from fleetstop.remote.ssh import Connection

BOOT_S = 20.0
# Where sudo refuses, the login's own shell it is. Asked by a sudo of its own: a root shell that
# ended would leave what is still to come to be read by its successor.
_AUTO = '[ "$(id -u)" = 0 ] || ! sudo -n sh -c : </dev/null || exec sudo -n {inner}; exec {inner}'
_ALWAYS = '[ "$(id -u)" = 0 ] && exec {inner}; exec sudo -n {inner}'


class HostShell:
    """A framed shell on a host, and what it said about itself. `without_root`: why it is not
    root's, a sentence; None where it is."""

    def __init__(
        self, shell: FramedShell, fields: dict[str, str], without_root: str | None
    ) -> None:
        self.shell = shell
        self.pid = int(fields["pid"])
        self.start = int(fields["start"])
        self.hz = int(fields.get("hz", "100") or "100")
        self.without_root = without_root


async def open_shell(connection: Connection, host: Host) -> HostShell:
    """Root's shell, as the login itself or through `sudo -n`; else the login's own, unless the
    inventory says `sudo: always`. Raises PrivilegeMissing."""
    channel = await connection.open(with_rights(host, loader_words()))
    shell = FramedShell(channel, host.name)
    try:
        fields = await shell.boot(BOOT_S)
    except ShellEnded as exc:
        raise _no_root(host, exc) from exc
    said = channel.stderr[-400:].decode("utf-8", "backslashreplace").strip()
    reason = lacking(host, fields, said)
    if reason is not None and (host.sudo == "always" or fields.get("hidden")):
        await shell.close()
        raise PrivilegeMissing(
            f"{reason}; other people's processes are hidden there (hidepid)"
            if fields.get("hidden")
            else f"{host.name}: root is needed to see and signal other people's processes",
            hint=f"let {host.ssh} run `sudo -n sh`, or log in as root",
        )
    return HostShell(shell, fields, reason)


def lacking(host: Host, fields: dict[str, str], said: str) -> str | None:
    """Why there is no root, from what `hello` and sudo said; None where there is."""
    if fields.get("uid") == "0":
        return None
    why = "sudo: never" if host.sudo == "never" else said.rpartition("\n")[2] or "sudo refused"
    return f"no root on {host.name} ({why})"


def with_rights(host: Host, words: list[str]) -> str:
    """A command line that runs these words as root where that can be had; see `open_shell`."""
    inner = quoted(words)
    text = {"auto": _AUTO, "always": _ALWAYS, "never": "exec {inner}"}[host.sudo]
    return quoted(["/bin/sh", "-c", text.replace("{inner}", inner)])


def _no_root(host: Host, exc: ShellEnded) -> PrivilegeMissing | ConnectionLost:
    if "sudo" in exc.said or exc.status in (1, 127):
        return PrivilegeMissing(
            f"{host.name}: root is needed, and sudo refused: {exc.said or 'no reason given'}",
            hint=f"allow {host.ssh} to run `sudo -n sh` on {host.name}, or log in as root",
        )
    return exc
