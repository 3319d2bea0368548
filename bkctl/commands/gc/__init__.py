"""``bkctl gc``: ``app`` has the noun, the other modules have verbs and rows."""
