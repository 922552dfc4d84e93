"""Where a practice trainer's main thread can get stuck; what each shows outside was measured."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path


def lock_up() -> None:
    """A mutex that is never given back: the thread waits in C code for good."""
    lock, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    while True:
        libc.pthread_mutex_lock(lock)


def leave_a_thread() -> None:
    """The first thread ends, another works on: the process is a zombie that lives."""
    stream = Path("/workspace/headless.pt").open("wb")  # noqa: SIM115 - for good
    threading.Thread(target=time.sleep, args=(600,)).start()
    print(f"its first thread leaves {stream.name} to the others", flush=True)
    ctypes.CDLL(None).pthread_exit(None)


def leave_a_child() -> None:
    """A child that nobody reaps."""
    print(f"{subprocess.Popen(['/bin/true']).pid} is not waited for", flush=True)
    time.sleep(600)


def swallow() -> None:
    while True:
        try:
            time.sleep(600)
        except BaseException as exc:
            print(f"swallowed {type(exc).__name__}", flush=True)


class Slow:
    """An exception raised while this goes away is printed and forgotten."""

    def __del__(self) -> None:
        time.sleep(0.5)


def tidy_up() -> None:
    while True:
        Slow()


def hold_the_gil() -> None:
    """Another thread sits in C code and keeps the interpreter: the main one waits for its turn."""
    threading.Thread(target=ctypes.PyDLL(None).sleep, args=(600,), daemon=True).start()
    while True:
        time.sleep(0.1)


def block_everywhere() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    time.sleep(600)


def block_in_main() -> None:
    """A helper thread is open to it: the main thread hears of it when its sleep ends."""
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    while True:
        time.sleep(0.5)


STUCK: dict[str, Callable[[], None]] = {
    "mutex": lock_up,
    "gil": hold_the_gil,
    "headless": leave_a_thread,
    "zombie": leave_a_child,
    "swallow": swallow,
    "del": tidy_up,
    "blocked": block_everywhere,
    "main-blocked": block_in_main,
    "idle": lambda: time.sleep(600),
}
