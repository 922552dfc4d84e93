"""What a hold says while it lasts: each thing once, however often it is looked at."""

from __future__ import annotations

import io
from datetime import UTC

from fleetstop.view.lines import Lines
from tests.view import scenes as s


def told(*story: object) -> list[str]:
    out = io.StringIO()
    with Lines(out, zone=UTC, width=300) as lines:
        for event in story:
            lines(event)  # type: ignore[arg-type]
    return [each[10:] for each in out.getvalue().splitlines() if each[:2] == "14"]


def test_a_file_that_gets_its_final_name_is_the_same_save() -> None:
    temporary = "step_41212.pt.tmp open for writing by 26982"
    assert told(
        s.held("14:02:14", "saving", "step_41212.pt.tmp growing"),
        s.held("14:02:15", "saving", f"{temporary}, 48.8 KiB, growing"),
        s.held(
            "14:02:16", "saving", f"{temporary}, 2.1 GiB of about 4.2 GiB (size of step_41000.pt)"
        ),
        s.held("14:02:17", "saving", "step_41212.pt growing"),
        s.held("14:02:18", "saving", "step_41212.pt.tmp has no final name yet"),
    ) == ["saving: step_41212.pt.tmp growing; no signal until it is whole"]


def test_many_files_of_one_kind_are_one_and_a_number() -> None:
    files = [
        f"rank_{rank}.pt.tmp open for writing by {rank + 5}, 1.5 MiB, growing" for rank in range(4)
    ]
    assert told(
        s.held("14:02:14", "saving", *files),
        s.held("14:02:15", "saving", files[3], files[1]),
        s.held("14:02:16", "saving", *files[2:], "step_41328 may not be whole yet"),
    ) == [
        f"saving: {files[0]} (and 3 more like it); no signal until they are whole",
        f"saving: {files[2]} (and 1 more like it), step_41328 may not be whole yet; "
        "no signal until they are whole",
    ]


def test_another_file_is_news() -> None:
    assert (
        len(
            told(
                s.held("14:02:14", "saving", "model.safetensors growing"),
                s.held("14:02:15", "saving", "optimizer.pt growing"),
            )
        )
        == 2
    )


def test_what_became_of_the_signal_has_its_own_line_and_is_not_said_again() -> None:
    account = "26982 took INT 2.4 s ago (nothing is pending) and waits in C code"
    story = (
        s.held("14:02:14", "stopping", "CPU 3 %", "memory growing"),
        s.held("14:02:16", "stopping", "CPU 4 %", "memory growing", account),
        s.held("14:02:18", "stopping", "CPU 0 %", account, over=True),
    )
    first, over, facts = told(*story)
    assert first == "moving since the signal: CPU 3 %, memory growing"
    assert over.endswith("are over; nothing more is sent: it is still stopping")
    assert facts == "CPU 0 %"
    assert told(s.held("14:02:16", "stopping", account)) == [f"moving since the signal: {account}"]


def test_where_nothing_was_seen_to_move_it_is_not_told_as_moving() -> None:
    still = "no sign of progress in 1.1 s (CPU, memory): too short to tell"
    (first,) = told(s.held("14:02:14", "stopping", "CPU 0 %", still))
    assert first == f"quiet since the signal: CPU 0 %, {still}"
