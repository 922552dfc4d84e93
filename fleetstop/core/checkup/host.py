"""Whether a host is fit to be worked on, from what it said of itself; opens no connection.

What is needed of tools is what boot.sh calls; what only some jobs need is told by the inventory.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from fleetstop.core.checkup.checks import Check, at_place, on_host, told_to
from fleetstop.core.gpu import GpuView, Unseen
from fleetstop.core.inventory import Host, Job

# Ages of logs and checkpoints are told to the second; a step of NTP is far below, a dead battery
# or a wrong time zone in the hardware clock far above.
SKEW_S = 5.0
ALWAYS = ("find", "grep", "head", "tail", "stat", "date", "mktemp", "sha256sum")
SOMETIMES = {"python3": "redeploy and launch", "tar": "redeploy", "pgrep": "match: {pgrep: …}"}
SOMETIMES |= {"tmux": "match: {tmux: …} and keys", "setpriv": "seeing what another user may write"}
TOOLS = (*ALWAYS, *SOMETIMES)
# how a missing one is had; asked for with them, and the first that is there is named
_INSTALL = {"apt-get": "install", "apk": "add", "dnf": "install", "zypper": "install"}
ASKED = (*TOOLS, "py-spy", *_INSTALL)
_PACKAGE = {"find": "findutils", "pgrep": "procps", "setpriv": "util-linux"}
_PACKAGE |= dict.fromkeys(("head", "tail", "stat", "date", "mktemp", "sha256sum"), "coreutils")


class Health(Struct, frozen=True):
    """What verb `health` said. `pct`: whether that file can be run; `version` of pve-container,
    None unseen; `devices`: how many /dev/nvidiaN there are; `kernel_log`: how it could be read
    (journalctl, dmesg), `?`: it could not be asked, None: it is closed to us."""

    pct: bool
    version: str | None
    devices: int
    kernel_log: str | None


class Have(Struct, frozen=True):
    """What verb `have` said: the tools that are there, and the time (seconds since the epoch)."""

    tools: frozenset[str]
    now: float | None


def parse_have(data: bytes) -> Have:
    fields = _fields(data)
    whole, _, part = fields.get("now", [""])[0].partition(".")
    # busybox date knows no %N
    seconds = float(f"{whole}.{part if part.isdigit() else 0}") if whole.isdigit() else None
    return Have(frozenset(fields.get("tool", [])), seconds)


def parse_health(data: bytes) -> Health:
    fields = _fields(data)
    devices = fields.get("devices", ["0"])[0]
    return Health(
        pct="pct" in fields,
        version=next(iter(fields.get("version", [])), "") or None,
        devices=int(devices) if devices.isdigit() else 0,
        kernel_log=next(iter(fields.get("kernel_log", [])), "") or None,
    )


def _fields(data: bytes) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in data.decode("utf-8", "backslashreplace").splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value.strip())
    return found


def needed(jobs: Sequence[Job]) -> frozenset[str]:
    """The tools without which what the inventory says of these jobs cannot be done."""
    names = set(ALWAYS)
    names |= {"pgrep"} if any(each.match.pgrep is not None for each in jobs) else set()
    names |= {"tmux"} if any(each.match.tmux is not None for each in jobs) else set()
    if any(each.launch is not None or each.deploy is not None for each in jobs):
        names |= {"python3", "tar"}
    return frozenset(names)


def tools(have: Have, jobs: Sequence[Job], host: Host, vmid: int | None) -> Check:
    """`jobs`: those that live there; nobody else's tools are used for them."""
    must = needed(jobs) - have.tools
    if not must:
        spare = dict(SOMETIMES) if jobs else {}
        spare |= {"py-spy": "status --stacks"} if vmid is None else {}
        none = [f"; no {each}, so not: {use}" for each, use in spare.items()]
        lack = [text for each, text in zip(spare, none, strict=True) if each not in have.tools]
        return Check("tools", True, f"all that is used is there{''.join(lack)}")
    names = [each for each in TOOLS if each in must]
    lacks = ", ".join(f"{each} ({SOMETIMES.get(each, 'looking')})" for each in names)
    packages = dict.fromkeys(_PACKAGE.get(each, each) for each in names)
    way = next((each for each in _INSTALL if each in have.tools), "apt-get")
    fix = at_place(host, vmid, way, _INSTALL[way], *packages)
    return Check("tools", False, f"missing, and needed here: {lacks}", fix)


