"""`pct push` and `pct pull` of the practice fleet, as in pve-container 6.1.10, faults included.

pct.pm:606-691 and 693-800. The copy is done by a forked worker whose exit status nobody reads, so
that the tool says 0 whatever became of it; a write that fails in the middle is not noticed.
"""

from __future__ import annotations

import ctypes
import fcntl
import grp
import os
import pwd
import re
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fleetstop.lab.files.pct_options import Options
else:
    Options = dict

LOCK_S = 10.0
_CHUNK = 65_536
_CLONE_NEWNS, _CLONE_NEWUSER = 0x0002_0000, 0x1000_0000


class CopyFailed(Exception):
    """What the worker's `die` prints on stderr."""


def locked(path: str, shown: str) -> int | None:
    """The container's exclusive flock, held for the whole copy. None: busy for ten seconds."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    until, told = time.monotonic() + LOCK_S, False
    while time.monotonic() < until:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                sys.stderr.write("trying to acquire lock...\n")
                told = True
            time.sleep(0.05)
            continue
        return lock
    sys.stderr.write(f"can't lock file '{shown}' - got timeout\n")
    return None


def in_worker(copy: str, first: int, options: Options, *, unprivileged: bool) -> None:
    """Forks, copies there, waits, and forgets how it ended (fork_worker in scalar context)."""
    worker = os.fork()
    if worker == 0:
        try:
            (_push if copy == "push" else _pull)(first, options, unprivileged)
        except CopyFailed as error:
            sys.stderr.write(f"{error}\n")
            os._exit(255)
        os._exit(0)
    os.waitpid(worker, 0)


def _push(first: int, options: Options, unprivileged: bool) -> None:
    source, target = str(options["file"]), str(options["destination"])
    mode = _mode(options)
    try:
        reading = os.open(source, os.O_RDONLY)
    except OSError:
        raise CopyFailed(f"failed to open {source} for reading") from None
    _enter(first, unprivileged)
    owner = _owner(options)
    writing = _created(target)
    _poured(reading, writing)
    _dressed(writing, owner, mode)


def _pull(first: int, options: Options, unprivileged: bool) -> None:
    source, target = str(options["path"]), str(options["destination"])
    mode, owner = _mode(options), _owner(options)
    writing = _created(target)  # on the host, and before anybody knows whether there is a source
    _enter(first, unprivileged)
    try:
        reading = os.open(source, os.O_RDONLY)
    except OSError:
        raise CopyFailed(f"failed to open {source} for reading") from None
    _poured(reading, writing)
    _dressed(writing, owner, mode)


def _created(target: str) -> int:
    """In place: the same inode, its mode and owner kept; nothing appended to a directory's name."""
    try:
        return os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except OSError as error:
        raise CopyFailed(f"failed to create file: {target}: {error.strerror}") from None


def _poured(reading: int, writing: int) -> None:
    """File::Copy::copy, of which nobody asks whether it could: a full disk truncates."""
    try:
        while chunk := os.read(reading, _CHUNK):
            if os.write(writing, chunk) < len(chunk):
                return
    except OSError:
        return  # measured: nothing is said, of a directory as source neither


def _dressed(writing: int, owner: tuple[int, int], mode: int | None) -> None:
    try:
        if owner != (-1, -1):
            os.fchown(writing, *owner)
        if mode is not None:
            os.fchmod(writing, mode)
    except OSError as error:
        raise CopyFailed(f"failed to change its owner or mode: {error.strerror}") from None


def _mode(options: Options) -> int | None:
    """Octal unless it says 0x; numbers only."""
    if "perms" not in options:
        return None
    text = str(options["perms"])
    text = text if text.startswith("0") else f"0{text}"
    if re.fullmatch("0[0-7]*", text):
        return int(text, 8)
    if re.fullmatch("0x[0-9a-fA-F]+", text):
        return int(text, 16)
    raise CopyFailed(f"invalid mode: '{text}'")


def _owner(options: Options) -> tuple[int, int]:
    """Names as they are known where the target lies: inside for push, on the host for pull."""
    user, group = options.get("user"), options.get("group")
    uid = _number(user, "uid", lambda name: pwd.getpwnam(name).pw_uid)
    return uid, _number(group, "gid", lambda name: grp.getgrnam(name).gr_gid)


def _number(named: object, kind: str, look_up: object) -> int:
    if named is None:
        return -1
    text = str(named)
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return int(look_up(text))  # type: ignore[operator]
    except KeyError:
        raise CopyFailed(f"failed to get {kind} for: {text}") from None


def _enter(first: int, unprivileged: bool) -> None:
    """The mount namespace of the container's init, and its user namespace where it has one."""
    handles = [(os.open(f"/proc/{first}/ns/mnt", os.O_RDONLY), _CLONE_NEWNS)]
    if unprivileged:
        handles.append((os.open(f"/proc/{first}/ns/user", os.O_RDONLY), _CLONE_NEWUSER))
    libc = ctypes.CDLL(None, use_errno=True)
    for handle, kind in handles:
        if libc.setns(handle, kind) != 0:
            raise CopyFailed(f"setns failed: {os.strerror(ctypes.get_errno())}")
        os.close(handle)
    os.chdir("/")
    if unprivileged:
        os.setgid(0)
        os.setuid(0)


def init_of(lxcpath: str, vmid: str) -> int | None:
    """PVE::LXC::find_lxc_pid."""
    asked = ["lxc-info", "-P", lxcpath, "-n", vmid, "-p", "-H"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return int(said) if said.isdigit() else None
