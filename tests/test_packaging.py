"""What is shipped: the wheel's contents, the pins, nothing about where it was made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text()

# Registries and developers' machines. The [brackets] keep this file from holding what it looks for.
FORBIDDEN = re.compile(
    r"\bpy[p]i\W?org\b|python[h]osted|registry\W?np[m]js|\bdeb\W?[d]ebian"
    r"|/[w]ork/|/[f]arm/|/[U]sers/\w|/root/\.(?:[p]yenv|[c]ache|[c]onfig|[l]ocal)|/opt/(?:[w]heels|[p]ypi)"
)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as a release would have it, built from the checkout by the pinned backend."""
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), "."]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def shipped(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def plain_files(folder: str, pattern: str = "*") -> Iterator[Path]:
    hidden = {"__pycache__", "__init__.py"}
    for path in (ROOT / folder).rglob(pattern):
        if path.is_file() and not hidden & set(path.parts):
            yield path.relative_to(ROOT)


@pytest.mark.slow
def test_the_wheel_holds_the_stock_playbooks(shipped: set[str]) -> None:
    assert {
        f"fleetstop/playbooks/{name}.yaml" for name in ("graceful", "standard", "now")
    } <= shipped
    assert {f"fleetstop/{path}" for path in plain_files("playbooks", "*.yaml")} <= shipped


@pytest.mark.slow
def test_the_wheel_holds_the_example_inventories(shipped: set[str]) -> None:
    examples = {path.name for path in plain_files("inventory", "*.yaml")}
    assert examples
    assert {f"fleetstop/inventory_examples/{name}" for name in examples} <= shipped


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["fleetstop/remote/scripts", "fleetstop/lab/files"])
def test_the_wheel_holds_what_runs_on_other_machines(shipped: set[str], folder: str) -> None:
    scripts = {str(path) for path in plain_files(folder)}
    assert scripts
    assert scripts <= shipped


@pytest.mark.slow
def test_the_wheel_holds_nothing_else(shipped: set[str]) -> None:
    assert {name.partition("/")[0] for name in shipped} == {
        "fleetstop",
        f"fleetstop-{PROJECT['version']}.dist-info",
    }
    assert not [name for name in shipped if "__pycache__" in name]


@pytest.mark.slow
def test_the_wheel_runs_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    script = (
        "import pathlib, fleetstop; here = pathlib.Path(fleetstop.__file__).parent; print(here);"
        "print(*sorted(p.stem for p in (here / 'playbooks').iterdir()))"
    )
    done = run_python(tmp_path, "-c", script)
    assert done.stdout.splitlines()[0] == str(tmp_path / "site" / "fleetstop"), done.stderr
    assert {"graceful", "now", "standard"} <= set(done.stdout.split())
    assert run_python(tmp_path, "-m", "fleetstop", "--help").returncode == 0


def run_python(place: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(place / "site")}
    return subprocess.run(
        [sys.executable, *args], cwd=place, env=environ, capture_output=True, text=True, check=False
    )


def test_every_pin_is_exact_and_hashed() -> None:
    pins = [line for line in CONSTRAINTS.replace("\\\n", " ").splitlines() if line.strip()]
    assert pins
    odd = [
        pin
        for pin in pins
        if not re.fullmatch(
            r"[\w.-]+==[\w.+!-]+(?: ;[^-]+)?(?:\s+--hash=sha256:[0-9a-f]{64})+", pin
        )
    ]
    assert odd == []


def test_every_dependency_is_pinned_and_has_a_lower_bound() -> None:
    pinned = {canonical(name) for name in re.findall(r"^([\w.-]+)==", CONSTRAINTS, re.MULTILINE)}
    bounded = {canonical(d.partition(">=")[0]) for d in PROJECT["dependencies"] if ">=" in d}
    assert len(bounded) == len(PROJECT["dependencies"])
    assert bounded | {canonical(d) for d in PROJECT["optional-dependencies"]["test"]} <= pinned


def test_the_pins_name_no_address_and_no_path() -> None:
    assert "://" not in CONSTRAINTS
    assert "/" not in CONSTRAINTS
    assert "#" not in CONSTRAINTS


def project_files() -> Iterator[Path]:
    """What git tracks, or would; without git, all that is not made by a tool."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if shutil.which("git") and (ROOT / ".git").exists():
        done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode == 0:  # git refuses a checkout that belongs to somebody else
            yield from (ROOT / name for name in done.stdout.split("\0") if name)
            return
    made = {"build", "dist", "__pycache__"}
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if parts[0] == ".ci" or not any(p in made or p.startswith(".") for p in parts):
            yield path


def test_no_file_tells_where_it_was_made() -> None:
    texts = {path: path.read_bytes() for path in project_files() if path.is_file()}
    assert ROOT / "pyproject.toml" in texts
    told = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:90]}"
        for path, text in texts.items()
        if b"\0" not in text
        for number, line in enumerate(text.decode(errors="replace").splitlines(), 1)
        if FORBIDDEN.search(line)
    ]
    assert told == []


@pytest.mark.parametrize(
    "line", ["see https://{}.org/simple".format("py" + "pi"), f"cd /{'wo' + 'rk'}/main"]
)
def test_a_telling_line_is_seen(line: str) -> None:
    assert FORBIDDEN.search(line)


@pytest.mark.parametrize("line", ["cd /workspace/checkpoints", "/home/ml/framework/run.sh"])
def test_an_innocent_line_is_left_alone(line: str) -> None:
    assert not FORBIDDEN.search(line)
