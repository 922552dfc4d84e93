"""The verbs that read scripts and units: bounded, plain files only, in each shell."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetstop.actions import looks, reading
from fleetstop.core.commands import Command
from fleetstop.core.procfs import parse_detail
from tests.fakes.local_channel import SHELLS, LocalShell, is_installed, local_shell

from .test_boot_verbs import ask, play


@pytest.fixture(params=sorted(SHELLS))
def kind(request: pytest.FixtureRequest) -> str:
    if not is_installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


def test_source_reads_heads_of_plain_files(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "a b;$(touch x)"
    place.mkdir()
    (place / "1.conf").write_text("one\ntwo\n")
    (place / "2.conf").write_text("x" * 50_000)
    os.mkfifo(place / "3.conf")
    (place / "no.txt").write_text("not asked for")

    async def story(local: LocalShell) -> None:
        found = await reading.heads(local.framed, (f"{place}/*.conf", f"{place}/none"))
        assert list(found) == [f"{place}/1.conf", f"{place}/2.conf"]
        assert found[f"{place}/1.conf"] == "one\ntwo\n"
        assert len(found[f"{place}/2.conf"]) == 40960
        assert not (tmp_path / "x").exists()
        # the shell splits and globs words as before
        assert (await ask(local, "look", "pids", str(os.getpid()))).status == 0

    play(kind, story)


def test_source_reads_the_script_that_a_shell_holds_open(kind: str, tmp_path: Path) -> None:
    script = tmp_path / "again.sh"
    script.write_text("echo up\nwhile true; do sleep 60; done\n")
    job = subprocess.Popen(["bash", str(script)], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert job.stdout is not None
        job.stdout.readline()
        script.unlink()

        async def story(local: LocalShell) -> None:
            detail = parse_detail((await ask(local, "detail", str(job.pid))).data)[job.pid]
            held = [f for f in detail.files or () if f.target.startswith(str(script))]
            found = await reading.heads(local.framed, (f"/proc/{job.pid}/fd/{held[0].fd}",))
            assert list(found.values()) == ["echo up\nwhile true; do sleep 60; done\n"]

        play(kind, story)
    finally:
        os.killpg(job.pid, 9)
        job.wait()
        if job.stdout is not None:
            job.stdout.close()


def test_a_unit_is_asked_and_one_that_hangs_is_left(kind: str, tmp_path: Path) -> None:
    tool = tmp_path / "systemctl"
    tool.write_text('#!/bin/sh\necho "Restart=always"; echo "asked $*"\n')
    tool.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    async def answers(local: LocalShell) -> None:
        text = await looks.unit(local.framed, "train.service", "Restart,MainPID")
        assert text == "Restart=always\nasked show -p Restart,MainPID -- train.service\n"

    async def hangs(local: LocalShell) -> None:
        answer = await local.framed.run(
            Command("unit", ("train.service", "Restart"), deadline_s=30.0)
        )
        assert answer.status == 32

    async def is_no_text(local: LocalShell) -> None:
        assert await looks.unit(local.framed, "train.service", "Restart") is None

    async def both() -> None:
        async with local_shell(kind, env=env) as one, local_shell(kind, env=env) as two:
            await asyncio.wait_for(asyncio.gather(hangs(one), is_no_text(two)), 40)

    play(kind, answers, env=env)
    tool.write_text("#!/bin/sh\nexec sleep 30\n")
    asyncio.run(both())


def test_the_marker_and_the_launchers_timeout_are_read(kind: str) -> None:
    env = {**os.environ, "FLEETSTOP_MARK": "a1b2", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "120"}
    job = subprocess.Popen(
        [sys.executable, "-S", "-c", "print(flush=True); import time; time.sleep(60)"],
        env=env,
        stdout=subprocess.PIPE,
    )
    try:
        assert job.stdout is not None
        job.stdout.readline()

        async def story(local: LocalShell) -> None:
            detail = parse_detail((await ask(local, "detail", str(job.pid))).data)[job.pid]
            assert (detail.mark, detail.shutdown_s) == ("a1b2", "120")

        play(kind, story)
    finally:
        job.kill()
        job.wait()
        if job.stdout is not None:
            job.stdout.close()
