"""What the activator in the container is told, as data; activation.py has what it writes.

`remote/scripts/activate.py` reads the one and writes the other.
"""

from __future__ import annotations

import json
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from fleetstop.core.launching.ended import Born
from fleetstop.core.launching.spec import LaunchSpec

Order: TypeAlias = Literal["armed", "go", "cancel", "done", "unwell", "keep", "back", "leave"]
BEAT_S = 3.0
"""So often the client shows that it lives; within 5 s is what it owes."""
STALE_S = 30.0


class SwapFile(Struct, frozen=True):
    """`path`: its absolute place; `staged`: where it lies until then; `mode` is chmod(2)'s."""

    path: str
    staged: str
    sha256: str
    size: int
    mode: int
    uid: int
    gid: int


class Resume(Struct, frozen=True):
    """What an activator that is on its own has to know to go on from the newest checkpoint.

    `known`: the newest complete one before the stop; `words`: those in which `placeholder` stands
    for its path, `words_old` those of the old version where they are others; `launch`,
    `launch_old`: the words of that launch before and behind them, None: it is started as it is.
    `rules`: core/saves/rules.py. `named`: paths of checkpoints that the new version's own words or
    variables name, which stay as they are: `launch` are all its words then.
    """

    known: str | None
    directory: str
    words: tuple[str, ...]
    launch: tuple[tuple[str, ...], tuple[str, ...]] | None
    launch_old: tuple[tuple[str, ...], tuple[str, ...]] | None
    rules: dict[str, Any]
    placeholder: str = "{checkpoint}"
    words_old: tuple[str, ...] | None = None
    named: tuple[str, ...] = ()


class ActivatorSpec(Struct, frozen=True):
    """What one activation does. `gone`: whose end it waits for, by the container's numbers;
    `launch_old` None: there is no way back. `within_s`, `log_matches`: by what it tells health
    when its client is gone. `before_manifest`: raw JSON, of the release to be
    kept; `before_lies` False: it is kept, and what lies there is something else. `stays`: the kept
    release that lies there, where no files come; `as_kept`: it is started as its manifest tells,
    and `ran_as_kept`: so was `before`; what was started otherwise tells nothing of a release.
    `more`: words for whoever carries the trainer, by the name of the launch they are for. `reads`:
    by that name, the file in which its log is looked at; where it is not told, what its output goes
    to. `resumes`: by that name, the words to resume that it knows, checkpoint or not. `wish`: of
    what was asked, a word that the same command gives again. `succeeds`: the run whose activator
    waits there, armed, and is relieved.
    `by_script`: whoever executes its script is this job."""

    run: str
    base: str
    dest: str
    launch: LaunchSpec | None
    launch_old: LaunchSpec | None = None
    release: str | None = None
    before: str | None = None
    files: tuple[SwapFile, ...] = ()
    gone: tuple[Born, ...] = ()
    log: str | None = None
    within_s: float = 10.0
    log_matches: str | None = None
    roll_back: bool = True
    patience_s: float = 600.0
    stale_s: float = STALE_S
    keep: int = 5
    before_manifest: dict[str, Any] | None = None
    before_lies: bool = True
    stays: str | None = None
    as_kept: bool = True
    ran_as_kept: bool = True
    more: dict[str, dict[str, Any]] = {}
    resume: Resume | None = None
    reads: dict[str, str] = {}
    resumes: dict[str, tuple[str, ...]] = {}
    wish: str | None = None
    succeeds: str | None = None
    by_script: bool = True

    def read_by(self, *, old: bool) -> str | None:
        launch = self.launch_old if old else self.launch
        own = launch.log if launch is not None else None
        return self.reads.get("launch_old" if old else "launch", own)

    def text(self) -> str:
        """As activate.py reads it; the environments in it may hold secrets: its file is 0600."""
        words = {name: getattr(self, name) for name in self.__struct_fields__}
        health = {"within_s": words.pop("within_s"), "log_matches": words.pop("log_matches")}
        more = words.pop("more")
        for name in ("launch", "launch_old"):
            spec: LaunchSpec | None = words[name]
            words[name] = spec.words() | more.get(name, {}) if spec is not None else None
        # not msgspec's: text that is no UTF-8 (PEP 383) has to arrive byte for byte
        plain = {"schema": 1, **msgspec.to_builtins(words), "health": health}
        return json.dumps(plain)


def late_file(base: str, run: str) -> str:
    """What is known only once the old run has ended: {"launch": [word], ..., "checkpoint"}."""
    return f"{base}/late-{run}.json"
