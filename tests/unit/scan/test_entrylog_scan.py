"""Entry logs as a whole: headers, maps, layouts, verdicts."""

from __future__ import annotations

import struct

import pytest

from bkctl.codec.entry import EntryBatch
from bkctl.codec.entrylog import EntryLogHeader, encode_header, encode_map
from bkctl.scan.damage import Damage, MissingEntries, Tail, Verdict
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import LogFile
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.files import entrylogs
from bkctl.scan.files.verdicts import FileVerdict
from bkctl.vfs import FileSystem
from bkctl.vfs.faulty import FaultyFileSystem, ReadFault
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.log_builder import MAC, Built, EntryLogBuilder, entry_body, simple_log

PATH = "/l/current/1c.log"


def system_of(data: bytes) -> MemoryFileSystem:
    return MemoryFileSystem({PATH: data})


def verify(data: bytes, system: FileSystem | None = None) -> FileVerdict:
    (verdict,) = entrylogs.verify_logs(
        system or system_of(data), [LogFile(PATH, 28, len(data))], DigestBook()
    )
    return verdict


def entries_of(data: bytes) -> list[tuple[int, int]]:
    with EntryLogScan(system_of(data), PATH) as scan:
        return [pair for batch in scan.batches() for pair in zip(batch.ledgers, batch.entries, strict=True)]


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("rolled", [False, True])
def test_good_logs_are_clean(direct: bool, rolled: bool) -> None:
    built = simple_log(3, 8, direct=direct, rolled=rolled)
    for data in (built.data, built.data + bytes(8192)):
        verdict = verify(data)
        assert (verdict.verdict, verdict.records, verdict.damage) == (Verdict.CLEAN, 24, ())
        assert entries_of(data) == [(entry.ledger, entry.entry) for entry in built.entries]
        with EntryLogScan(system_of(data), PATH) as scan:
            assert scan.head.header.direct == direct
            assert (scan.head.ledgers_map is not None) == rolled


def test_version_0_without_a_map() -> None:
    log = EntryLogBuilder(version=0)
    log.add(entry_body(5, 0))
    assert verify(log.build().data).verdict is Verdict.CLEAN


@pytest.mark.parametrize(
    ("data", "kind", "verdict"),
    [
        (b"", "end", Verdict.CLEAN),
        (b"BK", "torn", Verdict.TORN_TAIL),
        (encode_header(EntryLogHeader())[:1023], "torn", Verdict.TORN_TAIL),
        (encode_header(EntryLogHeader()), "end", Verdict.CLEAN),
        (encode_header(EntryLogHeader()) + bytes(5000), "zeros", Verdict.CLEAN),
        (encode_header(EntryLogHeader(direct=True)), "end", Verdict.CLEAN),
        (encode_header(EntryLogHeader(direct=True))[:2000], "end", Verdict.CLEAN),
    ],
)
def test_logs_without_entries(data: bytes, kind: str, verdict: Verdict) -> None:
    with EntryLogScan(system_of(data), PATH) as scan:
        tail = list(scan)[-1]
    assert isinstance(tail, Tail)
    assert tail.kind == kind
    assert verify(data).verdict is verdict


@pytest.mark.parametrize(
    ("at", "data", "reason"),
    [
        (0, b"XXXX", "entry log header"),
        (7, b"\x07", "entry log version"),
        (8, b"\x7f", "ledgers map offset"),
        (14, b"\x04\xf0", "ledgers map batch"),
        (19, b"\x09", "ledgers map"),
    ],
)
def test_damaged_headers_are_named_and_entries_delivered(at: int, data: bytes, reason: str) -> None:
    built = simple_log(3, 8, rolled=True)
    bad = built.data[:at] + data + built.data[at + len(data) :]
    verdict = verify(bad)
    assert verdict.verdict is Verdict.DAMAGED
    assert verdict.damage[0].reason == reason
    assert entries_of(bad) == [(entry.ledger, entry.entry) for entry in built.entries]


def test_a_map_that_disagrees_with_the_log() -> None:
    log = EntryLogBuilder()
    for entry in range(4):
        log.add(entry_body(5, entry))
    totals = log.totals()
    data = log.roll({**totals, 6: 500}).data
    verdict = verify(data)
    (damage,) = verdict.damage
    assert damage.reason == "ledgers map disagrees with the log"
    assert damage.missing == (MissingEntries(6, None, None, 500, "map"),)
    assert verdict.records == 4


def test_a_map_that_says_less_than_the_log() -> None:
    log = EntryLogBuilder()
    log.add(entry_body(5, 0))
    log.add(entry_body(6, 0))
    totals = log.totals()
    del totals[6]
    (damage,) = verify(log.roll(totals).data).damage
    assert damage.missing == ()
    assert "ledger 6: 0" in damage.expected


def test_the_map_counts_what_damage_took() -> None:
    built = simple_log(3, 8, rolled=True)
    lost = built.entries[10]
    data = built.data[: lost.offset + 4] + b"\xff" * 8 + built.data[lost.offset + 12 :]
    verdict = verify(data)
    (damage,) = verdict.damage
    assert MissingEntries(lost.ledger, None, None, lost.end - lost.offset, "map") in damage.missing
    assert MissingEntries(lost.ledger, lost.entry, lost.entry, None, "gap") in damage.missing
    assert verdict.records == 23


