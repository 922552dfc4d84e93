"""Shells above a job: which script they read, and whether it runs the job again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from fleetstop.core.inventory import Match
from fleetstop.core.kin.lineage import LAUNCHERS, PASS_THROUGH, shell_runs
from fleetstop.core.kin.loops import Loop, loop_around
from fleetstop.core.kin.matching import SHELLS, base, executed, is_shell
from fleetstop.core.process import Process, ProcessId, ProcessTree


def scripts(shells: Iterable[Process]) -> tuple[tuple[ProcessId, int], ...]:
    """A shell keeps its script open (bash as 255, dash as 10): that very file, wherever its
    name may lead by now."""
    found = []
    for each in shells:
        ran = shell_runs(each.argv or ())
        if ran is None or ran[0] != "script" or each.detail is None:
            continue
        name = base(ran[1])
        for file in each.detail.files or ():
            if file.fd > 2 and base(file.target.removesuffix(" (deleted)")) == name:
                found.append((each.id, file.fd))
                break
    return tuple(found)


def loop_of(process: Process, names: frozenset[str], texts: Mapping[ProcessId, str]) -> Loop | None:
    """The loop of this shell that runs one of `names` again and again."""
    ran = shell_runs(process.argv or ())
    if ran is None:
        return None
    text = ran[1] if ran[0] == "text" else texts.get(process.id)
    return loop_around(text, lambda words: runs(words, names)) if text else None


def names_below(
    tree: ProcessTree, process: Process, trainers: Iterable[ProcessId]
) -> frozenset[str]:
    """What a shell's text would call the job by: script, module or program of the trainers and
    of whoever stands between. What else it runs (an init's sleep) is none of the job."""
    chain: list[Process] = []
    for pid in {each.pid for each in trainers if tree.get(each) is not None}:
        above = list(tree.above(pid))
        if process.id in {each.id for each in above}:
            at = next(i for i, each in enumerate(above) if each.id == process.id)
            chain += [tree.processes[pid], *above[:at]]
    found: set[str] = set()
    for each in chain:
        argv = each.argv or ()
        ran, shell = executed(argv), shell_runs(argv)
        found |= {base(ran.script or ""), ran.module or ""}
        found |= {base(shell[1])} if shell and shell[0] == "script" else set()
        if ran.script is None and ran.module is None and not is_shell(each):
            found |= {base(argv[0])} if argv else {each.comm}
        # a script that its #! line made a program
        found |= {base(word) for word in argv[1:3] if base(word)[:15] == each.comm}
    return frozenset(found - {""} - PASS_THROUGH)


def runs(words: Sequence[str], names: frozenset[str]) -> bool:
    """Whether this simple command runs one of `names`, not merely mentions it."""
    first = next((word for word in words if "=" not in word), "")
    if base(first) in names or first.startswith(("$@", "$*", "${@")):
        return True
    if base(first) in PASS_THROUGH | LAUNCHERS | SHELLS or first.startswith("$"):
        return any(base(word) in names or word.startswith("$@") for word in words)
    for at in range(len(words)):
        ran = executed(words[at:])
        if base(ran.script or "") in names or (ran.module or "") in names:
            return True
        if (ran.script or "").startswith("$") or (ran.module or "").startswith(
            ("torch.distributed", "accelerate", "deepspeed")
        ):
            return any(base(word) in names or word.startswith("$") for word in words[at + 1 :])
    return False


def starts_again(match: Match, process: Process, texts: Mapping[ProcessId, str]) -> bool:
    """A shell between two lives of the job: a loop of its text runs what the match names.

    Nothing else ties the two together, so the name itself must stand in the text or among the
    shell's words: a loop over "$@" or "$file" alone may be anybody's.
    """
    wanted = match.script or match.module or match.exe
    if wanted is None or not process.alive:
        return False
    name = wanted if match.module else base(wanted)
    if not _names(process.argv or (), texts.get(process.id, ""), name):
        return False
    loop = loop_of(process, frozenset({name}), texts)
    return loop is not None and loop.again != "never"


def _names(argv: Sequence[str], script: str, name: str) -> bool:
    word = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)")
    return any(word.search(each) for each in (*argv[1:], script))
