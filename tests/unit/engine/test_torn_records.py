"""What a start makes of records that a power cut left half written at the end of the newest journal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.codec import journal as journal_codec
from bkctl.codec.digest import Digester
from bkctl.codec.entry import EntryHeader, encode, frame
from bkctl.errors import LedgerFencedError, NoEntryError, RefusedError, UnauthorizedError
from bkctl.scan.lost_sectors import SECTOR_BYTES, looks_torn
from bkctl.types import DigestType
from tests.support.engine_rig import KEY, OTHER_KEY, EngineRig, entry_body, lac_packet

HEADER = journal_codec.encode_header(6)


def after_crash_with(tail: list[bytes], *, lost: int, header: bytes = HEADER) -> EngineRig:
    """A bookie that has entry 0 and LAC 7 of ledger 5, and a newer journal: ``tail`` less sector ``lost``."""
    rig = EngineRig()
    rig.start()
    rig.add(5, 0, payload=b"as it was acknowledged")
    assert rig.write_lac(5, 7) is None
    rig.bookie.checkpoint()
    newest = rig.bookie.journals[0].mark.journal_id + 1
    after = rig.cut_off()
    content = bytearray(header + b"".join(tail))
    start = lost * SECTOR_BYTES
    content[start : start + SECTOR_BYTES] = bytes(len(content[start : start + SECTOR_BYTES]))
    path = f"/journal0/current/{newest:x}.txn"
    file = after.memory.create(path)
    file.write_at(0, bytes(content))
    file.sync()
    file.close()
    after.memory.sync_directory("/journal0/current")
    return after


def record(made: journal_codec.JournalRecord) -> bytes:
    return journal_codec.encode_record(made)


def filler(size: int) -> bytes:
    """A record of ``size`` bytes in all, of a ledger that nobody knows."""
    return frame(entry_body(999, 0, b"x" * (size - 40)))


KEY_RECORD = record(journal_codec.master_key_record(5, KEY))
KEY_OF_6 = record(journal_codec.master_key_record(6, KEY))


def entry_of(number: int, payload: bytes, digest_type: DigestType, ledger: int = 5) -> bytes:
    header = EntryHeader(ledger, number, number - 1, len(payload))
    return encode(header, payload, Digester.of(digest_type, b"secret"))


def cut_within(torn: bytes, at: int) -> list[bytes]:
    """Records in front of ``torn`` so that the sector ends behind ``at`` of its bytes."""
    return [filler(SECTOR_BYTES - at), torn, filler(600)]


@pytest.mark.parametrize("at", range(13, 20))
def test_half_a_fence_record_is_not_taken_for_entry_0(at: int) -> None:
    """ledger 5, entry -0x2000: without its last bytes it is entry 0, and would take that one's place."""
    fence = record(journal_codec.fence_record(5))
    with after_crash_with(cut_within(fence, at), lost=2) as rig:
        rig.start()
        assert rig.bookie.reads.read(5, 0) == entry_body(5, 0, b"as it was acknowledged")


@pytest.mark.parametrize("at", range(13, 60, 3))
def test_half_an_entry_does_not_replace_the_whole_one(at: int) -> None:
    """Recovery writes entries again; a copy that was torn was never acknowledged, the first one was."""
    again = frame(entry_body(5, 0, b"as it was written again"))
    with after_crash_with(cut_within(again, at), lost=2) as rig:
        report = rig.start()
        assert rig.bookie.reads.read(5, 0) == entry_body(5, 0, b"as it was acknowledged")
        assert report.torn_records <= 1


def test_a_whole_entry_replaces_the_older_one() -> None:
    again = frame(entry_body(5, 0, b"as it was written again"))
    with after_crash_with(cut_within(again, 30), lost=9) as rig:
        assert rig.start().torn_records == 0
        assert rig.bookie.reads.read(5, 0) == entry_body(5, 0, b"as it was written again")


