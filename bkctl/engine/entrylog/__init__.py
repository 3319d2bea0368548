"""The entry logs of one ledger directory: appended by the flush, read by everybody."""
