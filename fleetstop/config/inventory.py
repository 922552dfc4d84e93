"""What the files of an inventory say, together -> Inventory. Opens no file.

Names hold across all files: twice is an error that names both places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from fleetstop.config.job import JOB_KEYS, read_job, texts
from fleetstop.config.shape import (
    BOOLEAN,
    PATH,
    TEXT_SHAPE,
    Reader,
    Readers,
    Shape,
    Table,
    integer,
    keys,
    listed,
    named,
    one_of,
    read_values,
)
from fleetstop.config.spot import Spot
from fleetstop.core.address import parse_destination
from fleetstop.core.inventory import (
    FINGERPRINT_PATTERN,
    VMID_LEAST,
    VMID_MOST,
    Api,
    Container,
    Host,
    Inventory,
    Job,
    api_problem,
    group_cycle,
)
from fleetstop.core.places import check_member
from fleetstop.core.spelling import did_you_mean, plain, shown
from fleetstop.errors import BadUsage

_API_NEEDED = ("url", "token_id", "token_secret")
_SECRET_SOURCES = ("env", "file", "command", "keyring")
_SECRET = f"must be a mapping with one of {', '.join(_SECRET_SOURCES)}, like {{env: PVE_TOKEN}}"

Spots = dict[str, Spot]


class _Parts(Struct, frozen=True):
    """Everything by name, out of all files; `defaults` by kind and key."""

    defaults: dict[str, Spots]
    hosts: Spots
    containers: Spots
    groups: Spots


def read_inventory(roots: Sequence[Spot], beside: Callable[[Spot], Path]) -> Inventory:
    """`beside` tells the directory a value's file lies in: relative paths count from there."""
    parts = _collect(roots)
    _check_kinds(parts)
    hosts = {name: _host(name, spot, parts, beside) for name, spot in parts.hosts.items()}
    containers = {name: _container(name, spot, parts) for name, spot in parts.containers.items()}
    _check_vmids(parts, hosts, containers)
    groups = {name: _members(spot, parts) for name, spot in parts.groups.items()}
    inventory = Inventory(hosts, containers, groups, sources=tuple(root.file for root in roots))
    _check_groups(inventory, parts)
    return inventory


def _collect(roots: Sequence[Spot]) -> _Parts:
    parts = _Parts({"job": {}, "host": {}, "container": {}}, {}, {}, {})
    for root in roots:
        top = root.fields(FILE)
        if "defaults" in top:
            for kind, spot in top["defaults"].fields(tuple(parts.defaults)).items():
                _add(parts.defaults[kind], spot.fields(_DEFAULTS[kind]), spot)
        for kind, into in (("hosts", parts.hosts), ("containers", parts.containers)):
            if kind in top:
                _add(into, top[kind].named(), top[kind])
        if "groups" in top:
            _add(parts.groups, top["groups"].named(), top["groups"])
    return parts


def _add(into: Spots, found: Spots, where: Spot) -> None:
    for name, spot in found.items():
        if name in into:
            raise where.wrong(f"{shown(name)} is already in {_at(into[name])}", line=spot.line)
        into[name] = spot


def _at(spot: Spot) -> str:
    return f"{plain(spot.file)}:{spot.line}"


def _check_kinds(parts: _Parts) -> None:
    """A word on the command line means one thing, whatever kind it is of."""
    taken: Spots = {}
    for kind in (parts.hosts, parts.containers, parts.groups):
        for name, spot in kind.items():
            if name in taken:
                other = taken[name]
                raise spot.wrong(f"this name is already taken by {other.path} in {_at(other)}")
        taken |= kind


def _host(name: str, spot: Spot, parts: _Parts, beside: Callable[[Spot], Path]) -> Host:
    given = {**parts.defaults["host"], **spot.fields(_HOST)}
    if "ssh" not in given:
        raise spot.wrong("key 'ssh' is missing, like root@10.1.2.6 or an alias of ~/.ssh/config")
    table: Readers = {
        **_HOST,
        "identity": lambda each: _local_path(each, beside),
        "known_hosts": lambda each: _local_path(each, beside),
        "api": lambda each: _api(each, beside),
        "jobs": lambda each: _jobs(each, parts),
    }
    return Host(name=name, **read_values(given, table))


