"""What nvidia-smi said, and whether GPUs are free of us again; knows no process table, no shell.

Sources: nvidia-smi(1) for return codes (they are NVML's `nvmlReturn_t`), recorded output of
drivers 470 to 595 for the texts. Unknown is never 0, never "free". Sizes are MiB.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TypeAlias

from msgspec import Struct

_Pids: TypeAlias = frozenset[int]
# Columns told from the left, from the right, and whether anything may stand between.
_Layout: TypeAlias = tuple[tuple[str, ...], tuple[str, ...], bool]
_Row: TypeAlias = defaultdict[str, str]
_Rows: TypeAlias = tuple[list[_Row], tuple[str, ...]]

# Driver overhead, context leftovers and rounding stay far below; a lost trainer far above.
SLACK_MIB = 256
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z-]{1,64}")
_NUMBER = re.compile(r"([0-9]{1,10})(?: ?MiB)?")
_FAULT = re.compile(r"GPU (requires reset|is lost)", re.IGNORECASE)
# NOT RFC 4180: nothing is quoted, so a name may hold commas; it is told from both ends.
_ALIASES = {"used_memory": "used_gpu_memory", "gpu_uuid": "uuid"}
_HEADER = re.compile(r"(?:index|gpu_uuid|uuid|pid),", re.IGNORECASE)
_NO_DRIVER = "the NVIDIA driver is not loaded; look on the host: dmesg | grep NVRM"
_MISMATCH = "nvidia-smi does not fit the loaded kernel module (jobs run on); update or reboot it"
_NO_DEVICE = "the driver has no usable GPU here; look on the host: dmesg | grep RmInitAdapter"
_NO_RIGHT = "NVML does not start here; look from the host as root: nvidia-smi"
_LOST = "{bus} fell off the bus, which no kill mends; the host needs a reboot"
_SILENT = "{bus} does not answer; look on the host: dmesg | grep Xid"
_WEDGED = "nvidia-smi hangs; look on the host before asking again: dmesg | grep Xid"
_MISSING = "nvidia-smi or its library is not installed here; look from the host: nvidia-smi"
# How a line begins; the first match wins. Printed on stdout, now and then with status 0.
_ERRORS = {
    "nvidia-smi has failed because it couldn't communicate": _NO_DRIVER,
    "failed to initialize nvml: driver/library version mismatch": _MISMATCH,
    "failed to initialize nvml: no supported gpus": _NO_DEVICE,
    "failed to initialize nvml": _NO_RIGHT,  # a container loses it by a systemctl daemon-reload
    "no devices were found": _NO_DEVICE,
    "unable to determine the device handle": _SILENT,
}
_BUS = re.compile(r"GPU ?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f.]{2,4})")
_STATUS = {
    2: "this nvidia-smi refused our question; see: nvidia-smi --help-query-gpu",
    **{4: _NO_RIGHT, 6: _NO_DEVICE, 9: _NO_DRIVER, 12: _MISSING, 15: _LOST, 18: _MISMATCH},
    **{124: _WEDGED, 127: _MISSING, 137: _WEDGED},
}
_INFOROM = 14  # corrupted: prints good data and fails


class Unseen(Struct, frozen=True):
    """Could not be seen; `reason` is one sentence: what, and where to look next."""

    reason: str


class Gpu(Struct, frozen=True):
    """`index` is nvidia-smi's, not N of /dev/nvidiaN; `uuid` "" if unreadable; by a `fault`
    (`requires reset`, `is lost`) the numbers beside it lie, and are None."""

    index: int
    uuid: str
    used_mib: int | None
    total_mib: int | None
    fault: str | None = None


class Holder(Struct, frozen=True):
    """One (GPU, process) row; a process on 8 GPUs is 8 of them. `pid` as of where it was asked."""

    uuid: str
    pid: int | None
    mib: int | None


class GpuTable(Struct, frozen=True):
    gpus: tuple[Gpu, ...]
    warnings: tuple[str, ...] = ()


class GpuView(Struct, frozen=True):
    gpus: tuple[Gpu, ...]
    holders: tuple[Holder, ...]
    warnings: tuple[str, ...] = ()

    def at(self, index: int) -> Gpu | None:
        return next((each for each in self.gpus if each.index == index), None)

    def unlisted_mib(self, uuid: str) -> int | None:
        """Used minus listed; slightly negative when the two lists are of two moments."""
        gpu = next((each for each in self.gpus if each.uuid == uuid != ""), None)
        rows = self.on(uuid)
        if gpu is None or gpu.used_mib is None or any(each.pid is None for each in rows):
            return None
        sizes = [each.mib for each in rows if each.mib is not None]
        return gpu.used_mib - sum(sizes) if len(sizes) == len(rows) else None

    @property
    def fits(self) -> bool:
        """No GPU has more listed than in use. Where one has, the two tables are of two moments,
        or the driver lists too much for good: to ask again tells."""
        left = (self.unlisted_mib(each.uuid) for each in self.gpus)
        return all(each is None or each >= -SLACK_MIB for each in left)

    def on(self, uuid: str) -> tuple[Holder, ...]:
        """Rows of this GPU; one that names no GPU we know may be of any, so it is of each."""
        known = {each.uuid for each in self.gpus} - {""}
        return tuple(
            each if each.uuid == uuid else Holder(each.uuid, None, each.mib)
            for each in self.holders
            if each.uuid == uuid or each.uuid not in known
        )


class GpuVerdict(Struct, frozen=True):
    """`released` None: not known. `holders`: ours that still hold it."""

    index: int
    uuid: str
    released: bool | None
    reason: str
    holders: tuple[Holder, ...] = ()


def view(table: GpuTable | Unseen, holders: tuple[Holder, ...] | Unseen) -> GpuView | Unseen:
    """Both answers as one look; either unseen, all unseen."""
    if isinstance(table, Unseen):
        return table
    return holders if isinstance(holders, Unseen) else GpuView(table.gpus, holders, table.warnings)


def parse_gpus(text: bytes, status: int) -> GpuTable | Unseen:
    """`--query-gpu=index,uuid,memory.used,memory.total --format=csv,noheader,nounits`.

    More columns may stand in the middle; a fault in any cell makes its row unknown.
    """
    read = _rows(text, status, (("index", "uuid"), ("memory.used", "memory.total"), True))
    if isinstance(read, Unseen):
        return read
    gpus = tuple(_gpu(row) for row in read[0] if re.fullmatch("[0-9]{1,4}", row["index"]))
    numbers, names = {each.index for each in gpus}, {each.uuid or each.index for each in gpus}
    if not gpus or min(len(numbers), len(names)) < len(read[0]):
        return Unseen("nvidia-smi told no GPU, or two of one name; look on the host: nvidia-smi -L")
    faults = (f"GPU {each.index} {each.fault}" for each in gpus if each.fault)
    return GpuTable(gpus, (*read[1], *faults))


def parse_apps(text: bytes, status: int) -> tuple[Holder, ...] | Unseen:
    """`--query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits`.

    Empty is "no compute process" only if the query succeeded; an unreadable PID is somebody.
    """
    read = _rows(text, status, (("uuid", "pid"), ("used_gpu_memory",), True))
    if isinstance(read, Unseen):
        return read
    return tuple(
        Holder(_uuid(row["uuid"]), _number(row["pid"]) or None, _number(row["used_gpu_memory"]))
        for row in read[0]
    )


def indexes_of(look: GpuView, pids: frozenset[int]) -> tuple[int, ...]:
    """GPUs on which any of these is listed, in order."""
    uuids = {each.uuid for each in look.holders if each.pid in pids} - {""}
    return tuple(sorted(each.index for each in look.gpus if each.uuid in uuids))


def held_mib(look: GpuView, pids: frozenset[int], index: int) -> int | None:
    """What these hold on that GPU; 0 if none is listed, None if any row is not known."""
    gpu = look.at(index)
    if gpu is None or not gpu.uuid:
        return None
    rows = [each for each in look.on(gpu.uuid) if each.pid is None or each.pid in pids]
    sizes = [each.mib for each in rows if each.pid is not None and each.mib is not None]
    return sum(sizes) if len(sizes) == len(rows) else None


def released(
    before: GpuView,
    now: GpuView | Unseen,
    our_pids: frozenset[int],
    device_holders: frozenset[int] | None,
    indexes: frozenset[int],
) -> tuple[GpuVerdict, ...]:
    """One verdict for each of `indexes`, which are numbers of the first look, in order.

    `device_holders` has /dev/nvidia* open now, None: could not look. CUDA opens every visible
    GPU, so one of ours counts for each. A listed PID of ours counts though it be dead: a
    forked child keeps the client alive under its parent's number.
    GPUs are joined by uuid, since the index shifts when one falls off the bus.
    """
    held = None if device_holders is None else device_holders & our_pids
    return tuple(_verdict(before, now, our_pids, held, each) for each in sorted(indexes))


def _verdict(
    before: GpuView, now: GpuView | Unseen, ours: _Pids, open_in: _Pids | None, index: int
) -> GpuVerdict:
    gpu = before.at(index)
    if gpu is None or not gpu.uuid:
        return GpuVerdict(index, "", None, f"GPU {index} was not seen at the first look")
    rows = now.holders if isinstance(now, GpuView) else ()
    held = tuple(each for each in rows if each.uuid == gpu.uuid and each.pid in ours)
    if not held and (isinstance(now, Unseen) or any(each.uuid == gpu.uuid for each in now.gpus)):
        held = tuple(Holder(gpu.uuid, pid, None) for pid in sorted(open_in or ()))
    if held:
        sizes = ("size not known" if each.mib is None else f"{each.mib} MiB" for each in held)
        who = ", ".join(f"pid {each.pid} ({size})" for each, size in zip(held, sizes, strict=True))
        return GpuVerdict(index, gpu.uuid, False, f"GPU {index} is still held by {who}", held)
    if isinstance(now, Unseen):
        return GpuVerdict(index, gpu.uuid, None, now.reason)
    if open_in is None:
        return GpuVerdict(index, gpu.uuid, None, "who has /dev/nvidia* open could not be seen")
    return GpuVerdict(index, gpu.uuid, *_by_memory(before, now, gpu))


def _by_memory(before: GpuView, now: GpuView, gpu: Gpu) -> tuple[bool | None, str]:
    """Nobody of ours is seen on it: does the memory without an owner fit the first look?"""
    then, left, name = before.unlisted_mib(gpu.uuid), now.unlisted_mib(gpu.uuid), f"GPU {gpu.index}"
    if left is None:
        return None, f"{name} {_doubt(now, gpu.uuid)}"
    if then is None:
        return None, f"{name} did not say at the first look how much of it was in use by whom"
    if then < -SLACK_MIB and left > then + SLACK_MIB:
        # what was missing then hides or feigns what is left now, unless nobody is left at all
        if left <= SLACK_MIB and not now.on(gpu.uuid):
            return True, f"{name} is released: nobody holds it, {left} MiB are in use"
        return None, f"{name} had more listed than in use at the first look: free cannot be told"
    if left > then + SLACK_MIB:
        return False, f"{name}: {left} MiB belong to no listed process, {then} at the first look"
    if left < min(then, 0) - SLACK_MIB:
        return None, f"{name} has more listed than in use: the answers do not fit; look again"
    return True, f"{name} is released: nobody of ours holds it, {left} MiB have no listed owner"


def _doubt(now: GpuView, uuid: str) -> str:
    gpu = next((each for each in now.gpus if each.uuid == uuid), None)
    if gpu is None:
        return "is no longer listed; look on the host: dmesg | grep Xid"
    if gpu.used_mib is None:
        return f"{gpu.fault or 'answers oddly'}; how much of it is in use cannot be known"
    unknown = any(each.pid is None for each in now.on(uuid))
    return "is held by a process that hides" if unknown else "hides what a listed process holds"


def _row(line: str, layout: _Layout) -> _Row | None:
    left, right, gap = layout
    cells = [each.strip() for each in line.split(",")]
    spare = len(cells) - len(left) - len(right)
    if spare < 0 or (spare and not gap):
        return None
    known = cells[: len(left)] + cells[len(left) + spare :]
    fault = _FAULT.search(line)
    named = zip((*left, *right, "fault"), (*known, fault[1].lower() if fault else ""), strict=True)
    return defaultdict(str, named)


def _layout(header: str) -> _Layout:
    heads = (each.split(" [")[0].strip() for each in header.lower().split(","))
    names = tuple(_ALIASES.get(each, each) for each in heads)
    free = next((at for at, each in enumerate(names) if "name" in each), len(names))
    return names[:free], names[free + 1 :], free < len(names)


def _rows(text: bytes, status: int, layout: _Layout) -> _Rows | Unseen:
    """The data rows and the warnings of a CSV answer; Unseen for every line nobody knows."""
    if len(text) > 1 << 20:
        return Unseen("nvidia-smi printed more than 1 MiB; look on the host: nvidia-smi")
    lines = list(filter(None, map(str.strip, text.decode("utf-8", "replace").split("\n"))))
    error = next(filter(None, map(_error, lines)), None)
    warnings = tuple(each for each in lines if each.lower().startswith("warning:"))
    if error or (status and not (status == _INFOROM and lines)):
        why = _STATUS.get(status, f"nvidia-smi failed with {status}; look on the host: nvidia-smi")
        return Unseen(error or why.format(bus="a GPU"))
    lines = [each for each in lines if each not in warnings]
    if lines and _HEADER.match(lines[0]):
        layout = _layout(lines.pop(0))
    rows = [_row(each, layout) for each in lines]
    if None in rows:
        return Unseen(f"nvidia-smi printed a line nobody knows: {lines[rows.index(None)][:60]!r}")
    if status and not warnings:
        warnings = ("a GPU's infoROM is corrupted (nvidia-smi ended with 14)",)
    return [each for each in rows if each is not None], warnings


def _error(line: str) -> str | None:
    text, bus = line.lower(), _BUS.search(line)
    told = next((each for start, each in _ERRORS.items() if text.startswith(start)), None)
    told = _LOST if told is _SILENT and "is lost" in text else told
    return told and told.format(bus=f"GPU {bus[1]}" if bus else "a GPU")


def _gpu(row: _Row) -> Gpu:
    used, total = _number(row["memory.used"]), _number(row["memory.total"])
    if row["fault"]:  # "0 MiB" stands beside [GPU requires reset], and nothing was freed
        used = total = None
    return Gpu(int(row["index"]), _uuid(row["uuid"]), used, total, row["fault"] or None)


def _uuid(cell: str) -> str:
    return cell if _UUID.fullmatch(cell) else ""


def _number(cell: str) -> int | None:
    found = _NUMBER.fullmatch(cell)
    return int(found[1]) if found else None