def root(without: str | None, host: Host, jobs: bool) -> Check:
    """`without`: why there is none, a sentence; see ports.Place. `jobs`: the host has some of its
    own; those in containers are reached through pct."""
    if without is None:
        return Check("root", True, "there is root: processes are seen and signalled from the host")
    if host.sudo == "never":
        unseen = "of other users, open files are not seen and nothing can be signalled"
        return Check("root", True, f"{without}, as the inventory says: {unseen}")
    if not jobs:
        through = "what is in containers is seen and signalled through `sudo -n pct`"
        return Check("root", True, f"{without}: {through}")
    unseen = "jobs of other users on it can be neither seen whole nor signalled"
    user = host.ssh.rpartition("@")[0] or "LOGIN"
    rule = f"{user} ALL=(root) NOPASSWD: /bin/sh"
    return Check("root", False, f"{without}: {unseen}", f"visudo   # on {host.name}: {rule}")


def pct(health: Health, host: Host, containers: bool) -> Check:
    if health.pct:
        version = f"pve-container {health.version}" if health.version else "its version is unseen"
        return Check("pct", True, f"{host.pct} is there, {version}")
    if not containers:
        return Check("pct", True, f"no {host.pct}: a machine without containers")
    says = f"no {host.pct} there, and the inventory has containers on {host.name}"
    find = told_to(host, "find / -xdev -name pct -type f")
    return Check("pct", False, f"{says}: no container can be entered", find)


def nvidia_smi(
    view: GpuView | Unseen, missing: bool, health: Health, host: Host, gpus: bool
) -> Check:
    """`missing`: there is no such program. `gpus`: a job here names some."""
    if missing:
        if not health.devices and not gpus:
            return Check("nvidia_smi", True, "no NVIDIA GPU here: no nvidia-smi, no /dev/nvidia*")
        why = f"{health.devices} NVIDIA devices" if health.devices else "jobs that name gpus"
        find = on_host(host, "cat", "/proc/driver/nvidia/version")
        says = f"no nvidia-smi, but {why}: who holds GPU memory cannot be seen"
        return Check("nvidia_smi", False, says, find)
    if isinstance(view, Unseen) and "could not be asked" in view.reason:
        return Check("nvidia_smi", None, view.reason)
    if isinstance(view, Unseen):
        return Check("nvidia_smi", False, view.reason, _mended(view.reason, host))
    faults = [f"GPU {each.index} {each.fault}" for each in view.gpus if each.fault]
    others = [each for each in view.warnings if each not in faults]
    if faults:
        lost = any("lost" in each for each in faults)
        index = next(str(each.index) for each in view.gpus if each.fault)
        reset = on_host(host, "nvidia-smi", "--gpu-reset", "-i", index)
        fix = _stopped(host, on_host(host, "reboot") if lost else reset)
        return Check("nvidia_smi", False, "; ".join(faults), fix)
    if others:
        return Check("nvidia_smi", False, "; ".join(others), on_host(host, "nvidia-smi", "-q"))
    count = len(view.gpus)
    return Check("nvidia_smi", True, f"{count} GPU{'' if count == 1 else 's'}, all answer")


def _mended(reason: str, host: Host) -> str:
    if "kernel module" in reason or "fell off the bus" in reason:
        return _stopped(host, on_host(host, "reboot"))
    if "not loaded" in reason:
        return on_host(host, "modprobe", "nvidia")
    return told_to(host, 'dmesg | grep -E "NVRM|Xid" | tail -n 20')


def _stopped(host: Host, command: str) -> str:
    """Pasted as it stands it does nothing."""
    return f"# stop its jobs first, fleetstop status shows them; then: {command}"


def _seconds(at: str) -> float | None:
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return None


def clock(now: float | None, before: str, after: str, host: Host, vmid: int | None) -> Check:
    """`before`, `after`: this machine's time around the question, ISO 8601."""
    first, last = _seconds(before), _seconds(after)
    if now is None or first is None or last is None:
        return Check("clock", None, "its time could not be read")
    off = now - (first + last) / 2
    if abs(off) <= SKEW_S + abs(last - first) / 2:
        return Check("clock", True, f"within {SKEW_S:g} s of this machine's")
    way = "ahead of" if off > 0 else "behind"
    says = f"{abs(off):.0f} s {way} this machine's; one of the two is wrong"
    # a container has the kernel's clock, as all on that host have
    return Check("clock", False, says, on_host(host, "timedatectl", "set-ntp", "true"))


def kernel_log(health: Health, host: Host) -> Check:
    if health.kernel_log == "?":
        return Check(
            "kernel_log", None, "journalctl and dmesg could not be asked, or do not answer"
        )
    if health.kernel_log:
        return Check("kernel_log", True, f"can be read with {health.kernel_log}")
    says = "the kernel's log cannot be read: an OOM kill or a GPU's Xid would not be seen"
    user = host.ssh.rpartition("@")[0] or "LOGIN"
    return Check(
        "kernel_log", False, says, on_host(host, "usermod", "-aG", "systemd-journal", user)
    )
