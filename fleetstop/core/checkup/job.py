"""Whether a job could be stopped well, seen or brought back, before anybody needs it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from fleetstop.core.checkup.checks import Check, Name, at_place
from fleetstop.core.inventory import Target

_DELETED = " (deleted)"
NOBODY = 65534
"""Whom the kernel names as the owner of what a user namespace has no number for."""


class PathSeen(Struct, frozen=True):
    """What verb `paths` said of one. `what`: file, dir, other, none. `writable` by the job's user:
    of the path itself, where it is not there of the nearest directory above it, which is
    `nearest`; None: could not be seen. `owner` of that one, a uid as it counts there."""

    what: str
    writable: bool | None
    nearest: str
    owner: int | None


def parse_paths(data: bytes, count: int) -> tuple[str, tuple[PathSeen, ...]] | None:
    """The uid, then four NUL-ended words for each path; None where that is not what came."""
    uid, *words = data.decode("utf-8", "surrogateescape").split("\0")
    if len(words) != count * 4 + 1 or not uid.isdigit():
        return None
    rows = [words[at : at + 4] for at in range(0, count * 4, 4)]
    told = {"yes": True, "no": False}
    return uid, tuple(
        PathSeen(what, told.get(may), near, int(owner) if owner.isdigit() else None)
        for what, may, near, owner in rows
    )


def stops(target: Target, deaf: str | None, hears: Sequence[str], again: str, seen: bool) -> Check:
    """`deaf`: the evidence that it cannot hear, None where it hears or nothing was seen (`seen`);
    `again`: the command that would bring it up able to hear."""
    job = target.job
    wanted = job.stop_signal if job is not None else None
    if deaf is not None:
        says = f"deaf: {deaf}: `stop --graceful` cannot work, whenever it is needed"
        return Check("stops", False, says, again)
    if not seen:
        return Check("stops", None, "which signals it hears could not be seen")
    if not hears:
        says = "it hears neither INT nor TERM: a stop signal would end it, with nothing saved"
        return Check("stops", False, says, again)
    if wanted is not None and wanted in ("INT", "TERM") and wanted not in hears:
        says = f"stop_signal is {wanted}, and it hears {' and '.join(hears)} only"
        return Check(
            "stops", False, says, f"stop_signal: {hears[0]}   # in the inventory, if that saves"
        )
    if wanted is None and len(hears) > 1:
        says = f"hears {' and '.join(hears)}; which one saves is not said: a graceful stop refuses"
        return Check(
            "stops", False, says, "stop_signal: INT   # in the inventory, or TERM: what saves"
        )
    return Check("stops", True, f"hears {wanted or hears[0]}")


def log(
    target: Target, seen: PathSeen, trainer: int | None, user: str, writes: str | None
) -> Check:
    """`trainer`: one that is alive, as it is numbered there. `writes`: where its output goes."""
    job = target.job
    assert job is not None
    path = job.log
    if seen.what == "file":
        return Check("log", True, f"{path} is there")
    if seen.what in ("dir", "other"):
        look = at_place(target.host, target.vmid, "ls", "-ld", str(path))
        return Check("log", False, f"{path} is no file", look)
    if trainer is None:
        return _to_be_made(target, "log", str(path), seen, user)
    if writes is not None and writes.endswith(_DELETED):
        says = f"{path} is not there; the job writes on into a file that was deleted under it"
        return Check("log", False, says, _outputs(target, trainer))
    if writes is not None:
        fix = f"log: {writes}   # in the inventory"
        return Check("log", False, f"{path} is not there; it writes to {writes}", fix)
    return Check("log", False, f"{path} is not there, and the job runs", _outputs(target, trainer))


def checkpoints(target: Target, seen: PathSeen, user: str) -> Check:
    job = target.job
    assert job is not None
    path = str(job.checkpoints)
    if seen.what == "none":
        return _to_be_made(target, "checkpoints", path, seen, user)
    if seen.what != "dir":
        look = at_place(target.host, target.vmid, "ls", "-ld", path)
        return Check("checkpoints", False, f"{path} is no directory", look)
    if seen.writable is None:
        says = f"{path} is there; whether {user} may write in it could not be seen"
        return Check("checkpoints", None, says)
    if seen.writable:
        return Check("checkpoints", True, f"{path} is there, and {user} may write in it")
    return _closed(target, "checkpoints", path, seen, user)


def _outputs(target: Target, trainer: int) -> str:
    return at_place(target.host, target.vmid, "ls", "-l", f"/proc/{trainer}/fd")


def _to_be_made(target: Target, name: Name, path: str, seen: PathSeen, user: str) -> Check:
    if seen.writable is None:
        says = f"{path} is not there yet; whether {user} may make it could not be seen"
        return Check(name, None, says)
    if seen.writable:
        return Check(name, True, f"{path} is not there yet; {user} may make it")
    return _closed(target, name, path, seen, user)


def _closed(target: Target, name: Name, path: str, seen: PathSeen, user: str) -> Check:
    host, vmid = target.host, target.vmid
    says = f"{user} cannot write in {seen.nearest}"
    says += "" if seen.nearest == path else f", so {path} cannot be made"
    if seen.owner == NOBODY and vmid is not None:
        # in there nobody can be given it: it has no number there
        says += ": there it is nobody's, so it is the host's own"
        fix = f"chown 100000:100000 ROOTFS{seen.nearest}   # on {host.name}, by the idmap of {vmid}"
    elif user == "root":
        says += ": a read-only mount, or closed to root"
        fix = at_place(host, vmid, "findmnt", "-T", seen.nearest)
    else:
        fix = at_place(host, vmid, "chown", user.removeprefix("uid "), seen.nearest)
    return Check(name, False, says, fix)
