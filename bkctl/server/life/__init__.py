"""A bookie's life: identity, directories, start, stop, mode, and the process that it is."""
