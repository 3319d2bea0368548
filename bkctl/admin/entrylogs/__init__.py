"""Entry logs of a stopped bookie that are set aside, brought back, or copied as far as they can be read."""
