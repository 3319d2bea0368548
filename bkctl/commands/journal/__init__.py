"""``bkctl index``: ``app`` has the noun, the other modules have verbs."""
