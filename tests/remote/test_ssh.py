"""Logging in to a real sshd on loopback: what works, and how each failure is told."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fleetstop import errors
from fleetstop.core.inventory import Host
from fleetstop.remote.ssh import Connection, Tunnels, connect

T = TypeVar("T")
SSHD = "/usr/sbin/sshd"
USER = getpass.getuser()

pytestmark = [
    pytest.mark.bed,
    pytest.mark.skipif(
        not os.access(SSHD, os.X_OK), reason="no /usr/sbin/sshd here (openssh-server)"
    ),
]


class Sshd:
    """One sshd with keys, config and log of its own; ended by process id."""

    def __init__(self, room: Path, authorized: Path, *lines: str, kind: str = "ed25519") -> None:
        self.room, self.port = room, free_port()
        room.mkdir()
        self.host_key = keygen(room / "host_key", kind)
        self.log = room / "log"
        config = room / "sshd_config"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.host_key}\n"
            f"AuthorizedKeysFile {authorized}\nPidFile none\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            "PermitRootLogin prohibit-password\nLogLevel VERBOSE\n" + "\n".join(lines) + "\n"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.process = subprocess.Popen([SSHD, "-D", "-f", config, "-E", self.log])
        wait_for(lambda: self.log.exists() and "listening" in self.log.read_text().lower())

    def known(self, name: str = "", key: Path | None = None) -> str:
        public = (key or self.host_key).with_suffix(".pub").read_text().split()[:2]
        return f"{name or f'[127.0.0.1]:{self.port}'} {' '.join(public)}\n"

    def fill(self) -> socket.socket:
        """Take the one place that `MaxStartups 1:100:1` gives; the last one may be on its way."""
        while True:
            peer = socket.create_connection(("127.0.0.1", self.port))
            if peer.recv(4) == b"SSH-":
                return peer
            peer.close()
            time.sleep(0.05)

    def logins(self) -> int:
        return self.log.read_text().count("Accepted publickey")

    def children(self) -> list[int]:
        pid = self.process.pid
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(word) for word in text.split()]

    def stop(self) -> None:
        for pid in self.children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()


class Bed:
    """A home directory, a client key, and as many sshds as a test wants."""

    def __init__(self, room: Path, stack: ExitStack) -> None:
        self.room, self._stack, self._count = room, stack, 0
        self.key = keygen(room / "client", "ed25519")
        self.other_key = keygen(room / "other", "ed25519")

    def sshd(self, *lines: str, kind: str = "ed25519") -> Sshd:
        self._count += 1
        room = self.room / f"sshd{self._count}"
        sshd = Sshd(room, self.key.with_suffix(".pub"), *lines, kind=kind)
        self._stack.callback(sshd.stop)
        return sshd

    def file(self, name: str, text: str) -> Path:
        path = self.room / name
        path.write_text(text)
        return path

    def host(self, sshd: Sshd, known: str | None = None, **more: Any) -> Host:
        hosts = self.file("known_hosts", sshd.known() if known is None else known)
        plain: dict[str, Any] = {"port": sshd.port, "identity": str(self.key)}
        plain |= {"known_hosts": str(hosts), **more}
        return Host(name="lab1", ssh=f"{USER}@127.0.0.1", **plain)


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with ExitStack() as stack:
        yield Bed(tmp_path, stack)


def keygen(path: Path, kind: str, passphrase: str = "") -> Path:
    words = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "", "-f", str(path)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(true: Callable[[], bool], within_s: float = 10.0) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def on(host: Host, use: Callable[[Connection], Awaitable[T]], **how: Any) -> T:
    async def story() -> T:
        connection = await connect(host, **how)
        try:
            return await use(connection)
        finally:
            await connection.close()

    return asyncio.run(story())


async def echo(connection: Connection) -> bytes:
    assert connection.connections == 1
    return (await connection.run("echo in; echo aside >&2", deadline_s=10)).out


def failure(host: Host, kind: type[T], **how: Any) -> T:
    with pytest.raises(kind) as caught:  # type: ignore[type-var]
        on(host, echo, **how)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    return caught.value


@contextmanager
def listener(said: bytes = b"", *, hang_up: bool = False) -> Iterator[int]:
    """Accepts connections, says something to each, and goes silent or hangs up."""
    with socket.socket() as server, ExitStack() as open_ones:
        server.bind(("127.0.0.1", 0))
        server.listen(5)
        thread = threading.Thread(target=answer, args=(server, said, hang_up, open_ones))
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def answer(server: socket.socket, said: bytes, hang_up: bool, keep: ExitStack) -> None:
    while True:
        try:
            peer, _ = server.accept()
        except OSError:
            return
        keep.enter_context(peer).sendall(said)
        if hang_up:
            peer.shutdown(socket.SHUT_WR)
            peer.recv(1000)
            peer.close()


# ---- what works


def test_a_login_with_the_inventorys_identity(bed: Bed) -> None:
    async def use(connection: Connection) -> None:
        done = await connection.run("echo out; echo err >&2; exit 7", deadline_s=10)
        assert (done.status, done.out, done.err) == (7, b"out\n", b"err\n")
        assert connection.connections == 1
        back = await connection.run("cat; cat", stdin=b"\x00\xff" * 500_000, deadline_s=20)
        assert back.out == b"\x00\xff" * 500_000
        assert (await connection.run("cat", deadline_s=10)).out == b""
        assert (await connection.run("kill -9 $$", deadline_s=10)).status == -9

    on(bed.host(bed.sshd()), use)


def test_an_alias_of_the_ssh_config(bed: Bed) -> None:
    sshd = bed.sshd()
    bed.file("hosts with space", sshd.known("lab-key"))
    config = bed.file(
        "config",
        f"Host gpu\n HostName 127.0.0.1\n Port {sshd.port}\n User {USER}\n HostKeyAlias lab-key\n"
        f" IdentityFile {bed.room}/no-such-key\n IdentityFile {bed.key}\n RequestTTY force\n"
        f' UserKnownHostsFile /none "{bed.room}/hosts with space"\n'
        " RemoteCommand false\n SendEnv *\n ForwardAgent yes\n",
    )
    assert on(Host(name="gpu", ssh="gpu"), echo, ssh_config=config) == b"in\n"


def test_request_tty_force_gives_no_terminal(bed: Bed) -> None:
    config = bed.file("config", "Host *\n RequestTTY force\n")

    async def use(connection: Connection) -> bytes:
        return (await connection.run("tty", deadline_s=10)).out

    assert on(bed.host(bed.sshd()), use, ssh_config=config) == b"not a tty\n"


def test_default_key_config_and_known_hosts_of_the_home(bed: Bed) -> None:
    sshd, home = bed.sshd(), bed.room / "home/.ssh"
    shutil.copy(bed.key, home / "id_ed25519")
    (home / "known_hosts").write_text(sshd.known())
    (home / "config").write_text(f"Host near\n HostName 127.0.0.1\n Port {sshd.port}\n")
    assert on(Host(name="near", ssh="near"), echo) == b"in\n"


def test_the_agent_gives_the_key(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    place = bed.room / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", place], stdout=subprocess.DEVNULL)
    try:
        wait_for(place.exists)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(place))
        for key in (bed.other_key, bed.key):
            subprocess.run(["ssh-add", "-q", key], check=True)
        sshd = bed.sshd("MaxAuthTries 2")
        assert on(bed.host(sshd, identity=str(bed.key) + ".pub"), echo) == b"in\n"
        refused = failure(bed.host(sshd, identity=str(bed.other_key) + ".pub"), errors.LoginRefused)
        assert "the agent's keys" in refused.hint
    finally:
        agent.kill()
        agent.wait()


def test_a_dead_agent_is_no_obstacle(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(bed.room / "nobody"))
    assert on(bed.host(bed.sshd()), echo) == b"in\n"


def test_known_hosts_hashed_wildcard_negated_and_system_wide(bed: Bed) -> None:
    sshd = bed.sshd()
    hashed = bed.file("hashed", sshd.known())
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", hashed], check=True, capture_output=True)
    assert "127.0.0.1" not in hashed.read_text()
    assert on(bed.host(sshd, hashed.read_text()), echo) == b"in\n"
    assert on(bed.host(sshd, sshd.known(f"[127.0.0.*]:{sshd.port}")), echo) == b"in\n"
    assert on(bed.host(sshd, sshd.known("127.0.0.1")), echo) == b"in\n"
    both = sshd.known(f"[127.*]:{sshd.port},![127.0.0.1]:{sshd.port}")
    failure(bed.host(sshd, both), errors.HostKeyUnknown)
    everybody = bed.file("system", sshd.known())
    config = bed.file("config", f"UserKnownHostsFile none\nGlobalKnownHostsFile {everybody}\n")
    assert on(bed.host(sshd, known_hosts=None), echo, ssh_config=config) == b"in\n"


def test_nine_commands_at_once_keep_to_eight_channels(bed: Bed) -> None:
    async def use(connection: Connection) -> None:
        channels = [await connection.open("cat") for _ in range(8)]
        ninth = asyncio.create_task(connection.run("echo ninth", deadline_s=10))
        await asyncio.sleep(0.3)
        assert not ninth.done()
        channels[0].eof()
        assert (await ninth).out == b"ninth\n"
        many = [connection.run(f"echo {n}", deadline_s=20) for n in range(9)]
        for channel in channels[1:]:
            channel.eof()
        assert [done.status for done in await asyncio.gather(*many)] == [0] * 9

    on(bed.host(bed.sshd()), use)


def test_a_channel_talks_in_turn_and_keeps_the_tail_of_stderr(bed: Bed) -> None:
    async def use(connection: Connection) -> None:
        channel = await connection.open(
            'while read -r word; do echo "<$word>"; done; head -c 100000 /dev/zero >&2; exit 3'
        )
        for word in (b"one", b"two"):
            channel.write(word + b"\n")
            await channel.drain()
            assert await channel.read(100) == b"<" + word + b">\n"
        channel.eof()
        assert await channel.read(1) == b""
        await channel.wait_closed()
        assert (channel.exit_status, len(channel.stderr)) == (3, 64 * 1024)
        with pytest.raises(errors.ConnectionLost, match="command has ended"):
            channel.write(b"late")

    on(bed.host(bed.sshd()), use)


def test_much_output_arrives_whole(bed: Bed) -> None:
    async def use(connection: Connection) -> int:
        done = await connection.run("head -c 20000000 /dev/zero", deadline_s=60)
        return len(done.out)

    assert on(bed.host(bed.sshd()), use) == 20_000_000


# ---- host keys


def test_an_unknown_host_key_is_refused_and_not_added(bed: Bed) -> None:
    sshd = bed.sshd()
    error = failure(bed.host(sshd, ""), errors.HostKeyUnknown)
    assert f"lab1: the host key of 127.0.0.1:{sshd.port} is unknown (ssh-ed25519 SHA256:" in str(
        error
    )
    assert f"ssh-keyscan -p {sshd.port} 127.0.0.1" in error.hint
    assert f"ssh -p {sshd.port} -i {bed.key}" in error.hint
    assert (bed.room / "known_hosts").read_text() == ""
    assert sshd.logins() == 0


@pytest.mark.parametrize("line", ["UserKnownHostsFile none", "StrictHostKeyChecking no"])
def test_no_config_switches_the_check_off(bed: Bed, line: str) -> None:
    config = bed.file("config", line + "\n")
    host = bed.host(bed.sshd(), known_hosts=None)
    failure(host, errors.HostKeyUnknown, ssh_config=config)


def test_a_changed_host_key_names_file_line_and_command(bed: Bed) -> None:
    sshd = bed.sshd()
    known = "# mine\n" + sshd.known(key=bed.other_key)
    error = failure(bed.host(sshd, known), errors.HostKeyChanged)
    file = bed.room / "known_hosts"
    assert f"{file}:2" in str(error)
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f {file}" in error.hint
    assert sshd.logins() == 0


def test_another_type_of_host_key_is_a_change_too(bed: Bed) -> None:
    sshd = bed.sshd(kind="ecdsa")
    failure(bed.host(sshd, sshd.known(key=bed.other_key)), errors.HostKeyChanged)


def test_a_misfit_under_the_name_without_port_is_unknown(bed: Bed) -> None:
    sshd = bed.sshd()
    failure(bed.host(sshd, sshd.known("127.0.0.1", bed.other_key)), errors.HostKeyUnknown)


def test_a_key_known_for_the_address_alone_does_not_vouch_for_a_name(bed: Bed) -> None:
    sshd = bed.sshd()
    host = Host(
        name="lab1", ssh=f"{USER}@localhost", port=sshd.port, identity=str(bed.key),
        known_hosts=str(bed.file("known_hosts", sshd.known())),
    )  # fmt: skip
    failure(host, errors.HostKeyUnknown)


def test_a_revoked_key_is_refused(bed: Bed) -> None:
    sshd = bed.sshd()
    error = failure(bed.host(sshd, sshd.known() + "@revoked * " + sshd.known("x")[2:]),
                    errors.HostKeyChanged)  # fmt: skip
    assert "revoked" in str(error)
    assert "known_hosts:2" in error.hint


def test_a_damaged_known_hosts_file_is_named(bed: Bed) -> None:
    sshd = bed.sshd()
    error = failure(bed.host(sshd, sshd.known() + "garbage\n"), errors.HostUnreachable)
    assert "known_hosts:2: not a known_hosts entry" in str(error)
    folder = bed.room / "home"
    error = failure(bed.host(sshd, known_hosts=str(folder)), errors.HostUnreachable)
    assert f"cannot read {folder}" in str(error)


# ---- logins


def test_a_refused_login_names_user_and_key(bed: Bed) -> None:
    sshd = bed.sshd()
    error = failure(bed.host(sshd, identity=str(bed.other_key)), errors.LoginRefused)
    assert str(error) == f"lab1: login refused for {USER}"
    assert error.hint.startswith(f"ssh-copy-id -p {sshd.port}")
    assert str(bed.other_key) in error.hint
    assert "Connection from" in sshd.log.read_text()
    assert sshd.log.read_text().count("Connection from") == 1  # never retried


def test_a_key_with_a_passphrase_is_skipped_and_named(bed: Bed) -> None:
    locked = keygen(bed.room / "locked", "ed25519", "secret")
    error = failure(bed.host(bed.sshd(), identity=str(locked)), errors.LoginRefused)
    assert f"{locked} needs a passphrase" in str(error)
    assert f"ssh-add {locked}" in error.hint


def test_an_identity_that_is_not_there(bed: Bed) -> None:
    error = failure(bed.host(bed.sshd(), identity="/no/such"), errors.HostUnreachable)
    assert "cannot read the identity /no/such: No such file" in str(error)


def test_a_broken_ssh_config_names_its_line(bed: Bed) -> None:
    config = bed.file("config", "Host *\n Port many\n")
    error = failure(bed.host(bed.sshd()), errors.HostUnreachable, ssh_config=config)
    assert f"{config} line 2" in str(error)


# ---- the way there


def at(port: int, name: str = "127.0.0.1") -> Host:
    return Host(name="lab1", ssh=f"root@{name}", port=port, known_hosts="/dev/null")


def test_a_closed_port(bed: Bed) -> None:
    port = free_port()
    told = failure(at(port), errors.HostUnreachable)
    assert f"127.0.0.1:{port} refused the connection" in str(told)
    assert "refused the connection" in str(failure(at(port, "localhost"), errors.HostUnreachable))


@pytest.mark.parametrize("name", ["no..such", "a" * 70])
def test_a_name_that_cannot_exist(bed: Bed, name: str) -> None:
    assert "no such host name" in str(failure(at(22, name), errors.HostUnreachable))


def test_a_name_that_does_not_exist(bed: Bed) -> None:
    told = str(failure(at(22, "nobody.invalid"), errors.HostUnreachable))
    assert "no such host name: nobody.invalid" in told or "could not be looked up" in told


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"", "accepts connections but said nothing within 0.5 s"),
        (b"220 mail ESMTP\x1b[31m\r\n", "is not an SSH server; it says '220 mail ESMTP?[31m'"),
        (b"SSH-2.0-Stalled\r\n", "did not finish the key exchange within 0.5 s"),
    ],
)
def test_a_server_that_goes_silent(bed: Bed, said: bytes, told: str) -> None:
    with listener(said) as port:
        begin = time.monotonic()
        error = failure(at(port), errors.HostUnreachable, connect_timeout_s=0.5)
        assert time.monotonic() - begin < 3
    assert told in str(error)


def test_a_server_that_hangs_up(bed: Bed) -> None:
    with listener(b"HTTP/1.1 400 Bad Request\r\n\r\n", hang_up=True) as port:
        assert "is not an SSH server" in str(failure(at(port), errors.HostUnreachable))
    with listener(hang_up=True) as port:
        assert "dropped the connection before" in str(failure(at(port), errors.HostUnreachable))


def test_max_startups_is_tried_again(bed: Bed) -> None:
    sshd = bed.sshd("MaxStartups 1:100:1")
    host = bed.host(sshd)

    async def story() -> int:
        holder = sshd.fill()
        asyncio.get_running_loop().call_later(0.15, holder.close)
        connection = await connect(host)
        await connection.close()
        return connection.connections

    assert asyncio.run(story()) == 1
    assert "MaxStartups" in sshd.log.read_text()
    with sshd.fill():
        assert "MaxStartups" in str(failure(host, errors.HostUnreachable))


def test_max_sessions_is_told(bed: Bed) -> None:
    async def use(connection: Connection) -> None:
        await connection.open("cat")
        with pytest.raises(errors.RemoteFailed, match="another session") as caught:
            await connection.open("cat")
        assert "MaxSessions" in caught.value.hint

    on(bed.host(bed.sshd("MaxSessions 1")), use)


def test_a_killed_sshd_is_a_lost_connection_at_once(bed: Bed) -> None:
    sshd = bed.sshd()

    async def use(connection: Connection) -> None:
        channel = await connection.open("cat")
        running = asyncio.create_task(connection.run("sleep 60", deadline_s=60))
        await asyncio.sleep(0.3)
        for pid in sshd.children():
            os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(5):
            with pytest.raises(errors.ConnectionLost):
                await channel.read(1)
            with pytest.raises(errors.ConnectionLost):
                await running
            with pytest.raises(errors.ConnectionLost):
                await connection.run("true", deadline_s=5)
        with pytest.raises(errors.ConnectionLost):
            channel.write(b"x")
        assert channel.exit_status is None

    on(bed.host(sshd), use)


def test_a_command_past_its_deadline(bed: Bed) -> None:
    async def use(connection: Connection) -> None:
        with pytest.raises(errors.FrameTimedOut, match=r"no answer within 0\.3 s"):
            await connection.run("sleep 5", deadline_s=0.3)
        assert (await connection.run("echo on", deadline_s=10)).out == b"on\n"

    on(bed.host(bed.sshd()), use)


def test_closing_is_bounded_when_sshd_stands_still(bed: Bed) -> None:
    sshd = bed.sshd()

    async def story() -> float:
        connection = await connect(bed.host(sshd))
        await connection.open("cat")
        for pid in sshd.children():
            os.kill(pid, signal.SIGSTOP)
        begin = time.monotonic()
        await connection.close()
        return time.monotonic() - begin

    assert asyncio.run(story()) < 4


def test_cancelling_passes_through(bed: Bed) -> None:
    async def story(port: int) -> float:
        task = asyncio.create_task(connect(at(port)))
        await asyncio.sleep(0.3)
        begin = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - begin

    with listener() as port:
        assert asyncio.run(story(port)) < 2
    with listener(hang_up=True) as port:  # in the midst of the retries
        assert asyncio.run(story(port)) < 2


def test_a_proxy_command_is_followed_and_named_when_it_is_silent(bed: Bed) -> None:
    sshd = bed.sshd()
    relay = bed.file(
        "relay.py",
        "import os, socket, sys, threading\n"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "def up():\n"
        "    while data := os.read(0, 9999):\n"
        "        s.sendall(data)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := s.recv(9999):\n"
        "    os.write(1, data)\n",
    )
    config = bed.file(
        "config",
        f"Host relayed\n ProxyCommand {sys.executable} {relay} {sshd.port}\n"
        f" HostKeyAlias [127.0.0.1]:{sshd.port}\n User {USER}\n IdentityFile {bed.key}\n"
        "Host silent\n ProxyCommand sleep 100\n",
    )
    known = str(bed.file("hosts", sshd.known()))
    host = Host(name="relayed", ssh="relayed", known_hosts=known)
    assert on(host, echo, ssh_config=config) == b"in\n"
    error = failure(
        Host(name="silent", ssh="silent"), errors.HostUnreachable,
        ssh_config=config, connect_timeout_s=0.5,
    )  # fmt: skip
    assert "ProxyCommand) accepts connections but said nothing within 0.5 s" in str(error)


def test_a_port_that_is_none(bed: Bed) -> None:
    host = Host(name="lab1", ssh="root@127.0.0.1:many")
    assert "'many' in 'root@127.0.0.1:many' is not a port" in str(
        failure(host, errors.HostUnreachable)
    )


def test_the_hint_commands_work(bed: Bed) -> None:
    sshd = bed.sshd()
    host = bed.host(sshd, sshd.known(key=bed.other_key))
    hint = failure(host, errors.HostKeyChanged).hint
    forget = hint.partition(": ")[2]
    subprocess.run(forget, shell=True, check=True, capture_output=True)
    hint = failure(host, errors.HostKeyUnknown).hint
    scan = hint.partition(",")[0]
    line = subprocess.run(scan, shell=True, check=True, capture_output=True).stdout
    Path(str(host.known_hosts)).write_bytes(line)
    assert on(host, echo) == b"in\n"


# ---- jump hosts


def jumping(bed: Bed) -> tuple[Sshd, Sshd, Path]:
    bastion, inner = bed.sshd(), bed.sshd()
    hosts = bed.file("both", bastion.known() + inner.known())
    config = bed.file(
        "config",
        f"Host bastion\n HostName 127.0.0.1\n Port {bastion.port}\n"
        f"Host inner*\n HostName 127.0.0.1\n Port {inner.port}\n ProxyJump bastion\n"
        "Host loop\n ProxyJump loop\n"
        f"Host *\n User {USER}\n IdentityFile {bed.key}\n UserKnownHostsFile {hosts}\n",
    )
    return bastion, inner, config


def test_two_targets_share_one_tunnel(bed: Bed) -> None:
    bastion, inner, config = jumping(bed)

    async def story() -> None:
        async with Tunnels() as tunnels:
            ways = [Host(name=name, ssh=name) for name in ("inner1", "inner2")]
            pair = await asyncio.gather(
                *(connect(way, ssh_config=config, tunnels=tunnels) for way in ways)
            )
            for connection in pair:
                assert await echo(connection) == b"in\n"
                await connection.close()
            assert tunnels.connections == 1
            again = await connect(ways[0], ssh_config=config, tunnels=tunnels)
            await again.close()

    asyncio.run(story())
    assert (bastion.logins(), inner.logins()) == (1, 3)


def test_a_lost_tunnel_is_opened_again(bed: Bed) -> None:
    bastion, _, config = jumping(bed)

    async def story() -> None:
        async with Tunnels() as tunnels:
            way = Host(name="inner", ssh="inner")
            first = await connect(way, ssh_config=config, tunnels=tunnels)
            for pid in bastion.children():
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(errors.ConnectionLost):
                await first.run("sleep 9", deadline_s=5)
            await first.close()
            second = await connect(way, ssh_config=config, tunnels=tunnels)
            assert await echo(second) == b"in\n"
            await second.close()
            assert tunnels.connections == 2

    asyncio.run(story())


def test_a_jump_named_in_the_inventory_needs_no_config(bed: Bed) -> None:
    bastion, inner = bed.sshd(), bed.sshd()
    host = bed.host(inner, bastion.known() + inner.known(), jump=f"{USER}@127.0.0.1:{bastion.port}")
    assert on(host, echo) == b"in\n"
    assert (bastion.logins(), inner.logins()) == (1, 1)


def test_a_jump_that_fails_is_named(bed: Bed) -> None:
    bastion, inner = bed.sshd("AllowTcpForwarding no"), bed.sshd()
    hop = f"{USER}@127.0.0.1:{bastion.port}"
    error = failure(bed.host(inner, bastion.known(), jump=hop), errors.HostUnreachable)
    assert f"jump host {hop} cannot reach 127.0.0.1:{inner.port}" in str(error)
    error = failure(bed.host(inner, inner.known(), jump=hop), errors.HostKeyUnknown)
    assert f"lab1: jump host {hop}: the host key of" in str(error)
    closed = f"{USER}@127.0.0.1:{free_port()}"
    error = failure(bed.host(inner, jump=closed), errors.HostUnreachable)
    assert f"lab1: jump host {closed}: " in str(error)


def test_a_jump_through_itself_is_refused(bed: Bed) -> None:
    *_, config = jumping(bed)
    error = failure(Host(name="loop", ssh="loop"), errors.HostUnreachable, ssh_config=config)
    assert "through itself" in str(error)


def test_asyncssh_keeps_quiet(bed: Bed, capfd: pytest.CaptureFixture[str]) -> None:
    failure(bed.host(bed.sshd(), identity=str(bed.other_key)), errors.LoginRefused)
    assert capfd.readouterr().err == ""
    assert logging.getLogger("asyncssh").level >= logging.CRITICAL
