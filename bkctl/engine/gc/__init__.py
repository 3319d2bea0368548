"""Garbage collection of one ledger directory: which ledgers go, which logs, and what is copied first."""
