"""``bkctl metadata``: ``app`` has the noun and its verbs, the other module has rows."""
