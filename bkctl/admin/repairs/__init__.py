"""What repairs did, and the way back: their records, and ``repair undo``."""
