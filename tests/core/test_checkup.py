"""What doctor makes of what it saw: wrong, well, or not seen; and what to type."""

from __future__ import annotations

import msgspec
import pytest

from fleetstop.core.checkup import host as of_host
from fleetstop.core.checkup import job as of_job
from fleetstop.core.checkup.checks import Check, Checked, at_place, checkup, on_host
from fleetstop.core.checkup.host import Have, Health
from fleetstop.core.checkup.job import PathSeen
from fleetstop.core.gpu import Gpu, GpuView, Unseen, parse_gpus
from fleetstop.core.inventory import Host, Job, Launch, Match, Target

HOST = Host(name="pve1", ssh="root@10.1.2.6")
JOB = Job(name="train", match=Match(script="train.py"), log="/w/a.log", checkpoints="/w/ck")
TARGET = Target("ct200:train", HOST, 200, JOB)
HEALTH = Health(pct=True, version="5.2.2", devices=8, kernel_log="journalctl")
NOON = "2026-01-01T12:00:00Z"


def of(*checks: Check) -> Checked:
    return Checked("pve1", "host", "pve1", checks=checks)


def test_a_problem_is_a_finding_and_what_could_not_be_seen_is_4() -> None:
    well, wrong = Check("pct", True, ""), Check("stops", False, "deaf")
    assert checkup([of(well), of(wrong)]).exit_code == 0
    assert checkup([of(well), of(Check("log", None, "no answer"))]).exit_code == 4
    for name in ("reachable", "host_key", "login"):
        assert checkup([of(Check(name, False, "no way"))]).exit_code == 4
    assert checkup([of(Check("fault", None, "a bug")), of(wrong)]).exit_code == 70


def test_a_fix_can_be_typed_as_it_stands() -> None:
    assert on_host(HOST, "reboot") == "ssh root@10.1.2.6 reboot"
    far = Host(name="b", ssh="ml@box", port=2222, jump="gate", identity="/k y")
    assert on_host(far, "apt-get", "install") == (
        "ssh -J gate -p 2222 -i '/k y' ml@box 'sudo apt-get install'"
    )
    assert at_place(HOST, 200, "sh", "-c", "ls | wc") == (
        """ssh root@10.1.2.6 '/usr/sbin/pct exec 200 -- sh -c '"'"'ls | wc'"'"''"""
    )


def test_only_what_the_inventory_needs_is_missed() -> None:
    bare = Have(frozenset(of_host.ALWAYS), 0.0)
    told = of_host.tools(bare, [JOB], HOST, 200)
    assert told.ok
    assert "no tmux" in told.says
    launched = msgspec.structs.replace(JOB, launch=Launch(run=("x",)))
    told = of_host.tools(bare, [launched], HOST, 200)
    assert not told.ok
    assert "python3 (redeploy and launch), tar (redeploy)" in told.says
    assert told.fix is not None
    assert told.fix.endswith("apt-get install python3 tar'")
    alpine = Have(bare.tools | {"apk"}, 0.0)
    assert str(of_host.tools(alpine, [launched], HOST, 200).fix).endswith("apk add python3 tar'")
    asked = msgspec.structs.replace(JOB, match=Match(pgrep="train"))
    told = of_host.tools(bare, [asked], HOST, 200)
    assert (told.ok, "procps" in str(told.fix)) == (False, True)


@pytest.mark.parametrize(
    ("now", "ok"),
    [(b"now 1767268800.5", True), (b"now 1767268804.%N", True), (b"now 1767268700.0", False)],
)
def test_the_clock(now: bytes, ok: bool) -> None:
    have = of_host.parse_have(now)
    told = of_host.clock(have.now, NOON, NOON, HOST, None)
    assert told.ok is ok, told
    assert ok or "100 s behind this machine's" in told.says


def test_a_clock_that_was_not_told_is_not_well() -> None:
    assert of_host.clock(of_host.parse_have(b"now ").now, NOON, NOON, HOST, None).ok is None


def test_a_slow_answer_is_no_wrong_clock() -> None:
    late = "2026-01-01T12:00:40Z"
    assert of_host.clock(1767268800.0, NOON, late, HOST, None).ok
    assert of_host.clock(1767268840.0, NOON, late, HOST, None).ok
    assert not of_host.clock(1767268900.0, NOON, late, HOST, None).ok


def test_root_that_was_not_wanted_is_no_problem() -> None:
    assert of_host.root(None, HOST, True).ok
    never = Host(name="b", ssh="ml@b", sudo="never")
    assert of_host.root("no root on b (sudo: never)", never, True).ok
    why, ml = "no root on b (a password is required)", Host(name="b", ssh="ml@b")
    assert of_host.root(why, ml, False).ok
    told = of_host.root(why, ml, True)
    assert not told.ok
    assert "ml ALL=(root) NOPASSWD: /bin/sh" in str(told.fix)


def test_pct_is_missed_only_where_there_are_containers() -> None:
    none = Health(pct=False, version=None, devices=0, kernel_log=None)
    assert of_host.pct(HEALTH, HOST, True).says.endswith("pve-container 5.2.2")
    assert of_host.pct(none, HOST, False).ok
    assert not of_host.pct(none, HOST, True).ok
    assert of_host.kernel_log(none, HOST).ok is False
    assert of_host.kernel_log(msgspec.structs.replace(none, kernel_log="?"), HOST).ok is None


MISMATCH = b"Failed to initialize NVML: Driver/library version mismatch\n"
GOOD = Gpu(0, "GPU-a", 10, 100)


