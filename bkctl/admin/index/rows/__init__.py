"""Rows of locations by the million: sorted, in runs on disk, laid beside each other, missed."""
