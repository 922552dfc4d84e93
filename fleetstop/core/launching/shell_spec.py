"""A LaunchSpec as remote/scripts/launch.sh reads it, where no Python is. Starts nothing."""

from __future__ import annotations

import re

from fleetstop.core.launching.spec import LaunchSpec

_PLAIN = re.compile(rb"[A-Za-z0-9_./:=,@+-]")


def shell_spec(spec: LaunchSpec) -> str:
    """Lines `NAME VALUE`, in the order that the script asks for. The file is 0600: it holds the
    environment's secrets."""
    once = ("status", "mark", "uid", "gid", "nice")
    lines = [(name, str(getattr(spec, name))) for name in once]
    lines += [("group", str(each)) for each in spec.groups]
    lines += [("limit", f"{name}:{soft}:{hard}") for name, (soft, hard) in spec.limits.items()]
    lines += [("cwd", spec.cwd), ("umask", f"{spec.umask:o}")]
    lines += [("log", spec.log)] if spec.log is not None else []
    lines += [("env", f"{name}={value}") for name, value in spec.env.items()]
    lines += [("arg", each) for each in spec.argv]
    return "".join(f"{name} {_encoded(value)}\n" for name, value in lines)


def _encoded(text: str) -> str:
    """Every byte that a shell could make something of as printf's %b writes it, three digits."""
    raw = text.encode("utf-8", "surrogateescape")
    each = (raw[at : at + 1] for at in range(len(raw)))
    return "".join(c.decode() if _PLAIN.fullmatch(c) else f"\\0{ord(c):03o}" for c in each)
