"""The practice fleet as a whole: brings it up, hands it out, takes it down."""

from __future__ import annotations

import ast
import fcntl
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fleetstop.errors import LabUnavailable
from fleetstop.lab import cgroups, gpus, launch, sshd
from fleetstop.lab.container import FILES, Container, run_tool
from fleetstop.lab.launch import LOG, How, Started
from fleetstop.lab.processes import ProcessId, is_alive
from fleetstop.lab.records import State, write_container_configs, write_inventory
from fleetstop.lab.requirements import missing_maps, missing_parts
from fleetstop.lab.sshd import Sshd
from fleetstop.lab.systemd import reboot_with_systemd

_LOCK = Path("/run/lock/fleetstop-lab.lock")


@contextmanager
def _alone() -> Iterator[None]:
    """Only one lab at a time chooses its IDs and boots."""
    _LOCK.parent.mkdir(exist_ok=True)
    with _LOCK.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _is_taken(vmid: int) -> bool:
    sockets = Path("/proc/net/unix").read_text(errors="replace")
    return bool(cgroups.directories(vmid)) or f"/{vmid}/command\n" in sockets


def free_vmids(count: int, first: int = 200) -> list[int]:
    """The next block of IDs no container on this machine uses: 200.., else 300.., and so on."""
    while True:
        block = list(range(first, first + count))
        if not any(_is_taken(vmid) for vmid in block):
            return block
        first += 100 * (1 + count // 100)


def _numbered(wanted: int | Sequence[int | str], first: int) -> list[tuple[int, str]]:
    """IDs and names: an int is an ID, `ct200` says its ID, any other name gets a free one."""
    specs = [""] * wanted if isinstance(wanted, int) else list(wanted)
    named = [re.fullmatch(r"(?:ct)?(\d+)", str(spec)) for spec in specs]
    given = {int(match[1]) for match in named if match}
    spare = (vmid for vmid in free_vmids(len(specs) + len(given), first) if vmid not in given)
    ids = [int(match[1]) if match else next(spare) for match in named]
    if len(set(ids)) != len(ids):
        raise LabUnavailable(f"the same container twice: {sorted(ids)}")
    return [
        (vmid, f"ct{vmid}" if match or not spec else str(spec))
        for vmid, match, spec in zip(ids, named, specs, strict=True)
    ]


def _shifted(
    numbered: Sequence[tuple[int, str]], wanted: bool | Collection[int | str]
) -> tuple[int, ...]:
    """The IDs of those that get a user namespace of their own; each one wanted must be there."""
    if isinstance(wanted, bool):
        return tuple(vmid for vmid, _ in numbered) if wanted else ()
    known = {key: vmid for vmid, name in numbered for key in (vmid, str(vmid), name)}
    if strangers := [each for each in wanted if each not in known]:
        raise LabUnavailable(f"unprivileged: no such containers in this lab: {strangers}")
    return tuple(sorted({known[each] for each in wanted}))


@dataclass
class Lab:
    """A running practice fleet: one host (sshd on loopback, `pct`, `nvidia-smi`), containers."""

    root: Path
    state: State
    containers: dict[int, Container] = field(default_factory=dict)

    @classmethod
    def up(
        cls,
        root: Path,
        containers: int | Sequence[int | str] = 1,
        *,
        gpus: int = 2,
        host: str = "lab1",
        first_vmid: int = 200,
        unprivileged: bool | Collection[int | str] = False,
    ) -> Lab:
        """Build and start a lab in `root`, which must be empty or absent; all of it or nothing.

        `unprivileged`: all containers, or those of these IDs and names, get a user namespace of
        their own, as Proxmox makes them by default: root in there is 100000 on the host.
        """
        if missing := missing_parts() or (missing_maps() if unprivileged else []):
            raise LabUnavailable("; ".join(missing), hint="see `missing_parts()`")
        root = root.resolve()
        if root.exists() and not root.is_dir():
            raise LabUnavailable(f"{root} is no directory", hint="name another with --root")
        if root.exists() and any(root.iterdir()):
            raise LabUnavailable(f"{root} is not empty", hint=f"fleetstop lab down --root {root}")
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o755)
        with _alone():
            numbered = _numbered(containers, first_vmid)
            if taken := [vmid for vmid, _ in numbered if cgroups.is_live(vmid)]:
                raise LabUnavailable(f"containers {taken} run on this machine already")
            shifted = _shifted(numbered, unprivileged)
            lab = cls(root, State(host, gpus, tuple(numbered), 0, None, shifted))
            lab._build()
        return lab

    @classmethod
    def load(cls, root: Path) -> Lab:
        """The lab another process has brought up in `root`."""
        root = root.resolve()
        return cls(root, State.read(root))

    def __post_init__(self) -> None:
        for vmid, name in self.state.containers:
            shifted = vmid in self.state.unprivileged
            place = self.root / "lxc"
            self.containers[vmid] = Container(vmid, name, place, self.state.gpus, shifted)

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def down(self) -> None:
        """End what this lab started and nothing else, remove its directory; may be repeated."""
        if not (self.root / "state.json").exists():
            return
        for container in self.containers.values():
            if not container.is_foreign():
                container.kill()
        if server := self.state.sshd or self.server.running():
            sshd.stop(server)
        cgroups.remove_empty_parents()
        self._unmount()
        shutil.rmtree(self.root)

    def status(self) -> dict[str, str]:
        """`running`, `frozen` or `stopped` by container name, and of `sshd`."""
        found = {c.name: c.state() for c in self.containers.values()}
        alive = self.state.sshd and is_alive(self.state.sshd)
        return {**found, "sshd": "running" if alive else "stopped"}

    # -- where things are ---------------------------------------------------------------------

    @property
    def vmids(self) -> list[int]:
        return list(self.containers)

    @property
    def inventory(self) -> Path:
        return self.root / "inventory" / "fleet.yaml"

    @property
    def pct(self) -> Path:
        return self.root / "bin" / "pct"

    @property
    def nvidia_smi(self) -> Path:
        return self.root / "bin" / "nvidia-smi"

    @property
    def server(self) -> Sshd:
        return Sshd(self.root / "ssh", self.state.port)

    def rootfs(self, vmid: int) -> Path:
        return self.containers[vmid].rootfs

    def ssh_command(self, *words: str) -> list[str]:
        """An OpenSSH client's command line to the host, for tests and people."""
        options = ["-F", "none", "-i", str(self.server.identity), "-p", str(self.state.port)]
        options += ["-o", f"UserKnownHostsFile={self.server.known_hosts}", "-o", "BatchMode=yes"]
        return ["ssh", *options, f"root@{sshd.ADDRESS}", *words]

    # -- containers ---------------------------------------------------------------------------

    def freeze(self, vmid: int) -> None:
        self.containers[vmid].freeze()

    def thaw(self, vmid: int) -> None:
        self.containers[vmid].thaw()

    def stop(self, vmid: int) -> None:
        """Stop a container at once, as `pct stop` does."""
        self.containers[vmid].kill()

    def boot(self, vmid: int) -> None:
        self.containers[vmid].start()

    def reboot_with_systemd(
        self, vmid: int, units: Mapping[str, str], seconds: float = 60.0
    ) -> None:
        """Boot a container anew with systemd and these units; see `systemd`."""
        reboot_with_systemd(self.containers[vmid], units, seconds)

    def host_pids(self, vmid: int) -> set[int]:
        return cgroups.members(vmid)

    def exec(
        self, vmid: int, argv: Sequence[str], seconds: float = 15.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside past `pct`, so that it is not counted."""
        return run_tool(self.containers[vmid].attach(argv), seconds)

    def start(
        self,
        vmid: int,
        argv: Sequence[str] | str = (),
        *,
        how: How = "polite",
        log: str = LOG,
        trainers: int | None = None,
        seconds: float = 15.0,
    ) -> Started:
        """Start a job; see `launch.start`."""
        return launch.start(
            self.containers[vmid], argv, how=how, log=log, trainers=trainers, seconds=seconds
        )

    def decoys(
        self, vmid: int, names: Sequence[str] = tuple(launch.DECOYS)
    ) -> dict[str, ProcessId]:
        return launch.start_decoys(self.containers[vmid], names)

    # -- knobs and counters -------------------------------------------------------------------

    def set_pct_cost(self, seconds: float) -> None:
        """CPU seconds each `pct` burns before it does anything; 0.4 is realistic."""
        (self.root / "pct_cost").write_text(f"{seconds}\n")

    def pct_calls(self) -> list[list[str]]:
        """The arguments of every `pct` run so far."""
        log = self.root / "pct.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [ast.literal_eval(line) for line in lines]

    def connections(self) -> int:
        """How many SSH connections were accepted so far."""
        return self.server.connections()

    def set_gpus(self, **knobs: object) -> None:
        """Change the practice nvidia-smi; see `gpus.Knobs`."""
        gpus.change(self.root, **knobs)

    # -- inside -------------------------------------------------------------------------------

    def _build(self) -> None:
        self.state.write(self.root)
        try:
            write_container_configs(self.root, self.state.host, list(self.containers.values()))
            self._write_tools()
            gpus.write(self.root, self.state.gpus)
            for container in self.containers.values():
                container.build()
                container.start()
            server, process = self.server.start(self.root / "bin")
            values = {**self.state.__dict__, "port": server.port, "sshd": process}
            self.state = State(**values)
            self.state.write(self.root)
            everything = list(self.containers.values())
            write_inventory(self.root, self.state.host, server, everything)
        except BaseException:
            self.down()
            raise

    def _write_tools(self) -> None:
        (self.root / "bin").mkdir()
        for source, name in (("pct.py", "pct"), ("nvidia_smi.py", "nvidia-smi")):
            place = self.root / "bin" / name
            # no site, no environment: they start often; the system's Python: any login may run it
            place.write_text("#!/usr/bin/python3 -SE\n" + (FILES / source).read_text())
            place.chmod(0o755)
        for name in ("pct_options.py", "pct_files.py"):
            shutil.copyfile(FILES / name, self.root / "bin" / name)

    def _unmount(self) -> None:
        """Deepest first; LXC mounts in namespaces of its own, so normally there is none."""
        lines = Path("/proc/self/mounts").read_text().splitlines()
        below = [line.split()[1] for line in lines if line.split()[1].startswith(f"{self.root}/")]
        for place in sorted(below, reverse=True):
            with suppress(LabUnavailable):
                run_tool(["umount", place])
