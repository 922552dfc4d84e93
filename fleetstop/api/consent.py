"""What somebody agreed to, as they said it: options into consent and its terms."""

from __future__ import annotations

from fleetstop.core.climbing.consent import Consent, Terms
from fleetstop.core.durations import FOREVER, parse_duration
from fleetstop.errors import BadUsage


def agreed(
    *,
    graceful: bool,
    force: bool,
    max_loss: str | float | None,
    after_checkpoint: bool,
    at_most: str | float | None,
) -> tuple[Consent, Terms]:
    """Raises BadUsage where two of them contradict each other. Numbers are seconds."""
    said = ["--max-loss"] if max_loss is not None else []
    said += ["--after-checkpoint"] if after_checkpoint else []
    said += ["--at-most"] if at_most is not None else []
    if graceful and (force or said):
        other = "--force" if force else said[0]
        raise BadUsage(
            f"--graceful and {other} contradict each other",
            hint=f"--graceful never loses work; {other} agrees to it. Choose one",
        )
    if force and said:
        raise BadUsage(
            f"--force and {said[0]} contradict each other",
            hint=f"--force agrees to any loss, {said[0]} to a limited one. Choose one",
        )
    if at_most is not None and not after_checkpoint:
        raise BadUsage("--at-most says how long --after-checkpoint waits; it is missing")
    terms = Terms(
        max_loss_s=_seconds("--max-loss", max_loss) if max_loss is not None else None,
        after_checkpoint=after_checkpoint,
        at_most_s=_seconds("--at-most", at_most) if at_most is not None else FOREVER,
    )
    return "given" if force else "refused" if graceful else "absent", terms


def _seconds(option: str, said: str | float) -> float:
    if isinstance(said, str):
        try:
            said = parse_duration(said)
        except BadUsage as exc:
            raise BadUsage(f"{option}: {exc.message}", hint=exc.hint) from exc
    if option == "--max-loss" and said == FOREVER:
        raise BadUsage(
            "--max-loss forever: that is any loss", hint="--force agrees to whatever is lost"
        )
    if said <= 0:
        raise BadUsage(f"{option}: {said:g} s is no time", hint="write 90s, 10m or 2h")
    return float(said)
