"""Whole files, many at a time: from paths to files, and what list, show, scan and verify say of them."""
