"""What was asked of a launch, restart, redeploy or rollback. Does nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from fleetstop.actions.attempt import Wish
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
