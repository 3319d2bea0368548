"""A bookie's directories: which of them make one bookie, its cookies, and the processes that use them."""
