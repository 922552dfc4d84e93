"""`fleetstop doctor`: parses nothing but its options, and prints what was found."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from fleetstop.api import Fleet
from fleetstop.cli.running import complain, selected, work_alone
from fleetstop.core.checkup.checks import Checkup
from fleetstop.errors import FleetstopError
from fleetstop.view.checkup import shown
from fleetstop.view.choose import colored, width
from fleetstop.view.json_lines import line
from fleetstop.view.stream import Outlet


def run_doctor(**given: Any) -> int:
    async def work(fleet: Fleet) -> Checkup:
        return await fleet.doctor(*given["targets"], **selected(given))

    try:
        fleet = Fleet.load(given["inventory"], parallel=given["parallel"], record=False)
        told = asyncio.run(work_alone(fleet, work))
    except FleetstopError as exc:
        return complain(exc)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    stream = sys.stderr if given["as_json"] else sys.stdout
    loud = {"quiet": given["quiet"], "verbose": given["verbose"]}
    color = colored(stream, no_color=given["no_color"], environ=os.environ)
    Outlet(stream).write(shown(told, width=width(stream), color=color, **loud))
    if given["as_json"]:
        Outlet(sys.stdout).write(line(told) + "\n")
    return told.exit_code
