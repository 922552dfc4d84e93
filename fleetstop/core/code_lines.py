"""What is shown of a line of somebody's code: not the values of secrets. Knows no difference.

In code `token` and `key` name most things, so only what is quoted may be a secret there; in
configuration it is what stands behind the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
# ENV NAME VALUE of a Dockerfile, setenv NAME VALUE of csh and tmux, set -gx NAME VALUE of fish
_SPACED = re.compile(
    r"""(?P<before>(?<![\w\-])(?:ENV|export|setenv|set-environment|setx|set(?=\s+-))\s+"""
    r"""(?:-[\w\-]{1,20}\s+){0,4}["']?(?P<name>[A-Za-z_][\w.\-]{0,80})["']?\s+)"""
    r"""(?P<value>[^\s#&|;<>=].*)"""
)
_NAMES_ALONE = re.compile(r"(?:[A-Z_][A-Z0-9_]*\s*)+")  # export HF_TOKEN WANDB_DIR
# {"name": "X", "value": "y"}, name: X, value: y, <add key="X" value="y"/>
_CALLED = r"""(?<![\w.\-])["']?(?i:name|key|var|variable)["']?\s{0,4}[:=]\s{0,4}["']?"""
_HAS = r"""(?<![\w.\-])["']?(?i:value)["']?\s{0,4}[:=]\s{0,4}"""
_OWN_NAME = r"(?P<name>[A-Za-z_][\w.\-]{0,80})"
_OWN_VALUE = rf"""(?P<value>{_QUOTED}|[^\s"',}}>)]+)"""
_APART = r"""["']?[^{}()<>]{0,200}?"""
_PAIRED = (
    re.compile(rf"(?P<before>{_CALLED}{_OWN_NAME}{_APART}{_HAS}){_OWN_VALUE}"),
    re.compile(rf"(?P<before>{_HAS}){_OWN_VALUE}(?P<after>{_APART}{_CALLED}{_OWN_NAME}\b)"),
)
# the same on lines of their own; they belong together that begin in one column
_KEY_LINE = re.compile(
    r"""(?P<lead>\s*(?P<item>-\s+)?)["']?(?P<key>[A-Za-z_][\w.\-]{0,80})["']?\s{0,8}[:=]\s{0,8}"""
    r"""(?P<quote>["']?)(?P<value>[^\n]*?)(?P=quote)(?P<end>,?\s*)"""
)
_NAMING, _VALUED = re.compile(r"(?i)name|key|var|variable"), re.compile(r"(?i)value")
_BLOCK = re.compile(r"[|>][+\-0-9]{0,2}(?:\s+#.*)?")
_BESIDE = 3
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
    for pattern in _PAIRED:
        line = pattern.sub(_quoted if style == "code" else _either, line)
    if style == "code":
        return looks(line)
    bare = _WORD if style == "shell" else _LINE
    return scrub(bare.sub(_bare, _SPACED.sub(_spaced, line)))


def masked_beside(lines: Sequence[str], style: Style) -> dict[int, str]:
    """Of a whole file: the lines that hold the value of a secret that another one names, by their
    index, as they are to be shown. `name: X` above `value: y`; what stands below `token: |`."""
    found = {at: key for at, line in enumerate(lines) if (key := _KEY_LINE.fullmatch(line))}
    shown: dict[int, str] = {}
    for at, one in found.items():
        names = [one["key"]]
        if _VALUED.fullmatch(one["key"]):
            names = [each["value"] for each in _siblings(lines, found, at)]
        if style == "text" and _BLOCK.fullmatch(one["value"]):
            shown |= _below(lines, at, names)
        elif _VALUED.fullmatch(one["key"]) and any(_secret(each, one["value"]) for each in names):
            if style == "code" and not one["quote"]:
                continue
            start, end = one.span("value")
            shown[at] = f"{lines[at][:start]}{MASK}{lines[at][end:]}"
    return shown


def _siblings(
    lines: Sequence[str], found: dict[int, re.Match[str]], at: int
) -> Iterator[re.Match[str]]:
    """What names this value, in the same mapping of a few lines."""
    column = len(found[at]["lead"])
    for way in (range(at, at - _BESIDE - 1, -1), range(at + 1, at + _BESIDE + 1)):
        for each in way:
            one = found.get(each)
            lead = len(one["lead"]) if one is not None else column
            if one is None or lead < column or (each > at and one["item"]):
                break
            if lead == column and _NAMING.fullmatch(one["key"]):
                yield one
            if each <= at and lead == column and one["item"]:
                break


def _below(lines: Sequence[str], at: int, names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The lines of a block that is the value of what is so called."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    for each in range(at + 1, len(lines)):
        text = lines[each].strip()
        lead = len(lines[each]) - len(lines[each].lstrip())
        if text and lead <= indent:
            return
        if text and any(_secret(name, text) for name in names):
            yield each, lines[each][:lead] + MASK


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


def _spaced(found: re.Match[str]) -> str:
    exported = found["before"].lstrip().startswith("export")
    if exported and _NAMES_ALONE.fullmatch(found["value"]):
        return found[0]
    return _bare(found)


def _either(found: re.Match[str]) -> str:
    value, after = found["value"], found.groupdict().get("after") or ""
    quote = value[-1] if value[-1] in "\"'" else ""
    if not _secret(found["name"], value.strip("\"'")):
        return found[0]
    return f"{found['before']}{quote}{MASK}{quote}{after}"


def _quoted(found: re.Match[str]) -> str:
    return _either(found) if found["value"][-1] in "\"'" else found[0]


def _secret(name: str, value: str) -> bool:
    if not value or _ELSEWHERE.fullmatch(value):
        return False
    last = name.rpartition(".")[2]
    if _A_KEY.fullmatch(last):  # of a dictionary, most often
        return looks_drawn(value)
    return hides(last, value)
