"""The layout of a database's tables, as a Java bookie chooses it for its two databases.

========================= ================== ==================
setting                   ``locations``      ``ledgers``
========================= ================== ==================
format version, checksum  5, kxxHash         5, kxxHash
compression               LZ4                Snappy
block                     64 KiB             4 KiB
filter                    bloom, 10 bits     none
index and filter blocks   in the block cache held in memory
level sizes               dynamic            static
memtables                 4 of 64 MiB        2 of 64 MiB
level 1, target file      256 MiB, 64 MiB    256 MiB, 64 MiB
write-ahead logs          512 MiB at most    no bound
========================= ================== ==================

RocksDB 7.10 (BookKeeper 4.17.3) refuses tables of format version 6 and later, which newer libraries write by
default; 5 is therefore part of the format and not of a profile.

Source: ``KeyValueStorageRocksDB`` and ``DbLedgerStorage`` of 4.17.3, and the OPTIONS files that it writes.
"""

from __future__ import annotations

from dataclasses import dataclass

FORMAT_VERSION = 5


@dataclass(frozen=True, slots=True)
class StoreProfile:
    """Settings of one kind of database.

    ``lz4`` False means Snappy; ``bloom_bits_per_key`` 0 means no filter; ``write_ahead_log_bytes`` 0 means
    no bound. ``block_cache_bytes`` and ``background_jobs`` leave no trace on disk.
    """

    name: str
    lz4: bool
    block_bytes: int
    bloom_bits_per_key: int
    cache_index_and_filter_blocks: bool
    dynamic_level_bytes: bool
    memtables_max: int
    write_ahead_log_bytes: int
    memtable_bytes: int = 64 << 20
    level0_files_trigger: int = 4
    level1_bytes: int = 256 << 20
    target_file_bytes: int = 64 << 20
    block_cache_bytes: int = 128 << 20
    background_jobs: int = 4


LOCATIONS_PROFILE = StoreProfile(
    name="locations",
    lz4=True,
    block_bytes=64 << 10,
    bloom_bits_per_key=10,
    cache_index_and_filter_blocks=True,
    dynamic_level_bytes=True,
    memtables_max=4,
    write_ahead_log_bytes=512 << 20,
)

LEDGERS_PROFILE = StoreProfile(
    name="ledgers",
    lz4=False,
    block_bytes=4 << 10,
    bloom_bits_per_key=0,
    cache_index_and_filter_blocks=False,
    dynamic_level_bytes=False,
    memtables_max=2,
    write_ahead_log_bytes=0,
    block_cache_bytes=8 << 20,
    background_jobs=2,
)
