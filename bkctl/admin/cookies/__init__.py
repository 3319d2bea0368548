"""Cookies in directories and in the metadata store: reading, comparing, and planned changes."""
