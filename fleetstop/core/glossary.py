"""What fleetstop's own words mean, how each is seen, and what to do next; a table, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal, TypeAlias

from msgspec import Struct

from fleetstop.core import started_words

Kind: TypeAlias = Literal["verdict", "exit code", "landing", "result", "reason", "check", "thing"]


class Meaning(Struct, frozen=True):
    """`next`: what to do, with a command that exists; empty where nothing is to be done."""

    kind: Kind
    word: str
    means: str
    seen: str
    next: str = ""


def _table(kind: Kind, rows: Mapping[str, tuple[str, str, str]]) -> tuple[Meaning, ...]:
    return tuple(Meaning(kind, word, *texts) for word, texts in rows.items())


VERDICTS = _table(
    "verdict",
    {
        "unknown": (
            "It could not be seen how the job is. Unknown is never taken for gone, or for free.",
            "The process table, the masks or the container gave no answer; the reason says which.",
            "Read the reason, make it visible (network, root, sudo), then: fleetstop status TARGET",
        ),
        "uninterruptible": (
            "It hangs in the kernel (state D) and even KILL waits; no signal can end it now.",
            "D over several looks with KILL pending. State D alone does not mean it.",
            "Free what it waits for: thaw or remount the storage, look for an Xid in the host's "
            "dmesg. It ends by itself then. Watch for that: fleetstop wait TARGET --for gone",
        ),
        "frozen": (
            "The container is frozen: nothing in it moves, and entering it would hang for good.",
            "The freezer file of its cgroup on the host; no process inside is asked.",
            "Find out who froze it and why, then on the host: lxc-unfreeze -n VMID",
        ),
        "deaf": (
            "It ignores or blocks every stop signal, so no wait can ever help. Most often it was "
            "started with & from a non-interactive shell, which makes INT ignored for good.",
            "SigIgn in /proc/PID/status has the bit, or SigBlk has it in every thread.",
            "fleetstop stop TARGET --after-checkpoint waits for its next checkpoint and ends it "
            "then; --force ends it now. fleetstop restart TARGET, with the same options, starts it "
            "again so that it hears.",
        ),
        "suspended": (
            "It is stopped (SIGSTOP, Ctrl-Z), traced by a debugger, or frozen by its own control "
            "group (docker pause, systemctl freeze); a signal waits until it goes on.",
            "State T or t; TracerPid names who traces it; a frozen one sleeps in get_signal.",
            "A stop sends CONT after the signal. End a debugger, thaw a control group yourself; "
            "they are not fought.",
        ),
        "respawned": (
            "The job came back under a new identity: something starts it again when it ends.",
            "A new process matches that was not in the family. Who started it is told where it is "
            "seen.",
            "Stop what restarts it (the loop, the unit, the launcher): fleetstop status TARGET "
            "shows the tree above.",
        ),
        "saving": (
            "A checkpoint is being written. A signal now could cut it, and the old one with it.",
            "A file open for writing below checkpoints: or growing, or a temporary name without "
            "its final one.",
            "Wait. fleetstop stop does it by itself; to wait only: "
            "fleetstop wait TARGET --for checkpoint",
        ),
        "stopping": (
            "It took the signal and moves towards its end.",
            "CPU, memory or bytes written since the signal, or it now ignores what it heard.",
            "Wait. If the client ended: the same stop again watches on and repeats nothing.",
        ),
        "stalled": (
            "It makes no progress by any measure over the whole window. It may hang, or wait for "
            "another rank.",
            "No log line, no CPU, no I/O for a minute; a second, where the log is old already.",
            "See where it hangs: fleetstop status TARGET --stacks",
        ),
        "busy": ("It runs and makes progress.", "CPU, I/O or log lines between two looks.", ""),
        "zombie": (
            "It is dead and only waits to be reaped by its parent, or for a debugger to let go. It "
            "holds no GPU and counts as ended.",
            "State Z with a single thread; with more threads it is alive.",
            "Nothing. It goes when its parent looks after it, or ends, or its debugger does.",
        ),
        "gone": (
            "There is no such process any more.",
            "No process with this PID and this start time, while /proc itself can be read.",
            "",
        ),
    },
)

EXIT_CODES = _table(
    "exit code",
    {
        "0": (
            "Done as asked, and verified. Stopping what does not run is done too. For status and "
            "ls: it could look; a dry run: it is planned.",
            "Every target's result is stopped, not_running, running, redeployed or planned.",
            "",
        ),
        "1": (
            "It still runs: a trainer fixed at the start was seen alive last.",
            "By its identity, PID and start time.",
            "The last lines say why and what is left to try; then: fleetstop status TARGET",
        ),
        "2": (
            "The command line is wrong; nothing was connected to.",
            "A name, an option or a value that fits nothing.",
            "fleetstop --help, or fleetstop ls for the names there are.",
        ),
        "3": (
            "The inventory or a playbook is wrong; nothing was connected to.",
            "The message names file, line and path.",
            "Correct that line, then: fleetstop ls",
        ),
        "4": (
            "It could not look, so the truth is not known. Signals sent before are listed.",
            "Network, login, host key, a container that is missing or frozen.",
            "Follow the hint, then run the same command again: it repeats no signal.",
        ),
        "5": (
            "Refused: nothing was sent, on purpose.",
            "Ambiguous, protected, locked by another run, or consent was all that was missing.",
            "The reason names what would make it possible.",
        ),
        "6": (
            "The trainers ended, but not clean.",
            "Another member lives, GPU memory is held, it came back, or nothing was saved.",
            "fleetstop status TARGET shows what is left; the reason begins with what it is about.",
        ),
        "7": (
            "A deploy failed before anything was stopped; the running job was not touched.",
            "What was staged could not be compared, compiled or prepared in its place (a full or "
            "read-only disk).",
            "The reason names the file. Nothing is left of it there: correct it and run the same "
            "command again.",
        ),
        "8": (
            "Relaunched, but not healthy; the report says which version runs now, if any.",
            "The new trainer ended, cannot hear its stop signal, lacks its arguments or its "
            "environment, uses none of its GPUs, or its log never matched.",
            "The checks and the last log lines say why; then: fleetstop status TARGET",
        ),
        "70": (
            "A fault in fleetstop itself. The other targets went on.",
            "An error nobody expected; the traceback is in the file that was named.",
            "Look at the job first: fleetstop status TARGET. Then report the traceback.",
        ),
        "130": (
            "Interrupted by Ctrl-C or TERM. The job was left its chance to finish.",
            "What was sent before is told.",
            "Run the same command again: it watches on and repeats nothing.",
        ),
    },
)

LANDINGS = _table(
    "landing",
    {
        "heard": (
            "The process has a handler for this signal. Heard is not obeyed, and not yet saved: "
            "a main thread inside C code takes it only later.",
            "SigCgt in /proc/PID/status has the bit.",
            "Whether it saves is proved after the fact; a stop does that.",
        ),
        "ignored": (
            "The signal is thrown away by the kernel. Waiting cannot help.",
            "SigIgn has the bit. Usual cause: started with & from a non-interactive shell.",
            "fleetstop explain deaf",
        ),
        "blocked": (
            "Every thread blocks the signal: it stays pending for ever. Waiting cannot help.",
            "SigBlk has the bit in /proc/PID/task/*/status of every thread.",
            "fleetstop explain deaf",
        ),
        "fatal": (
            "There is no handler: the signal ends the process at once and nothing is saved.",
            "None of SigIgn, SigBlk and SigCgt has the bit. KILL is always fatal.",
            "It needs consent: a yes at the terminal, --max-loss, --after-checkpoint or --force.",
        ),
    },
)

RESULTS = _table(
    "result",
    {
        "stopped": (
            "The job ended and that is proved: gone, saved where that can be seen, GPUs free.",
            "Exit code 0.",
            "",
        ),
        "not_running": (
            "Nothing of the job runs; nothing was sent.",
            "Exit code 0. Nothing matches, and no launcher that names it lives.",
            "If you know that it runs, the match is wrong: fleetstop status HOST/VMID shows "
            "whatever holds a GPU.",
        ),
        "running": (
            "It runs. After status: as seen; after wait: what was waited for has come; after a "
            "launch or restart: its trainer was started and is healthy.",
            "Exit code 0.",
            "",
        ),
        "still_running": (
            "It runs on: a trainer was seen alive last.",
            "Exit code 1.",
            "fleetstop explain 1",
        ),
        "unreachable": (
            "The truth could not be seen.",
            "Exit code 4.",
            "fleetstop explain 4",
        ),
        "refused": ("Nothing was sent, on purpose.", "Exit code 5.", "fleetstop explain 5"),
        "unclean": (
            "The trainers ended, but something is left or nothing was saved.",
            "Exit code 6. The reason begins with a word and a colon: not_saved, save_unseen, "
            "unproven, gpus_held, gpus_unseen, respawned, between_lives; after wait also "
            "not_reached.",
            "fleetstop explain 6",
        ),
        "planned": ("A dry run: the plan was made, nothing was sent.", "Exit code 0.", ""),
        "fault": ("A fault in fleetstop itself.", "Exit code 70.", "fleetstop explain 70"),
        "redeployed": (
            "The new files run, and their trainer is healthy: alive, able to hear its stop signal, "
            "with its arguments and environment.",
            "Exit code 0.",
            "",
        ),
        "deploy_failed": (
            "The new files failed before anything was stopped; the running job was not touched.",
            "Exit code 7.",
            "fleetstop explain 7",
        ),
        "rolled_back": (
            "What was started was not healthy; the version before is back, and runs.",
            "Exit code 8.",
            "fleetstop explain 8",
        ),
        "unhealthy": (
            "What was started is not healthy, and the version before is not back. What runs now "
            "is told.",
            "Exit code 8.",
            "fleetstop explain 8",
        ),
    },
)

_LOOK = "fleetstop status TARGET"

# what the reason of `unclean` begins with
REASONS = _table(
    "reason",
    {
        "not_saved": (
            "It ended without a new whole checkpoint: what it did since the last one is lost.",
            "The listing of checkpoints: before the first signal against the one after the end.",
            "Read the end of its log. Resume from the checkpoint that is named; the next time wait "
            "for a save first: fleetstop wait TARGET --for checkpoint",
        ),
        "save_unseen": (
            "It ended, and whether it saved could not be seen. Neither yes nor no is claimed.",
            "The directory of checkpoints could not be listed: neither in the container nor, where "
            "that cannot be entered, from the host.",
            "Look into the directory yourself.",
        ),
        "unproven": (
            "A new whole checkpoint is there, but another job may have written it.",
            "No member was seen with it open, and others have business in that directory.",
            "Look at the job's log and at the checkpoint's time; give each job its own directory.",
        ),
        "gpus_held": (
            "It ended, and memory on its GPUs is still held.",
            "nvidia-smi lists processes or memory there; the reason says whose.",
            f"A driver needs some seconds at times: fleetstop wait TARGET --for gpu-free. {_LOOK} "
            "shows who holds them.",
        ),
        "gpus_unseen": (
            "It ended, and whether its GPUs are free could not be seen. Unknown is not free.",
            "nvidia-smi failed or gave no answer; the reason says which.",
            "Run nvidia-smi on the host.",
        ),
        "respawned": (
            "It ended and is running again: something started it anew.",
            "The same match fits processes that began after the end.",
            "Stop what starts it; the reason names that where it can be seen.",
        ),
        "between_lives": (
            "No trainer runs at the moment, but what would start one again does.",
            "A loop or a launcher of the job lives without a trainer below it.",
            f"End the loop, or look again in a moment: {_LOOK}",
        ),
        "not_reached": (
            "What was waited for did not come about, and no trainer was alive last.",
            "The last look of fleetstop wait.",
            _LOOK,
        ),
    },
)

CHECKS = _table("check", started_words.CHECKS)
THINGS = _table("thing", started_words.THINGS)
ALL = (*VERDICTS, *LANDINGS, *RESULTS, *REASONS, *CHECKS, *THINGS, *EXIT_CODES)


def explain(word: str) -> tuple[Meaning, ...]:
    """Every meaning of a word, as it is typed or shown (`not running`, `GONE`); empty: none."""
    wanted = _plain(word)
    return tuple(each for each in ALL if each.word == wanted)


def near(word: str) -> tuple[str, ...]:
    """The words that somebody may have meant, the nearest first."""
    words = list(dict.fromkeys(each.word for each in ALL))
    return tuple(get_close_matches(_plain(word), words, n=2, cutoff=0.6))


def _plain(word: str) -> str:
    return word.strip().lower().replace(" ", "_").replace("-", "_")
