"""New versions of the practice trainer, as somebody at a laptop would have them in a directory."""

from __future__ import annotations

from pathlib import Path

import fleetstop.lab

TRAINER = Path(fleetstop.lab.__file__).parent / "files" / "trainer.py"
_LOOP = "    arguments = read_arguments(sys.argv[1:])\n"


def version(name: str, beginning: str = "") -> str:
    """The trainer that says which version it is; `beginning` is done before anything else."""
    text = TRAINER.read_text()
    assert text.count(_LOOP) == 1
    return text.replace(_LOOP, f'    say("version {name}")\n{beginning}{_LOOP}')


GOOD = version("good")
DIES = version(
    "dies", "    import threading\n    threading.Timer(2.0, lambda: os._exit(3)).start()\n"
)
SILENT = version("silent").replace("tok/s", "tokens")
DEAF = version(
    "deaf",
    "    signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n",
)
FAULTY = version("faulty", "    os.kill(os.getpid(), signal.SIGSEGV)\n")
RESUMED = version("resumed", "    sys.argv[1:] = words_of(sys.argv[1:])\n").replace(
    "def main() -> int:",
    "def words_of(words):\n"
    "    if '--resume' not in words:\n"
    "        return words\n"
    "    at = words.index('--resume')\n"
    "    say('goes on from ' + words[at + 1])\n"
    "    return words[:at] + words[at + 2:]\n\n\n"
    "def main() -> int:",
)
BROKEN = GOOD + "\ndef f(:\n"
NEWER = GOOD + "\ntype Steps = list[int]\n"  # Python 3.12 takes it, Debian 12's 3.11 does not


def sources(where: Path, text: str = GOOD, **others: str) -> Path:
    """A directory with train.py and others by name (`model` -> model.py)."""
    where.mkdir(parents=True, exist_ok=True)
    (where / "train.py").write_text(text)
    for name, each in others.items():
        (where / f"{name}.py").write_text(each)
    return where
