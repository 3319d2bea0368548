"""Journals and last marks that are changed while their bookie is stopped."""
