"""A bookie's directories: which of them make one bookie, whose they are, and who is using them."""
