"""A TCP way between the client and sshd that goes wrong at a chosen moment."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from fleetstop.lab import Lab
from fleetstop.lab.processes import descendants

Wrong = Literal["cut", "reset", "stall", "killed", "stopped"]


class Proxy:
    """Asks `when` before every piece of an answer that it would hand to the client; at the first
    yes that piece is lost and the connection goes wrong: closed, reset, silent, or its sshd
    process killed or stopped. A function is called instead, and the piece goes through.

    Later connections are sound; after the `last` nobody listens there any more.
    """

    def __init__(self, lab: Lab, wrong: Wrong | Callable[[], None], *, last: bool = False) -> None:
        self.lab, self.wrong, self._last = lab, wrong, last
        self.when: Callable[[int], bool] = lambda _: False
        self.fired = threading.Event()
        self.connections = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._kept: list[socket.socket] = []
        self._stopped: list[int] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        port: int = self._listening.getsockname()[1]
        return port

    def inventory(self, where: Path) -> Path:
        """The lab's, by way of this."""
        server = self.lab.server
        known = where / f"known-{self.port}"
        key = (server.home / "host_ed25519.pub").read_text().split()[:2]
        known.write_text(f"[127.0.0.1]:{self.port} {' '.join(key)}\n")
        text = self.lab.inventory.read_text()
        text = text.replace(f"port: {server.port}", f"port: {self.port}")
        text = text.replace(f"known_hosts: {server.known_hosts}", f"known_hosts: {known}")
        place = where / f"fleet-{self.port}.yaml"
        place.write_text(text)
        return place

    def _deaf(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # else who waits in accept goes on
        self._listening.close()

    def close(self) -> None:
        self._deaf()
        for pid in self._stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        for each in self._kept:
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self.connections += 1
                server = socket.create_connection(("127.0.0.1", self.lab.server.port))
                self._kept += [client, server]
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        count = 0
        with suppress(OSError, ValueError):
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for source in ready:
                    data = source.recv(65536)
                    if not data:
                        raise OSError
                    count += len(data) if source is server else 0
                    if source is server and self._is_now(count):
                        if self._last:
                            self._deaf()
                        if not callable(self.wrong):
                            self._go_wrong(client, server)
                            if self.wrong != "killed":
                                return
                            continue
                        self.wrong()
                    (client if source is server else server).sendall(data)
        client.close()
        server.close()

    def _is_now(self, count: int) -> bool:
        with self._lock:
            if self.fired.is_set() or not self.when(count):
                return False
            self.fired.set()
            return True

    def _go_wrong(self, client: socket.socket, server: socket.socket) -> None:
        match self.wrong:
            case "cut":
                client.close()
                server.close()
            case "reset":
                for each in (client, server):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    each.close()
            case "killed":
                os.kill(self._sshd(server), signal.SIGKILL)
            case "stopped":
                pid = self._sshd(server)
                self._stopped.append(pid)
                os.kill(pid, signal.SIGSTOP)

    def _sshd(self, server: socket.socket) -> int:
        """The process of this lab's sshd at the other end of this very connection."""
        ports = f":{self.lab.server.port:04X} ", f":{server.getsockname()[1]:04X} "
        (inode,) = [
            line.split()[9]
            for line in Path("/proc/net/tcp").read_text().splitlines()
            if f"{line.split()[1]} ".endswith(ports[0]) and f"{line.split()[2]} ".endswith(ports[1])
        ]
        assert self.lab.state.sshd is not None
        for each in descendants(self.lab.state.sshd.pid):
            with suppress(OSError):
                words = Path(f"/proc/{each.pid}/cmdline").read_bytes()
                links = [os.readlink(fd) for fd in Path(f"/proc/{each.pid}/fd").iterdir()]
                if words.startswith(b"sshd") and f"socket:[{inode}]" in links:
                    return each.pid
        raise AssertionError("no sshd holds this connection")
