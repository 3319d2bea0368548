"""Plain counters that a thread bumps once per batch; exposition reads them when it is asked."""
