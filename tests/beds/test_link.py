"""Connections that go wrong at every point of a stop, clients that go away, operators at once."""

from __future__ import annotations

import json
import random
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from fleetstop.core.ledger import holder, parse_ledger
from fleetstop.lab import Lab, Started

from .bed import Bed, Ran, Running, lives, until
from .proxy import Proxy, Wrong

pytestmark = [pytest.mark.bed, pytest.mark.timeout(400)]
POINTS = ("before_the_claim", "after_the_claim", "kill_and_answer", "saving", "verifying")


@pytest.fixture(scope="module")
def lab(bed: None) -> Iterator[Lab]:
    """Of its own: here sshd's processes are hurt."""
    root = Path(tempfile.mkdtemp(prefix="fsl-", dir="/tmp"))
    fleet = Lab.up(root, 45, gpus=1, first_vmid=random.randrange(20_000, 900_000_000, 100))
    # fifteen jobs end on one GPU: what one has not given back yet would be the other's excess
    fleet.set_gpus(release_delay_s=0.0)
    try:
        yield fleet
    finally:
        fleet.down()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def _vmids(lab: Lab) -> list[int]:
    return list(lab.vmids)


@pytest.fixture
def boxes(lab: Lab, _vmids: list[int]) -> Iterator[Callable[[], Bed]]:
    """Fresh containers; nothing of ours may be left on the host when the test ends."""
    given: list[Bed] = []

    def one() -> Bed:
        given.append(Bed(lab, _vmids.pop()))
        return given[-1]

    yield one
    until(lambda: given[0].litter() == [], 10.0)
    for each in given:
        lab.stop(each.vmid)
        shutil.rmtree(f"/run/lock/fleetstop.{each.vmid}", ignore_errors=True)


def noted(box: Bed) -> str:
    """What all runs have written into the ledger of this container."""
    place = Path(f"/run/lock/fleetstop.{box.vmid}")
    try:
        return "".join(each.read_text() for each in place.iterdir())
    except OSError:
        return ""


def at(point: str, box: Bed, job: Started) -> Callable[[int], bool]:
    """Whether a stop is at this point; `count`: bytes of answers so far. A claim and a kill are
    noted in the ledger before their answer, which is the piece that is then held."""
    match point:
        case "before_the_claim":
            return lambda count: count > 6000 and "since" not in noted(box)
        case "after_the_claim":
            return lambda _: "since" in noted(box)
        case "kill_and_answer":
            return lambda _: "\nsend 1 INT" in noted(box)
        case "saving":
            later = iter(range(3))
            # not the answer of the send itself, which may still be under way
            return lambda _: "saving" in box.log(job) and next(later, None) is None
        case _:
            return lambda _: not lives(job)


@dataclass
class Case:
    """One stop by way of a proxy."""

    name: str
    point: str
    box: Bed
    job: Started
    proxy: Proxy
    client: Running


def begin(box: Bed, point: str, proxy: Proxy, where: Path, name: str) -> Case:
    job = box.start("--save-seconds", "3", "--size-mb", "1")
    proxy.when = at(point, box, job)
    client = box.popen("stop", box.name, "--graceful", inventory=proxy.inventory(where))
    return Case(name, point, box, job, proxy, client)


def once_saved(case: Case, ran: Ran | None = None) -> None:
    """The wrong choice, a second signal, would have cut the save."""
    said = (case.name, ran.people if ran else "")
    assert case.box.signals_seen(case.job) == 1, said
    assert len(case.box.saved()) == 1, said


@pytest.mark.parametrize("wrongs", [("cut", "reset", "killed"), ("stall", "stopped")])
def test_a_connection_that_goes_wrong_is_taken_up_again(
    wrongs: tuple[Wrong, ...], lab: Lab, boxes: Callable[[], Bed], tmp_path: Path
) -> None:
    """Closed, reset, its sshd killed; silent, its sshd stopped; at each point: one signal, the
    save, the true end."""
    cases = [
        begin(boxes(), point, Proxy(lab, wrong), tmp_path, f"{wrong} at {point}")
        for point in POINTS
        for wrong in wrongs
    ]
    try:
        for case in cases:
            ran = case.box.finish(case.client, 90, alone=False)
            assert case.proxy.fired.is_set(), (case.name, ran.people)
            assert ran.code == 0, (case.name, ran.people)
            assert ran.target["result"] == "stopped"
            assert ran.signals == [("INT", [case.job.pid])], (case.name, ran.people)
            assert "reconnected" in ran.names(), (case.name, ran.people)
            assert ran.target["checkpoint"]["written_after_signal"] is True
            assert ran.target["cost"]["ssh_connections"] == 2
            once_saved(case, ran)
            assert case.box.lock_files() == []
            assert ran.seconds < 75, (case.name, ran.seconds)
            doubts = [each for each in ran.target["findings"] if "may have been sent" in each]
            assert len(doubts) == (case.point == "kill_and_answer"), (case.name, ran.people)
    finally:
        for case in cases:
            case.proxy.close()
    # the stopped sshd wakes now, and the shell behind it is no more: nothing is sent late
    time.sleep(1.0)
    for case in cases:
        once_saved(case)


