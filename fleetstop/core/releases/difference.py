"""What sending new code would change, line by line, as words and kinds; knows no colour.

Code is shown as it is, only harmless to a terminal and without the values of secrets: whoever
deploys it reads it here. Of a file whose name tells of secrets only the sizes are told.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from fleetstop.core import redact
from fleetstop.core.code_lines import Style, masked, masked_beside, style_of
from fleetstop.core.secret_names import may_hold_secrets
from fleetstop.core.spelling import plain

LineKind = Literal["file", "hunk", "added", "removed", "same", "note"]
ChangeKind = Literal["new", "changed", "binary", "mode", "same", "stays"]

_MOST_BYTES = 1024 * 1024
_MOST_LINES = 20_000
# difflib tries every line against all that are equal to it, once for each piece that it finds: a
# table of thousands of lines with a hundred values between them takes minutes.
_MOST_TRIES = 150_000
_LONGEST_LINE = 2_000
_PRIVATE_KEY = b"PRIVATE KEY-----"
# as difflib writes them: of no lines at all, the line before where they would stand
_RANGES = re.compile(r"@@ -(?P<old>\d+)(?:,\d+)? \+(?P<new>\d+)(?:,\d+)? @@")
_LOOKED_AT = 8_000  # git calls binary what has a NUL in its first 8000 bytes (xdiff-interface.c)


class Side(Struct, frozen=True):
    """One version of a file: its bytes and permission bits. `content` None: not fetched, because
    its hash or its size said enough; `size` then tells."""

    content: bytes | None
    mode: int
    size: int = 0

    @property
    def length(self) -> int:
        return len(self.content) if self.content is not None else self.size


class Line(Struct, frozen=True):
    """One line to show, without its line end. `text` begins with + - or a blank where `kind` is
    added, removed or same."""

    kind: LineKind
    text: str


class Change(Struct, frozen=True):
    """What becomes of one file. `added` and `removed` count lines of text."""

    rel: str
    kind: ChangeKind
    lines: tuple[Line, ...] = ()
    added: int = 0
    removed: int = 0


def difference(rel: str, old: Side | None, new: Side | None) -> Change:
    """`old`: as it lies in the container, None: not there; `new`: what would be sent, None: not
    sent any more, and it stays there as it is."""
    name = plain(rel)
    if new is None:
        return Change(rel, "stays", (Line("file", f"{name}: not sent; it stays there as it is"),))
    if old is None:
        return _new(rel, name, new)
    mode = _mode(old, new)
    if old.content is not None and old.content == new.content:
        if not mode:
            return Change(rel, "same")
        return Change(rel, "mode", (Line("file", f"{name}: {mode[0].text}"),))
    if _kept_quiet(rel, old, new):
        return _unshown(rel, name, old, new, "changed", "holds secrets, not shown")
    if old.content is None or new.content is None:
        return _unshown(rel, name, old, new, "changed")
    if _binary(old.content) or _binary(new.content):
        return _unshown(rel, name, old, new, "binary")
    if max(old.length, new.length) > _MOST_BYTES:
        return _unshown(rel, name, old, new, "changed")
    before, after = _split(old.content), _split(new.content)
    if max(len(before), len(after)) > _MOST_LINES or _tries(before, after) > _MOST_TRIES:
        return _unshown(rel, name, old, new, "changed")
    shown = list(_unified(before, after, style_of(rel)))
    header = (Line("file", f"--- {name} (there)"), Line("file", f"+++ {name} (sent)"), *mode)
    return Change(
        rel,
        "changed",
        (*header, *shown),
        added=sum(each.kind == "added" for each in shown),
        removed=sum(each.kind == "removed" for each in shown),
    )


def summary(changes: Iterable[Change]) -> str:
    """One line: `2 changed (+14 -3), 1 new (+7), 1 binary; 5 as they are`."""
    of_kind: dict[ChangeKind, list[Change]] = {kind: [] for kind in _SAID}
    for each in changes:
        of_kind[each.kind].append(each)
    told = {
        kind: f"{len(every)} {_SAID[kind]}{_lines(every)}"
        for kind, every in of_kind.items()
        if every
    }
    rest = [told.pop(kind) for kind in ("same", "stays") if kind in told]
    return "; ".join([", ".join(told.values()) or "nothing differs", *rest])


def _lines(changes: list[Change]) -> str:
    signs = [
        ("+", sum(each.added for each in changes)),
        ("-", sum(each.removed for each in changes)),
    ]
    said = " ".join(f"{sign}{count}" for sign, count in signs if count)
    return f" ({said})" if said else ""


def spoken_size(size: int) -> str:
    """`812 bytes`, `1.2 MiB`."""
    if size < 1024:
        return f"{size} byte{'' if size == 1 else 's'}"
    amount, unit = size / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if amount < 1000:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}"


_SAID: dict[ChangeKind, str] = {
    "changed": "changed",
    "new": "new",
    "binary": "binary",
    "mode": "with another mode only",
    "same": "as they are",
    "stays": "not sent, left there",
}


def _new(rel: str, name: str, new: Side) -> Change:
    head = f"{name}: new, {spoken_size(new.length)}, mode {new.mode:04o}"
    content = new.content
    if _kept_quiet(rel, new):
        return Change(rel, "new", (Line("file", f"{head}, holds secrets, not shown"),))
    if content is None or _binary(content) or len(content) > _MOST_BYTES:
        kind = ", binary" if content is not None and _binary(content) else ""
        return Change(rel, "new", (Line("file", head + kind),))
    lines = _split(content)
    if len(lines) > _MOST_LINES:
        return Change(rel, "new", (Line("file", head),), added=len(lines))
    shown = tuple(_unified([], lines, style_of(rel)))
    added = sum(each.kind == "added" for each in shown)
    return Change(rel, "new", (Line("file", head), *shown), added=added)


def _kept_quiet(rel: str, *sides: Side) -> bool:
    """By its name; or a key lies within, of which no single line tells that it is one."""
    return may_hold_secrets(rel) or any(_PRIVATE_KEY in (each.content or b"") for each in sides)


def _unshown(
    rel: str, name: str, old: Side, new: Side, kind: ChangeKind, why: str | None = None
) -> Change:
    what = why or ("binary" if kind == "binary" else "not shown line by line")
    sizes = f"{name}: {what}, {spoken_size(old.length)} -> {spoken_size(new.length)}"
    return Change(rel, kind, (Line("file", sizes), *_mode(old, new)))


def _mode(old: Side, new: Side) -> tuple[Line, ...]:
    if old.mode == new.mode:
        return ()
    return (Line("note", f"mode {old.mode:04o} -> {new.mode:04o}"),)


def _binary(content: bytes) -> bool:
    return b"\0" in content[:_LOOKED_AT]


def _split(content: bytes) -> list[str]:
    r"""Lines with their \n; nothing else ends one."""
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _tries(before: list[str], after: list[str]) -> int:
    """Pairs of equal lines, without those that difflib itself passes over as too common."""
    those, these = Counter(before), Counter(after)
    common = len(after) // 100 + 1 if len(after) >= 200 else len(after)
    return sum(count * those[line] for line, count in these.items() if count <= common)


def _unified(before: list[str], after: list[str], style: Style) -> Iterator[Line]:
    kinds: dict[str, LineKind] = {"+": "added", "-": "removed", " ": "same"}
    sides = ([each.rstrip("\n") for each in side] for side in (before, after))
    beside = [masked_beside(side, style) for side in sides]
    at = [0, 0]  # the next line of either
    for count, line in enumerate(difflib.unified_diff(before, after, lineterm="")):
        if count < 2:
            continue  # its own two names
        if found := _RANGES.match(line):
            at = [int(found["old"]) - 1, int(found["new"]) - 1]
            yield Line("hunk", line)
            continue
        sign, text = line[0], line[1:].removesuffix("\n")
        for side, (signs, shown) in enumerate(zip(("- ", "+ "), beside, strict=True)):
            if sign in signs:
                text = shown.get(at[side], text)
                at[side] += 1
        yield Line(kinds[sign], sign + _harmless(text, style))
        if not line.endswith("\n"):
            yield Line("note", "\\ no line end here")


def _harmless(text: str, style: Style) -> str:
    """A tab is no danger, and code is full of them."""
    cut = text if len(text) <= _LONGEST_LINE else text[: _LONGEST_LINE - 1] + "…"
    return "\t".join(redact.safe(each) for each in masked(cut, style).split("\t"))
