"""Where a practice trainer's main thread can get stuck; what each shows outside was measured."""

from __future__ import annotations

import asyncio
import ctypes
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from waits import WAITS  # type: ignore[import-not-found]


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


def in_c(name: str, load: type[ctypes.CDLL] = ctypes.CDLL) -> Callable[[], None]:
    """A function of stuck.c that never returns; without the GIL, as CUDA's waits are, but where
    it is loaded by PyDLL."""

    def call() -> None:
        compiler = next(filter(shutil.which, ("cc", "gcc", "clang", "tcc")))
        built = f"/tmp/stuck-{name}.so"  # noqa: S108 - the container's own
        line = [compiler, "-shared", "-fPIC", "-nostdlib", "-o", built, "/root/stuck.c"]
        subprocess.run(line, check=True)
        print(f"its main thread leaves for C code: {name}", flush=True)
        getattr(load(built), name)()

    return call


async def work_and_drain() -> None:
    print("at work", flush=True)
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        print("draining", flush=True)
        await asyncio.sleep(2)
        print("drained", flush=True)
        raise


STUCK: dict[str, Callable[[], None]] = {
    **WAITS,
    "mutex": lock_up,
    "spin": in_c("spin", ctypes.PyDLL),
    "yield-spin": in_c("yield_spin"),
    "usleep-poll": in_c("usleep_poll"),
    "sleep-on": in_c("sleep_on"),
    "semaphore": in_c("wait_for_nobody"),
    "vfork": in_c("wait_for_vfork"),
    "asyncio": lambda: asyncio.run(work_and_drain()),
    "gil": hold_the_gil,
    "headless": leave_a_thread,
    "zombie": leave_a_child,
    "swallow": swallow,
    "del": tidy_up,
    "blocked": block_everywhere,
    "main-blocked": block_in_main,
    "idle": lambda: time.sleep(600),
}
