"""The README's Python example, as it stands there, on a real job."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .bed import Bed, lives

pytestmark = pytest.mark.bed
README = Path(__file__).parents[2] / "README.md"


def example() -> str:
    every = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (found,) = (each for each in every if "fleet.stop(" in each)
    return str(found)


def test_the_readme_example_stops_a_job(box: Bed, tmp_path: Path) -> None:
    job = box.start("--save-seconds", "0.3")
    (tmp_path / "inventory").symlink_to(box.lab.inventory.parent)
    code = example().replace("ct200", box.name)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{box.name}:train stopped ['INT']\n"
    assert done.stderr == ""
    assert not lives(job)


def test_the_api_tells_events_and_never_prints(box: Bed, tmp_path: Path) -> None:
    box.start("--save-seconds", "0.3")
    code = (
        "import asyncio, json, msgspec\n"
        "from fleetstop import Fleet\n"
        "heard = []\n"
        "def listener(event):\n"
        "    heard.append(type(event).__name__)\n"
        "    raise RuntimeError('a listener can never hurt the work')\n"
        "async def main():\n"
        f"    async with Fleet.load({str(box.lab.inventory)!r}, emit=listener) as fleet:\n"
        f"        return await fleet.stop({box.name!r}, graceful=True)\n"
        "report = asyncio.run(main())\n"
        "assert report.exit_code == 0, report\n"
        "assert heard[0] == 'Started' and heard[-1] == 'Report', heard\n"
        "assert 'SignalSent' in heard\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        # the listener's fault is kept in the user's log directory
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "")
