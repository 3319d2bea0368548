"""Journals as a whole: versions, special records, padding, tails."""

from __future__ import annotations

import struct

import pytest

from bkctl.codec import journal as codec
from bkctl.codec.journal import RecordKind
from bkctl.codec.last_mark import LastMark
from bkctl.scan.damage import Tail, Verdict
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import JournalFile
from bkctl.scan.files import journals as verbs
from bkctl.scan.files.verdicts import FileVerdict
from bkctl.scan.journal import JournalScan, unsynced_from
from bkctl.vfs import FileSystem
from bkctl.vfs.faulty import FaultyFileSystem, ReadFault
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.log_builder import Built, JournalBuilder, entry_body, simple_journal

PATH = "/j/current/5.txn"


def verify(data: bytes, mark: LastMark | None = None, system: FileSystem | None = None) -> FileVerdict:
    chosen = system or MemoryFileSystem({PATH: data})
    (verdict,) = verbs.verify_journals(chosen, [JournalFile(PATH, 5, len(data))], DigestBook(), mark=mark)
    return verdict


def ids(data: bytes) -> list[tuple[int, int]]:
    with JournalScan(MemoryFileSystem({PATH: data}), PATH) as scan:
        return [pair for batch in scan.batches() for pair in zip(batch.ledgers, batch.entries, strict=True)]


def kinds(data: bytes) -> list[RecordKind | None]:
    with JournalScan(MemoryFileSystem({PATH: data}), PATH) as scan:
        return [item.kind for item in scan if isinstance(item, MarkedRecord)]


def zeroed(built: Built, start: int, stop: int) -> bytes:
    return built.data[:start] + bytes(stop - start) + built.data[stop:]


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize("preallocated", [False, True])
def test_every_version_is_clean(version: int, preallocated: bool) -> None:
    built = simple_journal(version, preallocated=preallocated)
    verdict = verify(built.data)
    assert (verdict.verdict, verdict.damage) == (Verdict.CLEAN, ())
    assert verdict.records == 16 + (2 if version >= 3 else 0)
    assert ids(built.data) == [(entry.ledger, entry.entry) for entry in built.entries]


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (b"", Verdict.CLEAN),
        (b"BKLG", Verdict.TORN_TAIL),
        (codec.encode_header(6)[:100], Verdict.TORN_TAIL),
        (codec.encode_header(6), Verdict.CLEAN),
        (codec.encode_header(4), Verdict.CLEAN),
        (codec.encode_header(6) + bytes(1 << 16), Verdict.CLEAN),
        (bytes(4096), Verdict.CLEAN),
    ],
)
def test_journals_without_records(data: bytes, verdict: Verdict) -> None:
    assert verify(data).verdict is verdict


@pytest.mark.parametrize("data", [b"BKLG\0\0\0\7", b"XXXX\0\0\0\6", bytes(8), b"\xff" * 8])
def test_a_damaged_header_is_named_and_entries_delivered(data: bytes) -> None:
    built = simple_journal(6)
    bad = data + built.data[8:]
    verdict = verify(bad)
    assert verdict.verdict is Verdict.DAMAGED
    assert verdict.first_bad_offset is not None
    assert verdict.first_bad_offset < 8
    assert ids(bad) == [(entry.ledger, entry.entry) for entry in built.entries]


def special_journal(record: bytes) -> Built:
    journal = JournalBuilder()
    for entry in range(4):
        journal.add(entry_body(11, entry))
    journal.put(record, "special")
    for entry in range(4, 8):
        journal.add(entry_body(11, entry))
    journal.flush()
    return journal.build()


def record(entry: int, rest: bytes, size: int | None = None) -> bytes:
    return struct.pack(">iqq", 16 + len(rest) if size is None else size, 11, entry) + rest


