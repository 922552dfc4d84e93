"""Checkpoints: what a listing shows, what is whole, what is being written, what is at risk."""
