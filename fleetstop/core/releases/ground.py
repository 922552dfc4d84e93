"""What was found where a job is deployed, as ground.py in the container told it; asks nothing."""

from __future__ import annotations

from msgspec import Struct

from fleetstop.core.launching.activation import Broken, State, parse_state
from fleetstop.core.launching.ended import Record, parse_record
from fleetstop.core.process import ProcessTree
from fleetstop.core.releases.manifest import Release, parse_release
from fleetstop.core.releases.sighting import Stamps
from fleetstop.core.releases.tried import Tried, parse_tried, with_state


class Names(Struct, frozen=True):
    """Real names, by the path that was asked for. `homes`: when the last activator of this job was
    heard of in that directory, seconds since the epoch."""

    real: dict[str, str]
    homes: dict[str, float] = {}


class Contents(Struct, frozen=True):
    """Base64, by path; what is missing was no plain file, or too long."""

    contents: dict[str, str]


class Found(Struct, frozen=True):
    """The raw answer; see ground.py. `activator` None: it cannot be told whether it lives. Times
    are seconds since the epoch by the container's clock: `changed` is mtime, `touched` ctime; `up`
    since boot."""

    state: str | None
    activator: bool | None
    beat_s: float | None
    releases: dict[str, str]
    on_disk: dict[str, str]
    changed: dict[str, float]
    last: str | None
    now: float
    touched: dict[str, float] = {}
    up: float | None = None
    tools: str | None = None
    tried: dict[str, str] = {}
    order: str | None = None
    stages: tuple[str, ...] = ()


class Ground(Struct, frozen=True):
    """The same, read. `broken`: what was there and says nothing; of releases only a finding.
    `tools`: the directory for our scripts, which only we may write to. `tried`: by release.
    `order`: what the activator was told last, its run and a word. `stages`: the runs whose stages
    lie there."""

    state: State | Broken | None
    activator: bool | None
    beat_s: float | None
    releases: dict[str, Release]
    on_disk: dict[str, str]
    changed: dict[str, Stamps]
    last: Record | None
    now: float
    tools: str
    up: float | None = None
    broken: tuple[str, ...] = ()
    tried: dict[str, Tried] = {}
    order: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()

    def began(self, tree: ProcessTree, start: int) -> float:
        """When a process of this start began, seconds since the epoch by the clock that files are
        stamped with. `tree` was looked at some time before."""
        up = self.up if self.up is not None else tree.uptime
        return self.now - (up - start / tree.hz)


def ground(found: Found, base: str) -> Ground:
    state = None
    if found.state is not None:
        state = parse_state(found.state.encode("utf-8", "surrogateescape"), f"{base}/state.json")
    parsed = {
        name: parse_release(
            told.encode("utf-8", "surrogateescape"), f"{base}/releases/{name}/manifest.json"
        )
        for name, told in found.releases.items()
    }
    known = {name: parse_tried(told) for name, told in found.tried.items()}
    return Ground(
        state=state,
        activator=found.activator,
        beat_s=found.beat_s,
        releases={name: each for name, each in parsed.items() if isinstance(each, Release)},
        on_disk=found.on_disk,
        changed={rel: Stamps(at, found.touched.get(rel, at)) for rel, at in found.changed.items()},
        last=parse_record(found.last),
        now=found.now,
        tools=found.tools or base,
        up=found.up,
        tried=with_state(known, state if isinstance(state, State) else None),
        broken=tuple(each.sentence for each in parsed.values() if isinstance(each, Broken)),
        order=tuple((found.order or "").split()[:2]),
        stages=found.stages,
    )