@pytest.mark.parametrize(
    "data",
    [
        record(-0x2000, b"xx"),
        record(-0x1000, b""),
        record(-0x1000, struct.pack(">i", 9) + bytes(20)),
        record(-0x8000, struct.pack(">i", -1) + bytes(20)),
        record(-0x1000, struct.pack(">i", 20) + bytes(20), size=100),
        record(-0x1000, struct.pack(">i", 20) + bytes(20), size=30),
        record(-0x3000, b""),
        record(-1, bytes(30)),
        struct.pack(">ii", -256, -5),
        struct.pack(">ii", -256, 2**31 - 1),
        struct.pack(">ii", -256, 40),
        struct.pack(">ii", -256, 3),
        struct.pack(">ii", -256, 8) + b"\0\0\0\1\0\0\0\0",
        struct.pack(">i", -256),
        struct.pack(">i", -1),
        struct.pack(">i", 7) + bytes(7),
    ],
)
def test_a_malformed_record_costs_no_entry(data: bytes) -> None:
    built = special_journal(data)
    verdict = verify(built.data)
    assert verdict.verdict is Verdict.DAMAGED
    assert ids(built.data) == [(11, entry) for entry in range(8)]
    assert verdict.records >= 8
    first = built.entries[3].end
    assert all(first <= damage.offset < first + len(data) for damage in verdict.damage)


@pytest.mark.parametrize(
    ("version", "data", "good"),
    [
        (2, codec.encode_record(codec.master_key_record(11, bytes(20))), False),
        (3, codec.encode_record(codec.master_key_record(11, bytes(20))), True),
        (3, codec.encode_record(codec.fence_record(11)), False),
        (4, codec.encode_record(codec.fence_record(11)), True),
        (4, struct.pack(">ii", -256, 0), False),
        (5, struct.pack(">ii", -256, 0), True),
        (5, codec.encode_record(codec.explicit_lac_record(11, bytes(20))), False),
        (6, codec.encode_record(codec.explicit_lac_record(11, bytes(20))), True),
    ],
)
def test_records_newer_than_their_file_are_damage(version: int, data: bytes, good: bool) -> None:
    journal = JournalBuilder(version)
    journal.add(entry_body(11, 0))
    journal.put(data, "special")
    journal.add(entry_body(11, 1))
    built = journal.build()
    assert (verify(built.data).verdict is Verdict.CLEAN) == good
    assert ids(built.data) == [(11, 0), (11, 1)]


def test_special_records_and_padding_come_out() -> None:
    journal = JournalBuilder()
    journal.special(codec.master_key_record(11, bytes(20)))
    journal.add(entry_body(11, 0))
    journal.special(codec.fence_record(11))
    journal.special(codec.explicit_lac_record(11, b"opaque"))
    journal.flush()
    assert kinds(journal.build().data) == [
        RecordKind.MASTER_KEY,
        RecordKind.FENCE,
        RecordKind.EXPLICIT_LAC,
        RecordKind.PADDING,
    ]


def test_padding_that_takes_zeros_of_the_next_size() -> None:
    built = simple_journal(6)
    padding = next(span for span in built.spans if span.kind == "padding")
    data = bytearray(built.data)
    data[padding.start + 7] += 2
    verdict = verify(bytes(data))
    (damage,) = verdict.damage
    assert (damage.offset, damage.end, damage.reason) == (padding.start, padding.stop, "journal padding")
    assert len(ids(bytes(data))) == 16


@pytest.mark.parametrize("cut", [1, 5, 20, 60])
def test_a_journal_torn_at_the_end_of_the_file(cut: int) -> None:
    built = simple_journal(4, preallocated=False)
    verdict = verify(built.data[:-cut])
    assert (verdict.verdict, verdict.records) == (Verdict.TORN_TAIL, 17)


@pytest.mark.parametrize("written", [24, 40, 60])
def test_a_journal_torn_into_preallocated_zeros(written: int) -> None:
    built = simple_journal(6, padded=False)
    last = built.entries[-1]
    data = zeroed(built, last.offset + written, last.end)
    assert verify(data).verdict is Verdict.TORN_TAIL


# ------------------------------------------------------------------------------------ unsynced tails

HOLE = 4


@pytest.mark.parametrize(
    ("journal_id", "newest", "mark", "expected"),
    [
        (5, 5, LastMark(5, 700), 700),
        (5, 5, LastMark(4, 700), 0),
        (5, 5, LastMark(6, 0), None),
        (5, 6, LastMark(5, 700), None),
        (5, 5, None, None),
        (5, 5, LastMark(0, 0), 0),
    ],
)
def test_from_where_a_hole_is_a_power_cut(
    journal_id: int, newest: int, mark: LastMark | None, expected: int | None
) -> None:
    assert unsynced_from(journal_id, newest, mark) == expected


def holed() -> tuple[bytes, int]:
    built = simple_journal(6, padded=False, payload_bytes=1100)
    entry = built.entries[HOLE]
    return zeroed(built, entry.offset, entry.end), entry.offset


