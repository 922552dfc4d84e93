"""How one trainer is to be started, as the supervisor in the container reads it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class LaunchSpec(Struct, frozen=True):
    """Everything a new process is born with; paths are the container's, absolute.

    `env`: the whole environment. `log` is appended to, None: /dev/null. `limits`: by the name of
    setrlimit(2) without RLIMIT_, soft and hard, -1 is infinity; those not named stay as they are.
    `mark`: FLEETSTOP_MARK of the new process. `status`: where its exact end is recorded.
    """

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    log: str | None
    mark: str
    status: str
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    umask: int = 0o022
    nice: int = 0
    limits: dict[str, tuple[int, int]] = {}

    def words(self) -> dict[str, Any]:
        """As supervise.py reads it; it holds the environment's secrets, so its file is 0600."""
        return {name: getattr(self, name) for name in self.__struct_fields__}
