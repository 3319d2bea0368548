"""bkctl: read, check, repair, administer and run Apache BookKeeper storage."""

__version__ = "0.1.0"
