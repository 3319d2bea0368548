"""Settings of a bookie for tests: files and caches so small that a few hundred entries fill them."""

from __future__ import annotations

SMALL = {
    "httpServerEnabled": "false",
    "journalMaxSizeMB": "1",
    "journalPreAllocSizeMB": "1",
    "dbStorage_writeCacheMaxSizeMb": "2",
    "dbStorage_readAheadCacheMaxSizeMb": "4",
    "logSizeLimit": "65536",
}
