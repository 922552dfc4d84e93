"""Discovering clusters from Python: their APIs asked side by side, their containers set against
the inventory, the file's new text; written only when asked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import platformdirs
from msgspec import Struct
from msgspec.structs import replace

from fleetstop import config
from fleetstop.actions.discover import discover, discover_files
from fleetstop.core.address import AdHoc, Named, parse_address, parse_destination
from fleetstop.core.discovery import (
    Answered,
    Newcomers,
    Unanswered,
    exit_code,
    merged,
    newcomers,
)
from fleetstop.core.inventory import Api, Host, Inventory
from fleetstop.core.spelling import did_you_mean, shown
from fleetstop.errors import BadUsage, FleetstopError
from fleetstop.remote.link import Link
from fleetstop.remote.proxmox import ProxmoxCluster
from fleetstop.remote.ssh import Tunnels


class Discovered(Struct, frozen=True):
    """`change`: what `write()` would put into the inventory's file; None where nothing is new, or
    nobody asked for it."""

    inventory: Inventory
    answers: tuple[Answered, ...]
    failures: tuple[Unanswered, ...]
    newcomers: Newcomers
    exit_code: int
    change: config.Change | None = None

    def write(self) -> Inventory:
        """The inventory with the new hosts and containers. Raises Refused where the file is
        another by now, BadConfig where it cannot be written; then nothing was."""
        if self.change is None:
            raise BadUsage("there is nothing to be written")
        config.write(self.change)
        return self.change.inventory


async def discovered(
    inventory: Inventory,
    named: str | None,
    hosts: Sequence[str],
    typed: Api | None = None,
    *,
    ssh: str | None = None,
    change: bool = False,
) -> Discovered:
    """`hosts`: those of the inventory whose API is asked, none: all that have one. `typed`: one
    that is in no inventory. `ssh`: instead of an API the files of this host, a name or an
    address. Raises BadUsage before anything is connected to."""
    if ssh is not None:
        if hosts or typed is not None:
            raise BadUsage("--ssh asks one host without its API; leave the others out")
        told = [await _by_ssh(_host(inventory, ssh))]
    else:
        apis = _apis(inventory, hosts, typed)
        told = await asyncio.gather(*(_one(by, api) for by, api in apis.items()))
    answers = merged([each for each in told if isinstance(each, Answered)])
    if typed is not None:
        answers = tuple(Answered(each.by, each.seen, typed) for each in answers)
    failures = tuple(each for each in told if isinstance(each, Unanswered))
    new = newcomers(inventory, answers)
    made = _change(named, new) if change and new else None
    code = exit_code(answers, failures)
    return Discovered(inventory, answers, failures, new, code, made)


def _apis(inventory: Inventory, hosts: Sequence[str], typed: Api | None) -> Mapping[str, Api]:
    if typed is not None:
        if hosts:
            raise BadUsage("--url asks one API, and HOST another; name one of them")
        return {typed.url: typed}
    having = {name: each.api for name, each in inventory.hosts.items() if each.api is not None}
    for each in hosts:
        if each not in inventory.hosts:
            raise BadUsage(f"no host {shown(each)}{did_you_mean(each, inventory.hosts)}")
        if each not in having:
            raise BadUsage(f"{each} has no api: in the inventory", hint=_TYPE_IT)
    if not having:
        raise BadUsage("no host in the inventory has an api:", hint=_TYPE_IT)
    return {name: having[name] for name in hosts} if hosts else having


_TYPE_IT = (
    "fleetstop discover --url https://HOST:8006 --login USER@REALM!NAME "
    "--key-from env:PVE_TOKEN --ca pve-root-ca.pem"
)


async def _one(by: str, api: Api) -> Answered | Unanswered:
    """One API's failure never hurts another's."""
    try:
        return Answered((by,), await discover(ProxmoxCluster(api), api.token_id))
    except FleetstopError as exc:
        return Unanswered(by, exc.message, exc.hint, exc.exit_code)


def _host(inventory: Inventory, word: str) -> Host:
    match parse_address(word):
        case AdHoc(vmid=None) as address:
            return Host(address.name, address.ssh, address.port)
        case Named(job=None, place=name) if name in inventory.hosts:
            return inventory.hosts[name]
    raise BadUsage(
        f"--ssh {shown(word)}: no host{did_you_mean(word, inventory.hosts)}",
        hint="a host of the inventory, or an address: --ssh root@10.1.2.6",
    )


async def _by_ssh(host: Host) -> Answered | Unanswered:
    tunnels = Tunnels()
    link = Link(host, tunnels)
    try:
        _, outside = await link.opened()
        seen = await discover_files(outside.shell, host.name)
        await outside.shell.close()
    except FleetstopError as exc:
        return Unanswered(host.name, exc.message, exc.hint, exc.exit_code)
    finally:
        await link.close()
        await tunnels.close()
    # a node without a cluster does not say its address: it is the one that was gone to
    _, address = parse_destination(host.ssh)
    nodes = tuple(
        replace(each, address=address) if each.local and each.address is None else each
        for each in seen.nodes
    )
    return Answered((host.name,), replace(seen, nodes=nodes))


def _change(named: str | None, new: Newcomers) -> config.Change:
    cwd = Path.cwd()
    path = Path(named) if named is not None else None
    if path is not None and not path.exists():
        return config.extended((), cwd, new.hosts, new.containers, path)
    user_dir = Path(platformdirs.user_config_dir("fleetstop"))
    files = config.inventory_files(path, os.environ, cwd, user_dir)
    return config.extended(files, cwd, new.hosts, new.containers)


def known_inventory(named: str | None) -> Inventory:
    """The inventory, or an empty one where the file that is named is to be made. A name that is no
    YAML file's is a mistake, not a file to be made: raises BadConfig."""
    path = Path(named) if named is not None else None
    if path is not None and path.suffix in (".yaml", ".yml") and not path.exists():
        return Inventory()
    user_dir = Path(platformdirs.user_config_dir("fleetstop"))
    return config.load_inventory(path, os.environ, Path.cwd(), user_dir)
