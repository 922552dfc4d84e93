"""`fleetstop discover`: asks clusters what they have, and adds it to the inventory."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetstop.api.discovering import Discovered, discovered, known_inventory
from fleetstop.cli.running import complain
from fleetstop.core.discovery import known_as
from fleetstop.core.inventory import Api, api_problem
from fleetstop.errors import BadUsage, FleetstopError
from fleetstop.view import discovering
from fleetstop.view.choose import colored, width
from fleetstop.view.json_lines import line
from fleetstop.view.layout import Line
from fleetstop.view.stream import Outlet

Given = Mapping[str, Any]
_SOURCES = ("env", "file", "command", "keyring")


def run_discover(**given: Any) -> int:
    try:
        return _discover(given)
    except FleetstopError as exc:
        return complain(exc)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


def _discover(given: Given) -> int:
    named = given["inventory"]
    inventory = known_inventory(named)
    found = asyncio.run(
        discovered(
            inventory,
            named,
            given["hosts"],
            _typed(given),
            ssh=given["ssh"],
            change=given["write"],
        )
    )
    stream = sys.stderr if given["as_json"] else sys.stdout
    written = found.change is not None and not given["dry_run"]
    _say(
        stream,
        given,
        discovering.shown(inventory, found.answers, found.failures, found.newcomers),
    )
    if written:
        found.write()
    if found.answers:
        again = shlex.join(["fleetstop", *_for_people(sys.argv[1:]), "--write"])
        file = found.change.shown if found.change else (named or "the inventory")
        ending = discovering.ended(
            found.newcomers,
            whole=all(each.seen.complete for each in found.answers) and not found.failures,
            file=file if given["write"] else None,
            written=written,
            command=again,
        )
        _say(stream, given, ending)
    return _told(given, found, written=written)


def _say(stream: Any, given: Given, lines: list[Line]) -> None:
    out = Outlet(stream)
    color = colored(stream, no_color=given["no_color"], environ=os.environ)
    out.write(discovering.text(lines, width=width(stream), color=color))
    out.flush()


def _told(given: Given, found: Discovered, *, written: bool) -> int:
    if given["as_json"]:
        facts = {
            "event": "discovery",
            "schema": 1,
            "exit_code": found.exit_code,
            "clusters": [
                {
                    "asked": each.by,
                    "name": each.seen.name,
                    "complete": each.seen.complete,
                    "nodes": each.seen.nodes,
                    "containers": each.seen.containers,
                    "known_as": {
                        str(vmid): name for vmid, name in known_as(found.inventory, each).items()
                    },
                    "findings": each.seen.findings,
                }
                for each in found.answers
            ],
            "failed": found.failures,
            "new": {
                "hosts": found.newcomers.hosts,
                "containers": found.newcomers.containers,
                "notes": found.newcomers.notes,
            },
            "file": found.change.shown if found.change else None,
            "written": written,
        }
        Outlet(sys.stdout).write(line(facts) + "\n")
    return found.exit_code


def _typed(given: Given) -> Api | None:
    """The API that was typed, checked as an inventory's is."""
    if given["url"] is None:
        more = [key for key in ("login", "key_from", "ca", "fingerprint") if given[key]]
        if more:
            raise BadUsage(f"--{more[0].replace('_', '-')} belongs to --url, which is not given")
        return None
    if given["login"] is None or given["key_from"] is None:
        raise BadUsage(
            "--url needs --login and --key-from too",
            hint="--login USER@REALM!NAME --key-from env:PVE_TOKEN; on a node: pveum user "
            "token add USER@REALM NAME",
        )
    source, colon, where = given["key_from"].partition(":")
    if not colon or source not in _SOURCES or not where:
        # what stands there may be the secret itself
        raise BadUsage(
            f"--key-from is SOURCE:WHERE with one of {', '.join(_SOURCES)}, like env:PVE_TOKEN; "
            "a secret is never typed"
        )
    for key, kind in (("url", "url"), ("login", "token_id"), ("fingerprint", "fingerprint")):
        if given[key] is not None and (problem := api_problem(kind, given[key])):
            raise BadUsage(f"--{key.replace('_', '-')} {problem}")
    path = os.path.abspath
    return Api(
        given["url"],
        given["login"],
        {source: path(Path(where).expanduser()) if source == "file" else where},
        path(Path(given["ca"]).expanduser()) if given["ca"] else None,
        given["fingerprint"],
    )


def _for_people(words: list[str]) -> list[str]:
    return [each for each in words if each not in ("--json", "-n", "--dry-run")]
