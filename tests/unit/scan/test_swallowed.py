"""Size words that end exactly behind a following record."""

from __future__ import annotations

import struct

import pytest

from bkctl.codec.journal import fence_record, master_key_record
from bkctl.scan.checked import ALL, CheckedBatch, CheckedItem, Wanted, checked
from bkctl.scan.damage import Damage
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.journal import JournalScan
from bkctl.scan.proof import Evidence
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.log_builder import (
    CRC32C,
    DUMMY,
    Built,
    EntryLogBuilder,
    JournalBuilder,
    entry_body,
    simple_log,
)

BOOK = {11: CRC32C, 12: CRC32C, 13: CRC32C}


def swallow(built: Built, index: int, count: int) -> bytes:
    first, last = built.entries[index], built.entries[index + count]
    return (
        built.data[: first.offset]
        + struct.pack(">i", last.end - first.offset - 4)
        + built.data[first.offset + 4 :]
    )


def read(data: bytes, wanted: Wanted = ALL, *, journal: bool = False) -> list[CheckedItem]:
    book = DigestBook(BOOK)
    system = MemoryFileSystem({"/0.log": data})
    evidence = Evidence(digesters=book.digesters)
    opened = JournalScan(system, "/0.log", evidence) if journal else EntryLogScan(system, "/0.log", evidence)
    with opened as scan:
        return list(checked(scan, scan.records, book, wanted))


def found(items: list[CheckedItem]) -> dict[int, bool | None]:
    return {
        item.batch.offset(index): item.check.ok(index, ledger)
        for item in items
        if isinstance(item, CheckedBatch)
        for index, ledger in enumerate(item.batch.ledgers)
    }


@pytest.mark.parametrize("index", [0, 5, 20])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_taken_apart(index: int, count: int) -> None:
    built = simple_log(3, 8)
    items = read(swallow(built, index, count))
    assert found(items) == dict.fromkeys((entry.offset for entry in built.entries), True)
    (damage,) = (item for item in items if isinstance(item, Damage))
    assert (damage.offset, damage.size_bytes) == (built.entries[index].offset, 4)


def test_two_in_one_batch() -> None:
    built = simple_log(3, 8)
    data = swallow(built, 2, 2)
    second = swallow(built, 10, 3)
    data = data[: built.entries[10].offset] + second[built.entries[10].offset :]
    items = read(data)
    assert len(found(items)) == len(built.entries)
    assert sum(isinstance(item, Damage) for item in items) == 2


def test_across_padding_and_special_records() -> None:
    journal = JournalBuilder()
    journal.special(master_key_record(11, bytes(20)))
    first = journal.add(entry_body(11, 0))
    journal.flush()
    journal.special(fence_record(11))
    journal.add(entry_body(11, 1))
    journal.flush()
    journal.add(entry_body(11, 2))
    built = journal.build()
    items = read(swallow(built, 0, 2), journal=True)
    assert found(items) == dict.fromkeys((entry.offset for entry in built.entries), True)
    assert sum(isinstance(item, MarkedRecord) for item in items) == 4
    assert [item.offset for item in items if isinstance(item, Damage)] == [first.offset]


def test_only_what_is_wanted_comes_out() -> None:
    built = simple_log(3, 8)
    items = read(swallow(built, 3, 3), Wanted(ledger=11))
    assert found(items).keys() == {entry.offset for entry in built.entries if entry.ledger == 11}


def test_a_log_inside_a_payload_is_not_taken_out_when_the_entry_fails() -> None:
    inner = simple_log(2, 3).data
    log = EntryLogBuilder()
    log.add(entry_body(11, 0))
    outer = log.add(entry_body(11, 1, inner))
    log.add(entry_body(11, 2))
    data = bytearray(log.build().data)
    data[outer.end - 1] ^= 1
    assert found(read(bytes(data)))[outer.offset] is False
    assert len(found(read(bytes(data)))) == 3


def test_one_byte_of_filler_too_much() -> None:
    log = EntryLogBuilder(direct=True)
    only = log.add(entry_body(11, 0, b"text"))
    log.flush()
    data = bytearray(log.build().data)
    data[only.offset + 3] += 1
    assert found(read(bytes(data))) == {only.offset: True}


def test_without_a_digest_nothing_can_be_told() -> None:
    log = EntryLogBuilder()
    for entry in range(3):
        log.add(entry_body(50, entry, b"text", DUMMY))
    items = read(swallow(log.build(), 0, 1))
    assert list(found(items).values()) == [None, None]
