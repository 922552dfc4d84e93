"""From the options of launch, restart, redeploy and rollback to an exit code."""

from __future__ import annotations

from typing import Any

from fleetstop.api import Fleet
from fleetstop.api.bringing import How, More
from fleetstop.cli.running import operate, selected
from fleetstop.core.report import Report
from fleetstop.errors import BadUsage


def run_bring(command: str, **given: Any) -> int:
    async def work(fleet: Fleet) -> Report:
        if given.get("playbook") is not None and given.get("ladder") is not None:
            raise BadUsage("--playbook and --ladder exclude each other; a ladder is a playbook")
        how = How(**{name: given[name] for name in How.__struct_fields__ if name in given})
        more = More(
            args=given["args"],
            env=given["env"],
            roll_back=not given.get("no_rollback", False),
            timeout=given["timeout"],
            batch=given["batch"],
            max_failures=given["max_failures"],
            **selected(given),
        )
        target = given["target"]
        match command:
            case "launch":
                return await fleet.launch(target, how=how, **more)
            case "restart":
                return await fleet.restart(target, how=how, **more)
            case "rollback":
                return await fleet.rollback(
                    target, to=given["release"], diff=given["diff"], how=how, **more
                )
            case _:
                return await fleet.redeploy(
                    target,
                    files=given["files"],
                    to=given["to"],
                    diff=given["diff"],
                    how=how,
                    **more,
                )

    return operate(given, work, table=None)
