"""What a launcher does when a signal or a rank's end reaches it; from its words and its shape.

Sources: signals.md 9 (torch 2.13, accelerate 1.15, deepspeed 0.19, measured); on the bed torch 1.13
(distributed/elastic/multiprocessing/api.py: 30 s, then KILL), accelerate 1.15 (commands/launch.py),
deepspeed 0.19.8 (launcher/runner.py, launcher/launch.py), Open MPI 4.1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, assert_never

from msgspec import Struct

from fleetstop.core.kin.matching import base, executed

SHUTDOWN_S = 30.0
"""torch.distributed.run without --shutdown-timeout: so long after a signal it KILLs its ranks."""
_FORWARDED = ("INT", "TERM")
_MANY = frozenset("multi_gpu use_fsdp use_deepspeed use_megatron_lm".split())

Manner = Literal["elastic", "waits", "deepspeed", "mpi"]


class Launcher(Struct, frozen=True):
    """`manner`: elastic is torch's agent; waits: one child that it only waits for; deepspeed: the
    parent of deepspeed's ranks; mpi: mpirun and the unknown. `forwards`: the signals it hands on
    to its ranks, waiting `limit_s` before it KILLs them; empty: it keeps them to itself.
    `restarts`: how often it starts all ranks again when one fails."""

    name: str
    manner: Manner = "mpi"
    forwards: tuple[str, ...] = ()
    limit_s: float = SHUTDOWN_S
    restarts: int = 0

    @property
    def will(self) -> str:
        """What it does when a rank ends, as a sentence's end."""
        match self.manner:
            case "elastic":
                text = (
                    "TERMs the other ranks as soon as one exits non-zero, "
                    f"and KILLs them {self.limit_s:g} s later"
                )
                again = f"; starts all ranks again when one fails, up to {self.restarts} times"
                return text + (again if self.restarts else "")
            case "waits":
                below = "trainer" if self.name == "accelerate" else "ranks"
                return (
                    "leaves when the one process it started does; "
                    f"a signal to it would leave the {below} alone"
                )
            case "deepspeed":
                return (
                    "TERMs the other ranks one by one within a second of one that exits non-zero, "
                    "and KILLs each 30 s later; so too on a signal of its own"
                )
            case "mpi":
                return "ends all ranks when one exits non-zero"
        assert_never(self.manner)


def launcher_of(
    argv: Sequence[str], *, ranks: int, ranked: bool = False, told_s: str | None = None
) -> Launcher:
    """`ranks`: how many trainers stand below it with no trainer or other launcher between;
    `ranked`: they have ranks that it has not; `told_s`: its TORCH_ELASTIC_SHUTDOWN_TIMEOUT."""
    ran = executed(argv)
    script, module = base(ran.script or ""), ran.module or ""
    names = (base(argv[0]), script) if argv else ()
    if module.startswith("torch.distributed") or "torchrun" in names:
        return _elastic("torchrun", argv, told_s)
    if module.startswith("accelerate") or {"accelerate", "accelerate-launch"} & {*names}:
        if _accelerate_many(argv, ranks, ranked):
            return _elastic("accelerate", argv, told_s)
        return Launcher("accelerate", "waits")
    if module == "deepspeed.launcher.launch":
        return Launcher("deepspeed", "deepspeed")
    if module.startswith("deepspeed") or {"deepspeed", "deepspeed.pt", "ds"} & {*names}:
        # the runner; INT, TERM or KILL to it alone, and the ranks' parent and the ranks live on
        return Launcher("deepspeed", "waits")
    known = next((each for each in names if each in ("mpirun", "mpiexec", "horovodrun")), None)
    return Launcher(known or "launcher")


def _accelerate_many(argv: Sequence[str], ranks: int, ranked: bool) -> bool:
    """Whether it runs torch's agent inside itself: it then has several children, or gave a single
    one a rank. --num_processes does not tell: with --cpu it starts one process, or mpirun. Where
    its children say nothing (the last one left, ranks unseen) its words are asked; for deepspeed
    over several nodes it starts another launcher."""
    if ranks > 1 or ranked:
        return True
    own = {word.partition("=")[0].lstrip("-").replace("-", "_") for word in _own(argv)}
    return "cpu" not in own and bool(own & (_MANY if ranks else _MANY - {"use_deepspeed"}))


def _own(argv: Sequence[str]) -> Sequence[str]:
    """The launcher's own options, which come before the script."""
    words = list(argv[1:])
    at = next((n for n, w in enumerate(words) if w.endswith(".py") and not w.startswith("-")), None)
    return [word for word in words[:at] if word.startswith("-")]


def _elastic(name: str, argv: Sequence[str], told_s: str | None) -> Launcher:
    said = _number(argv, "shutdown_timeout")
    if said is None and told_s is not None and re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", told_s):
        said = float(told_s)
    return Launcher(
        name,
        "elastic",
        forwards=_FORWARDED,
        limit_s=SHUTDOWN_S if said is None else said,
        restarts=int(_number(argv, "max_restarts") or 0),
    )


def _number(argv: Sequence[str], option: str) -> float | None:
    """`--max-restarts 3`, `--max_restarts=3`; only the launcher's own options, which come
    before the script."""
    for at, word in enumerate(argv):
        if at and word.endswith(".py") and not word.startswith("-"):
            return None
        name, _, value = word.partition("=")
        if name.lstrip("-").replace("-", "_") == option and word.startswith("-"):
            value = value or next(iter(argv[at + 1 : at + 2]), "")
            return float(value) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", value) else None
    return None
