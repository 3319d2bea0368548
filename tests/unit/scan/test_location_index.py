"""Rows of the locations database, good and damaged."""

from __future__ import annotations

import pytest

from bkctl.codec.location import Location, LocationColumns, encode_key, encode_value
from bkctl.errors import CorruptionError
from bkctl.kvstore.memory import MemoryReader
from bkctl.scan.index_rows import IndexDamage
from bkctl.scan.location_index import LocationIndex
from tests.unit.scan.index_samples import flat


def location_row(ledger: int, entry: int, log_id: int = 1, offset: int = 0x404) -> tuple[bytes, bytes]:
    return encode_key(ledger, entry), encode_value(Location(log_id, offset))


def test_batches_are_bounded_and_filtered() -> None:
    rows = [location_row(ledger, entry) for ledger in (1, 2, 3) for entry in range(5000)]
    index = LocationIndex(MemoryReader(dict(rows)))
    sizes = [len(batch) for batch in index.rows() if isinstance(batch, LocationColumns)]
    assert sizes == [8192, 15000 - 8192]
    assert len(flat(index.rows(2))) == 5000
    assert flat(index.rows(2, (7, 8))) == [(2, 7, 1, 0x404), (2, 8, 1, 0x404)]
    assert flat(index.rows(None, (4999, 2**63 - 1))) == [(ledger, 4999, 1, 0x404) for ledger in (1, 2, 3)]
    assert flat(index.rows(2, (8, 7))) == []


def test_location_zero_and_negative_entries() -> None:
    index = LocationIndex(
        MemoryReader(
            {
                **dict([location_row(5, 0), location_row(5, -1), location_row(6, 3)]),
                encode_key(5, 1): bytes(8),
            }
        )
    )
    assert flat(index.rows(5)) == [(5, 0, 1, 0x404), (5, -1, 1, 0x404)]
    assert flat(index.rows(5, (-1, 0))) == [(5, 0, 1, 0x404), (5, -1, 1, 0x404)]
    assert index.get(5, 1) is None
    assert index.last_entry(5) == 0
    assert index.last_entry(4) is None


def test_damaged_location_rows_are_values() -> None:
    good = [location_row(5, 0), location_row(7, 0)]
    bad = {b"short": bytes(8), encode_key(6, 0): bytes(7), encode_key(6, 1): b"\xff" * 8}
    index = LocationIndex(MemoryReader({**dict(good), **bad}, "x/locations", damage="half a log"))
    rows = flat(index.rows())
    assert [row for row in rows if not isinstance(row, IndexDamage)] == [(5, 0, 1, 0x404), (7, 0, 1, 0x404)]
    damage = [row for row in rows if isinstance(row, IndexDamage)]
    assert {row.key_hex for row in damage} == {"", *(key.hex() for key in bad)}
    assert {row.path for row in damage} == {"x/locations"}
    assert damage[0].reason == "half a log"
    for entry in (0, 1):
        with pytest.raises(CorruptionError, match="x/locations: row 0000000000000006"):
            index.get(6, entry)
    with pytest.raises(CorruptionError, match="row 0000000000000006"):
        index.last_entry(6)
