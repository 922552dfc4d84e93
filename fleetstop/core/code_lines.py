"""What is shown of one line of somebody's code: not the values of secrets. Knows no difference.

In code `token` and `key` name most things, so only what is quoted may be a secret there; in
configuration it is what stands behind the name.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from fleetstop.core.redact import MASK, hides, looks, scrub
from fleetstop.core.secret_names import looks_drawn

Style: TypeAlias = Literal["code", "shell", "text"]

_CODE = frozenset(
    "py pyi pyx ipynb c h cc cpp cxx hpp cu cuh js jsx mjs ts tsx go rs java kt rb lua jl r pl php"
    " cs swift scala".split()
)
_SHELL = frozenset("sh bash zsh fish ksh".split())
_QUOTED = (
    r"""[rbfuRBFU]{0,2}(?:"{3}.*|'{3}.*|"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?"""
    r"""|\\"(?:[^"\\]|\\[^"])*\\?"?)"""
)
# `: str =`, ` = `, `" : `, `"] = `, `", ` of a call; `, ` alone parts two arguments
_GAP = (
    r"""(?:\\?["']\)?\]?\s{0,8}(?:=|:|,)"""
    r"""|\]?\s{0,8}(?::\s?[\w\[\]. |]{1,40}?\s?=|:=|[=!]=|=>|[:=]))\s{0,8}"""
)
_NAME = r"(?<![\w.\-])[A-Za-z_][\w.\-]{0,80}"
_LITERAL = re.compile(rf"(?P<before>(?P<name>{_NAME}){_GAP})(?P<value>{_QUOTED})")
_LINE = re.compile(
    r"""(?P<before>\s*(?:-\s+)?(?:(?:export|set|ENV|ARG|-e|--env)\s+)?["']?"""
    r"""(?P<name>[A-Za-z_][\w.\-]{0,80})["']?\s{0,8}[:=]\s{0,8})(?P<value>\S.*)"""
)
_WORD = re.compile(rf"(?P<before>(?P<name>{_NAME})=)(?P<value>[^\s\"';&|]+)")
_BEARER = re.compile(r"(\b(?:[Bb]earer|[Bb]asic)\s{1,3})(?![{%$<])[\w.~+/=\-]{8,}")
# ${HF_TOKEN}, $(cat x), {token}, %(pass)s, <your token>, os.environ[...]: it lies elsewhere
_ELSEWHERE = re.compile(r"""\$.*|\{.*\}|%\(.*|<.*>|\*\*\*["', ]*""", re.DOTALL)
_A_KEY = re.compile(r"keys?", re.IGNORECASE)


def style_of(path: str) -> Style:
    """By the end of its name."""
    name = path.rpartition("/")[2]
    end = name.rpartition(".")[2].lower() if "." in name else ""
    return "code" if end in _CODE else "shell" if end in _SHELL else "text"


def masked(line: str, style: Style) -> str:
    """The line with `***` for every secret in it that we know how to recognise."""
    line = _BEARER.sub(rf"\1{MASK}", _LITERAL.sub(_literal, line))
    if style == "code":
        return looks(line)
    bare = _WORD if style == "shell" else _LINE
    return scrub(bare.sub(_bare, line))


def _literal(found: re.Match[str]) -> str:
    value = found["value"]
    start = re.match(r"""[rbfuRBFU]{0,2}(?:\"{3}|'{3}|\\?["'])""", value)
    assert start is not None
    quote = start[0].lstrip("rbfuRBFU")
    ended = value.endswith(quote) and len(value) >= len(start[0]) + len(quote)
    inner = value[len(start[0]) : -len(quote) if ended else None]
    if not _secret(found["name"], inner):
        return found[0]
    return f"{found['before']}{start[0]}{MASK}{quote if ended else ''}"


def _bare(found: re.Match[str]) -> str:
    if not _secret(found["name"], found["value"].strip("\"'")):
        return found[0]
    return f"{found['before']}{MASK}"


def _secret(name: str, value: str) -> bool:
    if not value or _ELSEWHERE.fullmatch(value):
        return False
    last = name.rpartition(".")[2]
    if _A_KEY.fullmatch(last):  # of a dictionary, most often
        return looks_drawn(value)
    return hides(last, value)
