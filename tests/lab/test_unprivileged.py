"""Unprivileged containers as Proxmox makes them: root in there is 100000 out here."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetstop.errors import LabUnavailable
from fleetstop.lab import Lab, ProcessId, cgroups, requirements
from fleetstop.lab.processes import is_alive

pytestmark = pytest.mark.bed

Pct = Callable[..., subprocess.CompletedProcess[str]]
Until = Callable[[Callable[[], object]], None]

SHIFT, IDS = 100_000, 65_536


@pytest.fixture(scope="module")
def lab(new_lab: Callable[..., Lab]) -> Iterator[Lab]:
    """The first container is unprivileged, the second is not."""
    requirement = requirements.missing_maps()
    if requirement:
        pytest.skip("; ".join(requirement))
    fleet = new_lab(["small", "plain"], unprivileged={"small"})
    yield fleet
    fleet.down()


@pytest.fixture
def shifted(lab: Lab) -> int:
    return lab.vmids[0]


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done
    return done


def say(lab: Lab, vmid: int, text: str) -> str:
    done = lab.exec(vmid, ["bash", "-c", text])
    assert done.returncode == 0, done
    return done.stdout


def ids(pid: int, of: str = "Uid") -> set[int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [each for each in lines if each.startswith(f"{of}:")]
    return {int(word) for word in line.split()[1:]}


def test_root_inside_is_100000_outside(lab: Lab, shifted: int) -> None:
    for table in ("uid_map", "gid_map"):
        first = say(lab, shifted, f"cat /proc/self/{table}").split()
        assert first == ["0", str(SHIFT), str(IDS)]
    assert say(lab, shifted, "id -u; id -g; grep ^Uid: /proc/1/status").split()[:4] == [
        *("0", "0"),
        *("Uid:", "0"),
    ]
    for pid in lab.host_pids(shifted):
        assert ids(pid) == ids(pid, "Gid") == {SHIFT}
    out = f"/proc/{lab.containers[shifted].init_pid()}/ns/user"
    assert os.readlink(out) != os.readlink("/proc/self/ns/user")


def test_the_one_beside_it_is_as_it_was(lab: Lab) -> None:
    plain = lab.vmids[1]
    assert say(lab, plain, "cat /proc/self/uid_map").split()[:2] == ["0", "0"]
    assert {uid for pid in lab.host_pids(plain) for uid in ids(pid)} == {0}
    assert lab.rootfs(plain).stat().st_uid == 0


def test_its_files_are_its_own_and_the_machines_are_nobodys(lab: Lab, shifted: int) -> None:
    for place in ("", "root/train.py", "var/gpu", "workspace"):
        there = (lab.rootfs(shifted) / place).stat()
        assert (there.st_uid, there.st_gid) == (SHIFT, SHIFT), place
    assert say(lab, shifted, "stat -c %u /root/train.py /usr /etc").split() == [
        *("0", "65534", "65534"),
    ]
    say(lab, shifted, "touch /workspace/mine")
    assert (lab.rootfs(shifted) / "workspace/mine").stat().st_uid == SHIFT


def test_the_node_says_unprivileged_of_it_alone(lab: Lab, pct: Pct) -> None:
    said = [pct("config", str(vmid)).stdout.splitlines() for vmid in lab.vmids]
    assert ["unprivileged: 1" in each for each in said] == [True, False]


def test_pct_enters_it_as_its_root(lab: Lab, pct: Pct, shifted: int) -> None:
    done = pct("exec", str(shifted), "--", "sh", "-c", "id -u; touch /root/made; hostname; exit 7")
    assert (done.returncode, done.stdout) == (7, "0\nsmall\n"), done
    assert (lab.rootfs(shifted) / "root/made").stat().st_uid == SHIFT


def test_its_gpus_can_be_opened_and_are_seen_as_held(lab: Lab, shifted: int) -> None:
    say(lab, shifted, "ls /dev/nvidia0; exec 3<>/dev/nvidia1 && echo x >&3")
    job = lab.start(shifted, ["--gpus", "1"])
    held = [os.readlink(each) for each in Path(f"/proc/{job.host_pid}/fd").iterdir()]
    assert "/dev/nvidia1" in held
    ask = [str(lab.nvidia_smi), "--query-compute-apps=pid", "--format=csv,noheader"]
    assert str(job.host_pid) in run(ask).stdout.split()
    lab.stop(shifted)
    lab.boot(shifted)


def test_roots_hand_reaches_in_and_none_reaches_out(lab: Lab, shifted: int, until: Until) -> None:
    job = lab.start(shifted, [])
    assert ids(job.host_pid) == {SHIFT}
    outside = os.getpid()
    # it has PIDs of its own; where its rights end without them: see the next test
    assert lab.exec(shifted, ["bash", "-c", f"kill -0 {outside}"]).returncode == 1
    os.kill(job.host_pid, signal.SIGINT)
    until(lambda: not is_alive(ProcessId(job.host_pid, job.process.start)))
    assert "KeyboardInterrupt" in job.log.read_text()


def test_with_the_hosts_proc_in_hand_it_still_may_not_signal_the_host(
    lab: Lab, shifted: int
) -> None:
    """The PID namespace left aside, the user namespace alone forbids it: kill(2), EPERM."""
    init = lab.containers[shifted].init_pid()
    script = (
        "import os, sys\n"
        "try: os.kill(int(sys.argv[1]), 0)\n"
        "except PermissionError: print('refused')\n"
        "else: print('may')"
    )

    def from_its_user_namespace(target: int) -> str:
        enter = ["nsenter", "-t", str(init), "-U", "-S", "0", "-G", "0", "python3", "-c", script]
        return run([*enter, str(target)]).stdout.strip()

    assert from_its_user_namespace(os.getpid()) == "refused"
    assert from_its_user_namespace(init or 0) == "may"


def test_an_unprivileged_one_outlives_stop_boot_and_another_process(lab: Lab, shifted: int) -> None:
    lab.stop(shifted)
    again = Lab.load(lab.root)
    assert again.state.unprivileged == (shifted,)
    again.boot(shifted)
    assert say(lab, shifted, "cat /proc/self/uid_map").split()[1] == str(SHIFT)
    assert lab.exec(shifted, ["test", "-w", "/dev/nvidia0"]).returncode == 0


def test_a_container_that_is_not_there_cannot_be_unprivileged(tmp_path: Path) -> None:
    with pytest.raises(LabUnavailable, match="no such containers"):
        Lab.up(tmp_path / "lab", [48_123], unprivileged=[48_124])


def test_a_closed_directory_above_it_is_named() -> None:
    vmid = random.randrange(20_000, 900_000_000)
    with tempfile.TemporaryDirectory(prefix="fsl-", dir="/tmp") as closed:
        with pytest.raises(LabUnavailable, match=f"{closed} lets nobody through"):
            Lab.up(Path(closed) / "lab", [vmid], unprivileged=True)
        assert list(Path(closed).iterdir()) == []
    assert not cgroups.directories(vmid)


def test_systemd_is_not_played_there(lab: Lab, shifted: int) -> None:
    with pytest.raises(LabUnavailable, match="unprivileged"):
        lab.reboot_with_systemd(shifted, {})
    assert lab.status()["small"] == "running"
