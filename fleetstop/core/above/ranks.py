"""Whom a signal for several ranks goes to, where only rank 0 saves; it sends nothing."""

from __future__ import annotations

from fleetstop.core.above.supervisors import forwarder, parent_rank, spawning_parent
from fleetstop.core.kin.family import Family, Kin, standing
from fleetstop.core.process import ProcessTree


def through_launcher(family: Family, signal: str) -> bool:
    """The ranks are asked through their launcher: it is one signal, and the launcher then waits
    for them instead of ending them because one of them left."""
    return family.ranks == "rank0_saves" and signal != "KILL" and len(family.trainers) > 1


def messenger(family: Family, tree: ProcessTree, signal: str) -> Kin | str:
    """The launcher that hands this signal on to every rank, or why there is none."""
    found = forwarder(tree, family)
    if found is None:
        return (
            "ranks: rank0_saves needs a launcher that hands the signal on, and none stands "
            "above all ranks; signalled one by one, the others would end before rank 0 has saved"
        )
    process, launcher = found
    if signal not in launcher.forwards:
        return (
            f"ranks: rank0_saves: {launcher.name} {process.pid} does not hand {signal} on to its "
            "ranks, and to signal them one by one would end the others before rank 0 has saved"
        )
    kin = next(each for each in family.members if each.id == process.id)
    if kin not in standing(family, tree):
        return f"ranks: rank0_saves: {launcher.name} {process.pid} has become something else"
    return kin


def promise(family: Family, tree: ProcessTree) -> str | None:
    """What a stop of several ranks does not promise, or how long their save may take."""
    if len(family.trainers) < 2 or family.ranks == "all_save":
        return None
    found = forwarder(tree, family)
    if family.ranks == "rank0_saves":
        if found is None or not found[1].forwards:
            return None  # every rung will say why it cannot be climbed
        process, launcher = found
        return (
            f"ranks: rank0_saves: the signal goes to {launcher.name} {process.pid} alone, which "
            f"KILLs its ranks {launcher.limit_s:g} s later: rank 0 must have saved by then"
        )
    spawner = spawning_parent(tree, family)
    if spawner is not None:
        return (
            f"{spawner.pid}, which spawned the ranks, may end the others in their save when one "
            "leaves with an error: not promised unless all ranks save and leave with 0 (job key "
            "ranks: all_save)"
        )
    if found is not None:
        process, launcher = found
        through = (
            ", or the signal goes through it (ranks: rank0_saves)" if launcher.forwards else ""
        )
        return (
            f"{launcher.name} {process.pid} may end rank 0 in its save: not promised unless all "
            f"ranks save (job key ranks: all_save){through}"
        )
    parent = parent_rank(tree, family)
    if parent is None:
        return None
    return (
        f"{parent.pid}, the parent of the other ranks, may end them all in their save: not "
        "promised unless all ranks save and leave with 0 (job key ranks: all_save)"
    )