@pytest.mark.parametrize("ledgers", [1, 3])
def test_a_rolled_log_that_is_cut_is_damaged(ledgers: int) -> None:
    built = simple_log(ledgers, 8, rolled=True)
    for cut in (1, 10, 40, 70, 150):
        assert verify(built.data[:-cut]).verdict is Verdict.DAMAGED, cut


def test_a_log_that_was_not_rolled_may_be_cut() -> None:
    built = simple_log(2, 8)
    verdict = verify(built.data[:-10])
    assert (verdict.verdict, verdict.records) == (Verdict.TORN_TAIL, 15)


def test_maps_of_several_batches() -> None:
    log = EntryLogBuilder()
    for ledger in range(10_003):
        log.add(entry_body(ledger, 0, b""))
    data = log.roll().data
    assert data.endswith(encode_map({10_000: 40, 10_001: 40, 10_002: 40}))
    assert verify(data).verdict is Verdict.CLEAN


def test_a_flipped_ledger_id_is_named_with_its_owner() -> None:
    built = simple_log(3, 8)
    bad = built.entries[7]
    data = bytearray(built.data)
    data[bad.offset + 6] ^= 0x40
    (damage,) = verify(bytes(data)).damage
    assert (damage.offset, damage.size_bytes, damage.reason) == (bad.offset + 4, 8, "ledger id")
    assert damage.expected.startswith(f"{bad.ledger},")


def test_filler_at_every_flush() -> None:
    log = EntryLogBuilder(direct=True)
    for entry in range(5):
        log.add(entry_body(5, entry, bytes([entry]) * (3000 * entry)))
        log.flush()
        log.flush()
    data = log.roll().data
    assert verify(data).verdict is Verdict.CLEAN
    assert entries_of(data) == [(5, entry) for entry in range(5)]
    assert len(data) % 4096 == 0


def test_filler_with_a_hole() -> None:
    built = simple_log(2, 9, direct=True)
    filler = next(span for span in built.spans if span.kind == "filler")
    data = bytearray(built.data)
    data[filler.start + 100] = 0
    verdict = verify(bytes(data))
    assert verdict.verdict is Verdict.DAMAGED
    assert verdict.records == 18
    assert all(filler.start <= damage.offset < filler.stop for damage in verdict.damage)


def test_an_unreadable_map() -> None:
    built = simple_log(40, 60, rolled=True)
    at = next(span for span in built.spans if span.kind == "map").start
    system = FaultyFileSystem(system_of(built.data), [ReadFault(".log", at + 30, len(built.data))])
    verdict = verify(built.data, system)
    assert verdict.verdict is Verdict.DAMAGED
    assert verdict.records == sum(entry.end <= at // 4096 * 4096 for entry in built.entries)


def test_a_map_is_not_taken_from_zeros_in_the_place_of_a_sector() -> None:
    """The last ledger of the map stands alone in the sector that cannot be read: 0 is as many ledgers."""

    def built(more: int) -> Built:
        log = EntryLogBuilder()
        log.add(entry_body(5, 0, bytes(more)))
        log.add(entry_body(6, 0))
        return log.roll()

    log = built(-len(built(4096).data) + 16 & 4095)
    sector = len(log.data) - 16
    assert sector % 4096 == 0
    system = FaultyFileSystem(system_of(log.data), [ReadFault(".log", sector, len(log.data))])
    with EntryLogScan(system, PATH) as scan:
        assert scan.head.ledgers_map is None
        assert [damage.reason for damage in scan.head.damage] == ["unreadable"]


def test_what_is_not_checked_is_counted() -> None:
    built = simple_log(2, 5, digester=MAC)
    verdict = verify(built.data)
    assert (verdict.verdict, verdict.records, verdict.unchecked) == (Verdict.UNCHECKED, 10, 10)


def test_show_by_map_and_by_walk_agree() -> None:
    built = simple_log(3, 8, rolled=True)
    log = LogFile(PATH, 28, len(built.data))
    by_map = entrylogs.show_log(system_of(built.data), log)
    by_walk = entrylogs.show_log(system_of(built.data), log, walk=True)
    assert (by_map.source, by_walk.source) == ("map", "walk")
    assert by_walk.entries == 24
    assert [(s.ledger, s.bytes) for s in by_map.ledgers] == [(s.ledger, s.bytes) for s in by_walk.ledgers]


def test_a_log_that_vanished_is_passed_over() -> None:
    log = LogFile(PATH, 28, 100)
    assert list(entrylogs.verify_logs(MemoryFileSystem(), [], DigestBook())) == []
    assert list(entrylogs.scan_logs(system_of(b""), [log], DigestBook())) == []


def test_a_size_above_the_bound_is_never_allocated() -> None:
    built = simple_log(2, 4)
    head = struct.pack(">iqq", 2**31 - 1, 11, 5)
    with EntryLogScan(system_of(built.data + head + bytes(100)), PATH, size_max=1000) as scan:
        items = list(scan)
    assert [item.reason for item in items if isinstance(item, Damage)] == ["record size"]
    assert sum(len(item) for item in items if isinstance(item, EntryBatch)) == 8
