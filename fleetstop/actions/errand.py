"""What was asked of a launch, restart, redeploy or rollback. Does nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from fleetstop.actions.attempt import Wish
from fleetstop.core.inventory import Job
from fleetstop.core.launching.recipe import Extra
from fleetstop.core.releases.manifest import Git
from fleetstop.core.releases.payload import File, Payload

Command: TypeAlias = Literal["launch", "restart", "redeploy", "rollback"]


class Errand(Struct, frozen=True):
    """`payload` with `read`: the files of a redeploy and their bytes; `to`: where --to sends them.
    `release`: the one that rollback's --to names. `prove`: shell text, see staging. `stop`: how
    what runs is stopped; its dry run is the whole errand's."""

    command: Command
    stop: Wish
    payload: Payload | None = None
    read: Callable[[Payload, File], Iterator[bytes]] | None = None
    to: str | None = None
    release: str | None = None
    extra: Extra = Extra()
    prove: str | None = None
    git: Git | None = None
    roll_back: bool = True
    diff: bool = False

    @property
    def dry_run(self) -> bool:
        return self.stop.dry_run or self.diff


def wished(errand: Errand, job: Job, wanted: Mapping[str, str]) -> str:
    """Of what was asked, a word that the same command with the same files gives again, as long as
    the inventory says the same of start and health. Of environments only names count: the word
    lies where everybody may read it, and values may be secrets. `wanted`: SHA-256 by path of what
    is sent."""
    launch, check = job.launch, job.healthcheck
    asked = [
        errand.command,
        errand.release,
        errand.to,
        list(errand.extra.words),
        sorted(errand.extra.env),
        sorted(wanted.items()) if errand.command == "redeploy" else [],
        [list(launch.run), list(launch.resume), sorted(launch.env)] if launch is not None else [],
        [check.log_matches, check.within_s] if check is not None else [],
    ]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]
