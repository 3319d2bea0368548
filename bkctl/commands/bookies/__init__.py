"""``bkctl bookies``: the bookies of a cluster, and taking them out of it."""