@pytest.mark.parametrize("at", range(25, 44))
def test_half_a_master_key_neither_contradicts_nor_becomes_the_ledgers(at: int) -> None:
    with after_crash_with(cut_within(KEY_RECORD, at), lost=2) as rig:
        rig.start()
        rig.add(5, 1)
    unknown = record(journal_codec.master_key_record(6, KEY))
    with after_crash_with(cut_within(unknown, at), lost=2) as rig:
        rig.start()
        rig.add(6, 0)


@pytest.mark.parametrize("ledger", [5, 6])
@pytest.mark.parametrize("behind", [filler(600), b""])
def test_a_key_whose_end_a_range_of_zeros_took_is_not_the_ledgers(ledger: int, behind: bytes) -> None:
    """Nothing proves a key, and no client brings what is left of this one.

    With padding, writes begin with sectors, so that zeros from within one on are damage if more was written.
    """
    cut = bytearray(record(journal_codec.master_key_record(ledger, KEY)))
    cut[-7:] = bytes(7)
    for header in (journal_codec.encode_header(4), HEADER):
        rest_of_sector = bytes(-(len(header) + 100 + len(cut)) % SECTOR_BYTES)
        tail = [filler(100), bytes(cut), rest_of_sector, behind]
        with after_crash_with(tail, lost=20, header=header) as rig:
            if behind and header is HEADER:
                with pytest.raises(RefusedError):
                    rig.start()
                continue
            rig.start()
            rig.add(ledger, 1)


def test_a_key_of_zeros_in_front_of_a_whole_record_counts() -> None:
    ends_with_zeros = KEY[:-2] + bytes(2)
    whole = record(journal_codec.master_key_record(6, ends_with_zeros))
    with after_crash_with([filler(100), whole, filler(600)], lost=20) as rig:
        rig.start()
        with pytest.raises(UnauthorizedError):
            rig.add(6, 0)
        rig.add(6, 0, key=ends_with_zeros)


def test_a_key_that_ends_an_older_journal_with_zeros_counts() -> None:
    """A journal is durable to its end before there is a record in the next one: nothing there is torn."""
    header = journal_codec.encode_header(4)
    whole = record(journal_codec.master_key_record(6, KEY[:-2] + bytes(2)))
    tail = [filler(2 * SECTOR_BYTES + 2 - len(header) - len(whole)), whole]
    with after_crash_with(tail, lost=9, header=header) as rig:
        newest = max(
            filter(None, map(journal_codec.parse_journal_name, rig.memory.names("/journal0/current")))
        )
        rig.memory.replace(f"/journal0/current/{newest + 1:x}.txn", header + frame(entry_body(6, 0)))
        assert rig.start().torn_records == 0
        assert rig.bookie.reads.read(6, 0) == entry_body(6, 0)
        with pytest.raises(UnauthorizedError):
            rig.add(6, 1)
        rig.add(6, 1, key=KEY[:-2] + bytes(2))


@pytest.mark.parametrize("at", range(1, 5))
def test_a_whole_key_counts_wherever_its_length_word_stands(at: int) -> None:
    """Anybody could take the ledger over if its key were forgotten."""
    unknown = record(journal_codec.master_key_record(6, KEY))
    with after_crash_with(cut_within(unknown, at), lost=9) as rig:
        rig.start()
        with pytest.raises(UnauthorizedError):
            rig.add(6, 0, key=OTHER_KEY)


def test_a_damaged_key_that_is_whole_is_refused_as_before() -> None:
    other = record(journal_codec.master_key_record(5, KEY[:-1] + bytes([KEY[-1] ^ 1])))
    with after_crash_with(cut_within(other, 30), lost=9) as rig, pytest.raises(RefusedError):
        rig.start()


@pytest.mark.parametrize("at", range(30, 60, 2))
def test_half_an_explicit_lac_does_not_set_the_lac_back(at: int) -> None:
    torn = record(journal_codec.explicit_lac_record(5, lac_packet(5, 258)))
    with after_crash_with(cut_within(torn, at), lost=2) as rig:
        rig.start()
        assert rig.bookie.reads.explicit_lac(5) in (lac_packet(5, 7), lac_packet(5, 258)) or (
            rig.bookie.reads.last_add_confirmed(5) >= 7
        )


