"""Verbs that work on files."""
