"""What members, GPUs and checkpoints are called on a screen; all remote text is made harmless."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Sequence

from fleetstop.core import redact
from fleetstop.core.report import AboveRecord, GpuRecord, Member
from fleetstop.core.signals import Landing
from fleetstop.events import CheckpointSeen, Located, LogSeen
from fleetstop.view import words

CMD_SHOWN, LINE_SHOWN = 160, 160
_ABOVE = ("supervisor", "wrapper", "launcher")
# programs whose argument says more than their name
_CARRIERS = ("sh", "bash", "dash", "ash", "zsh", "env", "timeout", "nice", "uv", "sudo")
# what a supervisor is called; members stand in the tree line already
_OVER = {
    "loop": "",
    "launcher": "",
    "ranks": "",
    "wrapper": "",
    "other": "",
    "systemd": "systemd unit ",
    "tmux": "tmux pane of ",
    "screen": "screen window of ",
    "login": "login ",
}
_TYPED = re.compile(r"-[A-Za-z]*c")
_HABITS: dict[Landing, tuple[str, str]] = {
    "heard": ("has a handler", "have handlers"),
    "ignored": ("ignores it", "ignore it"),
    "blocked": ("blocks it", "block it"),
    "fatal": ("no handler: it ends at once, unsaved", "no handler: they end at once, unsaved"),
}
_ASKED = ("asked without a signal", "asked without a signal")


def of_role(family: Sequence[Member], *roles: str) -> list[Member]:
    return [each for each in family if each.role in roles]


def trainers(family: Sequence[Member]) -> list[Member]:
    return of_role(family, "trainer")


def above(family: Sequence[Member]) -> list[Member]:
    """Who stands over the trainers, in the order in which the family is given."""
    return of_role(family, *_ABOVE)


def full(member: Member) -> str:
    """`26982 python3 -u /root/train.py`."""
    return f"{member.pid} {redact.text(member.cmd, CMD_SHOWN)}"


def short(cmd: str) -> str:
    """`bash /root/run.sh` -> `run.sh`; `bash -c '…'` -> `bash`; `torchrun x.py` -> `torchrun`."""
    parts = redact.text(cmd).split()
    if not parts:
        return ""
    name = posixpath.basename(parts[0])
    if name in _CARRIERS or name.startswith("python"):
        options = list(itertools.takewhile(lambda each: each.startswith("-"), parts[1:]))
        argument = next(iter(parts[1 + len(options) :]), "")
        # what follows -c is a piece of program, no name
        typed = any(_TYPED.fullmatch(each) for each in options)
        name = name if typed else posixpath.basename(argument) or name
    return redact.safe(name, 40)


def group(members: Sequence[Member]) -> str:
    """One member in full; several by their number, their PIDs and the first one's command."""
    if len(members) == 1:
        return full(members[0])
    numbers = words.pids([each.pid for each in members])
    what = "trainers" if any(each.role != "worker" for each in members) else "workers"
    return f"{len(members)} {what} {numbers}: {redact.text(members[0].cmd, CMD_SHOWN)}"


def habit(landing: str, many: bool) -> str:
    """What the recipients of a signal do about it."""
    if landing == "asked":
        return _ASKED[many]
    for name, (one, several) in _HABITS.items():
        if landing == name:
            return several if many else one
    return redact.safe(landing)


def delivery(signal: str, to: str, pids: Sequence[int], landing: str) -> str:
    """`INT to 26982 (has a handler)`, `KILL to the tree: 26978, 26982`."""
    where = "" if to == "trainers" else f"the {to}: "
    how = "" if signal == "KILL" else f" ({habit(landing, len(pids) > 1)})"
    return f"{redact.safe(signal)} to {where}{words.pids(pids)}{how}"


def over(each: AboveRecord) -> str:
    """`26978 bash run.sh: starts it again …`, `systemd unit train.service (…): …`."""
    cmd, will = redact.text(each.cmd, CMD_SHOWN), redact.text(each.will)
    if each.kind == "supervisor":
        return f"supervisor {each.pid}, fleetstop's own: {will}"
    kind = _OVER.get(each.kind, f"{redact.safe(each.kind)} ")
    pid = f"{each.pid} " if each.pid is not None else ""
    return f"{kind}{pid}{cmd}: {will}"


def held(gpus: Sequence[GpuRecord]) -> list[GpuRecord]:
    """The GPUs this job holds, or may hold."""
    return [each for each in gpus if each.held_mib is None or each.held_mib > 0]


def gpu_indexes(found: Located) -> str:
    if found.gpus is None:
        return "?"
    return words.indexes([each.index for each in held(found.gpus)]) or "none"


def gpu_memory(found: Located) -> int | None:
    """MiB held by this job; None where any part of it is unknown."""
    sizes = [each.held_mib for each in held(found.gpus or ())]
    known = [each for each in sizes if each is not None]
    return sum(known) if found.gpus is not None and len(known) == len(sizes) else None


def quoted_line(log: LogSeen) -> str:
    return f'"{redact.text(log.line, LINE_SHOWN)}"'


def checkpoint_name(path: str) -> str:
    return redact.text(posixpath.basename(path.rstrip("/")) or path, 80)


def checkpoint(seen: CheckpointSeen) -> str:
    """`step_41000, complete, 18 min old, one every ~30 min`; an unfinished one and a whole."""
    age = "of unknown age" if seen.age_s is None else f"{words.age(seen.age_s)} old"
    text = f"{redact.text(seen.name, 80)}, {completeness(seen)}, {age}"
    if seen.whole is not None:
        old = "" if seen.whole_age_s is None else f", {words.age(seen.whole_age_s)} old"
        text += f"; before it {redact.text(seen.whole, 80)}, complete{old}"
    return text + ("" if seen.usual_s is None else f", one every ~{words.age(seen.usual_s)}")


def before_the_job(found: Located) -> bool:
    """Its newest complete checkpoint is older than itself: an earlier run's."""
    seen = found.checkpoint
    if seen is None or found.up_s is None:
        return False
    old = seen.age_s if seen.whole is None else seen.whole_age_s
    return old is not None and old > found.up_s


def saves(found: Located, seen: CheckpointSeen) -> str:
    young = "; from before this job's start" if before_the_job(found) else ""
    return checkpoint(seen) + young


def completeness(seen: CheckpointSeen) -> str:
    if seen.complete is None:
        return "not known whether complete"
    if not seen.complete:
        return "NOT complete"
    # of an unknown format nobody can tell more than that it is closed and stands still
    return "complete" if seen.known_format is not False else "complete by its looks"


def account(evidence: Sequence[str]) -> list[str]:
    """The sentences among the evidence; a bare CPU figure tells nobody anything."""
    return [redact.text(each) for each in evidence if not each.startswith("CPU ")]
