"""Following records over wrong sizes, window borders and bad sectors."""

from __future__ import annotations

import struct

import pytest

from bkctl.codec.digest import Digester
from bkctl.codec.entry import EntryBatch
from bkctl.scan import records as records_module
from bkctl.scan.damage import Damage, Tail
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.proof import Evidence
from bkctl.scan.records import Item
from bkctl.vfs import FileSystem
from bkctl.vfs.faulty import FaultyFileSystem, ReadFault
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.log_builder import (
    CRC32,
    CRC32C,
    DUMMY,
    MAC,
    Built,
    EntryLogBuilder,
    entry_body,
    plain_payload,
    simple_log,
)

PATH = "/l/current/0.log"


def scan(data: bytes, *, system: FileSystem | None = None, evidence: Evidence | None = None) -> list[Item]:
    with EntryLogScan(system or MemoryFileSystem({PATH: data}), PATH, evidence) as opened:
        return list(opened)


def found(items: list[Item]) -> dict[int, bytes]:
    return {
        item.offset(index): item.body(index)
        for item in items
        if isinstance(item, EntryBatch)
        for index in range(len(item))
    }


def damages(items: list[Item]) -> list[Damage]:
    return [item for item in items if isinstance(item, Damage)]


def with_size(built: Built, index: int, size: int) -> bytes:
    offset = built.entries[index].offset
    return built.data[:offset] + struct.pack(">i", size) + built.data[offset + 4 :]


def all_of(built: Built) -> dict[int, bytes]:
    return {entry.offset: entry.body for entry in built.entries}


@pytest.mark.parametrize("window", [20, 21, 64, 77, 100, 1000, 4 << 20])
@pytest.mark.parametrize("payload_bytes", [0, 1, 40, 500])
def test_windows_of_any_size(monkeypatch: pytest.MonkeyPatch, window: int, payload_bytes: int) -> None:
    monkeypatch.setattr(records_module, "WINDOW_BYTES", window)
    built = simple_log(3, 20, payload_bytes, rolled=True)
    items = scan(built.data)
    assert found(items) == all_of(built)
    assert not damages(items)
    assert items[-1] == Tail(len(built.data), "end")


def test_an_entry_larger_than_the_window() -> None:
    log = EntryLogBuilder()
    for entry, size in enumerate([10, (9 << 20) + 3, 10, 4 << 20, 10]):
        log.add(entry_body(5, entry, bytes([65 + entry]) * size))
    built = log.build()
    items = scan(built.data)
    assert found(items) == all_of(built)
    assert not damages(items)


@pytest.mark.parametrize("digester", [CRC32C, CRC32])
@pytest.mark.parametrize("index", [0, 1, 7, 22, 23])
@pytest.mark.parametrize("size", [0, -1, 15, 16, 30, 90, 200, 1000, 1 << 20, 2**31 - 1, -(2**31)])
def test_a_wrong_size_costs_four_bytes(digester: Digester, index: int, size: int) -> None:
    built = simple_log(3, 8, 40, digester)
    items = scan(with_size(built, index, size))
    assert found(items) == all_of(built)
    (damage,) = damages(items)
    assert (damage.offset, damage.size_bytes, damage.reason) == (
        built.entries[index].offset,
        4,
        "record size",
    )
    assert damage.found == str(size)
    assert damage.expected.startswith(f"{len(built.entries[index].body)},")


def test_a_size_that_leads_to_the_ledger_id_of_the_next_record() -> None:
    """A flipped bit makes a size 8 too large: there stands the ledger id, which looks like a size."""
    log = EntryLogBuilder()
    for entry in range(12):
        log.add(entry_body(300, entry, plain_payload(300, entry, 60)))
    built = log.build()
    size = len(built.entries[4].body)
    items = scan(with_size(built, 4, size + 8))
    assert found(items) == all_of(built)
    assert [damage.size_bytes for damage in damages(items)] == [4]


@pytest.mark.parametrize("digester", [CRC32C, CRC32, MAC])
@pytest.mark.parametrize("index", [0, 7, 22])
@pytest.mark.parametrize("flip", [1 << 31, 1 << 20, 1 << 10, 0x11, 2])
@pytest.mark.parametrize("header_byte", [0, 3, 4, 12, 20, 27])
def test_flipped_bits_of_a_size_whose_next_record_has_a_wrong_header(
    digester: Digester, index: int, flip: int, header_byte: int
) -> None:
    """Nothing shows where the second record starts, but the first one's digest proves its size."""
    built = simple_log(3, 8, 300, digester)
    first, second = built.entries[index : index + 2]
    data = bytearray(with_size(built, index, 0))
    struct.pack_into(">I", data, first.offset, len(first.body) ^ flip)
    data[second.offset + header_byte] ^= 0x80
    items = scan(bytes(data), evidence=Evidence(digesters=dict.fromkeys((11, 12, 13), digester)))
    expected = {offset: body for offset, body in all_of(built).items() if offset != second.offset}
    assert {offset: body for offset, body in found(items).items() if offset != second.offset} == expected
    assert (first.offset, 4) in [(damage.offset, damage.size_bytes) for damage in damages(items)]


@pytest.mark.parametrize("digester", [MAC, DUMMY])
@pytest.mark.parametrize("index", [0, 1, 7])
@pytest.mark.parametrize("size", [0, -1, 2**31 - 1])
def test_without_a_digest_the_record_is_lost_and_named(digester: Digester, index: int, size: int) -> None:
    built = simple_log(3, 8, 40, digester)
    items = scan(with_size(built, index, size))
    lost = built.entries[index]
    assert found(items) == {offset: body for offset, body in all_of(built).items() if offset != lost.offset}
    (damage,) = damages(items)
    assert (damage.offset, damage.end) == (lost.offset, lost.end)


