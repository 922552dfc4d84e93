"""What a shell's text does when the job has ended."""

from __future__ import annotations

import pytest

from fleetstop.core.kin.loops import Loop, loop_around, told
from fleetstop.core.kin.shells import runs

NAMES = frozenset({"train.py", "pkg.train", "inner.sh"})

# the text, and the loop that starts the job again: its head and after which end
TEXTS: list[tuple[str, tuple[str, str] | None]] = [
    ("while true; do python train.py; sleep 5; done", ("while true", "always")),
    ("while :; do python -u /job/train.py --x; done", ("while :", "always")),
    ("while [ 1 ]\ndo\n  python train.py\ndone", ("while [ 1 ]", "always")),
    ("while sleep 5; do python train.py; done", ("while sleep 5", "always")),
    ("until false; do python train.py; done", ("until false", "always")),
    ("for ((;;)); do python train.py; done", ("while true", "always")),
    ("until python train.py; do sleep 5; done", ("until python train.py", "failure")),
    ("while ! python train.py; do sleep 5; done", ("while ! python train.py", "failure")),
    ("while python train.py; do :; done", ("while python train.py", "success")),
    ("while true; do python train.py && break; done", ("while true", "failure")),
    ("while true; do python train.py && exit 0; done", ("while true", "failure")),
    ("while true; do python train.py || break; sleep 1; done", ("while true", "success")),
    ("set -e\nwhile true; do python train.py; done", ("while true", "success")),
    ("while [ -f go ]; do python train.py; done", ("while [ -f go ]", "unknown")),
    ("for seed in 1 2 3; do python train.py --seed $seed; done", ("for seed in 1 2 3", "rounds")),
    (
        "while true; do for s in 1 2; do python train.py $s; done; done",
        ("while true", "always"),
    ),
    ("while true; do uv run train.py; done", ("while true", "always")),
    ("while true; do torchrun --nproc_per_node 4 train.py; done", ("while true", "always")),
    ("while true; do python -m pkg.train; done", ("while true", "always")),
    ("while true; do CUDA_VISIBLE_DEVICES=0 python train.py; done", ("while true", "always")),
    ('while true; do "$@"; done', ("while true", "always")),
    ("while true; do $PYTHON train.py; done", ("while true", "always")),
    ("while true; do ./inner.sh; done", ("while true", "always")),
    ("while true; do bash inner.sh; done", ("while true", "always")),
    ("if true; then\n while true; do\n  (python train.py)\n done\nfi", ("while true", "always")),
    # started and left to itself, one a GPU: the next one waits for nobody's end
    ("for g in 0 1; do python train.py $g & done; wait", None),
    ("for g in 0 1; do\n python train.py >l.$g 2>&1 &\ndone\nwait", None),
    ("for g in 0 1; do nohup python train.py &>x & done", None),
    ("for g in 0 1; do (cd d; python train.py; ls) & done; wait", None),
    ("for g in 0 1; do { cd d; python train.py; ls; } & done", None),
    ("while [ -f go ]; do python train.py & sleep 9; done", ("while [ -f go ]", "unknown")),
    ("while true; do python train.py & wait; done", ("while true", "always")),
    ("for s in 1 2; do python train.py $s & wait $!; done", ("for s in 1 2", "rounds")),
    (
        "while true; do for g in 0 1; do python train.py & done; wait; done",
        ("while true", "always"),
    ),
    ("while true; do { python train.py; sleep 5; } 2>&1 | tee l; done", ("while true", "always")),
    ("while true; do python train.py --x {1,2}; done", ("while true", "always")),
    ("for g in 0 1; do (python train.py) >l 2>&1 & sleep 5; done", None),
    (  # no more than four at once: the end of one lets the next begin
        "for s in 1 2; do python train.py & while [ $(jobs|wc -l) -ge 4 ]; do sleep 1; done; done",
        ("for s in 1 2", "rounds"),
    ),
    # where its output goes puts nothing into the background
    ("while true; do python train.py >l 2>&1; done", ("while true", "always")),
    ("while true; do python train.py &>l; done", ("while true", "always")),
    ("while true; do python train.py >l 2>&1 && break; done", ("while true", "failure")),
    ("for s in 1 2; do (python train.py >l 2>&1); ls & done", ("for s in 1 2", "rounds")),
    # no loop runs it
    ("python train.py; while true; do sleep 60; done", None),
    ("python train.py", None),
    ("while true; do nvidia-smi; done & python train.py", None),
    ("while true; do tail -n1 train.py; sleep 1; done", None),
    ("while true; do rsync train.py away:; done", None),
    ("# while true; do\npython train.py", None),
    ("echo 'while true; do python train.py; done'", None),
    ("while read line; do echo $line; done < list; python train.py", None),
]


@pytest.mark.parametrize(("text", "wanted"), TEXTS)
def test_which_loop_starts_it_again(text: str, wanted: tuple[str, str] | None) -> None:
    found = loop_around(text, lambda words: runs(words, NAMES))
    assert (None if found is None else (found.head, found.again)) == wanted


def test_the_pause_between_two_lives_is_read() -> None:
    found = loop_around(
        "while true; do python train.py; sleep 7.5; done", lambda w: "train.py" in w
    )
    assert found is not None
    assert found.delay_s == 7.5


@pytest.mark.parametrize(
    "text", ["", "while", "done done", "do", "'", '"', "while true; do (", "\0"]
)
def test_half_a_script_is_no_error(text: str) -> None:
    assert loop_around(text, lambda words: runs(words, NAMES)) is None


def test_what_a_loop_will_do_is_said() -> None:
    assert told(Loop("while true", "always")) == "starts it again whatever it returns (while true)"
    assert "until it exits 0" in told(Loop("until x", "failure"))
    assert "may start it again" in told(Loop("while [ -f go ]", "unknown"))
