"""Entry logs of a stopped bookie that are quarantined, brought back, or copied as far as they can be read."""
