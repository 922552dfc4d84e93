"""Asks a script beside it what may take for ever, and is answered in time or not at all.
Tells what a log said last, too.

Loaded by activate.py, beside which it lies. Who is asked ends himself; nobody is signalled.
"""

import json
import os
import re
import stat
import subprocess
import sys
from typing import Any, Dict, List, Optional, Tuple

Json = Dict[str, Any]
SAVES_S = 60.0
TELLS_S = 10.0
MATCHES_S = 20.0
TAIL, LINE = 4096, 120
# also whatever is long and of letters and digits alone
SECRET = re.compile(
    r"(?i)token(?!iz|s\b|s/)|secret|passw|api.?key|[_-]key\b|bearer|credential|://[^/\s]*@"
    r"|[A-Za-z0-9+=]{24,}"
)
HERE = os.path.dirname(os.path.abspath(os.fsencode(__file__)))


def asked(script: bytes, question: Json, limit_s: float) -> Optional[Json]:
    """None: it took too long, or could not be asked."""
    words = [os.fsencode(sys.executable), b"-I", os.path.join(HERE, script), b"%g" % limit_s]
    try:
        child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
        )
        said, _ = child.communicate(json.dumps(question).encode("ascii"), limit_s + 2.0)
        told = json.loads(said.decode("ascii"))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return dict(told) if isinstance(told, dict) else None


def matches(log: str, begin: int, pattern: str) -> Optional[bool]:
    """Whether a line that was logged since then does; None: the pattern took too long."""
    question = {"log": log, "from": begin, "pattern": pattern}
    told = asked(b"matches.py", question, MATCHES_S)
    return None if told is None else bool(told.get("matched"))


def last_line(log: bytes, begin: int) -> str:
    """What was logged last since then, as words to add; none where it looks like a secret, since it
    is kept where others may read it."""
    try:
        if not stat.S_ISREG(os.stat(log).st_mode):
            return ""
        with open(log, "rb") as file:
            file.seek(max(begin, os.fstat(file.fileno()).st_size - TAIL))
            lines = file.read(TAIL).split(b"\n")
    except OSError:
        return ""
    words = [each.strip() for each in lines if each.strip()]
    last = words[-1].decode("utf-8", "replace") if words else ""
    if not last or SECRET.search(last):
        return ""
    told = "".join(each if each.isprintable() else "?" for each in last)
    return ' (last line: "%s")' % (told if len(told) <= LINE else told[:LINE] + "...")


def goes_on_from(resume: Json) -> Tuple[Optional[str], List[str]]:
    """The newest complete checkpoint, and what there is to tell of it."""
    known, named = resume["known"], resume.get("named")
    # nobody's GPUs are to idle for what is only told
    limit_s = TELLS_S if named and not resume["launch_old"] else SAVES_S
    told = asked(b"saves.py", resume, limit_s) or {"unseen": "no answer came in time"}
    if named:
        found = told.get("found") or None
        newer = found and not any((path + "/").startswith(found + "/") for path in named)
        why = f"what it is started with names {named[0]}, though {found} is newer"
        return found or known, [f"the client left: {why}"] if newer else []
    if told.get("unseen"):
        why, found = f"could not be looked for ({told['unseen']})", None
    else:
        why, found = "is not seen to be complete", told["found"]
    if found is None:
        left = f"{known}, the newest before the stop" if known else "no checkpoint"
        return known, [f"the client left, and what the stop saved {why}: it goes on from {left}"]
    return found, [f"the client left: it goes on from {found}, the newest complete one"]


def argv_from(resume: Json, name: str, checkpoint: str) -> Optional[List[str]]:
    """The words of that launch, with the checkpoint in its place."""
    if not resume.get(name):
        return None
    before, after = resume[name]
    old = resume.get("words_old") if name == "launch_old" else None
    placeholder, words = resume["placeholder"], old or resume["words"]
    words = [word.replace(placeholder, checkpoint) for word in words]
    return list(before) + words + list(after)
