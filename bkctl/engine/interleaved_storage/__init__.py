"""SortedLedgerStorage and InterleavedLedgerStorage: entry logs with an ``.idx`` file for each ledger."""
