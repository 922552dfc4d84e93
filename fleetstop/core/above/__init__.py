"""What stands above a trainer and starts it again: launchers, ranks, supervisors, units."""
