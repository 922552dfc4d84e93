"""Tells whether a line of a log matches; a pattern may take for ever, so it is tried by itself.

    PYTHON -I matches.py LIMIT_S        {"log", "from": offset, "pattern"} as JSON on stdin

Answers {"matched": bool} and ends, or is ended after LIMIT_S by its own alarm. Bars of tqdm are
lines too. Standard library, Python 3.6 or later.
"""

import io
import json
import os
import re
import signal
import sys
from typing import Any, Dict


def matched(asked: Dict[str, Any]) -> bool:
    file = os.open(
        asked["log"].encode("utf-8", "surrogateescape"), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
    )
    with os.fdopen(file, "rb") as log:
        begin = int(asked["from"])  # one that is shorter by now was begun anew
        log.seek(begin if begin <= os.fstat(log.fileno()).st_size else 0)
        lines = io.TextIOWrapper(log, "utf-8", "replace")
        return any(re.search(asked["pattern"], line) for line in lines)


def main() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
    asked = json.loads(sys.stdin.read())
    try:
        found = matched(asked)
    except OSError:
        found = False
    print(json.dumps({"matched": found}))


if __name__ == "__main__":
    main()
