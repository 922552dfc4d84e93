"""One practice container: real LXC without a download, laid out as Proxmox lays out its own."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fleetstop.errors import LabUnavailable
from fleetstop.lab import cgroups
from fleetstop.lab.processes import ProcessId, end, identify, wait_gone

FILES = Path(__file__).parent / "files"
# what a root login on a node would have; LXC's own tools are found through it too
CLEAN_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
_SOCKET_LIMIT = 100  # sun_path is 108 bytes, unix(7); LXC hashes a longer name, Proxmox never does

_DIRECTORIES = (
    *("usr", "etc", "tmp", "run", "dev", "proc", "sys"),  # something is mounted on each
    *("root", "var/gpu", "workspace"),  # its own
)
_SHIPPED = (
    ("init.sh", "init", 0o755),
    ("run.sh", "root/run.sh", 0o755),
    ("trainer.py", "root/train.py", 0o644),
    ("checkpoint_formats.py", "root/checkpoint_formats.py", 0o644),
    ("stuck.py", "root/stuck.py", 0o644),
    ("stuck.c", "root/stuck.c", 0o644),
    ("waits.py", "root/waits.py", 0o644),
    ("monitor.py", "root/monitor.py", 0o644),
    ("monitor.py", "root/other.py", 0o644),
)
_CONFIG = """\
lxc.uts.name = {name}
lxc.rootfs.path = dir:{rootfs}
lxc.net.0.type = none
lxc.apparmor.profile = unconfined
lxc.tty.max = 0
lxc.pty.max = 1024
lxc.autodev = 1
lxc.mount.auto = proc:mixed sys:ro
lxc.mount.entry = /usr usr none ro,bind 0 0
lxc.mount.entry = /etc etc none ro,bind 0 0
lxc.mount.entry = tmpfs tmp tmpfs rw 0 0
lxc.mount.entry = tmpfs run tmpfs rw 0 0
lxc.environment = TERM=linux
lxc.cgroup.relative = 0
lxc.cgroup.dir.monitor = lxc.monitor/{vmid}
lxc.cgroup.dir.container = lxc/{vmid}
lxc.cgroup.dir.container.inner = ns
lxc.init.cmd = /init
"""
# what pve-container LXC.pm:800-802 writes for `unprivileged: 1`: root inside is 100000 out here
FIRST_ID, ID_COUNT = 100_000, 65_536
_SHIFTED = f"""\
lxc.idmap = u 0 {FIRST_ID} {ID_COUNT}
lxc.idmap = g 0 {FIRST_ID} {ID_COUNT}
"""
_DEVICE = "lxc.mount.entry = {home}/dev/{name} dev/{name} none bind,create=file 0 0\n"


def _default_dispositions() -> None:
    """In the child: whatever this process ignores or blocks must not reach the container."""
    for number in range(1, signal.NSIG):
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def spawn(argv: Sequence[str], output: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """Start a tool in its own session, as sshd does for a channel, with clean dispositions."""
    return subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        text=True,
        env=CLEAN_ENVIRONMENT,
        cwd="/",
        start_new_session=True,
        preexec_fn=_default_dispositions,  # noqa: PLW1509
    )


def run_tool(argv: Sequence[str], seconds: float = 15.0) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end; LabUnavailable when it does not come back in time."""
    process = spawn(argv)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise LabUnavailable(f"{argv[0]} did not come back within {seconds:g} s: {argv}") from None
    return subprocess.CompletedProcess(list(argv), process.returncode, out, err)


