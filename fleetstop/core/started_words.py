"""Words for what is started and how it is found to be well; a table, nothing else.

Rows as in `glossary`: what it means, how it is seen, what to do next.
"""

from __future__ import annotations

CHECKS: dict[str, tuple[str, str, str]] = {
    "alive": (
        "What was started lives, and a trainer of the job is seen below it.",
        "By PID and start time. Without log_matches: for the whole of healthcheck.within (10 s).",
        "If it ended: its exact exit and the last lines of its log are told; correct that, and "
        "type the same again.",
    ),
    "hears": (
        "The new trainer has a handler for its stop signal, so the next stop can be graceful.",
        "SigCgt of every trainer. What is ignored for 5 s after Python is up stays ignored.",
        "Most often its script puts python into the background with & (QUIT is ignored too then): "
        "take that away. Else its own code ignores it: signal.signal(SIGINT, SIG_IGN).",
    ),
    "arguments": (
        "What was to be added (words behind --, those to resume) reached the trainer's argv.",
        "/proc/PID/cmdline of the new trainer, against what it was started with.",
        'A script that drops them needs "$@" where it calls python.',
    ),
    "environment": (
        "The variables of launch.env and --env reached the trainer.",
        "/proc/PID/environ of the new trainer.",
        "A script that sets or clears them (env -i, sudo without -E) is in the way.",
    ),
    "log": (
        "A new line of its log matches healthcheck.log_matches.",
        "Only what was written since it was started is looked at.",
        "Never within healthcheck.within: give it longer, or correct the pattern.",
    ),
    "gpu": (
        "It uses a GPU that the job declares.",
        "nvidia-smi, or an open /dev/nvidia*; it has a minute for it at least.",
        "fleetstop status TARGET shows what it holds.",
    ),
}

THINGS: dict[str, tuple[str, str, str]] = {
    "release": (
        "One set of files that was deployed, with a manifest: hashes, git commit, command, "
        "environment without secrets, who, when.",
        "DEST/.fleetstop/JOB/releases/ID; the newest 5 and what is needed to go back are kept.",
        "fleetstop rollback TARGET puts back the one before; --to ID another.",
    ),
    "activator": (
        "What swaps the files and starts the job, detached, in the container: it goes on when the "
        "laptop is gone.",
        "DEST/.fleetstop/JOB/state.json tells how far it came.",
        "Type the same command again: it goes on from there.",
    ),
}
