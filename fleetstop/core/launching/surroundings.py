"""Which variables a job was given, and which came with a login, a shell or us; knows no process."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from fleetstop.core.launching.origin import Origin

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LOGIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# login.defs(5) and Debian's /etc/profile, lxc-attach(1), cron(8), systemd-path, busybox's own
USUAL_PATHS = frozenset(
    {
        LOGIN_PATH,
        "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games:/usr/local/games",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
        "/usr/local/bin:/usr/bin:/bin",
        "/usr/local/bin:/usr/bin",
        "/sbin:/usr/sbin:/bin:/usr/bin",
        "/usr/bin:/bin",
    }
)
USUAL = {"PATH": USUAL_PATHS, "LANG": frozenset({"C", "POSIX", "C.UTF-8", "C.utf8"})}
# what never goes into a new life: our own way in, and what a shell keeps for itself
_NEVER = re.compile(r"SSH_(?!ASKPASS$)\w+|FLEETSTOP_\w+|_|OLDPWD|SHLVL|PWD")
# what a login, a terminal or whoever started it left there: the trainer was not meant by it
_OF_A_LOGIN = re.compile(
    r"SHELL|MAIL|TERM|TERMINFO|COLORTERM|LINES|COLUMNS|LS_COLORS"
    r"|LESS(?:OPEN|CLOSE)|HIST\w+|PS[1-4]|PROMPT_COMMAND|DISPLAY|WINDOWID|EDITOR|PAGER|container"
    r"|container_\w+|XDG_(?:SESSION|RUNTIME|DATA_DIRS|SEAT|VTNR|CURRENT)\w*|DBUS_\w+|TMUX|TMUX_PANE"
    r"|STY|WINDOW|TERM_PROGRAM\w*|SUDO_\w+|INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_EXEC_PID|MANAGERPID"
    r"|NOTIFY_SOCKET|LISTEN_\w+|MAINPID|SUPERVISOR_\w+|NOHUP|MOTD_SHOWN|PROXMOX_\w+|PVE_\w+"
)


class Person(Struct, frozen=True):
    """A user as the container knows one: its line of passwd(5), and all its groups."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str


def parse_person(said: bytes) -> Person | None:
    """The answer of `user`; None where it is none."""
    line, _, rest = said.decode("utf-8", "replace").partition("\n")
    fields = line.split(":")
    if len(fields) != 7 or not (_is_id(fields[2]) and _is_id(fields[3])):
        return None
    groups = [int(each) for each in rest.split() if _is_id(each)]
    gid = int(fields[3])
    # setgroups(2) takes the others; the first one is the process's own
    others = tuple(each for each in dict.fromkeys(groups) if each != gid)
    shell = fields[6] or "/bin/sh"
    return Person(fields[0], int(fields[2]), gid, others, fields[5] or "/", shell)


def parse_login(texts: Mapping[str, str]) -> dict[str, str]:
    """What /etc/environment and /etc/default/locale set (pam_env(8)): by file, as read."""
    found: dict[str, str] = {}
    for body in texts.values():
        for line in body.splitlines():
            name, sign, value = line.strip().removeprefix("export ").partition("=")
            if sign and NAME.fullmatch(name):
                found[name] = value.strip().strip("\"'")
    return found


def login_like(
    person: Person | None, login: Mapping[str, str], origin: Origin | None
) -> dict[str, str]:
    """The environment of a clean login; PATH and language as the job had them, where known."""
    had = (origin.env if origin is not None else None) or {}
    base = {"PATH": LOGIN_PATH, **login}
    if person is not None:
        base |= {
            "HOME": person.home,
            "USER": person.name,
            "LOGNAME": person.name,
            "SHELL": person.shell,
        }
    for name, value in had.items():
        if name in ("PATH", "LANG", "LANGUAGE") or name.startswith("LC_"):
            base[name] = value
    return base


def handed_on(env: Mapping[str, str]) -> dict[str, str]:
    """A process's environment without what never goes into a new life."""
    return {name: value for name, value in env.items() if not _NEVER.fullmatch(name)}


def own(
    env: Mapping[str, str], login: Mapping[str, str], person: Person | None = None
) -> dict[str, str]:
    """What the job was given and a clean login of `person` would not have. `login`: see
    `parse_login`. PATH stays where it is unusual; HOME, too, where it is another's (`sudo -E`)."""
    usual = login_like(person, login, None)
    kept: dict[str, str] = {}
    for name, value in handed_on(env).items():
        same = usual.get(name) == value or value in USUAL.get(name, ())
        nobody = person is None and name in ("USER", "LOGNAME")
        if not same and not nobody and not _OF_A_LOGIN.fullmatch(name):
            kept[name] = value
    return kept


def _is_id(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 11