def test_mac_with_its_key_is_as_good_as_a_checksum() -> None:
    built = simple_log(3, 8, 40, MAC)
    evidence = Evidence(digesters=dict.fromkeys((11, 12, 13), MAC))
    items = scan(with_size(built, 5, 77), evidence=evidence)
    assert found(items) == all_of(built)


def test_the_index_proves_a_record() -> None:
    log = EntryLogBuilder()
    log.add(entry_body(5, 0, b"first", DUMMY))
    log.put(b"\xff" * 100, "entry")
    only = log.add(entry_body(6, 3, b"no company", DUMMY))
    log.put(b"\xff" * 50, "entry")
    data = log.build().data
    assert only.offset not in found(scan(data))
    evidence = Evidence(located=lambda offset, ledger, entry: (offset, ledger, entry) == (only.offset, 6, 3))
    assert found(scan(data, evidence=evidence))[only.offset] == only.body


def test_a_damaged_record_in_front_of_the_ledgers_map() -> None:
    built = simple_log(2, 4, rolled=True)
    last = built.entries[-1]
    data = built.data[: last.offset + 4] + b"\xff" * 8 + built.data[last.offset + 12 :]
    items = scan(data)
    (damage,) = damages(items)
    assert (damage.offset, damage.end, damage.reason) == (last.offset, last.end, "ledger id")
    assert items[-1] == Tail(len(data), "end")


def test_numbers_in_a_payload_are_no_records() -> None:
    """Arrays of equal big-endian numbers look like sizes, ids and lengths."""
    log = EntryLogBuilder()
    for entry in range(6):
        log.add(entry_body(5, entry, struct.pack(">q", 28 if entry % 2 else 60) * 40))
    built = log.build()
    hit = built.entries[2]
    data = built.data[: hit.offset] + b"\xff" * 40 + built.data[hit.offset + 40 :]
    expected = {offset: body for offset, body in all_of(built).items() if offset != hit.offset}
    assert found(scan(data)) == expected


def test_a_search_ends_where_nothing_follows() -> None:
    built = simple_log(2, 3)
    data = built.data + b"\xee" * 5000
    items = scan(data)
    assert found(items) == all_of(built)
    (damage,) = damages(items)
    assert (damage.offset, damage.end) == (len(built.data), len(data))


@pytest.mark.parametrize("cut", [4, 19, 20, 40])
def test_a_torn_record_is_a_tail(cut: int) -> None:
    built = simple_log(2, 3)
    last = built.entries[-1]
    items = scan(built.data[: last.offset + cut])
    assert not damages(items)
    assert items[-1] == Tail(last.offset, "torn", f"{cut} bytes of a record")


def test_a_bad_sector_names_what_it_took() -> None:
    built = simple_log(2, 200, 100)
    faults = [ReadFault(".log", 8192, 8193), ReadFault(".log", 20_000, 29_000)]
    bad = [(8192, 12_288), (16_384, 32_768)]
    items = scan(built.data, system=FaultyFileSystem(MemoryFileSystem({PATH: built.data}), faults))
    spared = {
        entry.offset: entry.body
        for entry in built.entries
        if not any(entry.offset < stop and start < entry.end for start, stop in bad)
    }
    assert found(items) == spared
    assert {damage.reason for damage in damages(items)} == {"unreadable"}
    lost = {entry.offset for entry in built.entries} - spared.keys()
    covered = {
        entry.offset
        for entry in built.entries
        for damage in damages(items)
        if damage.offset <= entry.offset and entry.end <= damage.end
    }
    assert covered == lost


def test_an_unreadable_header_costs_its_sector() -> None:
    built = simple_log(2, 100, 100)
    system = FaultyFileSystem(MemoryFileSystem({PATH: built.data}), [ReadFault(".log", 0, 1)])
    with EntryLogScan(system, PATH) as opened:
        assert opened.head.damage[0].reason == "unreadable"
        items = list(opened)
    assert found(items) == {entry.offset: entry.body for entry in built.entries if entry.offset >= 4096}


def test_an_unreadable_end() -> None:
    built = simple_log(2, 100, 100)
    last_sector = len(built.data) // 4096 * 4096
    faults = [ReadFault(".log", last_sector, len(built.data))]
    items = scan(built.data, system=FaultyFileSystem(MemoryFileSystem({PATH: built.data}), faults))
    assert found(items) == {e.offset: e.body for e in built.entries if e.end <= last_sector}
    assert damages(items)[-1].end == len(built.data)


@pytest.mark.parametrize("digester", [MAC, DUMMY])
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("zeros", [0, 3, 8192])
def test_a_log_in_the_last_payload_of_a_good_file(digester: Digester, direct: bool, zeros: int) -> None:
    log = EntryLogBuilder(direct=direct)
    for entry in range(3):
        log.add(entry_body(5, entry, simple_log(2, 5).data + b"the end", digester))
        log.flush()
    built = log.build()
    items = scan(built.data + bytes(zeros))
    assert not damages(items)
    assert found(items) == all_of(built)


def test_a_size_that_is_too_small_and_still_ends_with_the_file() -> None:
    log = EntryLogBuilder()
    log.add(entry_body(11, 0, struct.pack(">q", 28) * 7 + bytes(4)))
    built = log.build()
    assert len(built.entries[0].body) == 96
    items = scan(with_size(built, 0, 64))
    assert found(items) == all_of(built)
    assert [damage.size_bytes for damage in damages(items)] == [4]
