"""Events of a redeploy before anything is sent: what goes where, and how it will be started."""

from __future__ import annotations

from msgspec import Struct

from fleetstop.events.event import Event


class FileRow(Struct, frozen=True):
    """`change`: new, changed, mode or same; `size` in bytes."""

    path: str
    size: int
    change: str


class Destined(Event, frozen=True, tag="destined"):
    """Where the files go and why there (`by`: running, deploy.dest, --to), and what differs.

    `release`: what they will be; `of_release`: the kept one whose files they are again. `git`: the
    commit they come from, with -dirty where they differ from it. `left_out`: by ignore patterns.
    """

    dest: str
    by: str
    release: str
    files: tuple[FileRow, ...]
    of_release: str | None = None
    git: str | None = None
    left_out: tuple[str, ...] = ()


class DiffLine(Struct, frozen=True):
    """`kind`: file, hunk, added, removed, same or note."""

    kind: str
    text: str


class Differs(Event, frozen=True, tag="differs"):
    """What sending the files changes, line by line; `summary` in one line."""

    lines: tuple[DiffLine, ...]
    summary: str


class LaunchShown(Event, frozen=True, tag="launch_shown"):
    """How it will be started, without secrets. `adopted`: as the job that runs was; `carrier`:
    the tmux session or unit it will be in; `rest`: groups, umask, limits that are unusual.
    `added`: the names in `env` that were typed. It is healthy by `within_s`: once its log matches
    `log_matches`, or null: once it has lived so long; else the version before comes back, where
    `roll_back`. `as_release`: the kept one that it is started as, as that was then. Where the
    inventory does not say it, `ran`, `ran_in`: what runs now, and where it was started; `dest`:
    where its code lies. `log`: what its output goes to; `reads`: the file in which its log is,
    which it may open by itself."""

    command: str
    cwd: str
    user: str
    log: str | None
    env: dict[str, str]
    rest: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    adopted: bool = False
    carrier: str | None = None
    resumes: str | None = None
    added: tuple[str, ...] = ()
    within_s: float | None = None
    log_matches: str | None = None
    roll_back: bool = False
    as_release: str | None = None
    ran: tuple[str, ...] = ()
    ran_in: str | None = None
    dest: str | None = None
    reads: str | None = None
