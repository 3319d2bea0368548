"""``index rebuild``: a new index from entry logs and journals, built beside the old one, then swapped."""
