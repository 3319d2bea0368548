"""The metadata store in one SQLite file: its file, the tree in it, leases, watches."""
