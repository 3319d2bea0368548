"""``bkctl cookie``: ``app`` has the noun, the other modules have verbs."""
