"""Tries what a start would have to do, in a child that ends at once: starts and changes nothing.

Loaded by activate.py, beside which it lies. Python 3.6 or later, standard library only. What cannot
be done is to be known while the old run still trains.
"""

import errno
import os
import select
import stat
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

if TYPE_CHECKING:
    from fleetstop.remote.scripts import supervise, wary
else:
    import supervise  # activate.py has loaded both from beside itself
    import wary

Json = Dict[str, Any]
WAIT_S = 20.0
LOG = b"log "  # this much is said of a log alone: it may still be given to its user
_HARMLESS = ("set nice", "set the limit", "become user", "change to")


def obstacle(spec: Json, files: List[Json]) -> Tuple[str, bool]:
    """Why this launch (what supervise.py reads) would not start; empty: it would. True: only
    because its user may not write the log. `files`: what will lie there by then."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"it could not be tried"
        try:
            said = _tried(spec, files)
        except Exception as error:  # told by whoever asked
            said = str(error).encode("utf-8", "backslashreplace")
        finally:
            os.write(writing, said[:4000])
            os._exit(0)
    os.close(writing)
    try:
        if not select.select([reading], [], [], WAIT_S)[0]:  # a file server that is gone, mostly
            return f"whether it can start was not known within {WAIT_S:.0f} s", False
        said = os.read(reading, 4096)
    finally:
        os.close(reading)
    os.waitpid(child, 0)
    return said[len(LOG) if said.startswith(LOG) else 0 :].decode(), said.startswith(LOG)


def _tried(spec: Json, files: List[Json]) -> bytes:
    for what, step in supervise._steps(spec):
        if what.startswith(_HARMLESS):
            _do(what, step)
    _do(f"run {spec['argv'][0]}", lambda: _program(spec, files))
    try:
        _do(f"append to {spec['log']}", lambda: _log(spec["log"]))
    except wary.Refused as refused:
        denied = isinstance(refused.__cause__, PermissionError)
        return (LOG if denied else b"") + str(refused).encode("utf-8", "backslashreplace")
    return b""


def _do(what: str, step: Any) -> None:
    try:
        step()
    except Exception as error:
        told = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise wary.Refused(f"cannot {what}: {told}") from error


def _program(spec: Json, files: List[Json]) -> None:
    """As execvp(3) finds it, in the directory where it starts."""
    word = wary.bytes_of(spec["argv"][0])
    path = spec["env"].get("PATH", os.defpath)
    places = [b""] if b"/" in word else wary.bytes_of(path).split(b":")
    found = [os.path.join(place, word) for place in places]
    come = {each["path"]: each["mode"] for each in files}
    if not any(_runs(each, come) for each in found):
        there = any(_real(each) in come or os.path.exists(each) for each in found)
        code = errno.EACCES if there else errno.ENOENT
        raise OSError(code, os.strerror(code))


def _real(path: bytes) -> str:
    return wary.text_of(os.path.realpath(path))


def _runs(path: bytes, come: Dict[str, int]) -> bool:
    mode = come.get(_real(path))
    if mode is not None:
        return bool(mode & 0o111)
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _log(path: Any) -> None:
    if path is None:
        return
    log = wary.bytes_of(path)
    try:
        seen = os.stat(log)
    except FileNotFoundError:
        above = os.path.dirname(log)
        os.stat(above)
        if not os.access(above, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
        return
    if stat.S_ISREG(seen.st_mode):
        os.close(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK))
