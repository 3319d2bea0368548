"""``bkctl ledger``: ``app`` has the noun, the other modules have verbs."""
