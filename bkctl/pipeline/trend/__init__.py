"""How a fleet changes: the counts of past sets and of past runs, point by point."""
