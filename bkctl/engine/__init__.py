"""The bookie's storage: journal, caches, entry logs, indexes. Threads and callbacks, no event loop."""
