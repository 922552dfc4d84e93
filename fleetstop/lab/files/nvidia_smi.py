"""A stand-in for nvidia-smi on the practice host: truthful about who holds /dev/nvidiaN.

Rows are made of open files of processes in this lab's containers, with host PIDs, one row for each
GPU and process, as the driver lists them to a caller in the first PID namespace. The memory belongs
to whoever opened the device: forked children that inherited it are not listed, but keep it used.
"""

from __future__ import annotations

import json
import os
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FORKED = 0x40  # PF_FORKNOEXEC, proc(5) field 9

# recorded texts, all on stdout, with their exit codes (nvidia-smi(1), "RETURN VALUE", and nvml.h)
FAILURES: dict[str, tuple[str, int]] = {
    "no_driver": (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
        "Make sure that the latest NVIDIA driver is installed and running.\n",
        9,
    ),
    "driver_mismatch": (
        "Failed to initialize NVML: Driver/library version mismatch\n"
        "NVML library version: 535.161\n",
        18,
    ),
    "no_library": (
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that "
        "the NVIDIA Display Driver is properly installed and present in your system.\n",
        12,
    ),
    "no_supported": ("Failed to initialize NVML: No supported GPUs were found\n", 255),
    "unknown_error": ("Failed to initialize NVML: Unknown Error\n", 255),
    "no_devices": ("No devices were found\n", 6),
    "handle_unknown": (
        "Unable to determine the device handle for GPU0000:17:00.0: Unknown Error\n",
        255,
    ),
    "gpu_lost": (
        "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  "
        "Reboot the system to recover this GPU\n",
        15,
    ),
}

# query name -> header; a header differs from the name asked for
GPU_FIELDS = {
    "index": "index",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "name": "name",
    "gpu_name": "name",
    "pci.bus_id": "pci.bus_id",
    "gpu_bus_id": "pci.bus_id",
    "memory.total": "memory.total [MiB]",
    "memory.reserved": "memory.reserved [MiB]",
    "memory.used": "memory.used [MiB]",
    "memory.free": "memory.free [MiB]",
    "temperature.gpu": "temperature.gpu",
    "utilization.gpu": "utilization.gpu [%]",
    "gpu_recovery_action": "gpu_recovery_action",
}
APP_FIELDS = {
    "gpu_uuid": "gpu_uuid",
    "pid": "pid",
    "process_name": "process_name",
    "name": "process_name",
    "used_memory": "used_gpu_memory [MiB]",
    "used_gpu_memory": "used_gpu_memory [MiB]",
}


class Process:
    """What proc(5) says of one process that may hold a GPU."""

    def __init__(self, pid: int, vmid: str) -> None:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as stream:
            inner = next(line for line in stream if line.startswith("NSpid:")).split()[-1]
        self.pid, self.vmid = pid, vmid
        self.parent, self.forked = int(fields[1]), bool(int(fields[6]) & FORKED)
        self.claim = f"{inner}-{fields[19]}"
        self.is_init = inner == "1"
        self.gpus = held_gpus(pid)


class Claim:
    """What a trainer said it uses; stays behind when it dies."""

    def __init__(self, place: str, name: str) -> None:
        with open(f"{place}/{name}", encoding="ascii") as stream:
            said = json.load(stream)
        self.gpus: list[int] = said["gpus"]
        self.mib: int = said["mib"]
        self.start = int(name.partition("-")[2])


class Client:
    """Memory on one GPU; `pid` is None where the driver lists nobody for it. Text stands in its
    cell as it is, `[Insufficient Permissions]` say, and counts as no memory."""

    def __init__(self, gpu: int, pid: int | str | None, mib: int | str) -> None:
        self.gpu, self.pid, self.mib = gpu, pid, mib


class Knobs:
    """`gpu.json`, see fleetstop.lab.gpus."""

    def __init__(self) -> None:
        with open(f"{ROOT}/gpu.json", encoding="utf-8") as stream:
            said = json.load(stream)
        self.uuids: list[str] = said["uuids"]
        self.total: int = said["total_mib"]
        self.base: int = said["base_mib"]
        self.default: int = said["default_mib"]
        self.delay: float = said["release_delay_s"]
        self.fail: str | None = said["fail"]
        self.hang: bool = said["hang"]
        self.faults: dict[str, str] = said["faults"]
        self.inforom: bool = said["inforom"]
        self.rows = [Client(row["gpu"], row["pid"], row["mib"]) for row in said["rows"]]


