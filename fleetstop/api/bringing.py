"""From what was typed to errands: files read once, consent, a playbook and an errand per target."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from fleetstop.actions.attempt import Wish
from fleetstop.actions.errand import Command, Errand
from fleetstop.api import given
from fleetstop.api.commit import git_facts
from fleetstop.config.sources import contents, read_sources
from fleetstop.core import redact
from fleetstop.core.inventory import Job, Target
from fleetstop.core.launching.recipe import Extra, parse_env
from fleetstop.core.releases.manifest import Git
from fleetstop.core.releases.payload import Payload
from fleetstop.core.spelling import plain
from fleetstop.errors import BadUsage, Refused


class How(Struct, frozen=True):
    """How what runs is stopped: the same as `stop` is told."""

    graceful: bool = False
    force: bool = False
    max_loss: str | float | None = None
    after_checkpoint: bool = False
    at_most: str | float | None = None
    dry_run: bool = False
    playbook: str | None = None
    ladder: str | None = None
    signal: str | None = None
    break_lock: bool = False


class More(given.Selects, total=False):
    """`args` are added to the job's own, `env` are K=V words; `roll_back` False: an unhealthy
    version is left as it is."""

    args: Sequence[str]
    env: Sequence[str]
    roll_back: bool
    timeout: float | str | None
    batch: int | None
    max_failures: int | None


SELECTS = tuple(given.Selects.__annotations__)


def typed_more(more: More) -> dict[str, Any]:
    args = given.words("args", more.get("args", ()), example='args=["--lr", "3e-4"]', alone=False)
    return {
        "words": args,
        "env": given.words("env", more.get("env", ()), example='env=["SEED=7"]'),
        "roll_back": more.get("roll_back", True),
    }


class Asked(Struct, frozen=True):
    """What was asked for, whatever the target. `words`: added to the job's own arguments; `env`:
    K=V words."""

    command: Command
    files: tuple[str, ...] = ()
    to: str | None = None
    release: str | None = None
    words: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    roll_back: bool = True
    diff: bool = False

    @property
    def more(self) -> tuple[str, ...] | None:
        """As events.Started tells it; None where it holds a secret."""
        to = self.to or self.release
        said = (*self.files, *(("--to", to) if to else ()))
        said = said if self.roll_back else (*said, "--no-rollback")
        said += tuple(word for pair in self.env for word in ("--env", pair))
        pairs = (each.partition("=") for each in self.env)
        secret = any(redact.secret(name, value) for name, _, value in pairs)
        if secret or redact.holds_secret((*said, *self.words)):
            return None
        return (*said, "--", *self.words) if self.words else said


async def errands(
    asked: Asked, targets: Sequence[Target], wish: Callable[[Target], Wish]
) -> dict[str, Errand]:
    """By the target's name. Raises BadUsage, DeployFailed and BadConfig before anything is
    connected to."""
    if asked.command == "redeploy" and not asked.files:
        raise BadUsage(
            "no file is named",
            hint="fleetstop redeploy ct200 train.py; the same code again: fleetstop restart ct200",
        )
    if asked.to is not None and not asked.to.startswith("/"):
        raise BadUsage(
            f"--to {plain(asked.to)} is no absolute path" if asked.to else "--to is empty",
            hint="name the directory as the container has it: --to /root",
        )
    extra = Extra(words=asked.words, env=parse_env(asked.env))
    read: dict[tuple[tuple[str, ...], str | None], tuple[Payload, Git | None]] = {}
    made = {}
    for target in targets:
        job = _job(target)
        payload, git = None, None
        if asked.files:
            ignore = job.deploy.ignore if job.deploy is not None else ()
            if (key := (ignore, job.checkpoints)) not in read:
                read[key] = await asyncio.to_thread(_read, asked.files, *key)
            payload, git = read[key]
        made[target.name] = Errand(
            command=asked.command,
            stop=wish(target),
            payload=payload,
            read=contents,
            to=asked.to,
            release=asked.release,
            extra=extra,
            prove=job.deploy.prove if job.deploy is not None else None,
            git=git,
            roll_back=asked.roll_back,
            diff=asked.diff,
        )
    return made


def _job(target: Target) -> Job:
    if target.job is None:
        raise Refused(
            f"{target.name} has no job in the inventory",
            hint=f"name it: --script train.py; or: fleetstop adopt {target.name} --pid N --as NAME",
        )
    return target.job


def _read(
    files: tuple[str, ...], ignore: tuple[str, ...], checkpoints: str | None
) -> tuple[Payload, Git | None]:
    payload = read_sources(files, Path.cwd(), ignore=ignore, checkpoints=checkpoints)
    return payload, git_facts(tuple(payload.origin.values()))
