"""How `pct` reads its command line: Getopt::Long, then Proxmox's own checks.

Knows nothing of containers. Line numbers are those of pve-common's JSONSchema.pm and
CLIHandler.pm, and of pve-container's pct.pm.
"""

from __future__ import annotations

import os
import re
import sys

ONE, OPTIONAL, MANY = "=s", ":s", "=s@"  # Getopt::Long's ways to take a value

# pct.pm:1057-1197; the first word of the usage line and the options each of them takes
COMMANDS: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "config": (
        ("vmid",),
        {"vmid": ONE, "current": OPTIONAL, "snapshot": ONE},
        " <vmid> [OPTIONS]",
    ),
    "exec": (
        ("vmid", "extra-args"),
        {"vmid": ONE, "keep-env": OPTIONAL, "extra-args": MANY},
        " <vmid> [<extra-args>] [OPTIONS]",
    ),
    "list": ((), {}, ""),
    "pull": (
        ("vmid", "path", "destination"),
        {"vmid": ONE, "path": ONE, "destination": ONE, "user": ONE, "group": ONE, "perms": ONE},
        " <vmid> <path> <destination> [OPTIONS]",
    ),
    "push": (
        ("vmid", "file", "destination"),
        {"vmid": ONE, "file": ONE, "destination": ONE, "user": ONE, "group": ONE, "perms": ONE},
        " <vmid> <file> <destination> [OPTIONS]",
    ),
    "status": (("vmid",), {"vmid": ONE, "verbose": OPTIONAL}, " <vmid> [OPTIONS]"),
}
NOT_PLAYED = {
    *("clone", "console", "cpusets", "create", "delsnapshot", "destroy", "df", "enter"),
    *("fsck", "fstrim", "help", "listsnapshot", "migrate", "mount", "move-volume"),
    *("pending", "reboot", "remote-migrate", "rescan", "resize", "restore"),
    *("resume", "rollback", "set", "shutdown", "snapshot", "start", "stop", "suspend"),
    *("template", "unlock", "unmount"),
}
BOOLEANS = {"keep-env", "verbose", "current"}

Options = dict[str, str | list[str]]


class BadRequest(Exception):
    """A parameter exception: 400, the text, then the command's usage line."""


def decode(text: str, utf8: bool) -> str:
    """decode('locale', …), JSONSchema.pm:2510: what the locale cannot read becomes U+FFFD."""
    raw = os.fsencode(text)
    if utf8:
        return raw.decode("utf-8", "replace")
    return "".join(chr(byte) if byte < 128 else "\ufffd" for byte in raw)


def find_option(name: str, specs: dict[str, str]) -> str | None:
    """Exact name or unique abbreviation, case ignored; says so on stderr where there is none."""
    name = name.lower()
    if name in specs:
        return name
    matches = sorted(spec for spec in specs if spec.startswith(name)) if name else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        print(f"Option {name} is ambiguous ({', '.join(matches)})", file=sys.stderr)
    else:
        print(f"Unknown option: {name}", file=sys.stderr)
    return None


def parse_options(args: list[str], specs: dict[str, str]) -> tuple[Options, list[str]]:
    """Getopt::Long with prefix_pattern=(--|-): permuting up to the first `--`, which goes."""
    found: Options = {}
    rest: list[str] = []
    wrong = False
    queue = list(args)
    while queue:
        word = queue.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            rest.append(word)
            continue
        name, has_value, value = word[2 if word.startswith("--") else 1 :].partition("=")
        option = find_option(name, specs)
        given = value if has_value else None
        if option is None or not take_value(found, option, specs[option], given, queue):
            wrong = True
    if wrong:
        raise BadRequest("unable to parse option\n")
    return found, rest + queue


def take_value(found: Options, name: str, kind: str, value: str | None, queue: list[str]) -> bool:
    if not value and (value == "" or not queue):
        if kind != OPTIONAL:
            print(f"Option {name} requires an argument", file=sys.stderr)
            return False
        value = ""
    elif value is None:
        # an optional value swallows the next word unless that is an option: `--keep-env 200`
        is_option = kind == OPTIONAL and queue[0].startswith("-") and queue[0] != "-"
        value = "" if is_option else queue.pop(0)
    found[name] = [*found.get(name, []), value] if kind == MANY else value
    return True


def get_options(command: str, args: list[str], utf8: bool) -> Options:
    """JSONSchema.pm:2414-2550: options, then positional words, then decoding, then booleans."""
    positional, specs, _ = COMMANDS[command]
    found, rest = parse_options(args, specs)
    if rest and found.get("extra-args"):
        raise BadRequest("internal error: extra-args must be the last argument\n")
    for name in positional:
        if name == "extra-args":
            found[name], rest = rest, []
        elif not rest:
            raise BadRequest("not enough arguments\n")
        else:
            found[name] = rest.pop(0)
    if rest:
        raise BadRequest("too many arguments\n")
    for name, value in found.items():
        one = isinstance(value, str)
        found[name] = decode(str(value), utf8) if one else [decode(word, utf8) for word in value]
    for name in BOOLEANS & found.keys():
        found[name] = parse_boolean(str(found[name]))
    if "vmid" in positional:
        check_vmid(str(found["vmid"]))
    return found


def parse_boolean(value: str) -> str:
    if value.lower() in ("", "1", "on", "yes", "true"):
        return "1"
    if value.lower() in ("0", "off", "no", "false"):
        return "0"
    raise BadRequest("unable to parse boolean option\n")


def check_vmid(value: str) -> None:
    digits = value[1:] if value[:1] in ("+", "-") else value
    if not (digits.isascii() and digits.isdigit()):
        error = f"type check ('integer') failed - got '{value}'"
    elif not re.fullmatch("[1-9][0-9]{2,8}", value):
        error = "invalid format - value does not look like a valid VM ID\n"
    else:
        return
    raise BadRequest(f"Parameter verification failed.\nvmid: {error}\n")


def resolve(word: str) -> str:
    """A full command or its only possible abbreviation, CLIHandler.pm:117-130."""
    known = [*COMMANDS, *NOT_PLAYED]
    expanded = [name for name in known if name.startswith(word)]
    return word if word in known or len(expanded) != 1 else expanded[0]


def usage_of(word: str) -> str:
    """The line below a 400."""
    command = resolve(word)
    return f"pct {command}{COMMANDS[command][2]}\n"


def usage() -> str:
    lines = ["       " + usage_of(name) for name in sorted(COMMANDS)]
    return "USAGE: pct <COMMAND> [ARGS] [OPTIONS]\n\n" + "".join(lines)
