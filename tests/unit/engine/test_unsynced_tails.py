"""What a start makes of whole records beside what a power cut left of the last groups of a journal.

The journals are made here: a synced part, in which every entry is acknowledged, and an unsynced one of which
sectors are missing.
"""

from __future__ import annotations

import struct

import pytest

from bkctl.codec import journal as journal_codec
from bkctl.codec.digest import Digester
from bkctl.codec.entry import frame
from bkctl.codec.last_mark import LastMark
from bkctl.engine.add_run import SingleAdd
from bkctl.errors import BadRequestError, LedgerLimboError, NoEntryError, RefusedError
from bkctl.types import DigestType
from tests.support.damaged_journal import add, body_of, journals, journals_of, read
from tests.support.engine_rig import KEY, OTHER_KEY, Answers, EngineRig, entry_body

SECTOR = 512
CRC, MAC, DUMMY = DigestType.CRC32C, DigestType.MAC, DigestType.DUMMY
FORMATS = pytest.mark.parametrize("version", [4, 6])
VICTIMS = pytest.mark.parametrize("kind", [CRC, MAC])


class Tail:
    """The content of a journal; ``entries`` are those that were acknowledged."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.content = bytearray(journal_codec.encode_header(version))
        self.entries: dict[tuple[int, int], bytes] = {}
        self.synced = 0

    def key(self, ledger: int, key: bytes = KEY) -> None:
        self.content += special(journal_codec.master_key_record(ledger, key))

    def add(self, ledger: int, entry: int, payload: bytes = b"payload" * 9, kind: DigestType = CRC) -> int:
        """Append an entry; where it begins."""
        at, body = len(self.content), body_of(ledger, entry, payload, kind)
        self.content += frame(body)
        if not self.synced:
            self.entries[ledger, entry] = body
        return at

    def sync(self, *, on_a_sector: bool = False) -> None:
        """End the synced part, in the formats with padding by that, unless it ends ``on_a_sector``."""
        if not on_a_sector:
            self.pad()
        self.synced = len(self.content)

    def pad(self) -> None:
        if self.version >= journal_codec.PADDED_FROM:
            padding = journal_codec.padding_record(len(self.content), SECTOR)
            self.content += special(padding) if padding else b""

    def lose(self, *sectors: int) -> None:
        """Leave out sectors of the unsynced part."""
        for sector in sectors:
            start, end = max(sector * SECTOR, self.synced), min((sector + 1) * SECTOR, len(self.content))
            self.content[start:end] = bytes(end - start)

    def start(self) -> EngineRig:
        """A bookie that is not started yet, whose journal this is."""
        rig = EngineRig(journals_of(1 << 24, self.version))
        rig.start()
        rig = rig.cut_off()
        rig.memory.replace(journals(rig)[-1], bytes(self.content).ljust(1 << 15, b"\0"))
        return rig

    def check(self, rig: EngineRig) -> None:
        """Every acknowledged entry is there."""
        assert {ids: read(rig, *ids) for ids in self.entries} == self.entries


def special(record: journal_codec.JournalRecord | None) -> bytes:
    assert record is not None
    return journal_codec.encode_record(record)


@pytest.mark.parametrize("flipped", [False, True])
@FORMATS
def test_a_wrong_digest_says_nothing_of_the_entries_behind_it(version: int, *, flipped: bool) -> None:
    """Its client sent it, or a bit of it changed: either way it was synced, and so were those behind it."""
    tail = Tail(version)
    tail.key(5)
    tail.add(5, 0)
    at = tail.add(5, 1, b"x" + bytes(1200) + b"y")
    tail.content[at + 4 + (40 if flipped else 33)] ^= 1
    del tail.entries[5, 1]
    for ledger, kind in ((6, MAC), (8, DUMMY)):
        tail.key(ledger)
        for entry in range(3):
            tail.add(ledger, entry, b"m" + bytes(1200) + b"n", kind)
    tail.sync()
    with tail.start() as rig:
        assert rig.start().torn_records == 1
        tail.check(rig)


@pytest.mark.parametrize("share", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("id_at", [4, 12])
@FORMATS
def test_a_damaged_id_next_to_the_end_of_a_sector_is_no_missing_sector(
    version: int, id_at: int, share: int
) -> None:
    tail = Tail(version)
    tail.key(5)
    tail.add(5, 0)
    tail.add(5, 1, b"f" * ((SECTOR - share - len(tail.content) - 40) % SECTOR))
    at = tail.add(5, 2)
    assert -at % SECTOR == share
    tail.add(5, 3)
    tail.sync()
    tail.content[at + id_at] ^= 0x80
    with tail.start() as rig, pytest.raises(RefusedError, match=f"damage at offset {at}"):
        rig.start()


@pytest.mark.parametrize("share", [1, 3, 4])
@FORMATS
def test_bytes_that_are_no_zeros_are_no_missing_sectors(version: int, share: int) -> None:
    tail = Tail(version)
    tail.key(5)
    tail.add(5, 0, b"f" * ((SECTOR - share - len(tail.content) - 40) % SECTOR))
    first = len(tail.content)
    for entry in range(1, 50):
        tail.add(5, entry)
    second = len(tail.content)
    tail.add(5, 50)
    tail.sync()
    tail.content[first + share : second] = b"\xee" * (second - first - share)
    with tail.start() as rig, pytest.raises(RefusedError):
        rig.start()


@FORMATS
@VICTIMS
def test_records_in_a_payload_whose_head_is_missing_replace_nothing(version: int, kind: DigestType) -> None:
    """An entry, a key, a LAC; the ledger may be fenced by them and in limbo, but has what it had."""
    lac = struct.pack(">qq", 5, -1)
    for inner in (
        frame(body_of(5, 0, b"another")),
        special(journal_codec.master_key_record(5, OTHER_KEY)),
        special(journal_codec.explicit_lac_record(5, lac + Digester(CRC).compute(lac, b""))),
    ):
        if version < 6 and inner[12:20] == struct.pack(">q", -0x8000):
            continue
        tail = Tail(version)
        tail.key(5)
        for entry in range(4):
            tail.add(5, entry, kind=kind)
        good = struct.pack(">qq", 5, 2)
        good += Digester(CRC).compute(good, b"")
        if version >= 6:
            tail.content += special(journal_codec.explicit_lac_record(5, good))
        tail.key(7)
        tail.sync()
        tail.add(7, 1, b"p" * 900 + inner)
        tail.pad()
        tail.lose(tail.synced // SECTOR)
        with tail.start() as rig:
            rig.start()
            tail.check(rig)
            row = rig.bookie.storages[0].ledgers.get(5)
            assert row is not None
            assert row.master_key == KEY
            assert version < 6 or row.explicit_lac == good


@pytest.mark.parametrize("kind", [MAC, DUMMY, CRC])
@pytest.mark.parametrize("zeros", [0, 1200])
@FORMATS
def test_an_entry_that_holds_records_is_whole_in_front_of_a_missing_sector(
    version: int, zeros: int, kind: DigestType
) -> None:
    tail = Tail(version)
    tail.key(5)
    tail.add(5, 0)
    tail.key(6)
    inner = frame(body_of(5, 0, b"another"))
    front = len(tail.content) + 4 + len(body_of(6, 0, b"", kind)) + zeros + len(inner)
    fill = -front % SECTOR if version >= journal_codec.PADDED_FROM else 7
    tail.add(6, 0, bytes(zeros) + b"r" * fill + inner, kind)
    assert version < journal_codec.PADDED_FROM or len(tail.content) % SECTOR == 0
    tail.sync(on_a_sector=True)
    tail.add(7, 0, b"u" * 1024)
    tail.add(5, 3, b"tail" * 50)
    tail.pad()
    tail.lose(tail.synced // SECTOR, tail.synced // SECTOR + 1)
    with tail.start() as rig:
        assert rig.start().limbo_ledgers == 0
        tail.check(rig)


@FORMATS
def test_a_key_whose_last_byte_is_zero_is_whole_where_something_stands_behind_it(version: int) -> None:
    """That byte begins a sector, and the ledger was deleted and made again with this key."""
    second = bytes(range(1, 20)) + b"\0"
    tail = Tail(version)
    tail.key(5)
    tail.add(5, 1)
    tail.add(5, 2, b"f" * ((SECTOR + 1 - 44 - len(tail.content) - 40) % SECTOR))
    tail.key(5, second)
    assert len(tail.content) % SECTOR == 1
    tail.entries.clear()
    tail.add(5, 0, b"of the second life")
    tail.sync()
    with tail.start() as rig:
        rig.start()
        tail.check(rig)
        assert read(rig, 5, 1) is NoEntryError
        add(rig, body_of(5, 1), second)


def test_behind_a_missing_sector_no_digest_raises_a_doubt() -> None:
    """The key of the next life is in it, and that life has other digests."""
    tail = Tail(6)
    tail.key(5)
    for entry in range(3):
        tail.add(5, entry)
    tail.sync()
    tail.key(5, OTHER_KEY)
    tail.add(5, 0, b"n" * 2000, MAC)
    end = len(tail.content)
    tail.add(5, 7, b"new", MAC)
    tail.pad()
    tail.lose(*range(tail.synced // SECTOR, end // SECTOR))
    with tail.start() as rig:
        report = rig.start()
        assert (report.limbo_ledgers, report.doubted_records) == (0, 0)
        tail.check(rig)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("kind", [MAC, DUMMY])
def test_entries_of_a_life_that_is_over_raise_no_doubt_by_their_digests(kind: DigestType, count: int) -> None:
    with EngineRig() as rig:
        rig.start()
        rig.add(5, 0)
        for entry in range(count):
            add(rig, body_of(6, entry, b"m" * 30, kind))
        rig.bookie.delete_ledger(6)
        for entry in range(3):
            add(rig, body_of(6, entry), OTHER_KEY)
        with rig.cut_off() as after:
            assert after.start().limbo_ledgers == 0
            after.add(5, 1)


def test_a_flipped_length_that_leads_past_the_stated_end_refuses_the_start() -> None:
    """The entry, whose digest needs a key, would have all behind it inside."""
    tail = Tail(6)
    tail.key(5)
    tail.key(6)
    at = tail.add(6, 0, b"b" * 100, MAC)
    for entry in range(3):
        tail.add(5, entry)
    tail.sync()
    tail.content[at + 2] ^= 0x08
    rig = tail.start()
    newer = Tail(6)
    end = journal_codec.parse_journal_name(journals(rig)[-1].rpartition("/")[2])
    assert end is not None
    newer.content = bytearray(journal_codec.encode_header(6, LastMark(end, tail.synced)))
    newer.key(7)
    newer.sync()
    file = rig.memory.create(f"/journal0/current/{end + 1:x}.txn")
    file.write_at(0, bytes(newer.content))
    file.sync()
    file.close()
    rig.memory.sync_directory("/journal0/current")
    with rig, pytest.raises(RefusedError, match="record behind the end"):
        rig.start()
    with rig.reopen() as again:
        assert again.start(accept_loss=True).limbo_ledgers > 0
        del tail.entries[6, 0]
        tail.check(again)


def test_keys_and_lacs_that_no_scan_would_take_for_records_are_refused() -> None:
    most = journal_codec.BLOB_BYTES_MAX
    with EngineRig() as rig:
        rig.start()
        rig.add(5, 0)
        with pytest.raises(BadRequestError, match=f"at most {most}"):
            rig.bookie.writes.add(SingleAdd(entry_body(6, 0), bytes(most + 1), Answers(), None))
        with pytest.raises(BadRequestError, match=f"at most {most}"):
            rig.bookie.explicit_lacs.write(struct.pack(">qq", 5, 0) + bytes(most - 15), KEY, lambda _: None)
        add(rig, entry_body(6, 0), b"k" * most)
        with rig.cut_off() as after:
            after.start()
            assert read(after, 6, 0) == entry_body(6, 0)


def test_a_ledger_that_is_deleted_within_a_flush_leaves_no_entries_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its row is there as long as its locations are, whenever the power goes off."""
    with EngineRig() as rig:
        rig.start()
        for entry in range(4):
            add(rig, body_of(6, entry, b"of the first life"))
        rig.bookie.checkpoint()
        storage = rig.bookie.storages[0]
        delete = storage.locations.delete_ledgers

        def then_deleted(ledgers: list[int]) -> None:
            delete(ledgers)
            rig.bookie.delete_ledger(6)

        monkeypatch.setattr(storage.locations, "delete_ledgers", then_deleted)
        rig.bookie.delete_ledger(99)
        rig.fence(9)
        storage.flush()
        with rig.cut_off() as after:
            after.start()
            row = after.bookie.storages[0].ledgers.get(6)
            assert row is not None
            after.bookie.delete_ledger(6)
            after.bookie.checkpoint()
            add(after, body_of(6, 0), OTHER_KEY)
            assert read(after, 6, 1) is NoEntryError


