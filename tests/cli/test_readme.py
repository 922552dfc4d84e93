"""What the README says can be typed: every command of it is one, its rehearsal a real one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from fleetstop import events
from fleetstop.api.rehearsing import rehearsals
from fleetstop.cli.commands import group
from fleetstop.core.rehearsing.scenarios import SCENARIOS
from fleetstop.view.rehearsal import shown, story
from tests.core.habits import STANDARD

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"^```\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
TYPED = [
    line.removeprefix("$ ").partition(" > ")[0]
    for block in BLOCKS
    for line in block.splitlines()
    if line.removeprefix("$ ").startswith("fleetstop ")
]


def section(title: str) -> str:
    found = README.partition(f"## {title}\n")[2].partition("\n## ")[0]
    assert found, title
    return found


def test_the_readme_has_commands() -> None:
    assert {each.split()[1] for each in TYPED} >= {
        "lab",
        "ls",
        "status",
        "stop",
        "wait",
        "playbook",
    }


@pytest.mark.parametrize("line", dict.fromkeys(TYPED))
def test_every_command_of_the_readme_can_be_typed(line: str) -> None:
    _, *words = shlex.split(line, comments=True)
    command: click.Command = group
    parent = None
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(click.Context(command), words)  # type: ignore[assignment]
        assert command is not None, name
    command.make_context(line, list(words), parent=parent)


def test_every_command_is_in_the_readme() -> None:
    told = set(re.findall(r"fleetstop ([a-z]+)(?: ([a-z]+))?", README))
    for name, command in group.commands.items():
        assert name == "demo" or any(name == first for first, _ in told), name
        for inner in command.commands if isinstance(command, click.Group) else ():
            assert (name, inner) in told, (name, inner)


def test_the_rehearsal_of_the_readme_is_a_real_one() -> None:
    told = section("Writing a playbook").partition("--against deaf,hung-save --force\n")[2]
    made = rehearsals(STANDARD, ["deaf", "hung-save"], "given")
    stories = [story("standard", each.rehearsed, each.events, each.outcome) for each in made]
    screen = "\n".join(shown(lines, width=104, color=False) for lines in stories)
    assert told.partition("```")[0] == screen


def test_the_readme_names_every_job_to_rehearse_against() -> None:
    told = section("Writing a playbook").partition("Without `--against` all jobs come:")[2]
    assert re.findall(r"`([a-z-]+)`", told.partition(".\n")[0]) == list(SCENARIOS)


def test_every_link_inside_the_readme_leads_somewhere() -> None:
    titles = re.findall(r"^#+ (.*)$", README, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in titles}
    assert set(re.findall(r"\]\(#([^)]+)\)", README)) <= anchors


@pytest.mark.parametrize("words", [(), ("playbook",), ("lab",), ("history",)])
def test_no_command_is_described_in_half_a_sentence(words: tuple[str, ...]) -> None:
    command: click.Command = group
    for word in words:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    context = click.Context(command, info_name="fleetstop", terminal_width=80)
    listed = command.get_help(context).partition("Commands:\n")[2]
    assert listed
    assert "..." not in listed


def test_the_events_of_a_redeploy_and_their_keys_are_those_there_are() -> None:
    """Each row names events of the contract, and in its code nothing that they do not carry."""
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| (.*) \|$", section("For scripts"), re.MULTILINE)
    kinds = {each.__struct_config__.tag: each for each in vars(events).values() if _is_event(each)}
    named = {tag: told for tags, told in rows for tag in re.findall(r"`([a-z_]+)`", tags)}
    assert {"destined", "launch_shown", "staged", "healthy", "rolled_back"} <= set(named)
    for tags, told in rows:
        keys = {
            key for tag in re.findall(r"`([a-z_]+)`", tags) for key in kinds[tag].__struct_fields__
        }
        assert set(re.findall(r"`([a-z_]+)`", told)) <= keys, tags


def _is_event(each: object) -> bool:
    return isinstance(each, type) and issubclass(each, events.Event) and each is not events.Event