@pytest.mark.parametrize("lost", [2, 3])
def test_a_hole_at_the_end_is_no_damage_to_the_start_after_the_next(lost: int) -> None:
    """The mark passes all of a file that was replayed over a hole: it is not the newest one any more then."""
    tail = [KEY_RECORD, frame(entry_body(5, 1, b"1" * 700)), filler(300), b"\x7f" * 600]
    with after_crash_with(tail, lost=lost) as rig:
        rig.start()
        rig.add(5, 9)
        with rig.cut_off() as second:
            second.start()
            assert second.bookie.reads.read(5, 9) == entry_body(5, 9)
            with second.cut_off() as third:
                third.start()
                assert third.bookie.reads.read(5, 9) == entry_body(5, 9)


def test_a_fence_that_is_whole_counts_whatever_is_torn_beside_it() -> None:
    fence = record(journal_codec.fence_record(5))
    with after_crash_with([KEY_RECORD, fence, filler(2000)], lost=2) as rig:
        rig.start()
        with pytest.raises(LedgerFencedError):
            rig.add(5, 1)
        with pytest.raises(NoEntryError):
            rig.bookie.reads.read(5, 1)


# --- what proves itself


@pytest.mark.parametrize("at", [40, 100, 300])
def test_half_an_entry_is_not_served_where_the_ledger_has_crcs(at: int) -> None:
    """It was never acknowledged; served, it would keep a recovery from ever closing the ledger."""
    with after_crash_with(cut_within(frame(entry_body(5, 1, b"1" * 900)), at), lost=2) as rig:
        report = rig.start()
        assert (report.torn_records, report.unsynced_holes) == (1, 0)
        with pytest.raises(NoEntryError):
            rig.bookie.reads.read(5, 1)
        assert rig.bookie.reads.read(5, 0) == entry_body(5, 0, b"as it was acknowledged")
        assert rig.bookie.reads.last_add_confirmed(5) == 7


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.CRC32])
def test_a_whole_entry_of_zeros_proves_itself(digest_type: DigestType) -> None:
    whole = entry_of(1, bytes(3000), digest_type)
    with after_crash_with(cut_within(frame(whole), 60), lost=30) as rig:
        assert rig.start().torn_records == 0
        assert rig.bookie.reads.read(5, 1) == whole


def test_a_later_entry_proves_the_digest_of_a_ledger_too() -> None:
    torn, whole = entry_body(6, 0, b"0" * 900), entry_body(6, 1, b"1")
    with after_crash_with([*cut_within(KEY_OF_6, 20), frame(torn), frame(whole)], lost=4) as rig:
        assert rig.start().torn_records == 1
        with pytest.raises(NoEntryError):
            rig.bookie.reads.read(6, 0)
        assert rig.bookie.reads.read(6, 1) == whole


@pytest.mark.parametrize("digest_type", [DigestType.MAC, DigestType.DUMMY])
def test_what_cannot_be_proved_is_kept(digest_type: DigestType) -> None:
    """An entry of zeros may have been acknowledged: it must not become "no such entry"."""
    first, zeros = (entry_of(number, data, digest_type, 6) for number, data in ((0, b"0"), (1, bytes(3000))))
    tail = [*cut_within(KEY_OF_6, 20), frame(first), frame(zeros)]
    with after_crash_with(tail, lost=30) as rig:
        assert rig.start().torn_records == 0
        assert rig.bookie.reads.read(6, 1) == zeros


def test_an_entry_that_ends_with_zeros_is_whole_where_something_stands_behind_it() -> None:
    """No digest of its ledger proves that, and it was acknowledged in the place of another."""
    first, again = (entry_of(0, data, DigestType.MAC, 6) for data in (b"first", b"again" + bytes(300)))
    begin = len(HEADER) + len(KEY_OF_6) + 4 + len(first)
    fill = filler(-(begin + 4 + len(again) - 200) % SECTOR_BYTES)
    with after_crash_with([KEY_OF_6, frame(first), fill, frame(again), filler(600)], lost=9) as rig:
        assert rig.start().torn_records == 0
        assert rig.bookie.reads.read(6, 0) == again


