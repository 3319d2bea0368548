"""Ledgers of a cluster: which exist, why one does not open, recovering and deleting them."""
