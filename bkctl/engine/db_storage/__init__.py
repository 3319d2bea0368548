"""DbLedgerStorage: write caches, entry logs, and two databases as the index of each ledger directory."""
