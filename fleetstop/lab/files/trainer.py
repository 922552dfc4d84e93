"""A training run for practice: real signals, real processes, real checkpoints, no GPU work.

It saves on one KeyboardInterrupt, as a plain training loop does; the options are other habits.
A second signal during a save ruins it, whatever the habit.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import io
import json
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import FrameType
from typing import NoReturn

FIRST_STEP = 41200
TOKENS_PER_STEP = 3500
CHUNKS = 40  # a save is written in so many pieces


class StopRequested(BaseException):
    """The other way to ask for a stop: what the TERM handler raises."""


class AskedToStop(BaseException):
    """Asked without a signal: by a stop file, or by the word `stop` on a line of its stdin."""


def signal_set(text: str) -> list[signal.Signals]:
    return [signal.Signals["SIG" + name] for name in text.split(",") if name]


def read_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--on", default="INT", choices=["INT", "TERM"], help="the signal that makes it save")
    add("--ignore", type=signal_set, default=[], metavar="INT,TERM")
    add("--shrug", action="store_true", help="hear the signal, log it, train on")
    add("--no-save", action="store_true", help="leave on the signal without saving")
    add("--save-seconds", type=float, default=1.0)
    add("--save-memory-fraction", type=float, default=0.0, help="first part: CPU, memory, no file")
    add("--save-every", type=float, default=0.0, metavar="SECONDS")
    add("--in-place", action="store_true", help="rewrite latest.pt instead of a new file")
    add("--format", default="", help="as a framework writes it: see checkpoint_formats.FORMATS")
    add("--file-gap", type=float, default=0.0, help="seconds between two files of such a save")
    add("--checkpoints", type=Path, default=Path("/workspace/checkpoints"))
    add("--size-mb", type=float, default=2.0, help="size of a checkpoint")
    add("--mem-mb", type=int, default=0, help="memory to hold")
    add("--gpus", default="", metavar="0,1", help="GPUs to open; default: the rank's own")
    add("--gpu-mib", type=int, default=1024, help="GPU memory to claim on each")
    add("--workers", type=int, default=0, help="forked data workers")
    add("--worker-habit", default="poll", choices=["poll", "stuck"], help="stuck: outlives it")
    add("--ranks", type=int, default=1)
    add("--barrier-seconds", type=float, default=60.0)
    add("--step-seconds", type=float, default=0.25)
    add("--c-call", type=float, default=0.0, metavar="SECONDS", help="each step is C code as long")
    add("--stop-file", type=Path, help="save and leave when this file appears")
    add("--listen", action="store_true", help="save and leave on a line `stop` at its terminal")
    add("--drain", action="store_true", help="a server: the first signal drains, a second ends it")
    add("--stuck", default="", help="what its main thread comes to instead; see stuck.py")
    add("--stray-file", type=Path, help="keep this file open for writing, never write to it")
    return parser.parse_args(argv)


def say(text: str) -> None:
    print(text, flush=True)


def get_stuck(how: str) -> None:
    """The file beside this one: loaded by those who need it, the others start faster."""
    importlib.import_module("stuck").STUCK[how]()


class Ranks:
    """All ranks of one job: they meet before a save, and hang where they do not."""

    def __init__(self, total: int, seconds: float) -> None:
        self.total = int(os.environ.get("WORLD_SIZE", str(total)))
        self.rank = int(os.environ.get("RANK", "0"))
        self.seconds = seconds
        self.meeting = Path("/tmp/ranks-" + os.environ.get("MASTER_PORT", str(os.getpid())))  # noqa: S108
        self.children: list[subprocess.Popen[bytes]] = []

    def spawn_others(self) -> None:
        if self.total == 1 or "RANK" in os.environ:
            return
        self.meeting.mkdir(exist_ok=True)
        for rank in range(1, self.total):
            env = {**os.environ, "MASTER_PORT": str(os.getpid()), "WORLD_SIZE": str(self.total)}
            # as torchrun hands them out
            env.update(RANK=str(rank), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(self.total))
            self.children.append(subprocess.Popen([sys.executable, "-u", *sys.argv], env=env))
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(self.total))

    def all_reduce(self) -> None:
        """Before each step: where a peer has left for the save, this rank waits for it in C code.

        A signal within a quarter of a second still finds Python; later it finds a mutex that never
        comes free, and KeyboardInterrupt is never raised.
        """
        if self.total == 1 or not any(self.meeting.iterdir()):
            return
        time.sleep(0.25)
        get_stuck("mutex")

    def meet(self, step: int) -> int:
        """Wait for every rank; returns the step all of them save as."""
        if self.total == 1:
            return step
        (self.meeting / f"{self.rank}.tmp").write_text(str(step))
        (self.meeting / f"{self.rank}.tmp").rename(self.meeting / str(self.rank))
        deadline = time.monotonic() + self.seconds
        names = [self.meeting / str(rank) for rank in range(self.total)]
        while not all(name.exists() for name in names):
            if time.monotonic() > deadline:
                raise RuntimeError("barrier timed out: not every rank came to save")
            time.sleep(0.05)
        return max(int(name.read_text()) for name in names)

    def wait_for_others(self) -> int:
        return max([abs(child.wait()) for child in self.children], default=0)


class Saver:
    """Writes checkpoints the way the arguments say."""

    def __init__(self, arguments: argparse.Namespace, ranks: Ranks) -> None:
        self.arguments = arguments
        self.ranks = ranks
        self.directory: Path = arguments.checkpoints

    def save(self, step: int) -> None:
        seconds, fraction = self.arguments.save_seconds, self.arguments.save_memory_fraction
        self.gather(seconds * fraction)
        if self.arguments.format:
            self.save_as(self.arguments.format, step, seconds * (1 - fraction))
            return
        target = self.target(step)
        target.parent.mkdir(parents=True, exist_ok=True)
        written = target if self.arguments.in_place else Path(f"{target}.tmp")
        self.write(written, self.payload(step), seconds * (1 - fraction))
        if written != target:
            written.rename(target)
        say(f"saved {target}")

    def save_as(self, kind: str, step: int, seconds: float) -> None:
        """File after file; `async` leaves that to a child and names the result at once."""
        from checkpoint_formats import files_of  # type: ignore[import-not-found]

        self.directory.mkdir(parents=True, exist_ok=True)
        if kind == "async":
            (self.directory / "latest").write_text(f"step_{step}")
            if os.fork():
                return
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        files = files_of(kind, step, int(self.arguments.size_mb * 1e6))
        for at, (name, data) in enumerate(files):
            first, _, final = name.partition(">")
            path = self.directory / first.removeprefix("-")
            if first.startswith("-"):
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            self.write(path, data, seconds / len(files))
            if final:
                path.rename(self.directory / final)
            if at < len(files) - 1:
                time.sleep(self.arguments.file_gap)
        say(f"saved {kind} {step}")
        if kind == "async":
            os._exit(0)

    def target(self, step: int) -> Path:
        if self.arguments.in_place:
            return self.directory / "latest.pt"
        if self.ranks.total > 1:
            return self.directory / f"step_{step}" / f"rank_{self.ranks.rank}.pt"
        return self.directory / f"step_{step}.pt"

    def payload(self, step: int) -> bytes:
        """A zip laid out like torch.save's."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("archive/data.pkl", json.dumps({"step": step}))
            archive.writestr("archive/data/0", os.urandom(int(self.arguments.size_mb * 1e6)))
            archive.writestr("archive/version", "3\n")
        return packed.getvalue()

    def gather(self, seconds: float) -> None:
        """State moves to host memory: CPU and memory, no file yet."""
        deadline, held = time.monotonic() + seconds, bytearray()
        while time.monotonic() < deadline:
            held.extend(os.urandom(1 << 18))
            time.sleep(0.02)

    def write(self, path: Path, packed: bytes, seconds: float) -> None:
        size = max(1, len(packed) // CHUNKS)
        with path.open("wb", buffering=0) as stream:
            for start in range(0, len(packed), size):
                stream.write(packed[start : start + size])
                if start % (10 * size) == 0:
                    # most loops print meanwhile: behind a `tee` that died, this is the end
                    say(f"saving {path.name}: {100 * start // len(packed)}%")
                time.sleep(seconds / CHUNKS)
            os.fsync(stream.fileno())


def open_gpus(arguments: argparse.Namespace, ranks: Ranks) -> list[int]:
    numbers = [int(n) for n in arguments.gpus.split(",") if n]
    mine = [numbers[ranks.rank % len(numbers)]] if numbers and ranks.total > 1 else numbers
    mine = mine or [ranks.rank]
    for number in mine:
        os.open(f"/dev/nvidia{number}", os.O_RDWR)  # inherited by forks, as the driver's files are
    return mine


def claim_memory(gpus: list[int], mib: int) -> None:
    """Say what memory is in use, for the practice nvidia-smi; also means: ready for signals."""
    start = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    place = Path(f"/var/gpu/{os.getpid()}-{start}")
    place.with_suffix(".tmp").write_text(json.dumps({"gpus": gpus, "mib": mib}))
    place.with_suffix(".tmp").rename(place)


def work_for(parent: int, habit: str) -> None:
    """A data worker: deaf to Ctrl-C like a DataLoader's, looks for its parent once a second."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while habit == "stuck" or os.getppid() == parent:
        time.sleep(1)


def start_workers(arguments: argparse.Namespace) -> None:
    fork = multiprocessing.get_context("fork")
    for _ in range(arguments.workers):
        job = (os.getpid(), arguments.worker_habit)
        fork.Process(target=work_for, args=job, daemon=True).start()


def install_handlers(arguments: argparse.Namespace) -> None:
    def request(_number: int, _frame: FrameType | None) -> NoReturn:
        raise StopRequested

    def shrug(number: int, _frame: FrameType | None) -> None:
        say(f"received {signal.Signals(number).name}, training on")

    def drain(number: int, _frame: FrameType | None) -> None:
        say(f"received {signal.Signals(number).name}, draining")
        signal.signal(number, request)

    if arguments.drain:
        signal.signal(signal.Signals["SIG" + arguments.on], drain)
    elif arguments.on == "TERM":
        signal.signal(signal.SIGTERM, request)
    if arguments.shrug:
        signal.signal(signal.Signals["SIG" + arguments.on], shrug)
    for number in arguments.ignore:
        signal.signal(number, signal.SIG_IGN)


class Training:
    """The loop itself: the step it is at, and when it last saved by itself."""

    def __init__(self, arguments: argparse.Namespace, ranks: Ranks, saver: Saver) -> None:
        self.arguments, self.ranks, self.saver = arguments, ranks, saver
        self.step = FIRST_STEP

    def run(self) -> NoReturn:
        saved_at = time.monotonic()
        while True:
            self.ranks.all_reduce()
            if self.arguments.stuck:
                get_stuck(self.arguments.stuck)
            self.compute()
            self.step += 1
            if self.ranks.rank == 0:
                loss = 1.5 + 14000 / self.step
                each = max(self.arguments.step_seconds, self.arguments.c_call)
                speed = TOKENS_PER_STEP / each / 1000
                say(f"step {self.step} loss {loss:.2f} {speed:.1f}K tok/s")
            self.look_for_a_stop()
            every = self.arguments.save_every
            if every and time.monotonic() - saved_at >= every:
                self.saver.save(self.step)
                saved_at = time.monotonic()

    def look_for_a_stop(self) -> None:
        """Between two steps: nothing is cut by it, and the file is taken away."""
        file = self.arguments.stop_file
        if file is not None and file.exists():
            file.unlink()
            raise AskedToStop
        typed = self.arguments.listen and select.select([sys.stdin], [], [], 0)[0]
        if typed and sys.stdin.readline().strip() == "stop":
            raise AskedToStop

    def compute(self) -> None:
        if not self.arguments.c_call:
            hashlib.pbkdf2_hmac("sha256", b"step", b"salt", 2000)
            time.sleep(self.arguments.step_seconds)
            return
        began = time.monotonic()
        hashlib.pbkdf2_hmac("sha256", b"step", b"salt", 100_000)
        each = (time.monotonic() - began) / 100_000
        # one C call: a signal taken meanwhile becomes an exception only when it returns
        hashlib.pbkdf2_hmac("sha256", b"step", b"salt", max(1, int(self.arguments.c_call / each)))


def main() -> int:
    arguments = read_arguments(sys.argv[1:])
    install_handlers(arguments)
    ranks = Ranks(arguments.ranks, arguments.barrier_seconds)
    ranks.spawn_others()
    held = bytearray(arguments.mem_mb << 20)
    stray = arguments.stray_file.open("w") if arguments.stray_file else None
    arguments.checkpoints.mkdir(parents=True, exist_ok=True)
    gpus = open_gpus(arguments, ranks)
    start_workers(arguments)
    say(f"rank {ranks.rank}/{ranks.total} on GPU {gpus}, {len(held) >> 20} MiB {stray or ''}")
    saver = Saver(arguments, ranks)
    training = Training(arguments, ranks, saver)
    raised = arguments.on == "TERM" or arguments.drain
    wanted = (StopRequested if raised else KeyboardInterrupt, AskedToStop)
    try:
        claim_memory(gpus, arguments.gpu_mib)
        training.run()
    except wanted as request:
        say(f"{type(request).__name__} at step {training.step}")
        if not arguments.no_save:
            saver.save(ranks.meet(training.step))
    return ranks.wait_for_others()


if __name__ == "__main__":
    sys.exit(main())
