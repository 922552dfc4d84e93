from __future__ import annotations

from typing import Any

import pytest

from fleetstop.core.gpu import Gpu, GpuView, Holder
from fleetstop.core.gpus.occupancy import Sight, called, findings, occupancy, opened
from fleetstop.core.gpus.openers import parse_openers
from fleetstop.core.gpus.whereabouts import (
    Known,
    Owned,
    container_of,
    known_at,
    owned,
    part_of,
    user_of,
)
from fleetstop.core.inventory import Container, Host, Inventory, Job, Match
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.core.report import GpuRecord

A, B = "GPU-aaaa", "GPU-bbbb"
TRAIN = Job(name="train", match=Match(script="train.py"))


def proc(pid: int, inner: int | None = None, vmid: int | None = 200, **more: Any) -> Process:
    facts: dict[str, Any] = {
        "id": ProcessId(pid, pid * 10),
        "ppid": 0,
        "pgid": pid,
        "sid": pid,
        "state": "S",
        "comm": "python3",
        "flags": 0,
        "threads": 1,
        "ticks": 0,
        "inner": (inner,) if inner is not None else (),
        "cgroups": (f"/lxc/{vmid}/ns/init.scope",) if vmid is not None else ("/user.slice",),
        "argv": ("python3", "/root/train.py"),
    }
    return Process(**facts | more)


def tree(*processes: Process) -> ProcessTree:
    return ProcessTree(processes={each.id.pid: each for each in processes}, uptime=1000.0)


def sight(
    *processes: Process, openers: dict[int, set[int]] | None = None, places: Any = None
) -> Sight:
    look = tree(*processes)
    places = places or {200: Known("ct200", (TRAIN,))}
    jobs: dict[int, tuple[Owned, ...]] = {}
    for vmid, known in places.items():
        jobs |= owned(look, vmid, known, None)
    seen = None if openers is None else {pid: frozenset(n) for pid, n in openers.items()}
    return Sight(tree=look, openers=seen, places=places, jobs=jobs)


def view(used: int | None, *rows: Holder, fault: str | None = None) -> GpuView:
    return GpuView((Gpu(0, A, used, 81559, fault), Gpu(1, B, 0, 81559)), rows)


def first(look: GpuView, seen: Sight) -> GpuRecord:
    return occupancy(look, seen)[0]


def test_a_listed_holder_is_told_with_container_job_pids_user_and_age() -> None:
    seen = sight(proc(9001, 1), proc(9041, 41, uid=1000), openers={9041: {0}})
    gpu = first(view(5000, Holder(A, 9041, 5000)), seen)
    (holder,) = gpu.held_by or ()
    assert (gpu.state, gpu.held_mib, gpu.unlisted_mib, gpu.holders) == ("held", 5000, 0, (9041,))
    assert (holder.vmid, holder.container, holder.job) == (200, "ct200", "ct200:train")
    assert (holder.pid, holder.host_pid, holder.user) == (41, 9041, "uid 1000")
    assert (holder.age_s, holder.listed, holder.orphan) == (95.9, True, False)
    assert findings((gpu,), seen, None) == []


def test_a_neighbours_process_is_not_our_job_though_it_bears_its_name() -> None:
    seen = sight(proc(9041, 41), proc(8041, 41, vmid=2000), openers={})
    gpu = first(view(300, Holder(A, 9041, 100), Holder(A, 8041, 200)), seen)
    told = [(each.vmid, each.container, each.job) for each in gpu.held_by or ()]
    assert told == [(200, "ct200", "ct200:train"), (2000, None, None)]


def test_memory_without_an_owner_is_told_with_who_has_the_device_open() -> None:
    orphan = proc(9050, 50, flags=0x40, ppid=9001)
    seen = sight(proc(9001, 1), orphan, proc(9041, 41), openers={9050: {3}, 9041: {0}})
    gpu = first(view(7000, Holder(B, 9041, 100)), seen)
    assert (gpu.state, gpu.unlisted_mib, gpu.holders) == ("unlisted", 7000, ())
    # 9041 is listed on another GPU; the minor of the node says nothing of the index
    assert [(each.host_pid, each.listed, each.orphan) for each in gpu.held_by or ()] == [
        (9050, False, True)
    ]
    (told,) = findings((gpu,), seen, None)
    assert told == (
        "GPU 0: 7000 MiB belong to no listed process; /dev/nvidia* is open in 50 python3 "
        "/root/train.py in ct200 (host 9050, an orphan)"
    )


@pytest.mark.parametrize(
    ("openers", "blind", "said"),
    [
        ({}, None, "nobody is seen to have /dev/nvidia* open"),
        (None, "no root", "who has /dev/nvidia* open could not be seen: no root"),
    ],
)
def test_nobody_seen_and_could_not_look_are_two_things(
    openers: dict[int, set[int]] | None, blind: str | None, said: str
) -> None:
    seen = sight(openers=openers)
    gpu = first(view(7000), seen)
    (told,) = findings((gpu,), seen, blind)
    assert said in told
    assert gpu.state == "unlisted"


