"""Handles files where somebody else may write too: it follows no symbolic link and waits for none.

Loaded by swap.py and activate.py, which lie beside it. Python 3.6 or later, standard library only.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import time
from typing import Any, Dict, Iterator, Optional, Tuple

Seen = Tuple[int, str]
Shape = Optional[Tuple[int, int, int, int]]
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
CHUNK = 1 << 20
GET_FLAGS, FIXED = 0x80086601, 0x30  # FS_IOC_GETFLAGS; immutable, append-only: linux/fs.h
MISSING = contextlib.suppress(FileNotFoundError)


class Refused(Exception):
    """It was not done; its text is the sentence to report."""


class Top:
    """A directory by its path; it is not used once another has taken its place."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        with doing("look into", path):
            self._which = self._identity(os.lstat(path))

    @staticmethod
    def _identity(seen: os.stat_result) -> Tuple[int, int]:
        return seen.st_dev, seen.st_ino

    def said(self, name: bytes) -> Dict[str, Any]:
        """The JSON object that lies in it, of ours; empty where it cannot be had."""
        with contextlib.suppress(OSError, ValueError, Refused), open(self.at(name), "rb") as file:
            return dict(json.loads(file.read().decode()))
        return {}

    def at(self, *names: bytes) -> bytes:
        """The path of what lies in it."""
        with doing("look into", self.path):
            if self._identity(os.lstat(self.path)) != self._which:
                raise Refused(f"{text_of(self.path)} is another directory than it was")
        return os.path.join(self.path, *names)

    @contextlib.contextmanager
    def folder(self, rel: bytes, make: bool = False) -> Iterator[int]:
        """A descriptor of a directory below. One that is made is its parent's owner's."""
        here, done = os.open(self.at(), FOLDER), self.path
        try:
            for name in filter(None, rel.split(b"/")):
                done = os.path.join(done, name)
                if make:
                    _make(here, name)
                try:
                    inner = os.open(name, FOLDER, dir_fd=here)
                except NotADirectoryError as error:
                    told = "is no directory of its own: no link is followed"
                    raise Refused(f"{text_of(done)} {told}") from error
                os.close(here)
                here = inner
            yield here
        finally:
            os.close(here)


def shape(here: int, name: bytes) -> Shape:
    """Enough to see that a file was changed; Refused for what is no regular file."""
    try:
        seen = os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(seen.st_mode):
        raise Refused(f"{text_of(name)} is there and is no regular file")
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


def fixed(path: bytes, here: int, name: bytes) -> Optional[str]:
    """Why no rename can put another file in its place, which a copy beside it does not show."""
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", "rb") as file:
        escaped = re.sub(rb"[ \t\n\\\\]", lambda each: b"\\%03o" % ord(each.group()), path)
        if any(line.split()[4] == escaped for line in file):
            return "it is a mount point of its own"
    with contextlib.suppress(OSError):
        source = os.open(name, PLAIN, dir_fd=here)
        try:
            flags = fcntl.ioctl(source, GET_FLAGS, bytes(8))
        finally:
            os.close(source)
        if int.from_bytes(flags[:4], sys.byteorder) & FIXED:
            return "it is marked immutable or append-only (lsattr)"
    return None


def _make(above: int, name: bytes) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=above)
    except FileExistsError:
        return
    of = os.fstat(above)
    own(os.open(name, FOLDER, dir_fd=above), of.st_uid, of.st_gid, of.st_mode & 0o2775)


def own(file: int, uid: int, gid: int, mode: int) -> None:
    """Closes it. Only what differs: who is not root may be told to stay who he is."""
    try:
        seen = os.fstat(file)
        if (seen.st_uid, seen.st_gid) != (uid, gid):
            os.fchown(file, uid, gid)
        os.fchmod(file, stat.S_IMODE(mode))
        os.fsync(file)
    finally:
        os.close(file)


def copy(source: int, there: int, name: bytes, owner: Tuple[int, int], mode: int) -> Seen:
    """Size and SHA-256 of what is on disk as `name` then."""
    size, digest = 0, hashlib.sha256()
    file = os.open(name, NEW, 0o600, dir_fd=there)
    try:
        for block in _blocks(source):
            size += len(block)
            digest.update(block)
            write_all(file, block)
    except OSError:
        os.close(file)
        os.unlink(name, dir_fd=there)
        raise
    own(file, owner[0], owner[1], mode)
    return size, digest.hexdigest()


