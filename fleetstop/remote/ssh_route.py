"""How a host is reached: ssh config, keys, known_hosts, the jump; reads files, opens nothing."""

from __future__ import annotations

import getpass
import os
import re
import shlex
from pathlib import Path
from typing import Any, cast

import asyncssh

from fleetstop import errors
from fleetstop.core.inventory import Host
from fleetstop.remote.known_hosts import HostKeys, Unreadable, read_known_hosts
from fleetstop.remote.ssh_errors import Journey

_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")


def plan(host: Host, ssh_config: Path | None, *, hop: bool) -> tuple[Journey, dict[str, Any]]:
    """Everything that is read from files, in a thread. Raises HostUnreachable."""
    try:
        return _read_plan(host, ssh_config, hop)
    except Unreadable as exc:
        raise errors.HostUnreachable(f"{host.name}: {exc}") from exc
    except (OSError, ValueError, asyncssh.Error) as exc:
        raise errors.HostUnreachable(f"{host.name}: ssh configuration: {exc}") from exc


def _read_plan(host: Host, ssh_config: Path | None, hop: bool) -> tuple[Journey, dict[str, Any]]:
    user, name, port = _destination(host.ssh)
    default = Path("~/.ssh/config").expanduser()
    options: dict[str, Any] = {
        "host": name,
        "port": host.port or port or (),
        "username": user or (),
        "config": [ssh_config or default] if ssh_config or default.exists() else [],
        "known_hosts": None,  # replaced below, before anything is dialled
        "client_keys": None,
        "preferred_auth": "publickey",
        "password_auth": False,
        "kbdint_auth": False,
        "host_based_auth": False,
        "client_host_keysign": False,
        "public_key_auth": True,
        "gss_host": None,
        "x509_trusted_certs": None,
        "x509_trusted_cert_paths": [],
        "agent_forwarding": False,
        "x11_forwarding": False,
        "env": None,
        "send_env": None,
        "keepalive_interval": 5,
        "keepalive_count_max": 3,
        "connect_timeout": None,  # ours covers all of it
    }
    said = asyncssh.SSHClientConnectionOptions(**options)
    files = _known_hosts_files(host, said, name, hop)
    host_keys = HostKeys(files, read_known_hosts(files), said.host_key_alias)
    if said.config.get("HostKeyAlgorithms") is None:
        port = said.port if said.port != 22 else None
        algorithms = host_keys.algorithms(said.host_key_alias or said.host, port)
        options["server_host_key_algs"] = algorithms
    keys = _Keys(host, said, hop)
    jump = host.jump or cast("str | None", said.tunnel)
    options |= {"known_hosts": host_keys, **keys.options}
    words = _ssh_words(host, ssh_config)
    way = Journey(
        name=host.name,
        user=said.username,
        address=said.host,
        port=said.port,
        retry=shlex.join(["ssh", *words]),
        copy_id=shlex.join(["ssh-copy-id", *words]),
        tried=tuple(keys.tried),
        locked=tuple(keys.locked),
        host_keys=host_keys,
        jump=None if jump == "none" else jump,
        proxied=bool(said.proxy_command) and not jump,
    )
    return way, options


def _destination(text: str) -> tuple[str, str, int | None]:
    """`[ssh://][user@]host[:port]`, IPv6 in brackets or bare -> user (may be empty), host, port."""
    user, _, place = text.removeprefix("ssh://").rpartition("@")
    if place.startswith("["):
        name, _, port = place[1:].partition("]")
        port = port.removeprefix(":")
    elif place.count(":") == 1:
        name, _, port = place.partition(":")
    else:
        name, port = place, ""
    if not re.fullmatch("[0-9]*", port):
        raise Unreadable(f"{port!r} in {text!r} is not a port")
    return user, name, int(port) if port else None


