"""A real OpenSSH server on loopback, with its own keys, log and port."""

from __future__ import annotations

import shutil
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fleetstop.errors import LabUnavailable
from fleetstop.lab.container import run_tool
from fleetstop.lab.processes import ProcessId, command_line, descendants, end, identify, is_alive

ADDRESS = "127.0.0.1"
_ATTEMPTS = 5

# MaxSessions and MaxStartups keep their defaults: they are part of the practice
_CONFIG = """\
Port {port}
ListenAddress {address}
HostKey {home}/host_ed25519
AuthorizedKeysFile {home}/id_ed25519.pub
PidFile {home}/sshd.pid
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
LogLevel VERBOSE
AcceptEnv LANG LC_*
SetEnv PATH={bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin SHLVL=1
# SHLVL keeps this machine's ~/.bashrc out (bash(1), "run by sshd"): a bare node has an empty one
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True)
class Sshd:
    """The server of one lab: where its files lie; `port` is known once it has been started."""

    home: Path
    port: int = 0

    @property
    def identity(self) -> Path:
        return self.home / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.home / "known_hosts"

    @property
    def log(self) -> Path:
        return self.home / "sshd.log"

    def start(self, bin_directory: Path) -> tuple[Sshd, ProcessId]:
        """Start on a free port; returns when the banner has been read."""
        self._make_keys()
        for _ in range(_ATTEMPTS):
            server = Sshd(self.home, _free_port())
            process = server._start_on_port(bin_directory)
            if process:
                return server, process
        raise LabUnavailable(f"sshd does not start: {self._last_words()}")

    def running(self) -> ProcessId | None:
        """The server by its PID file, if it is this one: for a lab that died while it came up."""
        with suppress(OSError, ValueError):
            pid = int(self._pid_file.read_text())
            if any(str(self.home / "sshd_config") in word for word in command_line(pid)):
                return identify(pid)
        return None

    def connections(self) -> int:
        """How many SSH connections were let in since the start."""
        if not self.log.exists():
            return 0
        return self.log.read_text(errors="replace").count("Accepted publickey for ")

    def _make_keys(self) -> None:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's privilege separation directory
        self.home.mkdir(exist_ok=True)
        for name in ("host_ed25519", "id_ed25519"):
            if not (self.home / name).exists():
                path = str(self.home / name)
                run_tool(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path])

    def _start_on_port(self, bin_directory: Path) -> ProcessId | None:
        config = self.home / "sshd_config"
        filled = _CONFIG.format(port=self.port, address=ADDRESS, home=self.home, bin=bin_directory)
        config.write_text(filled)
        host_key = (self.home / "host_ed25519.pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[{ADDRESS}]:{self.port} {' '.join(host_key)}\n")
        self._pid_file.unlink(missing_ok=True)
        done = run_tool([_program(), "-f", str(config), "-E", str(self.log)])
        if done.returncode != 0:
            raise LabUnavailable(f"sshd refuses its configuration: {done.stderr.strip()}")
        return self._wait_for_banner()

    def _wait_for_banner(self, seconds: float = 5.0) -> ProcessId | None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if "Cannot bind any address" in self._last_words():
                return None
            with suppress(OSError, ValueError):
                process = identify(int(self._pid_file.read_text()))
                with socket.create_connection((ADDRESS, self.port), timeout=1) as connection:
                    if process and connection.recv(8).startswith(b"SSH-2.0"):
                        return process
            time.sleep(0.02)
        return None

    @property
    def _pid_file(self) -> Path:
        return self.home / "sshd.pid"

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return " / ".join(lines[-2:])


def stop(process: ProcessId) -> None:
    """End the server and every session it holds; harmless when it is gone."""
    below = descendants(process.pid) if is_alive(process) else set()
    if left := end([process, *below]):
        raise LabUnavailable(f"sshd's processes do not end: {left}")


def _program() -> str:
    """sshd insists on being called by its absolute path."""
    return shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin") or "/usr/sbin/sshd"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        port: int = probe.getsockname()[1]
    return port
