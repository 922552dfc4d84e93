"""How a signal would land on all that it reaches, and why nobody would hear it; sends nothing."""

from __future__ import annotations

from fleetstop.core.kin.family import Kin
from fleetstop.core.process import Process, ProcessTree
from fleetstop.core.signals import Landing, worst


def lands(
    signal: str, reached: tuple[Kin, ...], tree: ProcessTree
) -> tuple[Landing | None, str | None]:
    """The worst landing over all recipients, and why it would reach nobody's ear."""
    seen = [(kin, tree.processes[kin.id.pid]) for kin in reached]
    landings = [process.landing(signal) for _, process in seen]
    if any(each is None for each in landings):
        return None, "how it would land could not be seen"
    how = worst([each for each in landings if each is not None])
    if signal == "KILL":
        return how, None
    if traced := [f"{kin.pid} (by {tree.called(p.tracer)})" for kin, p in seen if p.state == "t"]:
        return how, f"held by a tracer: {', '.join(traced)}; it would only wait there"
    if frozen := [str(kin.pid) for kin, process in seen if process.iced]:
        return how, f"frozen by its control group: {', '.join(frozen)}; it would only wait there"
    return how, _unheard(signal, how, seen) if how in ("ignored", "blocked") else None


def _unheard(signal: str, how: Landing, seen: list[tuple[Kin, Process]]) -> str:
    deaf = [(kin, process) for kin, process in seen if process.landing(signal) == how]
    names = ", ".join(str(kin.pid) for kin, _ in deaf)
    if how == "blocked":
        return f"{names} blocks it in every thread (SigBlk). Waiting cannot help."
    why = ""
    masks = deaf[0][1].masks
    if signal == "INT" and masks is not None and masks.ignored & 0b110 == 0b110:
        # POSIX sh 2.11: an asynchronous list without job control ignores INT and QUIT
        why = (
            " It was started with & from a non-interactive shell, "
            "so Python never installed KeyboardInterrupt."
        )
    return f"{names} ignores it (SigIgn).{why} Waiting cannot help."
