"""One practice fleet for all tests here; each test gets a freshly booted container of it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from fleetstop.lab import Lab, missing_parts

Done = subprocess.CompletedProcess[str]
Pct = Callable[..., Done]
Until = Callable[[Callable[[], object]], None]


def _require_bed() -> None:
    missing = missing_parts()
    if missing and os.environ.get("FLEETSTOP_BEDS") == "required":
        pytest.fail("; ".join(missing))
    if missing:
        pytest.skip("; ".join(missing))


@pytest.fixture(scope="session")
def new_lab() -> Iterator[Callable[..., Lab]]:
    """Makes labs with IDs nobody else has; whatever is left of them goes in the end."""
    _require_bed()
    made: list[Path] = []

    def make(
        containers: int | list[int | str] = 1,
        *,
        gpus: int = 2,
        first_vmid: int | None = None,
        unprivileged: bool | Collection[int | str] = False,
    ) -> Lab:
        root = Path(tempfile.mkdtemp(prefix="fsl-", dir="/tmp"))
        made.append(root)
        first = first_vmid or random.randrange(20_000, 900_000_000, 100)
        return Lab.up(root, containers, gpus=gpus, first_vmid=first, unprivileged=unprivileged)

    yield make
    for root in made:
        if (root / "state.json").exists():
            Lab.load(root).down()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def lab(new_lab: Callable[..., Lab]) -> Lab:
    return new_lab(2, gpus=2)


@pytest.fixture
def vmid(lab: Lab) -> Iterator[int]:
    """A container as after its first boot; every process of the test ends with it."""
    vmid = lab.vmids[0]
    yield vmid
    lab.stop(vmid)
    for place in ("workspace", "var/gpu"):
        shutil.rmtree(lab.rootfs(vmid) / place)
        (lab.rootfs(vmid) / place).mkdir()
    lab.boot(vmid)


@pytest.fixture
def pct(lab: Lab) -> Pct:
    """`pct` as a channel of sshd would run it: own session, no terminal, a root login's PATH."""

    def run(*argv: str | bytes, env: dict[str, str] | None = None) -> Done:
        login = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
        return subprocess.run(
            [lab.pct, *argv],
            env=login if env is None else env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            start_new_session=True,
            timeout=20,
            check=False,
        )

    return run


@pytest.fixture
def until() -> Until:
    """Waits until something is true; fails after twenty seconds."""

    def wait(ask: Callable[[], object]) -> None:
        deadline = time.monotonic() + 20
        while not ask():
            assert time.monotonic() < deadline, "it never came true"
            time.sleep(0.02)

    return wait
