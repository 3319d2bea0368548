"""The key-value seam: RocksDB and its memory twin."""