def _root_of(pid: int) -> str:
    """What is mounted as a process's `/`: a path in the file system it comes from, proc(5)."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
            if line.split()[4] == "/":
                return line.split()[3]
    return ""


@dataclass(frozen=True)
class Container:
    """A container of this lab; says nothing about whether it runs."""

    vmid: int
    name: str
    lxcpath: Path
    gpus: int
    unprivileged: bool = False

    @property
    def home(self) -> Path:
        return self.lxcpath / str(self.vmid)

    @property
    def rootfs(self) -> Path:
        """The container's files as the host sees them (not /usr, /etc, /tmp, /run, /dev)."""
        return self.home / "rootfs"

    def build(self) -> None:
        if len(f"{self.lxcpath}/{self.vmid}/command") > _SOCKET_LIMIT:
            raise LabUnavailable(f"{self.lxcpath} is too long for LXC's command socket")
        for part in _DIRECTORIES:
            (self.rootfs / part).mkdir(parents=True, exist_ok=True)
        for link in ("bin", "sbin", "lib", "lib32", "lib64"):
            if Path("/", link).is_symlink():
                (self.rootfs / link).symlink_to(f"usr/{link}")
        for source, target, mode in _SHIPPED:
            shutil.copyfile(FILES / source, self.rootfs / target)
            (self.rootfs / target).chmod(mode)
        settings = _CONFIG.format(name=self.name, rootfs=self.rootfs, vmid=self.vmid)
        if self.unprivileged:
            settings = self._shift(settings)
        (self.home / "config").write_text(settings)

    def start(self) -> None:
        """Boot it; returns when it runs and its GPU device nodes are there."""
        if cgroups.is_live(self.vmid):
            raise LabUnavailable(f"a container {self.vmid} runs on this machine already")
        if left := cgroups.remove(self.vmid):
            raise LabUnavailable(f"left-over control group {left[0]} cannot be removed")
        done = self._lxc("lxc-start", "-d", "-l", "WARN", "-o", str(self.home / "lxc.log"))
        if done.returncode != 0:
            raise LabUnavailable(f"container {self.vmid} did not start: {self._last_words(done)}")
        if not self.unprivileged:
            self._make_gpus(Path(f"/proc/{self.init_pid()}/root/dev"))

    def init_pid(self) -> int | None:
        text = self._lxc("lxc-info", "-p", "-H").stdout.strip()
        return int(text) if text else None

    def state(self) -> str:
        """`running`, `frozen` or `stopped`; liblxc's other words in lower case."""
        return self._lxc("lxc-info", "-s", "-H").stdout.strip().lower() or "stopped"

    def processes(self) -> set[ProcessId]:
        return {known for pid in cgroups.members(self.vmid) if (known := identify(pid))}

    def is_foreign(self) -> bool:
        """True when processes are in a container of this ID, and their root is not ours."""
        roots = [root for process in self.processes() if (root := _root_of(process.pid))]
        return bool(roots) and not any(str(self.rootfs).endswith(root) for root in roots)

    def attach(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` inside, with the environment of a clean root login."""
        return ["lxc-attach", "-P", str(self.lxcpath), "-n", str(self.vmid), "--", *argv]

    def freeze(self) -> None:
        self._must("lxc-freeze")

    def thaw(self) -> None:
        self._must("lxc-unfreeze")

    def kill(self) -> None:
        """End everything in it and its monitor, frozen or not; harmless when it does not run."""
        if self.is_foreign():
            raise LabUnavailable(f"container {self.vmid} belongs to somebody else")
        members = self.processes()
        self._lxc("lxc-unfreeze")  # v1: a frozen task takes no KILL before the thaw
        self._lxc("lxc-stop", "-k")
        wait_gone(members, 2.0)
        if left := end(members):  # a container whose monitor was killed is deaf to lxc-stop
            raise LabUnavailable(f"processes of container {self.vmid} do not end: {left}")
        if stuck := cgroups.remove(self.vmid):
            raise LabUnavailable(f"control group {stuck[0]} cannot be removed")

    def _shift(self, settings: str) -> str:
        """Give its files to the root of its own user namespace; returns the settings for that.

        /usr and /etc stay this machine's: what is root's there is nobody's (65534) inside, where a
        real container has files of its own, shifted like the rest.
        """
        if closed := [at for at in self.home.parents if not at.stat().st_mode & 0o001]:
            raise LabUnavailable(
                f"{closed[-1]} lets nobody through but its owner: not the root of an unprivileged"
                " container either, whose files lie below",
                hint=f"another place for the lab, or chmod o+x {closed[-1]}",
            )
        (self.home / "dev").mkdir()
        self._make_gpus(self.home / "dev")
        for place in (self.rootfs, *self.rootfs.rglob("*")):
            os.chown(place, FIRST_ID, FIRST_ID, follow_symlinks=False)
        # sysfs mounts only where the user namespace owns its network namespace
        settings = settings.replace("lxc.net.0.type = none", "lxc.net.0.type = empty")
        # a node in the container's own tmpfs cannot be opened (SB_I_NODEV): bound, as pve does
        names = [f"nvidia{index}" for index in range(self.gpus)]
        devices = "".join(_DEVICE.format(home=self.home, name=name) for name in names)
        return settings + _SHIFTED + devices

    def _make_gpus(self, dev: Path) -> None:
        for index in range(self.gpus):
            # the link text /dev/nvidiaN is what tools read; opening it behaves like /dev/null
            node = dev / f"nvidia{index}"
            os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))
            node.chmod(0o666)  # as the driver makes them

    def _lxc(self, tool: str, *rest: str) -> subprocess.CompletedProcess[str]:
        return run_tool([tool, "-P", str(self.lxcpath), "-n", str(self.vmid), *rest])

    def _must(self, tool: str) -> None:
        done = self._lxc(tool)
        if done.returncode != 0:
            raise LabUnavailable(f"{tool} {self.vmid}: {self._last_words(done)}")

    def _last_words(self, done: subprocess.CompletedProcess[str]) -> str:
        log = self.home / "lxc.log"
        logged = log.read_text().splitlines()[-3:] if log.exists() else []
        return " / ".join([done.stderr.strip(), *logged]) or f"exit {done.returncode}"