@pytest.mark.parametrize(
    ("view", "ok", "says", "fix"),
    [
        (GpuView((GOOD,), ()), True, "1 GPU, all answer", None),
        (parse_gpus(MISMATCH, 18), False, "does not fit the loaded kernel module", "reboot"),
        (
            Unseen("nvidia-smi did not answer within 8 s; it may hang in the driver"),
            False,
            "did not answer",
            "dmesg",
        ),
        (
            GpuView((msgspec.structs.replace(GOOD, fault="requires reset"),), ()),
            False,
            "GPU 0 requires reset",
            "--gpu-reset -i 0",
        ),
        (
            GpuView((msgspec.structs.replace(GOOD, fault="is lost"),), ()),
            False,
            "GPU 0 is lost",
            "reboot",
        ),
        (GpuView((GOOD,), (), ("WARNING: infoROM is corrupted",)), False, "infoROM", "-q"),
    ],
)
def test_nvidia_smi(view: GpuView, ok: bool, says: str, fix: str | None) -> None:
    told = of_host.nvidia_smi(view, False, HEALTH, HOST, True)
    assert told.ok is ok
    assert says in told.says
    assert fix is None or fix in str(told.fix)


def test_nvidia_smi_that_could_not_be_asked_is_not_ill() -> None:
    unseen = Unseen("nvidia-smi could not be asked (status 20)")
    assert of_host.nvidia_smi(unseen, False, HEALTH, HOST, True).ok is None


def test_no_nvidia_smi_is_a_problem_only_where_there_are_gpus() -> None:
    none, unseen = Health(True, None, 0, None), Unseen("there is no nvidia-smi on the host")
    assert of_host.nvidia_smi(unseen, True, none, HOST, False).ok
    assert not of_host.nvidia_smi(unseen, True, none, HOST, True).ok
    assert not of_host.nvidia_smi(unseen, True, HEALTH, HOST, False).ok


def stops(
    deaf: str | None, hears: tuple[str, ...], signal: str | None, *, seen: bool = True
) -> Check:
    job = msgspec.structs.replace(JOB, stop_signal=signal)
    target = msgspec.structs.replace(TARGET, job=job)
    return of_job.stops(target, deaf, hears, "fleetstop restart ct200:train", seen)


def test_what_a_stop_would_meet() -> None:
    told = stops("7 ignores INT", (), None)
    assert (told.ok, told.fix) == (False, "fleetstop restart ct200:train")
    assert "deaf: 7 ignores INT" in told.says
    assert not stops(None, (), "INT").ok
    assert stops(None, ("INT",), None).ok
    assert stops(None, ("INT", "TERM"), "TERM").ok
    told = stops(None, ("INT",), "TERM")
    assert (told.ok, str(told.fix).startswith("stop_signal: INT")) == (False, True)
    assert "which one saves is not said" in stops(None, ("INT", "TERM"), None).says
    assert stops(None, (), "INT", seen=False).ok is None


def test_the_log() -> None:
    here = PathSeen("file", True, "/w/a.log", 0)
    gone = PathSeen("none", True, "/w", 0)
    closed = PathSeen("none", False, "/", 0)
    assert of_job.log(TARGET, here, 7, "root", None).ok
    assert of_job.log(TARGET, gone, None, "root", None).ok
    told = of_job.log(TARGET, gone, 7, "root", "/w/other.log")
    assert not told.ok
    assert "it writes to /w/other.log" in told.says
    assert str(told.fix).startswith("log: /w/other.log")
    assert not of_job.log(TARGET, gone, 7, "root", None).ok
    told = of_job.log(TARGET, gone, 7, "root", "/w/a.log (deleted)")
    assert (told.ok, "deleted under it" in told.says) == (False, True)
    assert "in the inventory" not in str(told.fix)
    assert not of_job.log(TARGET, closed, None, "ml", None).ok
    assert not of_job.log(TARGET, PathSeen("dir", True, "/w/a.log", 0), True, "root", None).ok


def test_the_checkpoints() -> None:
    def told(what: str, may: bool | None, near: str, owner: int, user: str = "uid 1000") -> Check:
        return of_job.checkpoints(TARGET, PathSeen(what, may, near, owner), user)

    assert told("dir", True, "/w/ck", 0).ok
    assert told("none", True, "/w", 0).ok
    assert told("dir", None, "/w/ck", 0).ok is None
    assert told("none", None, "/w", 0).ok is None
    assert not told("file", True, "/w/ck", 0).ok
    wrong = told("dir", False, "/w/ck", 0)
    assert (wrong.ok, str(wrong.fix).endswith("chown 1000 /w/ck'")) == (False, True)
    assert "so /w/ck cannot be made" in told("none", False, "/", 0).says
    assert "nobody's" in told("dir", False, "/w/ck", 65534, "root").says
    assert "findmnt" in str(told("dir", False, "/w/ck", 0, "root").fix)


def test_an_answer_about_paths_that_is_torn_is_none() -> None:
    whole = b"0\0file\0yes\0/a\0000\0none\0?\0/\0\0"
    assert of_job.parse_paths(whole, 2) == (
        "0",
        (PathSeen("file", True, "/a", 0), PathSeen("none", None, "/", None)),
    )
    assert of_job.parse_paths(whole, 1) is None
    assert of_job.parse_paths(whole[:-3], 2) is None
    assert of_job.parse_paths(b"", 1) is None
