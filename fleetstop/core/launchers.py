"""What a launcher does when a signal or a rank's end reaches it; from its words alone.

Sources: signals.md 9 (torch 2.13, accelerate 1.15, deepspeed 0.19, measured), torch 1.13 on the bed
(distributed/elastic/multiprocessing/api.py: 30 s, then KILL).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from fleetstop.core.matching import base, executed

SHUTDOWN_S = 30.0
"""torch.distributed.run without --shutdown-timeout: so long after a signal it KILLs its ranks."""
_FORWARDED = ("INT", "TERM")


class Launcher(Struct, frozen=True):
    """`forwards`: the signals it hands on to its ranks, waiting `limit_s` before it KILLs them;
    empty: it keeps them to itself. `restarts`: how often it starts all ranks again when one
    fails."""

    name: str
    forwards: tuple[str, ...] = ()
    limit_s: float = SHUTDOWN_S
    restarts: int = 0

    @property
    def will(self) -> str:
        """What it does when a rank ends, as a sentence's end."""
        if self.name in ("torchrun", "accelerate") and self.forwards:
            text = (
                "TERMs the other ranks as soon as one exits non-zero, "
                f"and KILLs them {self.limit_s:g} s later"
            )
            again = f"; starts all ranks again when one fails, up to {self.restarts} times"
            return text + (again if self.restarts else "")
        if self.name == "accelerate":
            return "leaves when its one process does; a signal to it would leave the trainer alone"
        if self.name == "deepspeed":
            return (
                "turns an INT of its own into TERM for every rank, and KILLs them 30 s later; "
                "leaves when they do"
            )
        return "ends all ranks when one exits non-zero"


def launcher_of(argv: Sequence[str], *, ranks: int, told_s: str | None = None) -> Launcher:
    """`ranks`: how many trainers stand below it; `told_s`: its TORCH_ELASTIC_SHUTDOWN_TIMEOUT."""
    ran = executed(argv)
    script, module = base(ran.script or ""), ran.module or ""
    names = (base(argv[0]), script) if argv else ()
    if module.startswith("torch.distributed") or "torchrun" in names:
        return _elastic("torchrun", argv, told_s)
    if module.startswith("accelerate") or "accelerate" in names:
        processes = _number(argv, "num_processes")
        many = ranks > 1 or (processes or 1) > 1 or "--multi_gpu" in argv
        return _elastic("accelerate", argv, told_s) if many else Launcher("accelerate")
    if module.startswith("deepspeed") or "deepspeed" in names:
        return Launcher("deepspeed")
    known = next((each for each in names if each in ("mpirun", "mpiexec", "horovodrun")), None)
    return Launcher(known or "launcher")


def _elastic(name: str, argv: Sequence[str], told_s: str | None) -> Launcher:
    said = _number(argv, "shutdown_timeout")
    if said is None and told_s is not None and re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", told_s):
        said = float(told_s)
    return Launcher(
        name,
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
