"""Sizes of caches against the machine's memory, and a block cache too small for the index's filters."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import join

from bkctl.admin.doctor.examination import Examination
from bkctl.admin.doctor.finding import Finding, Kind, Severity
from bkctl.admin.next_step import not_ended
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.synced_log import read_note
from bkctl.scan.index_databases import LOCATIONS

CHECK = "memory"
_MEMORY_SHARE_MAX = 0.8
_MIB = 1 << 20
#: How RocksDB cuts the LRU cache of Java's bookie up: into 64 shards, fewer where one would be below 512 KiB.
_SHARDS_MAX = 64
_SHARD_BYTES_MIN = 512 << 10
#: A location takes about this much in a compressed table; what a table's size says of its number of keys.
_TABLE_BYTES_PER_KEY = 7


def check_memory(exam: Examination) -> Iterator[Finding]:
    """Report caches that do not fit the machine, and filters that do not fit a shard of the block cache."""
    if exam.config is None:
        return
    yield from _caches(exam)
    yield from _block_cache(exam)


def _caches(exam: Examination) -> Iterator[Finding]:
    config, memory_bytes = exam.config, exam.system.memory_bytes
    assert config is not None, "there is a configuration"
    storage = config.storage
    block_bytes = storage.index_block_cache_bytes * len(config.directories.ledgers)
    parts = {
        "write caches": storage.write_cache_bytes_max,
        "read caches": storage.read_cache_bytes_max,
        "index block caches": block_bytes,
        "journal queues": config.journal.queue_bytes_max,
    }
    total = sum(parts.values())
    if memory_bytes is None or total <= memory_bytes * _MEMORY_SHARE_MAX:
        return
    listed = ", ".join(f"{name} {size // _MIB} MiB" for name, size in parts.items())
    yield Finding(
        CHECK,
        Kind.CACHES_TOO_LARGE,
        Severity.WARNING,
        f"the caches take up to {total // _MIB} MiB ({listed}), the machine has {memory_bytes // _MIB} MiB",
        f"at most {_MEMORY_SHARE_MAX:.0%} of the machine's memory, the rest is the page cache's and the "
        "process's",
        not_ended(
            "no command changes a configuration: make the caches smaller in it, or give the bookie a smaller "
            "--memory",
            "doctor",
            *exam.command_options,
            "--only",
            CHECK,
        ),
    )


def shard_bytes(cache_bytes: int) -> int:
    """Compute the size of one shard of a block cache of Java's bookie."""
    bits = max(0, (cache_bytes // _SHARD_BYTES_MIN).bit_length() - 1)
    return cache_bytes // min(_SHARDS_MAX, 1 << bits)


def _block_cache(exam: Examination) -> Iterator[Finding]:
    """Report a filter that fits no shard: every look-up reads it from disk again, at 100 times the cost.

    So it is with Java's bookie; ours has a cache of another kind. Where ours has opened the index last, it is
    a note, for the day on which Java's comes back.
    """
    assert exam.config is not None, "there is a configuration"
    cache_bytes = exam.config.storage.index_block_cache_bytes
    room = shard_bytes(cache_bytes)
    for place in exam.subject.indexes:
        if place.found is None or LOCATIONS not in place.found.indexes:
            continue
        path = join(place.path, LOCATIONS)
        sizes = []
        for name in exam.filesystem.names(path):
            status = exam.filesystem.status(join(path, name)) if name.endswith(".sst") else None
            if status is not None:
                sizes.append(status.size_bytes)
        keys = max(sizes, default=0) // _TABLE_BYTES_PER_KEY
        filter_bytes = keys * LOCATIONS_PROFILE.bloom_bits_per_key // 8
        if filter_bytes > room:
            needed = -(-filter_bytes * _SHARDS_MAX // _MIB) * _MIB
            yield Finding(
                CHECK,
                Kind.BLOCK_CACHE_TOO_SMALL,
                Severity.NOTE if _is_ours(path) else Severity.WARNING,
                f"Java's bookie cuts a block cache of {cache_bytes // _MIB} MiB into shards of "
                f"{room >> 10} KiB, and the filter of the largest table has about {filter_bytes >> 10} KiB, "
                "so it is read again at every look-up (bkctl's own bookie keeps it)",
                f"dbStorage_rocksDB_blockCacheSize={needed} or more, or a larger --memory",
                not_ended(
                    f"no command changes a configuration: set dbStorage_rocksDB_blockCacheSize={needed} in "
                    "it",
                    "index",
                    "stats",
                    place.path,
                ),
                dir=place.path,
                path=path,
            )


def _is_ours(database: str) -> bool:
    """Return whether bkctl, and not Java, has opened a database last: only bkctl notes what is synced."""
    try:
        return read_note(database) is not None
    except OSError:
        return False
