"""`fleetstop playbook rehearse`: a playbook tried on simulated jobs. Connects to nothing."""

from __future__ import annotations

import sys
from typing import Any

import click

from fleetstop.cli.options import inventory
from fleetstop.cli.pages import Command


@click.command(
    "rehearse", cls=Command, short_help="Climb it against simulated jobs, in virtual time."
)
@click.argument("name", metavar="NAME|FILE")
@click.option("--against", multiple=True, metavar="JOBS", help="deaf,slow-save,... Default: all.")
@click.option("--graceful", is_flag=True, help="As `stop --graceful` would climb it.")
@click.option("--force", is_flag=True, help="As `stop --force` would climb it.")
@click.option("--max-loss", metavar="10m", help="As `stop --max-loss 10m` would climb it.")
@click.option("--after-checkpoint", is_flag=True, help="As `stop --after-checkpoint` would.")
@click.option("--at-most", metavar="2h", help="How long --after-checkpoint waits.")
@click.option("--no-color", is_flag=True, help="Plain text (also: NO_COLOR).")
@inventory
@click.option("--json", "as_json", is_flag=True, help="For scripts, one line on stdout.")
def rehearse(**given: Any) -> int:
    """Climb it against simulated jobs, in virtual time: the story, its length, what is lost.

    The same ladder as a real stop, with the same decisions. Nothing is connected to.
    """
    from fleetstop.cli.running import complain
    from fleetstop.errors import FleetstopError

    try:
        return _rehearse(given)
    except FleetstopError as exc:
        return complain(exc)


def _rehearse(given: dict[str, Any]) -> int:
    from fleetstop.api import Fleet
    from fleetstop.api.consent import agreed
    from fleetstop.api.rehearsing import rehearsals
    from fleetstop.view.stream import Outlet

    said = ("graceful", "force", "max_loss", "after_checkpoint", "at_most")
    consent, terms = agreed(**{key: given[key] for key in said})
    playbook = Fleet.load(given["inventory"]).playbook(given["name"])
    made = rehearsals(playbook, given["against"], consent, terms)
    out = Outlet(sys.stdout)
    out.write(_json(playbook.name, made) if given["as_json"] else _text(playbook.name, made, given))
    out.flush()
    return 0


def _text(name: str, made: list[Any], given: dict[str, Any]) -> str:
    import os

    from fleetstop.view.choose import colored, width
    from fleetstop.view.rehearsal import shown, story

    color = colored(sys.stdout, no_color=given["no_color"], environ=os.environ)
    room = width(sys.stdout)
    stories = [story(name, each.rehearsed, each.events, each.outcome) for each in made]
    return "\n".join(shown(lines, width=room, color=color) for lines in stories)


def _json(name: str, made: list[Any]) -> str:
    from fleetstop.core.report import exit_code_of
    from fleetstop.view.json_lines import line

    against = [
        {
            "name": each.rehearsed.scenario.name,
            "about": each.rehearsed.scenario.about,
            "exit_code": exit_code_of(each.outcome),
            "lost": each.rehearsed.lost,
            "lost_s": each.rehearsed.lost_s,
            "outcome": each.outcome,
            "events": each.events,
        }
        for each in made
    ]
    told = {"event": "rehearsal", "schema": 1, "playbook": name, "against": against}
    return line(told) + "\n"
