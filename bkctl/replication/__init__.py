"""Putting lost replicas back: which fragments miss copies, copying them, and the processes that do it."""
