"""The table of pct's behaviour: texts, exit codes, environment, place in the process tree."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetstop.lab import Lab
from fleetstop.lab.processes import command_line

pytestmark = pytest.mark.bed

Done = subprocess.CompletedProcess[str]
Pct = Callable[..., Done]
USAGE = "pct exec <vmid> [<extra-args>] [OPTIONS]\n"


def test_a_missing_container(pct: Pct) -> None:
    for argv in (["exec", "199", "--", "true"], ["status", "199"], ["config", "199"]):
        done = pct(*argv)
        text = "Configuration file 'nodes/lab1/lxc/199.conf' does not exist\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", text)


def test_a_stopped_container(lab: Lab, vmid: int, pct: Pct) -> None:
    lab.stop(vmid)
    done = pct("exec", str(vmid), "--", "true")
    assert (done.returncode, done.stderr) == (255, f"container '{vmid}' not running!\n")
    assert pct("status", str(vmid)).stdout == "status: stopped\n"
    assert pct("list").stdout.splitlines()[1].split() == [str(vmid), "stopped", f"ct{vmid}"]


def test_a_frozen_container_counts_as_running(lab: Lab, vmid: int, pct: Pct) -> None:
    lab.freeze(vmid)
    assert lab.status()[f"ct{vmid}"] == "frozen"
    assert pct("status", str(vmid)).stdout == "status: running\n"
    lab.thaw(vmid)


def test_entering_a_frozen_container_hangs(lab: Lab, vmid: int) -> None:
    lab.freeze(vmid)
    entering = subprocess.Popen([lab.pct, "exec", str(vmid), "--", "true"], start_new_session=True)
    with pytest.raises(subprocess.TimeoutExpired):
        entering.wait(timeout=0.7)
    lab.thaw(vmid)
    assert entering.wait(timeout=5) == 0


def test_refusals(lab: Lab, pct: Pct) -> None:
    vmid = str(lab.vmids[0])
    unparsed = pct("exec", vmid, "ls", "-la")
    assert unparsed.returncode != 0
    assert unparsed.stderr == f"Unknown option: la\n400 unable to parse option\n{USAGE}"
    swallowed = pct("exec", "--keep-env", vmid, "--", "true")
    assert swallowed.stderr == f"400 unable to parse boolean option\n{USAGE}"
    empty = pct("exec", vmid)
    assert empty.stderr.startswith("missing command at ")
    assert "pct.pm line 246." in empty.stderr
    assert empty.returncode == 255
    unknown = pct("foo")
    assert unknown.returncode == 255
    assert unknown.stderr.startswith("ERROR: unknown command 'pct foo'\nUSAGE: pct <COMMAND> ")
    odd = pct("exec", "abc", "--", "true")
    assert odd.stderr.startswith("400 Parameter verification failed.\nvmid: type check ('integer')")
    assert odd.stderr.endswith(USAGE)


def test_only_root(lab: Lab) -> None:
    done = subprocess.run(
        [lab.pct, "list"], capture_output=True, text=True, user=65534, env={}, check=False
    )
    assert (done.returncode, done.stderr) == (255, "please run as root\n")


def test_exit_codes_are_those_of_the_command_or_of_lxc_attach(lab: Lab, pct: Pct) -> None:
    vmid = str(lab.vmids[0])
    assert pct("exec", vmid, "--", "sh", "-c", "exit 7").returncode == 7
    assert pct("exec", vmid, "--", "sh", "-c", "kill -KILL $$").returncode == 137
    absent = pct("exec", vmid, "--", "no-such-program")
    assert absent.returncode == 127
    assert absent.stderr.startswith(f"lxc-attach: {vmid}: ")
    assert 'Failed to exec "no-such-program"' in absent.stderr
    assert pct("exec", vmid, "--", "/etc/passwd").returncode == 126


def test_the_environment_leaks_in_with_a_forced_path(lab: Lab, pct: Pct) -> None:
    env = {"PATH": "/opt/bin", "HOME": "/root", "MINE": "x", "SSL_CERT_FILE": "y", "LANG": "C"}
    done = pct("exec", str(lab.vmids[0]), "--", "/usr/bin/env", env=env)
    inside = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert inside == {
        "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
        "HOME": "/root",
        "MINE": "x",
        "LANG": "C",  # and no LC_CTYPE, which Python would like to add
        "container": "lxc",
        "TERM": "linux",
    }


def test_keep_env_0_gives_a_bare_environment(lab: Lab, pct: Pct) -> None:
    for option in (["--keep-env", "0"], ["--keep-env=off"], ["-keep=no"]):
        done = pct("exec", str(lab.vmids[0]), *option, "--", "/usr/bin/env")
        assert sorted(done.stdout.split()) == [
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "TERM=linux",
            "container=lxc",
        ]


@pytest.mark.parametrize("locale", [{}, {"LC_ALL": "C"}, {"LANG": "xx_XX.UTF-8"}])
def test_without_a_utf8_locale_each_foreign_byte_is_lost(
    lab: Lab, pct: Pct, locale: dict[str, str]
) -> None:
    argv = ("exec", str(lab.vmids[0]), "--", "printf", "%s", "données/é.py")
    assert pct(*argv, env=locale).stdout == "donn\ufffd\ufffdes/\ufffd\ufffd.py"


def test_with_a_utf8_locale_only_broken_bytes_are_lost(lab: Lab, pct: Pct) -> None:
    for env in ({"LC_ALL": "C.UTF-8"}, {"LANG": "C.UTF-8"}, {"LC_CTYPE": "C.UTF-8", "LANG": "C"}):
        argv = ("exec", str(lab.vmids[0]), "--", "printf", "%s", b"\xc3\xa9 \xff")
        assert pct(*argv, env=env).stdout == "é \ufffd"


def test_the_place_in_the_tree(lab: Lab, pct: Pct) -> None:
    """A child of nobody, in a group and a session that do not exist inside."""
    done = pct(
        "exec", str(lab.vmids[0]), "--", "sh", "-c", "cat /proc/$$/stat; cat /proc/$$/cgroup"
    )
    fields = done.stdout.splitlines()[0].rpartition(")")[2].split()
    assert fields[1:4] == ["0", "0", "0"]  # PPID, PGID, SID


def test_no_disposition_of_the_stand_in_leaks_in(lab: Lab, pct: Pct) -> None:
    done = pct("exec", str(lab.vmids[0]), "--", "grep", "SigIgn", "/proc/self/status")
    name, mask = done.stdout.split()
    # glibc's posix_spawn(3), which make uses, leaves its two internal signals 32 and 33 ignored
    assert (name, int(mask, 16) & ~(0b11 << 31)) == ("SigIgn:", 0)


def sleepers(lab: Lab, vmid: int) -> list[int]:
    return [pid for pid in lab.host_pids(vmid) if command_line(pid) == ["sleep", "60"]]


def test_exec_keeps_its_pid(lab: Lab, vmid: int, until: Callable[..., None]) -> None:
    """pct.pm ends in exec(): the PID one started is lxc-attach, whose child is in the container."""
    entering = subprocess.Popen(
        [lab.pct, "exec", str(vmid), "--", "sleep", "60"], start_new_session=True
    )
    until(lambda: command_line(entering.pid)[:1] == ["lxc-attach"])
    until(lambda: sleepers(lab, vmid))  # lxc-attach's first child only moves into the cgroup
    (inside,) = sleepers(lab, vmid)
    children = Path(f"/proc/{entering.pid}/task/{entering.pid}/children")
    until(lambda: children.read_text().split() == [str(inside)])
    assert f"/lxc/{vmid}/" in Path(f"/proc/{inside}/cgroup").read_text()
    entering.kill()  # reaches nothing inside: no signal is forwarded
    entering.wait()
    time.sleep(0.1)
    assert sleepers(lab, vmid) == [inside]


def test_the_whole_group_can_be_reached_from_outside(
    lab: Lab, vmid: int, until: Callable[..., None]
) -> None:
    """Without a terminal the process inside stays in the caller's group: killpg(2) crosses over."""
    entering = subprocess.Popen(
        [lab.pct, "exec", str(vmid), "--", "sleep", "60"], start_new_session=True
    )
    # lxc-attach's first child only moves into the cgroup; what counts is the second
    children = Path(f"/proc/{entering.pid}/task/{entering.pid}/children")
    until(lambda: command_line(entering.pid)[:1] == ["lxc-attach"])
    until(lambda: (s := sleepers(lab, vmid)) and children.read_text().split() == [str(s[0])])
    os.killpg(entering.pid, signal.SIGTERM)
    entering.wait()
    until(lambda: not sleepers(lab, vmid))