def held_gpus(pid: int) -> set[int]:
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            link = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        number = link[len("/dev/nvidia") :] if link.startswith("/dev/nvidia") else ""
        if number.isdigit():
            found.add(int(number))
    return found


def members(vmid: str) -> set[int]:
    """Host PIDs in the container's control group, in whatever hierarchy shows them."""
    with open("/proc/self/mounts", encoding="utf-8") as stream:
        tops = [fields[1] for fields in map(str.split, stream) if fields[2].startswith("cgroup")]
    found: set[int] = set()
    for top in tops:
        for directory, _, files in os.walk(f"{top}/lxc/{vmid}"):
            if "cgroup.procs" in files:
                with open(f"{directory}/cgroup.procs", encoding="ascii") as stream:
                    found.update(map(int, stream.read().split()))
    return found


def look(vmid: str) -> list[Process]:
    found = []
    for pid in members(vmid):
        try:
            found.append(Process(pid, vmid))
        except (OSError, StopIteration, IndexError):
            continue  # it ended meanwhile
    return found


def read_claims(vmid: str) -> dict[str, Claim]:
    place = f"{ROOT}/lxc/{vmid}/rootfs/var/gpu"
    names = os.listdir(place) if os.path.isdir(place) else []
    return {name: Claim(place, name) for name in names if not name.endswith(".tmp")}


def clients_in(vmid: str, knobs: Knobs) -> list[Client]:
    processes, claims = look(vmid), read_claims(vmid)
    by_pid = {process.pid: process for process in processes}
    found: list[Client] = []
    orphaned: set[int] = set()
    for process in processes:
        claim = claims.pop(process.claim, None)
        parent = by_pid.get(process.parent)
        for gpu in process.gpus:
            if claim or not process.forked:
                mib = claim.mib if claim and gpu in claim.gpus else knobs.default
                found.append(Client(gpu, process.pid, mib))
            elif parent is None or parent.is_init:
                orphaned.add(gpu)
            elif gpu not in parent.gpus:  # it did not inherit it, so it opened it
                found.append(Client(gpu, process.pid, knobs.default))
    return found + left_behind(vmid, claims, orphaned, knobs)


def left_behind(
    vmid: str, dead: dict[str, Claim], orphaned: set[int], knobs: Knobs
) -> list[Client]:
    """Memory of the dead: kept by forked children, or not given back yet (`release_delay_s`)."""
    found = []
    for name in sorted(dead, key=lambda name: -dead[name].start):
        claim = dead[name]
        late = since_noticed(f"{ROOT}/lxc/{vmid}/ended-{name}") < knobs.delay
        for gpu in claim.gpus:
            if late or gpu in orphaned:
                found.append(Client(gpu, None, claim.mib))
            orphaned.discard(gpu)  # children of the newest owner keep its memory, not older ones'
    return found + [Client(gpu, None, knobs.default) for gpu in orphaned]


def since_noticed(mark: str) -> float:
    """Seconds since a look first missed the process; when it really ended nobody wrote down."""
    with open(mark, "a+", encoding="ascii") as stream:
        stream.seek(0)
        first = stream.readline()
        if not first:
            stream.write(f"{time.monotonic()}\n")
    return time.monotonic() - float(first) if first else 0.0


