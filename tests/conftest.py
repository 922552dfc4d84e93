"""What all tests share: where the beds are required, a skipped bed is a failure."""

from __future__ import annotations

import compileall
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import fleetstop
from fleetstop.lab import missing_parts


def required() -> bool:
    return os.environ.get("FLEETSTOP_BEDS") == "required"


def pytest_configure(config: pytest.Config) -> None:
    """Hundreds of tests start the command line: not one of them should have to compile it first,
    not even where PYTHONDONTWRITEBYTECODE is set. Before the workers start, so that it is once.

    And whoever starts the tests with & from a script has them ignore INT and QUIT, and so would all
    that they start: trainers that should hear it, clients that get a Ctrl-C."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) == signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(fleetstop.__file__).parent, quiet=1)


def pytest_collection_finish() -> None:
    """Thousands of tests are there to stay: no look for garbage needs to go through them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def bed() -> None:
    """Skips, or fails where beds are required, when real sshd and LXC cannot be had."""
    missing = missing_parts()
    if missing and required():
        pytest.fail("; ".join(missing))
    if missing:
        pytest.skip("; ".join(missing))


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No test leaves a record in the home of whoever runs it; children inherit this."""
    place = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(place))
        yield place


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    report = yield
    if report.skipped and required() and item.get_closest_marker("bed"):
        report.outcome = "failed"
    return report