def test_list_has_columns_not_words(lab: Lab, pct: Pct) -> None:
    first, second = lab.vmids
    conf = lab.root / "pve/nodes/lab1/lxc" / f"{second}.conf"
    before = conf.read_text()
    conf.write_text(before + "lock: backup\n")
    lines = pct("list").stdout.splitlines()
    conf.write_text(before)
    assert lines == [
        "VMID       Status     Lock         Name                ",
        f"{first:<10} running                 {f'ct{first}':<20}",
        f"{second:<10} running    backup       {f'ct{second}':<20}",
    ]


def test_config_is_sorted_with_raw_lines_last(lab: Lab, pct: Pct) -> None:
    conf = lab.root / "pve/nodes/lab1/lxc" / f"{lab.vmids[0]}.conf"
    before = conf.read_text()
    conf.write_text("lxc.idmap: u 0 100000 65536\n" + before)
    lines = pct("config", str(lab.vmids[0])).stdout.splitlines()
    conf.write_text(before)
    assert lines[-1] == "lxc.idmap: u 0 100000 65536"
    assert lines[:-1] == sorted(lines[:-1])
    assert f"hostname: ct{lab.vmids[0]}" in lines


def test_an_abbreviated_command(lab: Lab, pct: Pct) -> None:
    assert pct("exe", str(lab.vmids[0]), "--", "echo", "x").stdout == "x\n"
    assert pct("st", str(lab.vmids[0])).stderr.startswith("ERROR: unknown command 'pct st'")


def test_calls_are_counted_and_cost_what_was_asked(lab: Lab, pct: Pct) -> None:
    before = len(lab.pct_calls())
    lab.set_pct_cost(0.2)
    started = time.monotonic()
    pct("exec", str(lab.vmids[0]), "--", "true")
    took = time.monotonic() - started
    lab.set_pct_cost(0)
    assert took >= 0.15
    assert lab.pct_calls()[before:] == [["exec", str(lab.vmids[0]), "--", "true"]]
