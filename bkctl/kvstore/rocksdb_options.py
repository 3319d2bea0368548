"""The options of RocksDB for a :class:`~bkctl.kvstore.profile.StoreProfile`."""

from __future__ import annotations

import rocksdict

from bkctl.kvstore.profile import FORMAT_VERSION, StoreProfile

# A Java bookie keeps as many text logs; RocksDB's default is a thousand.
_TEXT_LOGS_KEPT = 30


def block_cache(size_bytes: int) -> rocksdict.Cache:
    """Return a cache of blocks, filters and indexes of tables, of at most ``size_bytes``.

    RocksDB's older kind of cache, which Java's bookie has, is cut into up to 64 shards, and a block that is
    larger than a shard is never kept: the filter of a table with a million rows would be read from the disk
    at every look-up, at a hundred times the cost. Shards of this kind have 32 MiB at least (ADR 0028).
    """
    # 0 means that blocks have all sizes.
    return rocksdict.Cache.new_hyper_clock_cache(size_bytes, 0)


def family_options(profile: StoreProfile) -> rocksdict.Options:
    """Return the options of the column family and its tables, which are those of a table file as well."""
    table = rocksdict.BlockBasedOptions()
    table.set_format_version(FORMAT_VERSION)
    table.set_checksum_type(rocksdict.ChecksumType.xxhash())
    table.set_block_size(profile.block_bytes)
    table.set_block_cache(block_cache(profile.block_cache_bytes))
    table.set_cache_index_and_filter_blocks(profile.cache_index_and_filter_blocks)
    if profile.bloom_bits_per_key:
        table.set_bloom_filter(profile.bloom_bits_per_key, False)
    options = rocksdict.Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    kinds = rocksdict.DBCompressionType
    options.set_compression_type(kinds.lz4() if profile.lz4 else kinds.snappy())
    options.set_write_buffer_size(profile.memtable_bytes)
    options.set_max_write_buffer_number(profile.memtables_max)
    options.set_level_zero_file_num_compaction_trigger(profile.level0_files_trigger)
    options.set_max_bytes_for_level_base(profile.level1_bytes)
    options.set_target_file_size_base(profile.target_file_bytes)
    options.set_level_compaction_dynamic_level_bytes(profile.dynamic_level_bytes)
    return options


def database_options(profile: StoreProfile, *, create: bool, synced_known: bool) -> rocksdict.Options:
    """Return the options of the database as a whole.

    A write-ahead log that is damaged before its end fails the open instead of losing the rows behind the
    damage; a crash leaves a torn tail. With ``synced_known`` the synced part of the log was found whole
    (``kvstore.synced_log``), so that a hole behind it is the end of the log.
    """
    modes = rocksdict.DBRecoveryMode
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(create)
    options.set_wal_recovery_mode(
        modes.point_in_time() if synced_known else modes.tolerate_corrupted_tail_records()
    )
    options.set_max_total_wal_size(profile.write_ahead_log_bytes)
    options.set_max_background_jobs(profile.background_jobs)
    options.set_keep_log_file_num(_TEXT_LOGS_KEPT)
    return options
