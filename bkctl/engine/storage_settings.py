"""What can be chosen about the storage of one ledger directory."""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.errors import UsageError

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Settings of one :class:`~bkctl.engine.ledger_storage.LedgerStorage`; byte bounds are per directory.

    ================================ ====================================================================
    field                            Java's key, or what it is
    ================================ ====================================================================
    write_cache_bytes_max            ``dbStorage_writeCacheMaxSizeMb`` / directories; both halves together
    read_cache_bytes_max             ``dbStorage_readAheadCacheMaxSizeMb`` / directories; 0 is no cache
    read_ahead_entries_max           ``dbStorage_readAheadCacheBatchSize``; 0 is no read-ahead
    read_ahead_bytes_max             ``dbStorage_readAheadCacheBatchBytesSize``; None (Java: -1) is what one
                                     segment of the read cache holds
    sequential_ledgers_max           ledgers whose last read entry is remembered, to tell a sequential reader
    flush_batch_entries_max, _bytes_ what the flush sorts and gives to the entry log in one go
    retry_ms                         wait before a failed flush is tried again
    ================================ ====================================================================

    Bytes count bodies and what Python adds to each (``ENTRY_OVERHEAD_BYTES``).
    """

    write_cache_bytes_max: int = 256 * _MIB
    read_cache_bytes_max: int = 256 * _MIB
    read_ahead_entries_max: int = 100
    read_ahead_bytes_max: int | None = None
    sequential_ledgers_max: int = 10_000
    flush_batch_entries_max: int = 500
    flush_batch_bytes_max: int = 2 * _MIB
    retry_ms: int = 1_000

    def __post_init__(self) -> None:
        positive = (
            "write_cache_bytes_max",
            "sequential_ledgers_max",
            "flush_batch_entries_max",
            "flush_batch_bytes_max",
            "retry_ms",
        )
        for name in positive:
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("read_cache_bytes_max", "read_ahead_entries_max"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must not be negative, but is {getattr(self, name)}")
        if self.read_ahead_bytes_max is not None and self.read_ahead_bytes_max < 1:
            raise UsageError(f"read_ahead_bytes_max must be at least 1, not {self.read_ahead_bytes_max}")