def gpu_cells(knobs: Knobs, clients: list[Client], index: int) -> dict[str, str]:
    here = [client.mib for client in clients if client.gpu == index]
    used = knobs.base + sum(mib for mib in here if isinstance(mib, int))
    cells = {
        "index": str(index),
        "uuid": knobs.uuids[index],
        "name": "NVIDIA H100 80GB HBM3",
        "pci.bus_id": f"00000000:{0x17 + index:02X}:00.0",
        "memory.total [MiB]": f"{knobs.total} MiB",
        "memory.reserved [MiB]": "0 MiB",
        "memory.used [MiB]": f"{used} MiB",
        "memory.free [MiB]": f"{max(0, knobs.total - used)} MiB",
        "temperature.gpu": "41",
        "utilization.gpu [%]": "0 %",
        "gpu_recovery_action": "None",
    }
    fault = knobs.faults.get(str(index))
    if fault in ("GPU requires reset", "GPU is lost"):
        # recorded: the fault stands in some cells, and a plain 0 MiB beside it
        cells |= dict.fromkeys(("temperature.gpu", "utilization.gpu [%]"), f"[{fault}]")
        cells["memory.used [MiB]"] = "0 MiB"
    elif fault:
        cells |= {name: f"[{fault}]" for name in cells if name.startswith("memory.")}
    return cells


def process_name(pid: int | str | None) -> str:
    """What argv[0] says; commas would break the row, so recent drivers replace them."""
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as stream:
            return stream.read().partition("\0")[0].replace(",", "?") or "[Not Found]"
    except OSError:
        return "[Not Found]"


def app_cells(knobs: Knobs, client: Client) -> dict[str, str]:
    return {
        "gpu_uuid": knobs.uuids[client.gpu],
        "pid": str(client.pid),
        "process_name": process_name(client.pid),
        "used_gpu_memory [MiB]": (
            f"{client.mib} MiB" if isinstance(client.mib, int) else client.mib
        ),
    }


def project(query: str, known: dict[str, str], rows: list[dict[str, str]], style: str) -> int:
    """The columns asked for, joined by comma and space as every release does."""
    asked = [name.strip() for name in query.split(",")]
    for name in asked:
        if name not in known:
            print(f'Field "{name}" is not a valid field to query.')
            return 2
    words = style.split(",")
    if words[0] != "csv":
        print(f'Option "--format={style}" is not recognized.')
        return 2
    if "noheader" not in words:
        print(", ".join(known[name] for name in asked))
    for row in rows:
        cells = [row[known[name]] for name in asked]
        if "nounits" in words:
            cells = [cell.removesuffix(" MiB").removesuffix(" %") for cell in cells]
        print(", ".join(cells))
    return 0


def answer(options: dict[str, str], knobs: Knobs) -> int:
    style = options.get("--format", "")
    found = [client for vmid in os.listdir(f"{ROOT}/lxc") for client in clients_in(vmid, knobs)]
    found += knobs.rows
    every = range(len(knobs.uuids))
    if "--query-gpu" in options:
        rows = [gpu_cells(knobs, found, index) for index in every]
        return project(options["--query-gpu"], GPU_FIELDS, rows, style)
    if "--query-compute-apps" in options:
        listed = [client for client in found if client.pid is not None]
        listed.sort(key=lambda each: (each.gpu, isinstance(each.pid, str), each.pid))
        rows = [app_cells(knobs, client) for client in listed]
        return project(options["--query-compute-apps"], APP_FIELDS, rows, style)
    for index in every:
        gpu = gpu_cells(knobs, [], index)
        print(f"GPU {index}: {gpu['name']} (UUID: {gpu['uuid']})")
    return 0


def main() -> int:
    if os.geteuid() != 0:
        # the driver tells everybody who holds what; the stand-in needs root to see open files
        os.execvp("sudo", ["sudo", "-n", os.path.abspath(__file__), *sys.argv[1:]])  # noqa: S606
    options = {name: value for name, _, value in (word.partition("=") for word in sys.argv[1:])}
    known = {"--query-gpu", "--query-compute-apps", "--format", "-L", "--list-gpus"}
    knobs = Knobs()
    if knobs.hang:
        while True:
            time.sleep(3600)
    if knobs.fail:
        text, code = FAILURES[knobs.fail]
        sys.stdout.write(text)
        return code
    if knobs.inforom:  # a good answer, a warning, and a failure all the same
        answer(options, knobs)
        print("WARNING: infoROM is corrupted at gpu 0000:17:00.0")
        return 14
    if unknown := [name for name in options if name not in known] or not options:
        # the table for people is not played: nothing may be decided from it
        print(f"Invalid combination of input arguments. {unknown}")
        return 2
    return answer(options, knobs)


if __name__ == "__main__":
    sys.exit(main())
