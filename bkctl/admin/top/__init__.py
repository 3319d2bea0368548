"""Watch bookies for ``bkctl top``: samples, where they come from, and what holds a bookie back."""
