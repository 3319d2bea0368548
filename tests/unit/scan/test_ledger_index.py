"""Rows of the ledgers database, good and damaged."""

from __future__ import annotations

import pytest

from bkctl.codec.ledger_data import FLAGS_ID, LedgerData, encode_ledger_data, encode_ledger_key
from bkctl.errors import CorruptionError
from bkctl.kvstore.memory import MemoryReader
from bkctl.scan.index_rows import IndexDamage, LedgerRow
from bkctl.scan.ledger_index import LedgerIndex
from tests.unit.scan.index_samples import KEY


def ledger_index(rows: dict[bytes, bytes]) -> LedgerIndex:
    return LedgerIndex(MemoryReader(rows, "x/ledgers"))


def test_merged_prefers_the_short_key() -> None:
    real, rebuilt = LedgerData(False, KEY), LedgerData(True, b"")
    index = ledger_index(
        {
            encode_ledger_key(5): encode_ledger_data(real),
            encode_ledger_key(5) + bytes(8): encode_ledger_data(rebuilt),
            encode_ledger_key(6) + bytes(8): encode_ledger_data(rebuilt),
            encode_ledger_key(FLAGS_ID): bytes(8),
        }
    )
    assert list(index.rows()) == [LedgerRow(5, real), LedgerRow(5, rebuilt, 16), LedgerRow(6, rebuilt, 16)]
    assert list(index.merged()) == [LedgerRow(5, real), LedgerRow(6, rebuilt, 16)]
    assert index.get(5) == LedgerRow(5, real)
    assert index.get(6) == LedgerRow(6, rebuilt, 16)
    assert not index.needs_integrity_check()


def test_damaged_ledger_rows_are_values() -> None:
    bad = {
        encode_ledger_key(6): b"\x08",
        b"\0" * 9: b"",
        encode_ledger_key(-1): b"",
        encode_ledger_key(FLAGS_ID): b"\0" * 7 + b"\2",
    }
    index = ledger_index({encode_ledger_key(5): encode_ledger_data(LedgerData(False, KEY)), **bad})
    rows = list(index.rows())
    assert {row.key_hex for row in rows if isinstance(row, IndexDamage)} == {key.hex() for key in bad}
    assert [row.ledger for row in rows if isinstance(row, LedgerRow)] == [5]
    with pytest.raises(CorruptionError, match="row 0000000000000006"):
        index.get(6)
    with pytest.raises(CorruptionError, match="flags"):
        index.needs_integrity_check()
