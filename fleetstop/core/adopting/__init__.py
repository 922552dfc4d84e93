"""A job that somebody started by hand, as the inventory would name it; asks and writes nothing."""
