"""Stories told side by side, each in a container of its own: they mostly wait."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fleetstop.lab import Lab

from .interrupting import Case

AT_ONCE = 12
Told = Callable[[Case], None]


def wanted(request: pytest.FixtureRequest) -> list[str]:
    """The stories of this module that were selected."""
    own = [each for each in request.session.items if each.nodeid.startswith(request.node.nodeid)]
    return [str(each.callspec.params["name"]) for each in own if isinstance(each, pytest.Function)]


@contextmanager
def side_by_side(stories: dict[str, Told]) -> Iterator[dict[str, Future[None]]]:
    """So many at once; each ends its own client."""
    root = Path(tempfile.mkdtemp(prefix="fsl-", dir="/tmp"))
    first = random.randrange(20_000, 900_000_000, 100)
    lab = Lab.up(root, len(stories), gpus=2, first_vmid=first)
    lab.set_gpus(release_delay_s=0.3)

    def tell(story: Told, vmid: int) -> None:
        where = root / f"of-{vmid}"
        where.mkdir()
        case = Case(lab, vmid, where)
        case.name = getattr(story, "__name__", "")
        try:
            story(case)
        finally:
            if case.client is not None and case.client.process.poll() is None:
                case.client.process.kill()
            with suppress(OSError):
                lab.stop(vmid)
            shutil.rmtree(f"/run/lock/fleetstop.{vmid}", ignore_errors=True)

    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            pairs = zip(stories.items(), lab.vmids, strict=True)
            futures = {name: pool.submit(tell, story, vmid) for (name, story), vmid in pairs}
            yield futures
            for each in futures.values():
                each.cancel()
    finally:
        lab.down()
        shutil.rmtree(root, ignore_errors=True)