def _blocks(source: int) -> Iterator[bytes]:
    if not stat.S_ISREG(os.fstat(source).st_mode):
        raise Refused("what is to be copied is no regular file")
    while True:
        block = os.read(source, CHUNK)
        if not block:
            return
        yield block


def digest(here: int, name: bytes) -> bytes:
    digest = hashlib.sha256()
    source = os.open(name, PLAIN, dir_fd=here)
    try:
        for block in _blocks(source):
            digest.update(block)
    finally:
        os.close(source)
    return digest.digest()


def again(here: int, name: bytes, there: int, temp: bytes) -> None:
    """The same file there too, with owner, mode and times. A copy, since whoever writes into the
    one (scp does) would change the other by a hard link too, and since that makes what runs look
    changed. On a full disk the way back matters more than that."""
    with MISSING:
        os.unlink(temp, dir_fd=there)
    source = os.open(name, PLAIN, dir_fd=here)
    try:
        of = os.fstat(source)
        copy(source, there, temp, (of.st_uid, of.st_gid), of.st_mode)
        os.utime(temp, ns=(of.st_atime_ns, of.st_mtime_ns), dir_fd=there)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        with MISSING:
            os.unlink(temp, dir_fd=there)
        os.link(name, temp, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
    finally:
        os.close(source)
    os.rename(temp, name, src_dir_fd=there, dst_dir_fd=there)  # leaves both if they are one file


def rotate(log: bytes, its: Optional[Tuple[int, int]] = None) -> Optional[bytes]:
    """LOG.YYYYmmdd-HHMMSS (UTC) by its last change; a new one of the same owner and mode. `its`:
    the user and group who could not write that one, and who get the new one, though it be first."""
    with Top(b"/").folder(os.path.dirname(log)) as here, doing("rotate", log):
        name = os.path.basename(log)
        was = shape(here, name)
        if was is None:
            if its is not None:
                own(os.open(name, NEW, 0o600, dir_fd=here), its[0], its[1], 0o644)
            return None
        if was[2] == 0 and its is None:
            return None
        seen = os.stat(name, dir_fd=here, follow_symlinks=False)
        new = free = name + time.strftime(".%Y%m%d-%H%M%S", time.gmtime(seen.st_mtime)).encode()
        while free in os.listdir(b"/proc/self/fd/%d" % here):
            free = new + b"-%d" % (int(free[len(new) + 1 :] or b"1") + 1)
        os.rename(name, free, src_dir_fd=here, dst_dir_fd=here)
        uid, gid = its or (seen.st_uid, seen.st_gid)
        mode = seen.st_mode | (stat.S_IWUSR if its else 0)
        try:
            own(os.open(name, NEW, 0o600, dir_fd=here), uid, gid, mode)
        except OSError:
            os.rename(free, name, src_dir_fd=here, dst_dir_fd=here)
            raise
        return os.path.join(os.path.dirname(log), free)


def fill(path: bytes, text: bytes, mode: int = 0o644) -> None:
    """What the file holds already is overwritten in place: it needs no more room."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, mode)
    try:
        write_all(file, text)
        os.ftruncate(file, len(text))
        os.fchmod(file, mode)
        os.fsync(file)
    finally:
        os.close(file)


def unlink(name: bytes, here: Optional[int] = None) -> None:
    """Looked for first: a read-only file system refuses to remove even what is not there."""
    with MISSING:
        os.stat(name, dir_fd=here, follow_symlinks=False)
        os.unlink(name, dir_fd=here)


def write_all(file: int, text: bytes) -> None:
    while text:
        text = text[os.write(file, text) :]


def remove_tree(path: bytes) -> None:
    with MISSING:
        shutil.rmtree(path)


@contextlib.contextmanager
def doing(what: str, path: bytes) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refused(f"cannot {what} {text_of(path)}: {error.strerror or error}") from error


def told(error: BaseException) -> str:
    """For a person: no number, and a path as it is written."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    path = error.filename
    named = text_of(os.fsencode(path)) + ": " if isinstance(path, (str, bytes)) else ""
    return named + error.strerror


def plain_name(word: str) -> None:
    if not re.match(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z", word):
        raise Refused(f"{word!r} is no name for a run or a release")


def bytes_of(text: str) -> bytes:
    """As the spec has it, whatever this Python's locale would make of it."""
    return text.encode("utf-8", "surrogateescape")


def text_of(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
