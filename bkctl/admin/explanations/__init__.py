"""The meaning of BookKeeper's numbers and names of errors, and of the words that an operator meets."""
