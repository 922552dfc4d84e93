"""Why nothing is sent: each refusal with what was seen and what would help."""

from __future__ import annotations

from fleetstop.actions.telling import Run
from fleetstop.core.climbing.consent import Consent
from fleetstop.core.inventory import Match, Target
from fleetstop.core.kin.family import Family, Found
from fleetstop.core.launching.interpreter import OWN, is_python
from fleetstop.core.playbook import Hold, Playbook
from fleetstop.core.process import Process, ProcessTree
from fleetstop.core.redact import brief
from fleetstop.core.saves.listing import PlainFile
from fleetstop.core.spelling import plain
from fleetstop.errors import Refused, RemoteFailed


def protected(target: Target) -> None:
    if target.protected or (target.job is not None and target.job.protected):
        raise Refused(
            "protected in the inventory: never signalled",
            hint="remove `protected: true` there if this is what you want",
        )


def ambiguous(run: Run, target: Target, found: Found, families: tuple[Family, ...]) -> None:
    """Several unrelated trees, or one in which it cannot be told who trains."""
    if found.unclear is not None:
        hint = "say which in the inventory: trainers: leaves (or: all)" if families else ""
        raise Refused(found.unclear, hint=hint)
    if len(families) > 1:
        one = run.typed("stop", target.name, "--pid", str(families[0].trainers[0].pid))
        raise Refused(
            f"{len(families)} unrelated trees match",
            evidence=tuple(describe(each) for each in families),
            hint=f"name one: {one}; or set `all: true` in its match",
        )


def describe(family: Family) -> str:
    above = [kin for kin in family.members if kin.role in ("wrapper", "launcher")]
    chain = [*above, *family.trainers[:1]]
    text = " > ".join(f"{kin.pid} {brief(kin.argv)}" for kin in chain)
    more = len(family.trainers) - 1
    return f"{text} (+{more} trainers)" if more > 0 else text


def untouchable(target: Target, family: Family, tree: ProcessTree) -> None:
    """PID 1, and what carries a login, are never signalled, whatever matches them."""
    for kin in family.members:
        process = tree.get(kin.id)
        if kin.id.pid <= 1 or (process is not None and process.pid == 1):
            what = "the container's" if target.vmid is not None else "the host's"
            raise Refused(
                f"{kin.pid} is {what} first process; it is never signalled",
                hint=f"stopping it stops the container: pct shutdown {target.vmid}",
            )
        if process is not None and (process.kernel_thread or process.comm == "sshd"):
            raise Refused(f"{kin.pid} ({process.comm}) is never signalled")


def checkpoints_file(target: Target, listing: object, hold: Hold | None) -> None:
    """A file under `checkpoints:` cannot be listed, so every signal would wait for the hold, in
    vain: a slip of the inventory is told before anything waits. Without a hold nothing waits."""
    job = target.job
    if hold is None or job is None or job.checkpoints is None:
        return
    if isinstance(listing, PlainFile):
        folder = job.checkpoints.rstrip("/").rpartition("/")[0] or "/"
        raise RemoteFailed(
            f"whether it saves cannot be seen: checkpoints: {listing.reason}; nothing was sent",
            hint=f"name the directory in the inventory: checkpoints: {folder}",
        )


def checkpoints_closed(
    target: Target, why: str | None, consent: Consent, playbook: Playbook
) -> None:
    """A signal that a trainer hears makes it save and leave. Where it can be known before that
    the save fails, the signal costs the work: that takes consent."""
    job = target.job
    if why is None or job is None or consent == "given" or playbook.verify.checkpoint == "none":
        return
    raise Refused(
        f"what it saves now would be lost: checkpoints: {job.checkpoints}: {why}",
        hint="let it write there (chown on the host; or is it mounted read-only?), or --force",
    )


def mistyped(match: Match, strangers: str) -> Refused:
    """Typed by hand and nothing is found, while something works there: most likely a slip."""
    key = next(k for k in ("script", "pgrep", "pid", "module", "exe") if getattr(match, k))
    said = getattr(match, key)
    return Refused(
        f"nothing matches --{key} {said}, but {strangers} holds a GPU here",
        hint="if that is the job, name it: --pid, or --script as its command line shows",
    )


def about_to_start(who: Process, base: str) -> Refused:
    """Named by hand and not found, and somebody may be about to start the very thing."""
    name = plain(base.rpartition("/")[2])
    return Refused(
        f"nothing matches, but the activator {who.pid} of an earlier run is at work for a job"
        f" `{name}` here, and may be about to start it",
        hint=f"name it by its job, as the inventory has it: `…:{name}`",
    )


def python_only(family: Family) -> bool:
    return all(is_python(word) for kin in family.trainers for word in kin.argv[:1])


def both_heard(family: Family) -> Refused:
    """Of a Python program only TERM's handler is surely its own."""
    names = ", ".join(str(kin.pid) for kin in family.trainers)
    said = "`stop_signal: {0}` in the inventory, or --signal {0}, or --ladder '{0}/3m'"
    most_likely = f"most likely TERM ({OWN}); say it: {said.format('TERM')}"
    return Refused(
        f"{names} hears both INT and TERM, and nobody has said which one saves",
        hint=most_likely if python_only(family) else f"say it, INT or TERM: {said.format('INT')}",
    )


def no_lock(where: str, what: str, status: int) -> RemoteFailed:
    """The lock directory of a container, or of the host, that cannot be used as it is."""
    place = f"/run/lock/fleetstop.{where}"
    if status == 23:
        return RemoteFailed(
            f"the lock directory {place} is somebody else's and not sticky: anybody could "
            "remove what stands there; nothing is sent without it",
            hint=f"as root on the host: chmod 1777 {place}",
        )
    if status == 24 and what == "read":
        return RemoteFailed(
            f"a file of another user in {place} cannot be read: it may hold the lock, or say "
            "that a signal was sent; nothing is sent without it",
            hint=f"look at it on the host: ls -la {place}",
        )
    return RemoteFailed(
        f"the lock directory {place} could not be {what} (status {status}); "
        "nothing is sent without it",
        hint="it must be a plain directory, not a link; is the disk full?",
    )
