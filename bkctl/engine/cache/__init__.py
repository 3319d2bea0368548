"""Write and read caches of a ledger directory, bounded in bytes."""