@pytest.mark.parametrize("share", [1, 2, 4, 7, 8, 9])
def test_an_entry_that_lacks_its_last_bytes_is_torn(share: int) -> None:
    torn = frame(entry_body(5, 1, b"1" * 300))
    with after_crash_with([filler(SECTOR_BYTES - len(torn) + share), torn], lost=2) as rig:
        assert rig.start().torn_records == 1
        with pytest.raises(NoEntryError):
            rig.bookie.reads.read(5, 1)


SHORT = frame(entry_body(5, 1)[:20])


@pytest.mark.parametrize(
    "tail", [cut_within(SHORT, 12), [filler(SECTOR_BYTES), filler(1024), filler(100), SHORT, filler(600)]]
)
def test_an_entry_without_a_header_refuses_no_start_where_nothing_was_acknowledged(tail: list[bytes]) -> None:
    """It is torn, or stands behind a hole."""
    with after_crash_with(tail, lost=2) as rig:
        report = rig.start()
        assert (report.damage_count, report.unsynced_holes, report.limbo_ledgers) == (0, 2, 0)
        with pytest.raises(NoEntryError):
            rig.bookie.reads.read(5, 1)


def test_an_entry_without_a_header_refuses_the_start_where_it_is_whole() -> None:
    made = after_crash_with([filler(100), SHORT, filler(600)], lost=9)
    with made as rig, pytest.raises(RefusedError, match="an entry without a header"):
        rig.start()


def test_a_torn_record_says_nothing_of_those_behind_it() -> None:
    """What looks torn may be synced: a bit of it changed, or its client sent a wrong digest."""
    first = entry_of(0, b"0", DigestType.MAC, 6)
    zeros = entry_of(1, bytes(3000), DigestType.MAC, 6)
    torn = entry_of(1, b"1" * 900, DigestType.CRC32C)
    tail = [KEY_OF_6, frame(first), frame(torn), frame(zeros)]
    lost = (len(HEADER) + len(KEY_OF_6) + 4 + len(first)) // SECTOR_BYTES + 1
    with after_crash_with(tail, lost=lost) as rig:
        assert rig.start().torn_records == 1
        assert [rig.bookie.reads.read(6, number) for number in (0, 1)] == [first, zeros]
        with pytest.raises(NoEntryError):
            rig.bookie.reads.read(5, 1)


def test_many_records_that_look_torn_are_judged_in_pieces() -> None:
    bodies = [entry_of(number, bytes(600), DigestType.MAC, 6) for number in range(1100)]
    with after_crash_with([*cut_within(KEY_OF_6, 20), *map(frame, bodies)], lost=9000) as rig:
        assert rig.start().entries == 1100
        assert [rig.bookie.reads.read(6, number) for number in (0, 999, 1000, 1099)] == [
            bodies[number] for number in (0, 999, 1000, 1099)
        ]


# --- the sign


@given(
    offset=st.integers(0, 3000),
    size=st.integers(24, 3000),
    lost=st.integers(0, 12),
)
def test_a_record_without_one_of_its_sectors_looks_torn_and_a_whole_one_does_not(
    offset: int, size: int, lost: int
) -> None:
    body = b"\x01" * size
    # Its second byte is zero, and where it has less than 256 bytes, the third one.
    word_cut = offset % SECTOR_BYTES == SECTOR_BYTES - 2 or (
        offset % SECTOR_BYTES == SECTOR_BYTES - 3 and size < 256
    )
    assert looks_torn(offset, body) is word_cut
    image = bytearray(offset + 4) + bytearray(body)
    start = lost * SECTOR_BYTES
    if offset + 4 <= start < len(image):
        image[start : start + SECTOR_BYTES] = bytes(len(image[start : start + SECTOR_BYTES]))
        assert looks_torn(offset, bytes(image[offset + 4 :]))