def test_without_a_way_back_the_truth_is_told(
    lab: Lab, boxes: Callable[[], Bed], tmp_path: Path
) -> None:
    box = boxes()
    proxy = Proxy(lab, "reset", last=True)
    case = begin(box, "saving", proxy, tmp_path, "no way back")
    try:
        until(proxy.fired.is_set)
        ran = box.finish(case.client, 120, alone=False)
    finally:
        proxy.close()
    assert ran.code == 4, ran.people
    assert ran.signals == [("INT", [case.job.pid])]
    assert ran.target["verdict"] == "unknown"
    assert "could not be re-made" in ran.target["reason"]
    assert "refused the connection" in ran.target["reason"]
    assert 40 < ran.seconds < 100
    once_saved(case, ran)


@pytest.mark.parametrize("point", ["opening", "looking"])
def test_a_status_whose_connection_goes_wrong_looks_on_over_a_new_one(
    lab: Lab, boxes: Callable[[], Bed], tmp_path: Path, point: str
) -> None:
    wrongs: tuple[Wrong, ...] = ("cut", "reset", "killed")
    box = boxes()
    job = box.start()
    for wrong in wrongs:
        proxy = Proxy(lab, wrong)
        least = 2_500 if point == "opening" else 9_000
        proxy.when = lambda count, least=least: count > least  # type: ignore[misc]
        try:
            ran = box.finish(
                box.popen("status", box.name, inventory=proxy.inventory(tmp_path)), 60, alone=False
            )
        finally:
            proxy.close()
        assert proxy.fired.is_set(), (wrong, ran.people)
        assert (ran.code, ran.target["result"]) == (0, "running"), (wrong, ran.people)
        assert ran.target["cost"]["ssh_connections"] == 2, wrong
        told = any("went on over a new one" in each for each in ran.target["findings"])
        assert told == ("reconnected" in ran.names())
        assert ran.seconds < 30
    assert lives(job)
    assert box.signals_seen(job) == 0


def live_lock(box: Bed) -> str | None:
    place = Path(f"/run/lock/fleetstop.{box.vmid}")
    files = sorted(place.iterdir()) if place.is_dir() else []
    lines = [f"{each}:{line}" for each in files for line in each.read_text().splitlines()]
    uptime = Path("/proc/uptime").read_text().split()[0]
    found = parse_ledger("\n".join([f"uptime:{uptime}", *lines]).encode())
    assert found is not None
    first = holder(found)
    return first.run if first else None


def test_a_client_that_goes_away_leaves_nothing_behind(
    lab: Lab, boxes: Callable[[], Bed], tmp_path: Path
) -> None:
    """Ctrl-C and kill -9 at each point: after 35 s no valid lock, shell or process is left, and
    a job that was signalled has saved."""
    cases = []
    for point in POINTS:
        for number in (signal.SIGINT, signal.SIGKILL):
            proxy = Proxy(lab, lambda: None)
            case = begin(boxes(), point, proxy, tmp_path, f"{number.name} {point}")
            proxy.wrong = partial(case.client.process.send_signal, number)
            cases.append(case)
    codes = {}
    for case in cases:
        case.client.process.communicate(timeout=60)
        codes[case.name] = case.client.process.returncode
        assert case.proxy.fired.is_set(), case.name
    assert set(codes.values()) <= {130, -signal.SIGKILL}, codes
    left = [case for case in cases if lives(case.job)]
    until(lambda: cases[0].box.litter() == [], 35.0)
    deadline = time.monotonic() + 35.0
    while time.monotonic() < deadline and any(live_lock(case.box) for case in cases):
        time.sleep(0.2)
    assert {case.name: run for case in cases if (run := live_lock(case.box))} == {}
    for case in cases:
        case.proxy.close()
        if case.point in ("before_the_claim", "after_the_claim"):
            assert case.box.signals_seen(case.job) <= 1, case.name
        else:
            until(lambda case=case: not lives(case.job))  # type: ignore[misc]
            once_saved(case)
    # an interrupted one was not followed by anything either
    assert all(lives(case.job) for case in left if case.box.signals_seen(case.job) == 0)


