"""A lab comes up as a whole, is used over ssh, and leaves nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetstop.errors import LabUnavailable
from fleetstop.lab import Lab, cgroups, free_vmids
from fleetstop.lab.processes import identify, is_alive

pytestmark = pytest.mark.bed

NewLab = Callable[..., Lab]


def ssh(lab: Lab, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        lab.ssh_command(command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def traces(lab: Lab) -> list[str]:
    """Whatever on this machine still names the lab: processes, control groups, mounts, sockets."""
    found = [str(place) for vmid in lab.vmids for place in cgroups.directories(vmid)]
    for table in ("/proc/self/mounts", "/proc/net/unix"):
        found += [line for line in Path(table).read_text().splitlines() if str(lab.root) in line]
    for entry in Path("/proc").iterdir():
        if (
            entry.name.isdigit()
            and int(entry.name) != os.getpid()
            and is_alive_pid(int(entry.name))
        ):
            try:
                text = (entry / "cmdline").read_text(errors="replace")
            except OSError:
                continue
            found += [text] if str(lab.root) in text else []
    return found


def is_alive_pid(pid: int) -> bool:
    process = identify(pid)
    return process is not None and is_alive(process)


def test_the_host_is_reached_over_ssh_and_has_the_tools(lab: Lab) -> None:
    before = lab.connections()
    done = ssh(lab, "command -v nvidia-smi pct; pwd; id -u")
    assert done.stderr == ""
    assert done.stdout.split() == [str(lab.nvidia_smi), str(lab.pct), "/root", "0"]
    assert ssh(lab, f"{lab.pct} exec {lab.vmids[1]} -- hostname").stdout == f"ct{lab.vmids[1]}\n"
    assert lab.connections() == before + 2


def test_a_stranger_is_not_let_in(lab: Lab, tmp_path: Path) -> None:
    before = lab.connections()
    key = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    command = [str(key) if word == str(lab.server.identity) else word for word in lab.ssh_command()]
    done = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 255
    assert "Permission denied" in done.stderr
    assert lab.connections() == before


def test_sshd_keeps_its_limits(lab: Lab) -> None:
    config = str(lab.root / "ssh" / "sshd_config")
    told = subprocess.run(
        ["/usr/sbin/sshd", "-T", "-f", config], capture_output=True, text=True, check=True
    )
    lines = told.stdout.splitlines()
    assert {"maxsessions 10", "maxstartups 10:30:100", "usepam no"} <= set(lines)
    assert "listenaddress 127.0.0.1:" in told.stdout


def test_the_cgroup_layout_is_proxmoxs(lab: Lab) -> None:
    vmid = lab.vmids[0]
    mounted = "" if len(cgroups.hierarchies()) > 1 else "0::"  # v1 and v2, or v2 alone
    assert lab.host_pids(vmid)
    for pid in lab.host_pids(vmid):
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        paths = [line.split(":", 2)[2] for line in lines if line.startswith(mounted)]
        assert all(path.startswith(f"/lxc/{vmid}/ns") for path in paths), paths
    monitors = [place for place in cgroups.directories(vmid) if place.parent.name == "lxc.monitor"]
    assert monitors


def test_inside_everything_is_there_and_nothing_of_the_host(lab: Lab) -> None:
    vmid = lab.vmids[0]
    script = "ls -d /dev/nvidia*; which python3 pgrep tmux; ls /root; cat /proc/1/comm"
    words = lab.exec(vmid, ["sh", "-c", script]).stdout.split()
    assert words[:2] == ["/dev/nvidia0", "/dev/nvidia1"]
    assert {"/usr/bin/python3", "/usr/bin/pgrep", "train.py", "run.sh", "init"} <= set(words)
    assert (lab.rootfs(vmid) / "root/train.py").exists()
    assert lab.exec(vmid, ["touch", "/usr/x"]).returncode != 0


def test_frozen_thawed_stopped_booted(lab: Lab, vmid: int) -> None:
    name = f"ct{vmid}"
    lab.freeze(vmid)
    assert lab.status()[name] == "frozen"
    lab.thaw(vmid)
    assert lab.status()[name] == "running"
    lab.stop(vmid)
    assert lab.status() == {name: "stopped", f"ct{lab.vmids[1]}": "running", "sshd": "running"}
    assert lab.host_pids(vmid) == set()
    lab.boot(vmid)
    assert lab.exec(vmid, ["ls", "/dev/nvidia1"]).returncode == 0


def test_a_container_boots_in_well_under_a_second(lab: Lab, vmid: int) -> None:
    lab.stop(vmid)
    started = time.monotonic()
    lab.boot(vmid)
    assert time.monotonic() - started < 8.0


def test_the_inventory_names_it_all(lab: Lab) -> None:
    text = lab.inventory.read_text()
    assert f"    port: {lab.state.port}\n    identity: {lab.server.identity}\n" in text
    assert f"    pct: {lab.pct}\n" in text
    assert f"  ct{lab.vmids[1]}:\n    host: lab1\n    vmid: {lab.vmids[1]}\n" in text


def test_down_leaves_nothing_and_may_be_repeated(new_lab: NewLab) -> None:
    mine = new_lab(2)
    mine.start(mine.vmids[0], ["--workers", "1"], how="deaf")
    mine.decoys(mine.vmids[1])
    mine.freeze(mine.vmids[1])
    session = subprocess.Popen(
        mine.ssh_command("sleep 1000"), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 10
    while mine.connections() == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert traces(mine)
    mine.down()
    mine.down()
    assert session.wait(timeout=5) == 255
    assert traces(mine) == []
    assert not mine.root.exists()


def test_down_ends_a_container_whose_monitor_was_killed(new_lab: NewLab) -> None:
    mine = new_lab(1)
    init = mine.containers[mine.vmids[0]].init_pid()
    assert init
    monitor = int(Path(f"/proc/{init}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(monitor, signal.SIGKILL)
    mine.down()
    assert traces(mine) == []


def test_another_process_can_take_it_down(new_lab: NewLab) -> None:
    mine = new_lab(1)
    text = f"from fleetstop.lab import Lab; from pathlib import Path; Lab.load(Path('{mine.root}'))"
    subprocess.run([sys.executable, "-c", text + ".down()"], check=True, timeout=30)
    assert traces(mine) == []


def test_two_labs_side_by_side(lab: Lab, new_lab: NewLab) -> None:
    other = new_lab(1, gpus=3)
    assert not set(other.vmids) & set(lab.vmids)
    missing = ssh(other, f"{other.pct} exec {lab.vmids[0]} -- true").stderr
    assert missing.endswith(f"/{lab.vmids[0]}.conf' does not exist\n")
    other.down()
    assert set(lab.status().values()) == {"running"}
    assert ssh(lab, "true").returncode == 0


def test_a_taken_id_is_refused_and_nothing_of_it_touched(lab: Lab, tmp_path: Path) -> None:
    root = Path(f"{lab.root}x")
    with pytest.raises(LabUnavailable, match="run on this machine already"):
        Lab.up(root, [lab.vmids[0]])
    root.rmdir()
    assert lab.status()[f"ct{lab.vmids[0]}"] == "running"


def test_free_ids_skip_whole_blocks(lab: Lab) -> None:
    first = lab.vmids[0]
    assert free_vmids(2, first)[0] == first + 100
    assert first + 1 not in free_vmids(1, first + 1)


def test_names_and_ids(new_lab: NewLab) -> None:
    first = random.randrange(20_000, 900_000_000, 100)
    with new_lab([f"ct{first + 7}", first + 3, "trainbox"], first_vmid=first) as mine:
        names = {container.name: vmid for vmid, container in mine.containers.items()}
        assert names == {
            f"ct{first + 7}": first + 7,
            f"ct{first + 3}": first + 3,
            "trainbox": first,
        }
        assert mine.exec(first, ["hostname"]).stdout == "trainbox\n"


def test_a_failed_start_is_taken_back(new_lab: NewLab, monkeypatch: pytest.MonkeyPatch) -> None:
    first = random.randrange(20_000, 900_000_000, 100)
    monkeypatch.setattr("fleetstop.lab.sshd._program", lambda: "/bin/false")
    with pytest.raises(LabUnavailable, match="sshd refuses its configuration"):
        new_lab(1, first_vmid=first)
    assert not cgroups.directories(first)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_lab_up_leaves_nothing(
    new_lab: NewLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: signal.Signals
) -> None:
    from fleetstop.cli import practice

    root, begun = Path(f"/tmp/fsl-up-{os.getpid()}"), []

    def interrupted(lab: Lab, *_: object, **__: object) -> None:
        begun.append(lab)
        os.kill(os.getpid(), sent)
        time.sleep(5)  # the signal comes long before

    monkeypatch.setattr(Lab, "start", interrupted)
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)]
    with pytest.raises(KeyboardInterrupt):
        practice.up(str(root), 1, 0.0)
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)] == before
    assert not root.exists()
    assert traces(begun[0]) == []


def test_a_directory_in_use_is_refused(lab: Lab) -> None:
    with pytest.raises(LabUnavailable, match="is not empty"):
        Lab.up(lab.root, 1)


def test_by_hand(tmp_path: Path) -> None:
    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fleetstop.lab", *argv],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    root = Path(f"/tmp/fsl-hand-{os.getpid()}")
    vmid = str(random.randrange(20_000, 900_000_000, 100))
    up = run("up", str(root), vmid)
    try:
        assert up.stdout.startswith(f"inventory: {root}/inventory/fleet.yaml\n"), up.stderr
        started = run("start", str(root), vmid, "--how", "deaf", "--", "--save-seconds", "2")
        assert started.stdout.startswith("trainer: PID "), started.stderr
        assert run("status", str(root)).stdout == f"ct{vmid}: running\nsshd: running\n"
    finally:
        down = run("down", str(root))
    assert (down.returncode, root.exists()) == (0, False)
    assert run("down", str(root)).returncode == 0
    assert run("status", str(root)).returncode == 4
