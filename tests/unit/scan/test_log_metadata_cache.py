"""Rows of the metadata-cache database, good and damaged."""

from __future__ import annotations

import pytest

from bkctl.codec.entry_log_metadata import EntryLogMetadata, encode_entry_log_metadata, encode_log_key
from bkctl.errors import CorruptionError
from bkctl.kvstore.memory import MemoryReader
from bkctl.scan.index_rows import IndexDamage
from bkctl.scan.log_metadata_cache import LogMetadataCache
from tests.unit.scan.index_samples import sample


def test_real_metadata_cache() -> None:
    cache = LogMetadataCache.open(sample("g/l") + "/metadata-cache")
    assert list(cache.rows()) == [EntryLogMetadata(1, 50, 50, ((7, 50),))]
    assert cache.get(1) == EntryLogMetadata(1, 50, 50, ((7, 50),))
    assert cache.get(0) is None
    cache.close()


def test_damaged_metadata_rows_are_values() -> None:
    good = EntryLogMetadata(1, 10, 10)
    encoded = encode_entry_log_metadata(good)
    cache = LogMetadataCache(
        MemoryReader({encode_log_key(1): encoded, encode_log_key(2): encoded, encode_log_key(3): b""})
    )
    rows = list(cache.rows())
    assert rows[0] == good
    assert [row.key_hex[-1] for row in rows if isinstance(row, IndexDamage)] == ["2", "3"]
    for log_id in (2, 3):
        with pytest.raises(CorruptionError):
            cache.get(log_id)
