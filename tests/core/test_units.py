"""What supervisors say of themselves: recorded texts."""

from __future__ import annotations

import pytest

from fleetstop.core.above.units import (
    docker_of,
    docker_policy,
    included,
    span,
    supervisord_policy,
    systemd_policy,
    units_of,
)

# `systemctl show -p … train.service` of systemd 252
ALWAYS = """\
Restart=always
RestartUSec=5s
TimeoutStopUSec=1min 30s
MainPID=412
KillMode=control-group
KillSignal=15
ActiveState=active
SubState=running
"""


def test_a_unit_that_always_restarts() -> None:
    found = systemd_policy("train.service", ALWAYS)
    assert found is not None
    assert (found.again, found.delay_s, found.main_pid, found.settled) == (
        "always",
        5.0,
        412,
        False,
    )
    assert found.name == "train.service (Restart=always, after 5 s)"
    assert "`systemctl stop` would send TERM to all of it, and KILL after 90 s" in found.will


@pytest.mark.parametrize(
    ("change", "again", "said"),
    [
        (("Restart=always", "Restart=no"), "never", "leaves it ended"),
        (("Restart=always", "Restart=on-failure"), "failure", "INT and TERM count as clean"),
        (("Restart=always", "Restart=on-success"), "success", "exits 0"),
        (("KillSignal=15", "KillSignal=2"), "always", "would send INT to all of it"),
        (("KillMode=control-group", "KillMode=process"), "always", "TERM to its main process"),
        (
            ("KillMode=control-group", "KillMode=mixed"),
            "always",
            "TERM to its main process, and KILL to what is left after 90 s",
        ),
        (("KillMode=control-group", "KillMode=none"), "always", "would send TERM to nobody"),
        (("TimeoutStopUSec=1min 30s", "TimeoutStopUSec=infinity"), "always", "to all of it"),
    ],
)
def test_what_systemd_will_do(change: tuple[str, str], again: str, said: str) -> None:
    found = systemd_policy("train.service", ALWAYS.replace(*change))
    assert found is not None
    assert found.again == again
    assert said in found.will


def test_a_unit_that_has_ended_is_settled_and_one_that_waits_is_not() -> None:
    for state, settled in (("inactive", True), ("failed", True), ("activating", False)):
        text = ALWAYS.replace("ActiveState=active", f"ActiveState={state}")
        found = systemd_policy("train.service", text)
        assert found is not None
        assert found.settled is settled


@pytest.mark.parametrize("text", ["", "Restart=\n", "Failed to connect to bus", "Restart=maybe"])
def test_what_says_nothing_is_no_policy(text: str) -> None:
    assert systemd_policy("train.service", text) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1min 30s", 90.0), ("100ms", 0.1), ("5s", 5.0), ("infinity", None), ("", None), ("x", None)],
)
def test_spans(text: str, seconds: float | None) -> None:
    assert span(text) == seconds


@pytest.mark.parametrize(
    ("groups", "units"),
    [
        (("/lxc/200/ns/system.slice/train.service",), ("train.service",)),
        (("/system.slice/train.service", "/system.slice/train.service"), ("train.service",)),
        (("/lxc/200/ns/.lxc",), ()),
        (("/user.slice/user-0.slice/user@0.service/app.slice/x.service",), ()),
        (("/user.slice/user-0.slice/session-3.scope",), ()),
    ],
)
def test_units_by_control_group(groups: tuple[str, ...], units: tuple[str, ...]) -> None:
    assert units_of(groups) == units


CONF = """\
[supervisord]
logfile=/tmp/x.log ; a comment
[program:train]
command=/usr/bin/python3 -u /root/train.py --x   ; the job
autorestart=true
[program:other]
command=/usr/bin/python3 /root/other.py
autorestart=false
[include]
files = conf.d/*.conf extra/a.conf
"""


def test_supervisord_programs() -> None:
    found = supervisord_policy(CONF, ["train.py"])
    assert found is not None
    assert (found.name, found.again) == ("train (autorestart=true)", "always")
    other = supervisord_policy(CONF, ["other.py"])
    assert other is not None
    assert other.again == "never"
    unsaid = supervisord_policy(CONF.replace("autorestart=true\n", ""), ["train.py"])
    assert unsaid is not None
    assert unsaid.again == "failure"
    assert supervisord_policy(CONF, ["third.py"]) is None
    assert supervisord_policy("no ini at all", ["train.py"]) is None
    assert included(CONF) == ("conf.d/*.conf", "extra/a.conf")


def test_docker_containers() -> None:
    number = "ab" * 32
    assert docker_of((f"/lxc/200/ns/system.slice/docker-{number}.scope",)) == number
    assert docker_of((f"/lxc/200/ns/docker/{number}",)) == number
    text = '{"RestartPolicy":{"Name":"unless-stopped","MaximumRetryCount":0}}'
    found = docker_policy(number, text)
    assert found is not None
    assert (found.again, "again" in found.will) == ("always", True)
    assert docker_policy(number, "{") is None
    assert docker_policy(number, '{"RestartPolicy": null}') is None
    assert docker_policy(number, "[]") is None
