"""The index of a stopped bookie: built, checked, repaired, and what its databases are made of."""
