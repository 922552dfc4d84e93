"""Simulated jobs in virtual time, for the playbooks' rehearsals and for stories in tests."""
