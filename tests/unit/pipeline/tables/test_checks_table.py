"""Table ``checks`` against table ``entries``: the same verdicts, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.log_builder import EntryLogBuilder, entry_body
from tests.support.table_rows import ROWS, table_rows

FLIPPED = {(1, 3), (2, 0)}
UNKNOWN_LEDGER = 9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two logs: three ledgers between each other, some entries flipped, a ledger of unknown digest."""
    for log_id in range(2):
        log = EntryLogBuilder()
        for entry in range(40):
            for ledger in range(1, 4):
                body = bytearray(entry_body(ledger, entry, b"payload %d" % entry))
                if log_id == 0 and (ledger, entry) in FLIPPED:
                    body[-1] ^= 1
                log.add(bytes(body))
        log.add(entry_body(UNKNOWN_LEDGER, 0)[:32] + b"\x01\x02\x03\x04\x05 of no type")
        (tmp_path / f"{log_id:x}.log").write_bytes(log.roll().data)
    return tmp_path


def test_every_entry_is_counted_once_and_bad_ones_are_named(folder: Path) -> None:
    entries = table_rows("entries", [folder])
    checks = table_rows("checks", [folder])
    expected: Counter[Any] = Counter()
    sizes: Counter[Any] = Counter()
    for row in entries:
        bad = row["digest_ok"] is False
        key = (
            row["log_id"], row["ledger"], row["digest"], row["digest_ok"],
            row["entry"] if bad else None, row["offset"] if bad else None,
        )  # fmt: skip
        expected[key] += 1
        sizes[key] += row["size"]
    names = ("log_id", "ledger", "digest", "digest_ok", "bad_entry", "bad_offset")
    found = {tuple(row[name] for name in names): (row["entries"], row["bytes"]) for row in checks}
    assert found == {key: (expected[key], sizes[key]) for key in expected}
    assert len(found) == len(checks)
    assert {(row["ledger"], row["bad_entry"]) for row in checks if row["digest_ok"] is False} == FLIPPED
    assert {row["digest_ok"] for row in checks if row["ledger"] == UNKNOWN_LEDGER} == {None}


def test_only_bad_leaves_the_bad_ones(folder: Path) -> None:
    rows = table_rows("checks", [folder], replace(ROWS, only_bad=True))
    assert {(row["ledger"], row["bad_entry"]) for row in rows} == FLIPPED


def test_without_digests_nothing_is_judged(folder: Path) -> None:
    rows = table_rows("checks", [folder], replace(ROWS, digest="off"))
    assert {row["digest_ok"] for row in rows} == {None}
    assert sum(row["entries"] for row in rows) == 2 * (40 * 3 + 1)
