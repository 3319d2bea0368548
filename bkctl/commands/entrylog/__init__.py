"""``bkctl entrylog``: what is in entry logs, and what can be saved of it."""