@pytest.mark.parametrize("before", [0, 1, 100])
def test_a_hole_behind_the_mark_is_unsynced(before: int) -> None:
    data, hole = holed()
    verdict = verify(data, LastMark(5, hole - before))
    assert verdict.verdict is Verdict.UNSYNCED_TAIL
    assert all(damage.unsynced for damage in verdict.damage)
    assert verdict.records == 17


@pytest.mark.parametrize("mark", [LastMark(5, 1 << 20), LastMark(6, 0), None])
def test_a_hole_anywhere_else_is_damage(mark: LastMark | None) -> None:
    data, hole = holed()
    verdict = verify(data, mark)
    assert verdict.verdict is Verdict.DAMAGED
    assert verdict.first_bad_offset == hole
    assert verdict.records == 17


def test_a_hole_in_an_older_journal_is_damage() -> None:
    data, _ = holed()
    system = MemoryFileSystem({PATH: data, "/j/current/6.txn": simple_journal(6).data})
    assert verify(data, LastMark(5, 512), system).verdict is Verdict.DAMAGED


def test_a_hole_in_front_of_an_empty_journal_is_what_a_power_cut_leaves() -> None:
    """Java makes the next journal before the last records of the one in front of it are durable."""
    data, _ = holed()
    for header in (b"", codec.encode_header(6), codec.encode_header(6) + bytes(4096)):
        system = MemoryFileSystem({PATH: data, "/j/current/6.txn": header})
        assert verify(data, LastMark(5, 512), system).verdict is Verdict.UNSYNCED_TAIL


def test_a_hole_in_front_of_an_empty_journal_of_ours_is_damage() -> None:
    """Ours is made when all that is in front of it is durable, and its header says so."""
    data, _ = holed()
    header = codec.encode_header(6, LastMark(5, len(data)))
    system = MemoryFileSystem({PATH: data, "/j/current/6.txn": header})
    assert verify(data, LastMark(5, 512), system).verdict is Verdict.DAMAGED


def test_holes_on_both_sides_of_the_mark() -> None:
    built = simple_journal(6, padded=False, payload_bytes=1100)
    data = zeroed(built, built.entries[2].offset, built.entries[2].end)
    data = data[: built.entries[8].offset] + bytes(1100) + data[built.entries[8].offset + 1100 :]
    verdict = verify(data, LastMark(5, built.entries[5].offset))
    assert verdict.verdict is Verdict.DAMAGED
    assert [damage.unsynced for damage in verdict.damage] == [False, True]


@pytest.mark.parametrize(("within", "value"), [(19, 79), (60, 1), (3, 9), (11, 1)])
def test_a_wrong_byte_behind_the_mark_is_damage(within: int, value: int) -> None:
    """A disk writes a sector as a whole or not at all: no power cut changes an id, a body or a size."""
    built = simple_journal(6, padded=False)
    at = built.entries[HOLE].offset + within
    data = built.data[:at] + bytes([value]) + built.data[at + 1 :]
    verdict = verify(data, LastMark(5, 512))
    assert (verdict.verdict, verdict.tail) == (Verdict.DAMAGED, Verdict.CLEAN)


