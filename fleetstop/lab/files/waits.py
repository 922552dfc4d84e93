"""Where Python itself waits: a signal ends each of these at once, and the trainer saves."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future


def loop() -> None:
    while True:
        pass


def lock() -> None:
    taken = threading.Lock()
    taken.acquire()
    taken.acquire()


def join_a_thread() -> None:
    thread = threading.Thread(target=time.sleep, args=(600,), daemon=True)
    thread.start()
    thread.join()


def join_a_process() -> None:
    process = multiprocessing.get_context("fork").Process(
        target=time.sleep, args=(600,), daemon=True
    )
    process.start()
    process.join()


def get_from_a_process() -> None:
    os.makedirs("/dev/shm", exist_ok=True)  # noqa: S108 - its semaphore is kept there
    multiprocessing.Queue().get()


def receive() -> None:
    here, _there = socket.socketpair()
    here.recv(1)


def open_a_fifo() -> None:
    name = f"/tmp/fifo-{os.getpid()}"  # noqa: S108 - the container's own
    os.mkfifo(name)
    with open(name):
        pass


def timed(wait: Callable[[], object]) -> Callable[[], None]:
    """Says how long after the signal the wait was left.

    The C handler writes a byte into a FIFO when it takes the signal; that is the FIFO's mtime, in
    steps of the kernel's tick. (An anonymous pipe keeps none.)
    """

    def call() -> None:
        name = f"/tmp/took-{os.getpid()}"  # noqa: S108 - the container's own
        os.mkfifo(name)
        took = os.open(name, os.O_RDWR | os.O_NONBLOCK)
        signal.set_wakeup_fd(took)
        print("waits in Python", flush=True)
        try:
            wait()
        except KeyboardInterrupt:
            late = time.time() - os.fstat(took).st_mtime
            print(f"left its wait {1000 * late:.0f} ms after the signal", flush=True)
            raise

    return call


WAITS: dict[str, Callable[[], None]] = {
    "wait-sleep": timed(lambda: time.sleep(600)),
    "wait-loop": timed(loop),
    "wait-lock": timed(lock),
    "wait-thread": timed(join_a_thread),
    "wait-event": timed(lambda: threading.Event().wait()),
    "wait-queue": timed(lambda: queue.Queue[None]().get()),
    "wait-mp-queue": timed(get_from_a_process),
    "wait-socket": timed(receive),
    "wait-future": timed(lambda: Future[None]().result()),
    "wait-process": timed(join_a_process),
    "wait-fifo": timed(open_a_fifo),
    "wait-run": timed(lambda: subprocess.run(["/bin/sleep", "600"], check=False)),
}
