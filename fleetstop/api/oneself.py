"""Who we are among the processes of this machine, and whether another of us is still there.

Only the machine itself can tell that for certain: a connection that is gone proves nothing.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

_NONE = ""


def here() -> str:
    """A word that no other process has, ever: `MACHINE:PID:START`. Empty where nothing tells."""
    machine, start = _machine(), _start(os.getpid())
    return f"{machine}:{os.getpid()}:{start}" if machine and start else _NONE


def dead(client: str) -> bool:
    """It was a process of this machine, as it is up, and is gone. Of others: False, it may live."""
    machine, _, rest = client.partition(":")
    pid, _, start = rest.partition(":")
    if not machine or machine != _machine() or not pid.isdigit() or not start.isdigit():
        return False
    now = _start(int(pid))
    if now is not None:
        return now != start
    try:
        os.kill(int(pid), 0)  # no signal: /proc may hide what other users run
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _machine() -> str:
    """Of one boot and one PID namespace; two containers may have the same name and number."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        spaces = f"{os.readlink('/proc/self/ns/pid')} {os.stat('/proc/self/ns/pid').st_dev}"
        return hashlib.sha256(f"{boot} {spaces}".encode()).hexdigest()[:16]
    return _NONE


def _start(pid: int) -> str | None:
    """Field 22 of /proc/PID/stat; a word of its own for who is dead and only not reaped."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return "0" if fields[0] in (b"Z", b"X") and int(fields[17]) <= 1 else fields[19].decode()
    return None
