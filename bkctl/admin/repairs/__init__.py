"""Keep the records of what repairs did, and find the way back with ``repair undo``."""
