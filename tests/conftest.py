"""What all tests share: where the beds are required, a skipped bed is a failure."""

from __future__ import annotations

import os

import pytest

from fleetstop.lab import missing_parts


def required() -> bool:
    return os.environ.get("FLEETSTOP_BEDS") == "required"


@pytest.fixture(scope="session")
def bed() -> None:
    """Skips, or fails where beds are required, when real sshd and LXC cannot be had."""
    missing = missing_parts()
    if missing and required():
        pytest.fail("; ".join(missing))
    if missing:
        pytest.skip("; ".join(missing))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    report = yield
    if report.skipped and required() and item.get_closest_marker("bed"):
        report.outcome = "failed"
    return report
