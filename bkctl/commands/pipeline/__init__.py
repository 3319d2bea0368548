"""``bkctl pipeline``: ``app`` has the noun, the other modules have options and a verb."""
