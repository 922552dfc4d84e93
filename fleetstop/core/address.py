"""What a word on the command line addresses: its grammar, before any inventory is asked.

ct200  ct200:train  ct2*:tr*  box7       names and globs of the inventory
@training                                a group
pve1/200                                 a VMID on a host of the inventory
root@10.1.2.6/200  root@[::1]/200        ad hoc; without /VMID the host itself
ssh://root@h:2222/200                    ad hoc with a port
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from fleetstop.core.inventory import VMID_LEAST, VMID_MOST, parse_vmid
from fleetstop.core.spelling import shown
from fleetstop.errors import BadUsage

_ADHOC_HINT = "an ad-hoc address is written root@HOST/VMID, or ssh://root@HOST:PORT/VMID"
_SCHEME = "ssh://"


class Named(Struct, frozen=True):
    """`place` and `job` may be globs; `job` None: not said."""

    place: str
    job: str | None = None


class InGroup(Struct, frozen=True):
    group: str


class OnHost(Struct, frozen=True):
    """A VMID on a host that the inventory is expected to know."""

    host: str
    vmid: int


class AdHoc(Struct, frozen=True):
    """`address` has no brackets; `user` None: whoever ~/.ssh/config says."""

    address: str
    user: str | None = None
    port: int | None = None
    vmid: int | None = None

    @property
    def ssh(self) -> str:
        return f"{self.user}@{self.address}" if self.user else self.address

    @property
    def name(self) -> str:
        """The address as people write it."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        name = f"{self.user}@{host}" if self.user else host
        if self.port is not None or not self.user:
            name = _SCHEME + name + (f":{self.port}" if self.port is not None else "")
        return name if self.vmid is None else f"{name}/{self.vmid}"


Address: TypeAlias = Named | InGroup | OnHost | AdHoc


def parse_address(word: str) -> Address:
    """Raises BadUsage, naming the word and what is wrong with it."""
    if not word.strip():
        raise BadUsage("a target is an empty word", hint="`fleetstop ls` lists the targets")
    if word.startswith("@"):
        if len(word) == 1:
            raise _wrong(word, "a group's name is missing after the @")
        return InGroup(word[1:])
    if word.startswith(_SCHEME):
        return _url(word)
    if "@" in word:
        return _ad_hoc(word)
    if "/" in word:
        host, _, vmid = word.partition("/")
        return OnHost(host, _vmid(word, vmid))
    place, colon, job = word.partition(":")
    if not place or (colon and not job):
        missing = "a job's name is missing after the :" if place else "a place is missing before :"
        raise _wrong(word, missing)
    return Named(place, job if colon else None)


def parse_destination(text: str) -> tuple[str | None, str]:
    """`user@host` or an alias of ~/.ssh/config -> user, address without brackets.

    Raises BadUsage; the message does not quote the text, somebody may have put a password in.
    """
    before, at, host = text.rpartition("@")
    user = before if at else None
    if user is not None and not _is_user(user):
        # user:password@host is a URL's way; we take no password on a command line or in a file
        problem = "the user before the @ is not a user's name; a password is never written here"
        raise BadUsage(problem, hint=_ADHOC_HINT)
    if host.startswith("[") and host.endswith("]") and ":" in host:
        host = host[1:-1]
    elif host.count(":") == 1:
        raise BadUsage("a port is not written after the host", hint=_ADHOC_HINT)
    if not _is_host(host):
        raise BadUsage("the host's name or address is missing or not one", hint=_ADHOC_HINT)
    return user, host


def _ad_hoc(word: str) -> AdHoc:
    destination, slash, vmid = word.partition("/")
    user, address = _destination(word, destination)
    return AdHoc(address, user, vmid=_vmid(word, vmid) if slash else None)


def _url(word: str) -> AdHoc:
    rest, slash, vmid = word.removeprefix(_SCHEME).partition("/")
    before, at, host = rest.rpartition("@")
    port: int | None = None
    if host.count(":") == 1 or "]:" in host:
        host, _, digits = host.rpartition(":")
        port = _port(word, digits)
    elif ":" in host and not host.startswith("["):
        raise _wrong(word, "an IPv6 address stands in brackets, like ssh://root@[::1]:22")
    user, address = _destination(word, f"{before}{at}{host}")
    return AdHoc(address, user, port, _vmid(word, vmid) if slash else None)


def _destination(word: str, text: str) -> tuple[str | None, str]:
    try:
        return parse_destination(text)
    except BadUsage as error:
        if ":" in text.rpartition("@")[0]:
            raise
        raise _wrong(word, error.message) from error


def _vmid(word: str, text: str) -> int:
    vmid = parse_vmid(text)
    if vmid is None:
        span = f"a number from {VMID_LEAST} to {VMID_MOST}"
        raise _wrong(word, f"after the / stands a container's VMID, {span}, not {shown(text)}")
    return vmid


def _port(word: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 5 or not 0 < int(text) < 65536:
        raise _wrong(word, f"{shown(text)} is not a port")
    return int(text)


def _is_user(text: str) -> bool:
    return bool(text) and text[0] != "-" and text.isprintable() and not set(text) & set(" :/")


def _is_host(text: str) -> bool:
    # ssh reads a leading dash as an option; % expands in ssh_config and is an IPv6 zone too
    return bool(text) and text[0] != "-" and text.isprintable() and not set(text) & set(" /@[]*?")


def _wrong(word: str, problem: str) -> BadUsage:
    return BadUsage(f"{shown(word)}: {problem}", hint=_ADHOC_HINT if "/" in word else "")