def test_ten_operators_at_once_are_one_signal(lab: Lab, boxes: Callable[[], Bed]) -> None:
    box = boxes()
    job = box.start("--save-seconds", "20", "--size-mb", "1")
    clients = [box.popen("stop", box.name, "--graceful") for _ in range(10)]
    done = [box.finish(each, 100, alone=False) for each in clients]
    codes = sorted(each.code for each in done)
    assert codes == [0, *[5] * 9], [each.people for each in done]
    (winner,) = [each for each in done if each.code == 0]
    assert winner.signals == [("INT", [job.pid])]
    for each in done:
        if each is not winner:
            assert f"(run {winner.report['run']})" in each.target["reason"], each.people
            assert each.signals == []
    assert box.signals_seen(job) == 1
    assert len(box.saved()) == 1
    assert box.lock_files() == []


def test_a_broken_lock_is_noticed_by_the_one_it_was_taken_from(
    lab: Lab, boxes: Callable[[], Bed]
) -> None:
    """It would have escalated to TERM, which ends this job unsaved."""
    box = boxes()
    job = box.start("--shrug", "--save-seconds", "1")
    first = box.popen("stop", box.name, "--force", "--ladder", "INT/15 TERM/5 KILL:tree/5")
    until(lambda: "received SIGINT" in box.log(job))
    second = box.run("stop", box.name, "--graceful", "--break-lock", "--ladder", "INT/3")
    ran = box.finish(first, 60, alone=False)
    assert ran.code == 1, ran.people
    assert ran.target["reason"] == (
        f"run {second.report['run']} has taken the lock over; nothing more is sent"
    )
    assert ran.signals == [("INT", [job.pid])]
    assert (second.code, second.signals) == (1, []), second.people
    assert "watched_on" in second.names()
    (broke,) = [each for each in second.target["findings"] if each.startswith("broke the lock")]
    assert f"(run {ran.report['run']}, since " in broke
    assert lives(job)
    assert box.signals_seen(job) == 1


def test_a_given_time_ends_the_watching_only(lab: Lab, boxes: Callable[[], Bed]) -> None:
    box = boxes()
    job = box.start("--save-seconds", "12", "--size-mb", "1")
    began = time.monotonic()
    ran = box.run("stop", box.name, "--graceful", "--timeout", "5s")
    assert time.monotonic() - began >= 5  # connecting is of it, and before the target's own seconds
    assert ran.code == 1, ran.people
    assert ran.target["result"] == "still_running"
    assert "--timeout of 5 s is over" in ran.target["reason"]
    assert ran.signals == [("INT", [job.pid])]
    assert 3 <= ran.target["seconds"] < 12
    assert live_lock(box) is None
    again = box.run("stop", box.name, "--graceful")
    assert (again.code, again.signals) == (0, []), again.people
    assert box.signals_seen(job) == 1
    assert len(box.saved()) == 1


def test_a_given_time_covers_connecting(lab: Lab, boxes: Callable[[], Bed], tmp_path: Path) -> None:
    box = boxes()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = lab.inventory.read_text()
        port = silent.getsockname()[1]
        path = tmp_path / "fleet.yaml"
        path.write_text(text.replace(f"port: {lab.server.port}", f"port: {port}"))
        ran = box.run("stop", box.name, "--timeout", "1.5s", inventory=path)
    assert ran.code == 4, ran.people
    assert "not connected within the --timeout of 2 s" in ran.target["reason"]
    assert ran.target["seconds"] < 6


def test_an_end_is_noticed_at_once(lab: Lab, boxes: Callable[[], Bed]) -> None:
    """150 ms and a round trip are wanted; ten times that is the bound of a busy machine."""
    box = boxes()
    job = box.start("--shrug")
    client = box.popen("stop", box.name, "--graceful", "--ladder", "INT/60")
    until(lambda: "received SIGINT" in box.log(job))
    time.sleep(2.35)
    box.lab.exec(box.vmid, ["kill", "-KILL", str(job.pid)])
    until(lambda: not lives(job))
    ended = time.time()
    ran = box.finish(client, 60, alone=False)
    (told,) = [each for each in ran.events if each["event"] == "member_exited"][:1]
    late = datetime.fromisoformat(told["at"]).timestamp() - ended
    assert told["pid"] == job.pid
    assert late < 1.5, json.dumps(told)
