"""What a launch shows of the job's log: what is new in it, not all of it."""

from __future__ import annotations

from fleetstop import events as e
from fleetstop.view import launching

AT = "2025-03-04T14:02:11+00:00"


def test_a_log_that_says_the_same_again_and_again_does_not_fill_the_screen() -> None:
    """With --verbose neither: a few of each kind, and how many more there were."""

    def story(*, verbose: bool) -> list[str]:
        spoken, said = launching.Spoken(), []
        for step in range(40):
            lines = (f"step {step} loss 1.8", *(["saving"] if step == 7 else []))
            event = e.LogSaid(at=AT, target="ct200", path="/l", lines=lines, left_out=1)
            said += launching.told(event, spoken, verbose=verbose)
        well = e.Healthy(at=AT, target="ct200", pids=(7,), by=("alive",), seconds=9.0)
        return [text for _, text in [*said, *launching.told(well, spoken, verbose=verbose)]]

    assert story(verbose=False) == [
        'log: "step 0 loss 1.8"', 'log: "saving"', "healthy after 9 s: alive",
    ]  # fmt: skip
    assert story(verbose=True) == [
        *(f'log: "step {step} loss 1.8"' for step in range(3)),
        'log: "saving"',
        "log: 77 lines more, not shown",
        "healthy after 9 s: alive",
    ]
