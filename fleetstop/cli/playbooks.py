"""`fleetstop playbook` and `fleetstop schema`: what may be said, and what is. Stops nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from fleetstop.cli.options import inventory
from fleetstop.cli.pages import Command, Group
from fleetstop.cli.rehearsing import rehearse

_JSON = click.option("--json", "as_json", is_flag=True, help="For scripts, one line on stdout.")


@click.group(cls=Group, short_help="Playbooks: list, show, check and rehearse them.")
def playbook() -> None:
    """Playbooks: what there is, what one does rung by rung, whether a file is right."""


playbook.add_command(rehearse)


@playbook.command("ls", short_help="Every playbook that -p can name.")
@inventory
@_JSON
def ls(**given: Any) -> int:
    """Every playbook that -p can name, where it comes from, what it is for."""

    def work(fleet: Any) -> int:
        from fleetstop.api import all_playbooks
        from fleetstop.view import playbooks as view
        from fleetstop.view.choose import headed

        found = all_playbooks(fleet.inventory)
        told = {"event": "playbooks", "schema": 1, "playbooks": [view.told(x) for x in found]}
        return _say(headed(view.table(found), sys.stdout), told if given["as_json"] else None)

    return _with_inventory(given, work)


@playbook.command("show")
@click.argument("name", metavar="NAME|FILE")
@inventory
@_JSON
def show(**given: Any) -> int:
    """One playbook as it is climbed; what it extends is filled in."""

    def work(fleet: Any) -> int:
        from fleetstop.api import one_playbook
        from fleetstop.view import playbooks as view
        from fleetstop.view.choose import headed, width

        found = one_playbook(fleet.inventory, given["name"])
        assert found.playbook is not None
        told = {"event": "playbook", "schema": 1, **view.told(found)}
        lines = view.ladder(found, found.playbook, width=width(sys.stdout))
        return _say(headed(lines, sys.stdout), told if given["as_json"] else None)

    return _with_inventory(given, work)


@playbook.command("check", short_help="Are these files right? Exit 3 if one is not.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@inventory
@_JSON
def check(**given: Any) -> int:
    """Are these files right? Exit 3 if one is not, each with file, line and what is meant."""

    def work(fleet: Any) -> int:
        from fleetstop.api import checked_playbooks
        from fleetstop.view import playbooks as view

        found = checked_playbooks(fleet.inventory, given["files"])
        told = {"event": "playbooks", "schema": 1, "playbooks": [view.told(x) for x in found]}
        _say(view.findings(found), told if given["as_json"] else None)
        return 3 if any(each.problem is not None for each in found) else 0

    return _with_inventory(given, work)


@click.command(cls=Command, short_help="JSON Schema of a playbook or an inventory, for editors.")
@click.argument("kind", type=click.Choice(["playbook", "inventory"]))
def schema(kind: str) -> int:
    """JSON Schema (draft 2020-12) of a playbook or of an inventory file, for editors."""
    import json

    from fleetstop.api import file_schema

    return _say(json.dumps(file_schema(kind), indent=2).splitlines(), None)


def _with_inventory(given: dict[str, Any], work: Callable[[Any], int]) -> int:
    from fleetstop.api import Fleet
    from fleetstop.cli.running import complain
    from fleetstop.errors import FleetstopError

    try:
        return work(Fleet.load(given["inventory"]))
    except FleetstopError as exc:
        return complain(exc)


def _say(lines: list[str], told: dict[str, Any] | None) -> int:
    from fleetstop.view.json_lines import line
    from fleetstop.view.stream import Outlet

    out = Outlet(sys.stdout)
    for each in lines if told is None else [line(told)]:
        out.write(each + "\n")
    out.flush()
    return 0
