"""Releases: what is sent, where it lands, what differs, what is kept; sends and reads nothing."""