def _container(name: str, spot: Spot, parts: _Parts) -> Container:
    given = {**parts.defaults["container"], **spot.fields(_CONTAINER, needed=("vmid",))}
    if "host" not in given:
        raise spot.wrong("key 'host' is missing")
    table: Readers = {
        **_CONTAINER,
        "host": lambda each: _known_host(each, parts),
        "jobs": lambda each: _jobs(each, parts),
    }
    return Container(name=name, **read_values(given, table))


def _jobs(spot: Spot, parts: _Parts) -> tuple[Job, ...]:
    defaults = parts.defaults["job"]
    return tuple(read_job(name, each, defaults) for name, each in spot.named().items())


def _known_host(spot: Spot, parts: _Parts) -> str:
    name = spot.text()
    if name not in parts.hosts:
        raise spot.wrong(f"no host {shown(name)}{did_you_mean(name, parts.hosts)}")
    return name


def _local_path(spot: Spot, beside: Callable[[Spot], Path]) -> str:
    try:
        return str(beside(spot) / Path(spot.text()).expanduser())
    except RuntimeError as error:
        raise spot.wrong("the home directory that ~ stands for is not known") from error


def _ssh(spot: Spot) -> str:
    user, address = spot.parsed(parse_destination)
    return address if user is None else f"{user}@{address}"


def _jump(spot: Spot) -> str:
    """Hosts on the way, as ssh's ProxyJump writes them: `user@host:port`, several with commas."""
    text = spot.text()
    for hop in text.split(","):
        host, _, port = hop.strip().rpartition(":")
        with_port = port.isascii() and port.isdigit() and (":" not in host or host.endswith("]"))
        destination = host if with_port else hop.strip()
        try:
            parse_destination(destination)
        except BadUsage as error:
            raise spot.wrong(f"{error.message}; write user@host or user@host:port") from error
    return text


def _api(spot: Spot, beside: Callable[[Spot], Path]) -> Api:
    table: Readers = {
        **_API,
        "token_secret": lambda each: _secret(each, beside),
        "ca": lambda each: _local_path(each, beside),
    }
    return Api(**read_values(spot.fields(_API, needed=_API_NEEDED), table))


def _secret(spot: Spot, beside: Callable[[Spot], Path]) -> dict[str, str]:
    """Where the secret is. What stands here instead may be the secret itself: never shown."""
    if not isinstance(spot.node.value, dict):
        raise spot.wrong(f"{_SECRET}; a secret is never written here")
    entries = spot.entries()
    if len(entries) != 1 or not set(entries) <= set(_SECRET_SOURCES):
        raise spot.wrong(_SECRET)
    ((source, where),) = entries.items()
    if not isinstance(where.node.value, str) or where.node.is_null:
        raise where.wrong("must be text")
    return {source: _local_path(where, beside) if source == "file" else where.text()}


def _of_api(key: str) -> Callable[[Spot], str]:
    def read(spot: Spot) -> str:
        text = spot.text()
        if problem := api_problem(key, text):
            raise spot.wrong(problem)
        return text

    return read


def _check_vmids(
    parts: _Parts, hosts: Mapping[str, Host], containers: Mapping[str, Container]
) -> None:
    taken: dict[tuple[str, int | None, int], Container] = {}
    for container in containers.values():
        host = hosts[container.host]
        # by address: two hosts may be two logins to one machine
        key = (parse_destination(host.ssh)[1], host.port, container.vmid)
        other = taken.setdefault(key, container)
        if other is not container:
            spot = parts.containers[container.name]
            where = _at(parts.containers[other.name])
            raise spot.wrong(f"VMID {container.vmid} on {host.name} is {other.name} in {where}")


