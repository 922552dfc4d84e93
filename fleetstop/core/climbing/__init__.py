"""The parts of the ladder: consent, holds, rungs, and the steps that come of them."""
