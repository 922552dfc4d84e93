"""Who else may have written a checkpoint: outsiders with business in its directory."""

from __future__ import annotations

import posixpath

from fleetstop.core.process import Process, ProcessId, ProcessTree


def with_business(
    tree: ProcessTree, members: frozenset[ProcessId], directories: tuple[str, ...]
) -> Process | None:
    """The first outsider that may write below these directories, None where there is none.

    It has a file open for writing there, is a Python program whose arguments name one of them,
    or its files could not be seen. Shells, pagers and tensorboards that name it only read.
    """
    roots = tuple(posixpath.normpath(each) for each in directories)
    for each in tree.processes.values():
        if each.id in members or each.zombie or each.kernel_thread:
            continue
        if each.detail is None or each.detail.files is None:
            return each
        prefixes = tuple(root + "/" for root in roots)
        for file in each.detail.files:
            if (file.writable_file or file.appended_file) and file.target.startswith(prefixes):
                return each
        if _is_program(each) and any(_names(word, roots) for word in each.argv or ()):
            return each
    return None


def _is_program(process: Process) -> bool:
    words = process.argv or ()
    python = bool(words) and posixpath.basename(words[0]).startswith("python")
    return python and not any("tensorboard" in word for word in words[:3])


def _names(word: str, roots: tuple[str, ...]) -> bool:
    path = posixpath.normpath(word.rpartition("=")[2] or ".")
    return any(path == root or path.startswith(root + "/") for root in roots)


def under(path: str, directories: tuple[str, ...]) -> bool:
    """Whether a path is one of these directories or lies below one."""
    here = posixpath.normpath(path)
    roots = [posixpath.normpath(each) for each in directories]
    return any(here == root or here.startswith(root.rstrip("/") + "/") for root in roots)