def _ssh_words(host: Host, ssh_config: Path | None) -> list[str]:
    """What a person would give to ssh to go the same way."""
    user, name, port = _destination(host.ssh)
    given = {
        "-F": ssh_config,
        "-p": host.port or port,
        "-i": host.identity,
    }
    words = [word for flag, value in given.items() if value for word in (flag, str(value))]
    for option, value in ("ProxyJump", host.jump), ("UserKnownHostsFile", host.known_hosts):
        words += ["-o", f"{option}={value}"] if value else []
    return [*words, f"{user}@{name}" if user else name]


def _known_hosts_files(
    host: Host, said: asyncssh.SSHClientConnectionOptions, name: str, hop: bool
) -> list[Path]:
    """As ssh looks for them (ssh_config(5)); the inventory's file instead, or as well for a hop."""
    own = [Path(host.known_hosts).expanduser()] if host.known_hosts else []
    if own and not hop:
        return own
    user = said.config.get("UserKnownHostsFile")
    everybody = said.config.get("GlobalKnownHostsFile")
    if user is None:
        user = ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]
    if everybody is None:
        everybody = ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"]
    tokens = {
        "%%": "%",
        "%d": str(Path.home()),
        "%h": said.host,
        "%k": said.host_key_alias or name,
        "%n": name,
        "%p": str(said.port),
        "%r": said.username,
        "%u": getpass.getuser(),
    }
    texts = [*cast("list[str]", user), *cast("list[str]", everybody)]
    return own + [_expanded(text, tokens) for text in texts]


def _expanded(text: str, tokens: dict[str, str]) -> Path:
    """asyncssh expands neither tokens nor variables in the names of known_hosts files."""
    parts = re.split(r"(%.)", os.path.expandvars(text))
    return Path("".join(tokens.get(part, part) for part in parts)).expanduser()


class _Keys:
    """Which keys to offer: the inventory's identity and config's, or the default ones.

    An identity named in the inventory is the only one offered, from the agent too: sshd hangs
    up after six. A jump host is offered it as well as what it would be offered anyway.
    """

    def __init__(self, host: Host, said: asyncssh.SSHClientConnectionOptions, hop: bool) -> None:
        self.tried: list[str] = []
        self.locked: list[str] = []
        named = [host.identity] if host.identity else []
        configured = cast("list[str] | None", said.config.get("IdentityFile"))
        if named and not hop:
            files = named
        else:
            files = named + (
                [f"~/.ssh/{n}" for n in _DEFAULT_KEYS] if configured is None else configured
            )
        pairs: list[asyncssh.SSHKeyPair] = []
        for file in files:
            pairs += self._load(file, must=file in named)
        only = bool(said.config.get("IdentitiesOnly")) or bool(named and not hop)
        self.options: dict[str, Any] = {"client_keys": pairs, "agent_path": _agent(said)}
        if only:
            public = [blob for file in files for blob in _public(file)]
            self.options["agent_identities"] = public or [b"none"]
        if self.options["agent_path"]:
            self.tried.append("the agent's keys")

    def _load(self, file: str, *, must: bool) -> list[asyncssh.SSHKeyPair]:
        try:
            pairs = list(asyncssh.load_keypairs(Path(file).expanduser()))
        except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError) as exc:
            if "assphrase" in str(exc):
                self.locked.append(file)
            elif must and not _public(file):
                raise Unreadable(f"{file} is not a private key") from exc
            return []
        except OSError as exc:
            if must:
                raise Unreadable(f"cannot read the identity {file}: {exc.strerror}") from exc
            return []
        self.tried.append(file)
        return pairs


def _public(file: str) -> list[bytes]:
    """The public half, as an agent names it: from FILE.pub, or out of the file itself."""
    path = Path(file).expanduser()
    for candidate in (path.with_name(path.name + ".pub"), path):
        try:
            return [asyncssh.read_public_key(candidate).public_data]
        except (OSError, asyncssh.KeyImportError):
            continue
    return []


def _agent(said: asyncssh.SSHClientConnectionOptions) -> str:
    named = cast("str | None", said.config.get("IdentityAgent", "SSH_AUTH_SOCK"))
    if named is None:
        return ""
    if named == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK", "")
    return os.path.expandvars(named)
