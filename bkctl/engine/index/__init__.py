"""The two indexes of one ledger directory: where its entries are, and what is known of its ledgers."""
