"""The one read-only reader of bookie directories. Never writes, never locks, leaves no file behind."""