def test_zeros_that_end_within_their_sector_are_damage() -> None:
    built = simple_journal(6, padded=False, payload_bytes=1100)
    entry = built.entries[HOLE]
    start = -(-entry.offset // 512) * 512
    for first, stop, verdict in (
        (start, start + 512, Verdict.UNSYNCED_TAIL),
        (start, start + 511, Verdict.DAMAGED),
        (start + 1, start + 512, Verdict.DAMAGED),
    ):
        assert verify(zeroed(built, first, stop), LastMark(5, 512)).verdict is verdict


def test_zeros_from_a_record_to_the_end_of_its_sector_are_what_a_write_left() -> None:
    """Journals without padding: a sector holds the end of one write and the beginning of the next."""
    built = simple_journal(4, padded=False)
    entry = built.entries[HOLE]
    end = -(-entry.offset // 512) * 512
    assert 20 < end - entry.offset < 512
    assert verify(zeroed(built, entry.offset, end), LastMark(5, 8)).verdict is Verdict.UNSYNCED_TAIL
    assert verify(zeroed(built, entry.offset, entry.end), LastMark(5, 8)).verdict is Verdict.DAMAGED


def test_the_zeros_of_a_padding_do_not_excuse_what_is_in_front_of_it() -> None:
    """A block larger than a sector is padded with whole sectors of zeros."""
    builder = JournalBuilder(6, alignment=4096)
    for entry in range(4):
        builder.add(entry_body(5, entry))
        builder.flush()
    built = builder.build()
    at = built.entries[1].offset
    for within, value in ((2, 9), (4, 0xFF)):
        data = built.data[: at + within] + bytes([value]) + built.data[at + within + 1 :]
        assert verify(data, LastMark(5, 512)).verdict is Verdict.DAMAGED


def test_blocks_of_a_power_cut() -> None:
    built = simple_journal(6, entries=60, payload_bytes=300)
    data = zeroed(built, 4096, 8192)
    data = data[:16_384] + bytes(4096) + data[20_480:]
    verdict = verify(data, LastMark(5, 512))
    assert verdict.verdict is Verdict.UNSYNCED_TAIL
    whole = [
        entry
        for entry in built.entries
        if not any(
            entry.offset < stop and start < entry.end for start, stop in ((4096, 8192), (16_384, 20_480))
        )
    ]
    assert set(ids(data)) >= {(entry.ledger, entry.entry) for entry in whole}
    assert verdict.records >= len(whole)


def test_a_bad_sector_is_never_a_power_cut() -> None:
    built = simple_journal(6, entries=60, payload_bytes=300)
    system = FaultyFileSystem(MemoryFileSystem({PATH: built.data}), [ReadFault(".txn", 8192, 8200)])
    assert verify(built.data, LastMark(5, 512), system).verdict is Verdict.DAMAGED


@pytest.mark.parametrize("previous", [None, LastMark(4, 9_000)])
@pytest.mark.parametrize(
    "start", ["06d41b6468fd175d", "0000002000000000", "000000ff00000001", "424b4c4800000006"]
)
def test_other_bytes_in_the_place_of_the_magic_make_no_journal_of_version_1(
    start: str, previous: LastMark | None
) -> None:
    """They may look like the length and half of the ledger id of a record, whose rest is the header's."""
    header = codec.encode_header(6, previous)
    fence = codec.encode_record(codec.fence_record(14))
    verdict = verify(bytes.fromhex(start) + header[8:] + fence.ljust(512, b"\0"))
    assert [damage.offset for damage in verdict.damage][:1] == [0]
    assert verdict.verdict is Verdict.DAMAGED


def test_an_unreadable_header() -> None:
    built = simple_journal(6, entries=60, payload_bytes=300)
    system = FaultyFileSystem(MemoryFileSystem({PATH: built.data}), [ReadFault(".txn", 0, 10)])
    verdict = verify(built.data, system=system)
    assert verdict.verdict is Verdict.DAMAGED
    assert verdict.records >= sum(entry.offset >= 4096 for entry in built.entries)


def test_the_tail_says_where_the_records_end() -> None:
    built = simple_journal(6)
    with JournalScan(MemoryFileSystem({PATH: built.data}), PATH) as scan:
        assert list(scan)[-1] == Tail(built.data_end, "zeros")


@pytest.mark.parametrize("cut", [1, 2, 4, 6])
def test_a_special_record_whose_entry_id_is_cut_by_the_end_of_a_sector_is_what_a_power_cut_leaves(
    cut: int,
) -> None:
    """``cut`` bytes of the id of a fence are there, and the sector behind them was never written."""
    journal = JournalBuilder(6)
    journal.add(entry_body(7, 0, bytes(1024 - 512 - 4 - 36 - 12 - cut)))
    journal.special(codec.fence_record(7))
    built = journal.build()
    assert len(built.data) == 1024 + 8 - cut
    for lost in (built.data[:1024] + bytes(8 - cut), built.data[:1024] + bytes(4096)):
        verdict = verify(lost, LastMark(5, 512))
        assert (verdict.verdict, verdict.records) == (Verdict.UNSYNCED_TAIL, 1), cut
        assert verify(lost, LastMark(5, 1024)).verdict is Verdict.DAMAGED
    # The same bytes are damage where something stands behind them in that sector.
    kept = built.data[:1024] + bytes(8 - cut) + b"\x01" + bytes(4095)
    assert verify(kept, LastMark(5, 512)).verdict is Verdict.DAMAGED
