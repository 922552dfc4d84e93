from __future__ import annotations

from fleetstop.core.stacks import MOST_LINES, parse_dump

DUMP = b"""Process 6: python3 -u /root/train.py --hf-token hf_Zq9xW3vK7pLm2RtYAb
Python v3.11.2 (/usr/bin/python3.11)

Thread 9 (active): "loader"
    fetch (data.py:3)
Thread 6 (idle): "MainThread"
    compute (train.py:245)
    <module> (train.py:279)
Thread 11 (idle): "Thread-1"
    wait (threading.py:320)
"""


def test_the_main_thread_is_told_and_no_other() -> None:
    dump = parse_dump(DUMP, 0)
    assert dump.problem is None
    assert dump.lines == (
        'Thread 6 (idle): "MainThread"',
        "    compute (train.py:245)",
        "    <module> (train.py:279)",
    )


def test_without_a_name_it_is_the_first() -> None:
    dump = parse_dump(b"Thread 0x7F (active)\n    f (a.py:1)\n", 0)
    assert dump.lines == ("Thread 0x7F (active)", "    f (a.py:1)")


def test_a_deep_stack_is_cut_and_counted() -> None:
    frames = b"".join(b"    f%d (a.py:%d)\n" % (n, n) for n in range(30))
    dump = parse_dump(b'Thread 6 (idle): "MainThread"\n' + frames, 0)
    assert len(dump.lines) == MOST_LINES + 1
    assert dump.lines[-1] == f"    … {31 - MOST_LINES} more"


def test_what_it_says_instead_is_the_problem() -> None:
    dump = parse_dump(b"Error: Failed to get process executable name.\nPermission Denied\n", 1)
    assert (dump.lines, dump.problem) == ((), "Permission Denied")
    assert parse_dump(b"", 101).problem == "py-spy ended with 101"


def test_hostile_names_and_secrets_are_shown_harmless() -> None:
    said = b'Thread 6 (idle): "MainThread"\n    \x1b[31mtoken=hf_Zq9xW3vK7pLm2RtYAb (a.py:1)\n'
    (_, frame) = parse_dump(said, 0).lines
    assert "hf_Zq9x" not in frame
    assert "\x1b" not in frame
