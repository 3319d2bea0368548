"""``bkctl bookie``: ``app`` has the noun, the other modules have verbs."""