def _members(spot: Spot, parts: _Parts) -> tuple[str, ...]:
    """Members as selection reads them: a group by its bare name becomes `@name`."""
    words = texts(spot)
    if not words:
        raise spot.wrong("must list at least one member")
    return tuple(f"@{word}" if word in parts.groups else word for word in words)


def _check_groups(inventory: Inventory, parts: _Parts) -> None:
    if cycle := group_cycle(inventory.groups):
        spot = parts.groups[cycle[0]]
        raise spot.wrong(f"groups contain each other: {' > '.join(cycle)}")
    for name, members in inventory.groups.items():
        for spot, member in zip(parts.groups[name].items(), members, strict=True):
            _check_member(inventory, spot, member)


def _check_member(inventory: Inventory, spot: Spot, member: str) -> None:
    try:
        check_member(inventory, member)
    except BadUsage as error:
        raise spot.wrong(error.message) from error


def _placed(spot: Spot) -> NoReturn:
    raise AssertionError(f"{spot.path} is read where the rest of the inventory is at hand")


def _text_like(pattern: str) -> Shape:
    return {"type": "string", "pattern": rf"^\s*{pattern}\s*$"}


def _elsewhere(shape: Shape) -> Reader:
    return Reader(_placed, shape)


_SECRET_SHAPE: Shape = {
    "type": "object",
    "properties": dict.fromkeys(_SECRET_SOURCES, TEXT_SHAPE),
    "additionalProperties": False,
    "minProperties": 1,
    "maxProperties": 1,
}
_JOBS = _elsewhere(named(keys(JOB_KEYS)))
_API: Table = {
    "url": Reader(_of_api("url"), _text_like(r"https://[^\s/?#@]+/?")),
    "token_id": Reader(_of_api("token_id"), _text_like(r"[^@!\s=]+@[^@!\s=]+![^@!\s=]+")),
    "token_secret": _elsewhere(_SECRET_SHAPE),
    "ca": _elsewhere(TEXT_SHAPE),
    "fingerprint": Reader(_of_api("fingerprint"), _text_like(FINGERPRINT_PATTERN)),
}
_TAGS = Reader(texts, listed(TEXT_SHAPE))
_HOST: Table = {
    # addresses have their own grammar (core/address.py); here only what none can hold
    "ssh": Reader(_ssh, TEXT_SHAPE | {"not": {"pattern": r"^\s*-"}}),
    "port": integer(1, 65535),
    "jump": Reader(_jump, TEXT_SHAPE | {"not": {"pattern": r"^\s*-"}}),
    "identity": _elsewhere(TEXT_SHAPE),
    "known_hosts": _elsewhere(TEXT_SHAPE),
    "sudo": one_of("auto", "never", "always"),
    "pct": PATH,
    "api": _elsewhere(keys(_API, needed=_API_NEEDED)),
    "jobs": _JOBS,
    "tags": _TAGS,
    "protected": BOOLEAN,
}
_CONTAINER: Table = {
    "host": _elsewhere(TEXT_SHAPE),
    "vmid": integer(VMID_LEAST, VMID_MOST),
    "tags": _TAGS,
    "protected": BOOLEAN,
    "jobs": _JOBS,
}
# What is one's own, like jobs and a VMID, has no default.
_DEFAULTS: dict[str, Table] = {
    "job": JOB_KEYS,
    "host": {key: reader for key, reader in _HOST.items() if key != "jobs"},
    "container": {key: reader for key, reader in _CONTAINER.items() if key not in ("jobs", "vmid")},
}
_GROUP = listed(TEXT_SHAPE, least=1)
# Read part by part, since names and defaults hold across files; the shape is one file's.
FILE: Table = {
    "defaults": _elsewhere(
        keys({kind: _elsewhere(keys(each)) for kind, each in _DEFAULTS.items()})
    ),
    "hosts": _elsewhere(named(keys(_HOST))),
    "containers": _elsewhere(named(keys(_CONTAINER, needed=("vmid",)))),
    "groups": _elsewhere(named(_GROUP)),
}
