"""Playbooks as they stand on the shelf: name, place, what they are for. Knows no file system."""

from __future__ import annotations

from msgspec import Struct

from fleetstop.core.playbook import Playbook


class Shelved(Struct, frozen=True):
    """One playbook that can be named. `source` is its file as messages name it, `stock` whether
    it came with fleetstop; `purpose` the file's first comment line. Either `playbook` or
    `problem` (`file:line: path: …`, with `hint`) is there."""

    name: str
    source: str
    stock: bool
    purpose: str = ""
    playbook: Playbook | None = None
    problem: str | None = None
    hint: str = ""


# Lines for an editor or for YAML itself, before anything is said.
_NOT_FOR_PEOPLE = ("# yaml-language-server:", "# vim:", "# -*-", "#!", "---", "%")


def purpose_of(text: str, file_name: str) -> str:
    """The first comment line of a playbook, without the file's own name before it."""
    for line in text.splitlines():
        said = line.strip()
        if not said or said.startswith(_NOT_FOR_PEOPLE):
            continue
        if not said.startswith("#"):
            break
        if words := said.lstrip("#").strip().removeprefix(f"{file_name}:").strip():
            return words
    return ""
