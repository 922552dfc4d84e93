"""Everything that has to be known before a job is brought up: how, where, beside what."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable

from msgspec import Struct

from fleetstop.actions import looks, reading
from fleetstop.actions.interpreter import ask
from fleetstop.actions.kept import FRESH_S, Kept
from fleetstop.actions.locate import Scene
from fleetstop.actions.origins import origins
from fleetstop.actions.telling import Scope
from fleetstop.core.above.supervisors import Above, standing_above
from fleetstop.core.commands import Command
from fleetstop.core.inventory import Job
from fleetstop.core.kin.family import Family
from fleetstop.core.launching import launchers
from fleetstop.core.launching.interpreter import USUAL, of_process, of_words
from fleetstop.core.launching.older import Saves
from fleetstop.core.launching.outermost import owners
from fleetstop.core.process import Process
from fleetstop.core.redact import brief
from fleetstop.core.releases.destination import Loaded, loaded, paths_asked, roots_asked
from fleetstop.core.releases.ground import Contents, Found, Ground, Names
from fleetstop.core.releases.ground import ground as read
from fleetstop.core.releases.home import base_of, home
from fleetstop.core.saves.checkpoint import Listing, checkpoints
from fleetstop.errors import Refused

_SCRIPT = "ground.py"
_SHOWN_MOST = 1024 * 1024
_GUESS = 256 * 2**20
_TRIED = 8
_RUNS = """\
import json, subprocess, sys
try:
    done = subprocess.run(json.load(sys.stdin), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
except OSError:
    sys.exit(127)
sys.stdout.buffer.write(done.stdout)
"""


class Running(Struct, frozen=True):
    """The job that runs. `exe`: its trainer's program; `restarts`: what has it in its keeping, a
    sentence."""

    family: Family
    trainer: Process
    exe: str | None
    restarts: str | None


async def running(scope: Scope, scene: Scene, family: Family) -> Running:
    tree = scene.tree
    trainer = tree.get(family.trainers[0].id)
    if trainer is None:
        raise Refused("its trainer ended while it was looked at", hint="run it again")
    told = await origins(scope, tree, [trainer])
    kept = owners(family, standing_above(tree, family, scene.notes))
    return Running(
        family=family,
        trainer=trainer,
        exe=told[trainer.id].exe if trainer.id in told else None,
        restarts=described(kept[0]) if kept else None,
    )


def python_of(job: Job, now: Running | None) -> str:
    """The job's own interpreter: of what runs, else of what would be started, else the usual."""
    found = of_process(now.trainer.argv or (), now.exe) if now is not None else None
    return found or of_words(job.launch.run if job.launch is not None else ()) or USUAL


class Loads(Struct, frozen=True):
    """`runs`: what the trainer runs; `real`: real names; `home`: the directory where the last
    activation of this job is on record, above what runs or what the inventory names."""

    runs: tuple[Loaded, ...]
    real: dict[str, str]
    home: str | None = None


async def what_it_loads(
    scope: Scope, python: str, now: Running | None, also: Iterable[str | None]
) -> Loads:
    """With the real names of it and of `also`."""
    job = scope.target.job
    assert job is not None
    there = paths_asked(now.trainer) if now is not None else ()
    roots = roots_asked(now.trainer) if now is not None else ()
    may = [each for each in (*also, *roots) if each is not None and each.startswith("/")]
    said = home(job)
    question = {
        "ask": "names",
        "there": list(there),
        "may": may,
        "own": base_of("", job),
        "from": [said] if said is not None and said.startswith("/") else [],
    }
    names = await ask(scope, python, question, Names, 0, _SCRIPT)
    newest = max(names.homes, key=lambda each: names.homes[each], default=None)
    runs = loaded(now.trainer, names.real) if now is not None else ()
    return Loads(runs, names.real, newest)


async def ground(scope: Scope, python: str, base: str, dest: str, wanted: Iterable[str]) -> Ground:
    """What lies there: the activator's state, kept releases, the files themselves."""
    question = {"ask": "ground", "base": base, "dest": dest, "wanted": sorted(wanted)}
    return read(await ask(scope, python, question, Found, _GUESS, _SCRIPT), base)


async def contents(scope: Scope, python: str, paths: Iterable[str]) -> dict[str, bytes]:
    """The bytes of these files, where they are short enough to be shown."""
    question = {"ask": "contents", "paths": list(paths), "most": _SHOWN_MOST}
    found = (await ask(scope, python, question, Contents, _GUESS, _SCRIPT)).contents
    return {path: base64.b64decode(said) for path, said in found.items()}


async def carried_freely(scope: Scope, python: str, scene: Scene, now: Running | None) -> None:
    """The tmux session or unit that it is to be started in is free once what runs has ended, and
    the job is found again there. Raises Refused: found after the stop, nothing would run."""
    job = scope.target.job
    assert job is not None
    if (why := launchers.not_found_again(job)) is not None:
        raise Refused(f"{why}; it would not be found again", hint="see `launch: launcher:`")
    if (words := launchers.question(job)) is None:
        return
    command = Command("py", (python, _RUNS, json.dumps(words)))
    answer = await (await scope.place.hands()).run(command)
    ours: set[int] = set()
    if now is not None:
        for kin in now.family.members:
            ours |= {kin.pid, *(each.pid for each in scene.tree.above(kin.id.pid))}
    if answer.status == 127:
        raise Refused(f"there is no {words[0]} in its place, as `launch: launcher:` wants it")
    said = answer.data.decode("utf-8", "replace")
    if (why := launchers.in_the_way(job, said, frozenset(ours))) is not None:
        raise Refused(why)


async def saves(scope: Scope, directory: str | None, *, at_rest: bool) -> Saves:
    """The checkpoints there. `at_rest`: nobody of the job lives any more that could still write to
    one."""
    if directory is None:
        return Saves()
    try:
        shell = await scope.place.files()
        listed = await reading.listing(shell, directory)
        if not isinstance(listed.listing, Listing):
            return Saves()
        kept, found = Kept(), checkpoints(listed.listing)
        for at, one in reversed(tuple(enumerate(found))[-_TRIED:]):
            old = listed.now is not None and listed.now - one.mtime > FRESH_S
            if (await kept.read(shell, one, frozenset(), stable=at_rest or old)).whole:
                return Saves(one.path, tuple(each.path for each in found[:at]))
    except looks.NOT_ENTERED:
        return Saves()
    return Saves()


def described(above: Above) -> str:
    """What keeps it, and what that will do, in words."""
    return f"{above.name or brief(above.argv)} ({above.kind}): {above.will}"
