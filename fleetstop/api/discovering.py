"""Discovering clusters from Python: their APIs asked side by side, their containers set against
the inventory, the file's new text; written only when asked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import platformdirs
from msgspec import Struct

from fleetstop import config
from fleetstop.actions.discover import discover
from fleetstop.core.discovery import (
    Answered,
    Newcomers,
    Unanswered,
    exit_code,
    merged,
    newcomers,
)
from fleetstop.core.inventory import Api, Inventory
from fleetstop.core.spelling import did_you_mean, shown
from fleetstop.errors import BadUsage, FleetstopError
from fleetstop.remote.proxmox import ProxmoxCluster


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
    change: bool = False,
) -> Discovered:
    """`hosts`: those of the inventory whose API is asked, none: all that have one. `typed`: one
    that is in no inventory. Raises BadUsage before anything is connected to."""
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
