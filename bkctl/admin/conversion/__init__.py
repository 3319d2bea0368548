"""``bookie convert``: the index of a stopped bookie in the files of another ledger storage."""
