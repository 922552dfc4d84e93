"""Who lives in the container, by /proc: what runs what, and who was born when. Signals nobody.

Loaded by activate.py, beside which it lies. Python 3.6 or later, standard library only.
"""

import contextlib
import os
import re
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

if TYPE_CHECKING:
    from fleetstop.remote.scripts import wary
else:
    import wary  # activate.py has loaded it from beside itself

Json = Dict[str, Any]
UNSEEN = contextlib.suppress(OSError)


def alive(one: Json) -> bool:
    """That very process, {"pid", "start"}: also where it cannot be seen that it is gone."""
    try:
        fields = _stat(one["pid"])
    except (FileNotFoundError, ProcessLookupError):
        return _exists(one["pid"])  # /proc may hide what other users run
    except OSError:
        return True
    remains = fields[0] in (b"Z", b"X") and int(fields[17]) <= 1
    return int(fields[19]) == one["start"] and not remains


def start_of(pid: int) -> int:
    """Field 22 of /proc/PID/stat."""
    return int(_stat(pid)[19])


def _stat(pid: int) -> List[bytes]:
    """From the third field on."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _exists(pid: int) -> bool:
    try:
        os.getsid(pid)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def marked(mark: str) -> List[int]:
    """Who was born with this FLEETSTOP_MARK."""
    word, found = b"FLEETSTOP_MARK=" + wary.bytes_of(mark), []
    for pid in pids():
        with UNSEEN, open(f"/proc/{pid}/environ", "rb") as file:
            if word in file.read().split(b"\0") and pid != os.getpid():
                found.append(pid)
    return found


def words_of(pid: int) -> List[bytes]:
    with UNSEEN, open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().split(b"\0")[:-1]
    return []


def started_as(pid: int) -> Tuple[List[bytes], bytes]:
    """Its words and its directory: two jobs may differ by nothing else."""
    with UNSEEN:
        return words_of(pid), os.readlink(f"/proc/{pid}/cwd".encode())
    return [], b""


def script_of(pid: int) -> Optional[bytes]:
    """The real name of what this process executes, if it is a Python."""
    words = words_of(pid)
    if words and os.path.basename(words[0]).startswith(b"python"):
        script = _script(words)
        with UNSEEN:
            if script is not None:
                cwd = os.readlink(f"/proc/{pid}/cwd".encode())
                return os.path.realpath(os.path.join(cwd, script))
    return None


def group_of(pid: int) -> Optional[int]:
    """What a process forks is in its group, what somebody starts anew is mostly not."""
    with UNSEEN:
        return int(_stat(pid)[2])
    return None


def _script(words: List[bytes]) -> Optional[bytes]:
    """What a Python executes; what comes after it is only named: by a monitor, say."""
    rest = iter(words[1:])
    for word in rest:
        if word in (b"-m", b"-c", b"-"):
            return None
        if word in (b"-W", b"-X", b"--check-hash-based-pycs"):
            next(rest, None)
        elif not word.startswith(b"-"):
            return word or None
    return None


def born_since(pid: int, start: int) -> bool:
    with UNSEEN:
        own = {"pid": pid, "start": start_of(pid)}
        return pid != os.getpid() and own["start"] >= start and alive(own)
    return False


def writers(path: bytes) -> List[int]:
    """Who is seen to have it open for writing. Who cannot be looked at loses no line either: it
    goes on in the file that is open, whatever its name is by then."""
    name, which = os.path.basename(path), os.stat(path)
    return [pid for pid in pids() if _writes(pid, name, which)]


def _writes(pid: int, name: bytes, which: os.stat_result) -> bool:
    """The link is read first: to look at a file itself may hang, on a server that is gone."""
    here = f"/proc/{pid}".encode()
    with UNSEEN:
        for fd in os.listdir(here + b"/fd"):
            link = here + b"/fd/" + fd
            with wary.MISSING:
                if os.path.basename(os.readlink(link)) != name:
                    continue
                if os.path.samestat(os.stat(link), which) and _for_writing(here + b"/fdinfo/" + fd):
                    return True
    return False


def _for_writing(path: bytes) -> bool:
    with open(path, "rb") as file:
        flags = re.search(rb"^flags:\s*([0-7]+)", file.read(), re.MULTILINE)
    return flags is None or int(flags.group(1), 8) & os.O_ACCMODE != os.O_RDONLY


def pids() -> List[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


class Ran:
    """What is known of processes that were there, once they have ended: their groups, what they
    executed if they were Pythons, and how they were started where that names a program of its
    own: a `sleep 300` that a script waits for may be anybody's."""

    def __init__(self, those: List[int]) -> None:
        self.groups = {group_of(pid) for pid in those}
        self.scripts = [path for path in map(script_of, those) if path is not None]
        self.ways = [way for way in map(started_as, those) if _is_named(*way)]


def _is_named(words: List[bytes], cwd: bytes) -> bool:
    """A Python, or what is given a file to execute."""
    python = bool(words) and os.path.basename(words[0]).startswith(b"python")
    return python or any(os.path.isfile(os.path.join(cwd, word)) for word in words[1:3])