def test_a_fault_is_never_idle_and_says_what_helps() -> None:
    seen = sight(openers={})
    for fault, said in (("requires reset", "nvidia-smi -r"), ("is lost", "reboot")):
        gpu = first(view(None, fault=fault), seen)
        assert (gpu.state, gpu.fault, gpu.used_mib) == ("fault", fault, None)
        (told,) = findings((gpu,), seen, None)
        assert told.startswith(f"GPU 0 {fault}: ")
        assert said in told


def test_odd_cells_and_hidden_holders_are_never_idle() -> None:
    """[N/A], [Insufficient Permissions] (MIG in a container): somebody, or not known."""
    seen = sight(openers={})
    gpu = first(view(None), seen)
    assert (gpu.state, gpu.unlisted_mib) == ("unknown", None)
    assert "that is not idle" in findings((gpu,), seen, None)[0]
    hidden = first(view(0, Holder(A, None, None)), seen)
    assert (hidden.state, hidden.holders, hidden.held_mib) == ("held", None, None)
    assert "somebody whom the driver does not show" in findings((hidden,), seen, None)[0]
    # a row that names no GPU may be of any
    assert {each.state for each in occupancy(view(0, Holder("", 9, 5)), seen)} == {"held"}


def test_a_gpu_without_a_readable_uuid_is_unknown() -> None:
    look = GpuView((Gpu(0, "", 0, 81559),), (Holder(A, 9, 5),))
    gpu = first(look, sight(openers={}))
    assert (gpu.state, gpu.holders, gpu.held_mib) == ("unknown", None, None)


def test_a_listed_pid_that_is_not_there_is_kept_by_what_it_forked() -> None:
    seen = sight(proc(9050, 50, flags=0x40), openers={9050: {0}})
    gpu = first(view(5000, Holder(A, 9041, 5000)), seen)
    assert (gpu.held_by or ())[0].pid is None
    (told,) = findings((gpu,), seen, None)
    assert "host PID 9041, which is not there" in told
    assert "open in 50 python3" in told


def test_idle_is_only_what_is_known_to_be() -> None:
    seen = sight(proc(9041, 41), openers={9041: {0}})
    # MIG and desktops rest above 0 MiB; a monitor has it open and holds nothing
    for used in (0, 59, 214):
        assert first(view(used), seen).state == "idle"
    assert first(view(300), seen).state == "unlisted"
    assert [each.host_pid for each in opened(seen)] == [9041]


def test_users_are_as_the_container_counts() -> None:
    shifted = tree(proc(9001, 1, uid=100000), proc(9002, 2, uid=100000), proc(9003, 3, uid=101000))
    assert [user_of(shifted, each) for each in shifted.processes.values()] == [
        "root",
        "root",
        "uid 1000",
    ]
    assert user_of(shifted, proc(77, vmid=None, uid=1000)) == "uid 1000"


def test_whose_container_is_by_its_whole_number() -> None:
    assert container_of(proc(1, vmid=200)) == 200
    assert container_of(proc(1, vmid=2000)) == 2000
    assert container_of(proc(1, vmid=None)) is None
    assert container_of(proc(1, cgroups=("/user.slice", "/lxc/200"))) == 200
    assert container_of(proc(1, cgroups=("/user/lxc/200/x",))) is None
    named = proc(4, vmid=None, cgroups=("/lxc/plain/x",))
    both = tree(proc(1, vmid=200), proc(2, vmid=2000), proc(3, vmid=None), named)
    assert set(part_of(both, 2000).processes) == {2}
    assert set(part_of(both, None).processes) == {3}


def test_what_the_inventory_knows_of_a_host_by_its_address() -> None:
    pve1, other = Host(name="pve1", ssh="root@10.0.0.1"), Host(name="pve2", ssh="root@10.0.0.2")
    inventory = Inventory(
        hosts={"pve1": pve1, "pve2": other},
        containers={
            "ct200": Container("ct200", "pve1", 200, jobs=(TRAIN,)),
            "ct300": Container("ct300", "pve2", 300, jobs=(TRAIN,)),
        },
    )
    assert set(known_at(inventory, pve1)) == {None, 200}
    assert set(known_at(inventory, Host(name="10.0.0.2", ssh="ann@10.0.0.2"))) == {None, 300}
    assert known_at(inventory, Host(name="x", ssh="root@10.0.0.3")) == {}


def test_openers_by_name_or_number() -> None:
    answer = (
        b"/proc/41/fd/7\0/dev/nvidia3\0/proc/41/fd/8\0/dev/nvidia0 (deleted)\0"
        b"/proc/42/fd/7\0c3:5\0/proc/43/fd/7\0c3:ff\0/proc/44/fd/7\x001:3\0"
        b"/proc/45/fd/7\0/dev/nvidiactl\0/proc/46/fd/7\0/dev/nvidia3x\0garbage\0"
    )
    assert parse_openers(answer) == {41: {0, 3}, 42: {5}}
    assert parse_openers(b"") == {}


def test_who_is_called_what() -> None:
    seen = sight(proc(77, vmid=None), proc(88, 8, vmid=300), openers={77: {0}, 88: {0}, 99: {0}})
    assert [called(each) for each in opened(seen)] == [
        "77 python3 /root/train.py on the host itself",
        "8 python3 /root/train.py in container 300 (host 88)",
        "host PID 99",
    ]
