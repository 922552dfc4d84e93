"""Rules as functions: no clock, loop, file, socket or randomness below this line."""