@pytest.mark.parametrize("kind", [MAC, DUMMY])
@pytest.mark.parametrize("bit", [10, 11])
def test_a_flipped_length_that_leads_into_padding_refuses_the_start(bit: int, kind: DigestType) -> None:
    """Zeros up to the end of a sector are no missing sector where they are a padding's."""
    tail = Tail(6)
    tail.key(5)
    tail.key(6)
    tail.pad()
    at = tail.add(6, 0, b"m" * 100, kind)
    tail.pad()
    for entry in range(12):
        tail.add(5, entry)
        tail.pad()
    length = int.from_bytes(tail.content[at : at + 4], "big") ^ 1 << bit
    assert (at + 4 + length) % SECTOR
    tail.content[at : at + 4] = length.to_bytes(4, "big")
    with tail.start() as rig, pytest.raises(RefusedError, match="record overlaps another"):
        rig.start()


@pytest.mark.parametrize("bit", range(9))
def test_a_flipped_bit_in_the_size_of_a_padding_refuses_the_start(bit: int) -> None:
    """An entry that was added again stands behind it: the older copy must not win."""
    tail = Tail(6)
    tail.key(5)
    tail.add(5, 0, b"the first copy")
    tail.pad()
    tail.add(5, 1)
    at = len(tail.content)
    tail.pad()
    tail.add(5, 0, b"the second copy")
    tail.sync()
    tail.content[at + 7 - bit // 8] ^= 1 << bit % 8
    with tail.start() as rig, pytest.raises(RefusedError):
        rig.start()


@pytest.mark.parametrize("lost", [False, True])
def test_a_hole_behind_a_damaged_id_does_not_excuse_it(*, lost: bool) -> None:
    """A sector ends within the entry's length, so that it is judged when the file has been read."""
    tail = Tail(6)
    tail.key(5)
    tail.add(5, 0)
    tail.add(5, 1, b"f" * ((-len(tail.content) - 42) % SECTOR))
    at = tail.add(5, 2)
    assert -at % SECTOR == 2
    tail.add(5, 3)
    tail.sync()
    tail.content[at + 18] ^= 0x40
    tail.content[at + 19] ^= 0x30
    if lost:
        tail.key(6)
        tail.add(6, 0, b"u" * 1500)
        tail.pad()
        tail.lose(tail.synced // SECTOR)
    with tail.start() as rig:
        assert rig.start().limbo_ledgers == 1
        assert read(rig, 5, 2) is LedgerLimboError
