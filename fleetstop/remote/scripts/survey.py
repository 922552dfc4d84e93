"""Looks at where new files are to go, and proves those that came; knows no release, no activation.

The job's own Python gets it as text: one question as JSON on stdin, its answer as JSON on stdout.
Standard library, Python >= 3.6. What `ask` may be:

survey  {"dest", "files": [{"path", "size", "sha256"}]}: what is there now. Changes nothing.
prove   {"stage", "files": [{"rel", "size", "sha256"}]}: whether what came is what was sent, and
        whether this interpreter can compile it; writes no pyc.
fill    the same, with {"pairs": [[from, rel, mode]], "sent": [[rel, size, mode]], "packed"} before:
        copies what is there already, and writes what has come with the question.

Paths are bytes from here on: whatever the locale, they mean the files that were named.
"""

import base64
import hashlib
import io
import json
import os
import shutil
import stat
import sys
import tokenize
import warnings
from typing import Any, Dict, List, Optional

try:
    import zlib
except ImportError:  # a Python that was built without it; then nothing comes with a question
    zlib = None  # type: ignore[assignment]

Said = Dict[str, Any]

CHUNK = 1 << 20
LINK_FROM = 8 << 20


def raw(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def digest(path: bytes) -> str:
    told = hashlib.sha256()
    with open(path, "rb", buffering=0) as stream:
        while True:
            chunk = stream.read(CHUNK)
            if not chunk:
                return told.hexdigest()
            told.update(chunk)


def unmapped() -> Optional[int]:
    """The id that stands here for whoever has none in this user namespace; None where all have one
    (user_namespaces(7))."""
    try:
        with open("/proc/self/uid_map") as stream:
            mapped = [[int(word) for word in line.split()] for line in stream]
        if any(start == 0 and count >= 2**32 - 1 for start, _, count in mapped):
            return None
        with open("/proc/sys/kernel/overflowuid") as stream:
            return int(stream.read())
    except (OSError, ValueError):
        return None


def kind_of(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    return "dir" if stat.S_ISDIR(mode) else "other"


def placed(wanted: Said, nobody: Optional[int]) -> Said:
    """One destination: what is there, links followed; `sha256` only where it may be equal."""
    path = raw(wanted["path"])
    said: Said = {"path": wanted["path"], "kind": None, "problem": None}
    said["real"] = text(os.path.realpath(path))
    said.update(size=None, sha256=None, mode=None, uid=None, gid=None, mtime=None, unmapped=False)
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return said
    except OSError as error:
        return dict(said, problem=error.strerror)
    said.update(kind=kind_of(found.st_mode), size=found.st_size, mode=stat.S_IMODE(found.st_mode))
    said.update(uid=found.st_uid, gid=found.st_gid, mtime=found.st_mtime)
    said["unmapped"] = nobody is not None and nobody in (found.st_uid, found.st_gid)
    if said["kind"] == "file" and found.st_size == wanted["size"]:
        try:
            said["sha256"] = digest(path)
        except OSError as error:
            said["problem"] = error.strerror
    return said


def directory(path: bytes, nobody: Optional[int]) -> Said:
    """A directory that is to be written to; `free` and `inodes` null where they are not counted."""
    said: Said = {"path": text(path), "exists": os.path.isdir(path)}
    said["real"] = text(os.path.realpath(path))
    said.update(writable=False, read_only=False, free=None, inodes=None, unmapped=False)
    said.update(uid=None, gid=None)
    if not said["exists"]:
        return said
    found, disk = os.stat(path), os.statvfs(path)
    root = os.geteuid() == 0
    said.update(writable=os.access(path, os.W_OK | os.X_OK), uid=found.st_uid)
    said["gid"] = found.st_gid
    said["read_only"] = bool(disk.f_flag & os.ST_RDONLY)
    if disk.f_blocks:
        said["free"] = disk.f_frsize * (disk.f_bfree if root else disk.f_bavail)
    if disk.f_files:
        said["inodes"] = disk.f_ffree if root else disk.f_favail
    said["unmapped"] = nobody is not None and nobody in (found.st_uid, found.st_gid)
    return said


def nearest(path: bytes) -> bytes:
    """The directory of this file that is there already."""
    above = os.path.dirname(os.path.realpath(path))
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    return above


def survey(asked: Said) -> Said:
    nobody, dest = unmapped(), raw(asked["dest"])
    around = {nearest(raw(each["path"])) for each in asked["files"]}
    return {
        "python": "%d.%d.%d" % sys.version_info[:3],
        "tar": shutil.which("tar") is not None,
        "unpacks": zlib is not None,
        "uid": os.geteuid(),
        "dest": directory(dest, nobody),
        "around": [directory(each, nobody) for each in sorted(around)],
        "files": [placed(each, nobody) for each in asked["files"]],
    }


def fill(asked: Said) -> Said:
    """What is linked or copied is proved like what was sent."""
    stage = raw(asked["stage"])
    for old, rel, mode in asked["pairs"]:
        try:
            again(raw(old), os.path.join(stage, raw(rel)), mode)
        except OSError as error:
            return unwritten(rel, error)
    at, sent = 0, zlib.decompress(base64.b64decode(asked["packed"])) if asked["sent"] else b""
    for rel, size, mode in asked["sent"]:
        try:
            write(os.path.join(stage, raw(rel)), sent[at : at + size], mode)
        except OSError as error:
            return unwritten(rel, error)
        at += size
    return prove(asked)


def unwritten(rel: str, error: OSError) -> Said:
    told = error.strerror or str(error)
    return {"wrong": [], "broken": [], "compiled": 0, "unwritten": [rel, told]}


def write(path: bytes, content: bytes, mode: int) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(content)
    os.chmod(path, mode)


def again(source: bytes, target: bytes, mode: int) -> None:
    if not linked(source, target):
        shutil.copyfile(source, target)
        os.chmod(target, mode)


def linked(source: bytes, target: bytes) -> bool:
    """A large file takes no room twice, where that can be: only renames ever come over it."""
    if os.path.getsize(source) < LINK_FROM:
        return False
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        return False
    return True


def problem_of(path: bytes, rel: bytes) -> Optional[str]:
    """Why this interpreter would not take it, like `file:line: text`; None where it would."""
    with open(path, "rb") as stream:
        source = stream.read()
    try:
        # `python FILE` refuses what is not in its encoding, in comments too; compile() does not
        source.decode(tokenize.detect_encoding(io.BytesIO(source).readline)[0])
        # by its own path: the line that is shown is looked up there, not in our directory
        compile(source, os.fsdecode(path), "exec", dont_inherit=True)
    except UnicodeDecodeError as error:
        line = source[: error.start].count(b"\n") + 1
        return "%s:%d: byte 0x%02x is not %s" % (
            text(rel),
            line,
            source[error.start],
            error.encoding,
        )
    except SyntaxError as error:
        at = ":%d" % error.lineno if error.lineno else ""
        shown = (error.text or "").strip()
        return "%s%s: %s%s" % (text(rel), at, error.msg, ": " + shown if shown else "")
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        before = source.partition(b"\0")[0]
        at = ":%d" % (before.count(b"\n") + 1) if before != source else ""
        return "%s%s: %s" % (text(rel), at, str(error) or type(error).__name__)
    return None


def prove(asked: Said) -> Said:
    wrong: List[List[str]] = []
    broken: List[str] = []
    compiled = 0
    stage = raw(asked["stage"])
    warnings.simplefilter("ignore")
    for each in asked["files"]:
        rel = raw(each["rel"])
        path = os.path.join(stage, rel)
        try:
            found = os.lstat(path)
            if not stat.S_ISREG(found.st_mode):
                wrong.append([each["rel"], "is no plain file"])
            elif found.st_size != each["size"]:
                wrong.append([each["rel"], "has %d of %d bytes" % (found.st_size, each["size"])])
            elif digest(path) != each["sha256"]:
                wrong.append([each["rel"], "has another SHA-256"])
            elif rel.endswith(b".py"):
                compiled += 1
                said = problem_of(path, rel)
                broken += [said] if said else []
        except OSError as error:
            wrong.append([each["rel"], "could not be read: %s" % error.strerror])
    return {"wrong": wrong, "broken": broken, "compiled": compiled}


def main() -> None:
    asked = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    asks: Dict[str, Any] = {"survey": survey, "fill": fill, "prove": prove}
    answer = asks[asked["ask"]](asked)
    # ASCII, whatever the locale: a lone byte of a name is a lone surrogate
    sys.stdout.write(json.dumps(answer))


main()
