"""Stop GPU training jobs in Proxmox LXC containers, gently and provably."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetstop.api import Fleet
    from fleetstop.api.bringing import How

__version__ = "0.1.0"
__all__ = ["Fleet", "How", "__version__"]


def __getattr__(name: str) -> Any:
    """`from fleetstop import Fleet` works, and the command line's help does not pay for it."""
    if name == "Fleet":
        from fleetstop.api import Fleet

        return Fleet
    if name == "How":
        from fleetstop.api.bringing import How

        return How
    raise AttributeError(f"module 'fleetstop' has no attribute {name!r}")
