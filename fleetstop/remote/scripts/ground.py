"""What lies where a job is to be deployed and launched; changes nothing, knows no release of yours.

The job's own Python gets it as text: one question as JSON on stdin, its answer as JSON on stdout.
Standard library, Python >= 3.6. What `ask` may be:

names     {"there", "may", "own", "from"}: real names, of `there` those that exist, of `may` as
          far as they do; and when the state of an activator in `own` was written, by directory:
          above each file of `there`, and each of `from`
ground    {"base", "dest", "wanted"}: the activator's state, whether it lives, what it was told
          last, how long ago its client was heard, the kept releases and how they did, SHA-256 of
          what lies at these places and at those of every release, times of change, the time, the
          runs whose stages lie there, and what the supervisor of the last start recorded
contents  {"paths", "most"}: the bytes of plain files up to so many, in base64
"""

import base64
import contextlib
import hashlib
import json
import os
import stat
import sys
import time
from typing import Any, Dict, List, Optional, Set

Said = Dict[str, Any]
CHUNK = 1 << 20
MOST = 4 << 20  # a manifest or a state that is longer is none of ours


def raw(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def names(asked: Said) -> Said:
    found = {each: text(os.path.realpath(raw(each))) for each in asked["may"]}
    for each in asked["there"]:
        if os.path.exists(raw(each)):
            found[each] = text(os.path.realpath(raw(each)))
    mains = [each for each in asked["there"] if each in found] or asked["there"]
    below = {os.path.dirname(os.path.realpath(raw(each))) for each in mains}
    below |= {os.path.realpath(raw(each)) for each in asked["from"]}
    return {"real": found, "homes": homes(raw(asked["own"]), below)}


def homes(own: bytes, below: Set[bytes]) -> Dict[str, float]:
    """Those that only we may write to: what lies in them is acted upon."""
    above = set(below)
    for folder in below:
        while folder not in (b"/", b""):
            above.add(folder)
            folder = os.path.dirname(folder)  # noqa: PLW2901
    found = {}
    for folder in above | {b"/"}:
        with contextlib.suppress(OSError):
            seen = os.lstat(os.path.join(folder, own))
            ours = seen.st_uid == os.geteuid() and not seen.st_mode & 0o022
            told = os.lstat(os.path.join(folder, own, b"state.json"))
            if ours and stat.S_ISDIR(seen.st_mode) and stat.S_ISREG(told.st_mode):
                found[text(folder)] = told.st_mtime
    return found


def read(path: bytes) -> Optional[str]:
    """A plain file's text; a pipe in its place must not hang us, and a link is not followed."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(file, "rb") as stream:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        return stream.read(MOST).decode("utf-8", "surrogateescape")


def digest(path: bytes) -> Optional[str]:
    told = hashlib.sha256()
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb", buffering=0) as stream:
            while True:
                chunk = stream.read(CHUNK)
                if not chunk:
                    return told.hexdigest()
                told.update(chunk)
    except OSError:
        return None


def lives(one: Any) -> Optional[bool]:
    """That very process. None: it cannot be told."""
    try:
        with open("/proc/%d/stat" % one["pid"], "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    except (OSError, TypeError, KeyError):
        return None
    return int(fields[19]) == one["start"] and fields[0] not in (b"Z", b"X")


def parsed(said: Optional[str]) -> Said:
    try:
        told = json.loads(said or "")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def tools(base: bytes) -> bytes:
    """Where our scripts go. Root runs none out of a directory that is, or can be exchanged by, the
    job's own user: they lie in /run (root's, file-hierarchy(7)) then; else beside the rest."""
    if os.geteuid() != 0:
        return base
    folder = base
    while True:
        with contextlib.suppress(OSError):  # it is made by us, below the next one
            seen = os.lstat(folder)
            open_ = seen.st_mode & 0o022 and not seen.st_mode & stat.S_ISVTX
            if seen.st_uid != 0 or open_:
                return b"/run/.fleetstop/scripts"
        if folder == b"/":
            return base
        folder = os.path.dirname(folder)


def ground(asked: Said) -> Said:
    base, dest = raw(asked["base"]), raw(asked["dest"])
    state = read(os.path.join(base, b"state.json"))
    told = parsed(state)
    activator, started = told.get("activator"), told.get("trainer") or {}
    beat = None  # type: Optional[float]
    with contextlib.suppress(OSError):
        beat = max(0.0, time.time() - os.stat(os.path.join(base, b"beat")).st_mtime)
    kept, tried = {}, {}
    for name in listed(os.path.join(base, b"releases")):
        manifest = read(os.path.join(base, b"releases", name, b"manifest.json"))
        if manifest is not None:
            kept[text(name)] = manifest
            said = read(os.path.join(base, b"releases", name, b"tried.json"))
            if said is not None:
                tried[text(name)] = said
    rels = set(asked["wanted"])
    for manifest in kept.values():
        files = parsed(manifest).get("files")
        rels |= {each["rel"] for each in files or [] if isinstance(each, dict) and "rel" in each}
    hashes, changed, touched = {}, {}, {}
    for rel in sorted(rels):
        path = os.path.join(dest, raw(rel))
        found = digest(path)
        if found is not None:
            hashes[rel] = found
            seen = os.stat(path)
            changed[rel], touched[rel] = seen.st_mtime, seen.st_ctime
    return {
        "state": state,
        "activator": lives(activator) if activator else False,
        "order": read(os.path.join(base, b"order")),
        "beat_s": beat,
        "releases": kept,
        "tried": tried,
        "on_disk": hashes,
        "changed": changed,
        "touched": touched,
        "last": last(base, started.get("mark")),
        "stages": [text(name[6:]) for name in listed(base) if name.startswith(b"stage-")],
        "tools": text(tools(base)),
        "now": time.time(),
        "up": up(),
    }


def up() -> Optional[float]:
    """Seconds since boot, by the clock that a process's start is told by; lxcfs may fake
    /proc/uptime. CLOCK_BOOTTIME is 7 (linux/time.h), and has no name before Python 3.7."""
    with contextlib.suppress(OSError):
        return time.clock_gettime(7)
    return None


def last(base: bytes, mark: Any) -> Optional[str]:
    """What the supervisor of the last start wrote: that of the state, else the newest one."""
    folder = os.path.join(base, b"status")
    if isinstance(mark, str) and "/" not in mark:
        said = read(os.path.join(folder, raw(mark) + b".json"))
        if said is not None:
            return said
    every = [os.path.join(folder, each) for each in listed(folder) if each.endswith(b".json")]
    newest = max(every, key=lambda each: os.lstat(each).st_mtime, default=None)
    return read(newest) if newest is not None else None


def listed(folder: bytes) -> List[bytes]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def contents(asked: Said) -> Said:
    found = {}
    for each in asked["paths"]:
        with contextlib.suppress(OSError):
            seen = os.stat(raw(each))
            if stat.S_ISREG(seen.st_mode) and seen.st_size <= asked["most"]:
                with open(raw(each), "rb") as stream:
                    found[each] = base64.b64encode(stream.read()).decode("ascii")
    return {"contents": found}


ASKS = {"names": names, "ground": ground, "contents": contents}

if __name__ == "__main__":
    question = json.loads(sys.stdin.buffer.read().decode("utf-8", "surrogateescape"))
    sys.stdout.write(json.dumps(ASKS[question["ask"]](question)) + "\n")
