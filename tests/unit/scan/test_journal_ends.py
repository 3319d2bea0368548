"""Journals that are cut, zeroed or emptied behind the last mark: only the newest may end anywhere."""

from __future__ import annotations

import pytest

from bkctl.codec import journal as codec
from bkctl.codec.digest import Digester
from bkctl.codec.last_mark import LastMark
from bkctl.scan.damage import Damage, Verdict
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import JournalFile
from bkctl.scan.files.journals import verify_journals
from bkctl.scan.files.verdicts import FileVerdict
from bkctl.scan.known_end import LONG_RECORD
from bkctl.types import DigestType
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.log_builder import simple_journal

OLDER, NEWER = "/j/current/5.txn", "/j/current/6.txn"
WHOLE = simple_journal(6, preallocated=False)
RECORDS = WHOLE.data
MARK = LastMark(5, WHOLE.entries[4].offset)
#: Where the journal is cut: within a record, and between two of them.
WITHIN, BETWEEN = WHOLE.entries[9].offset + 30, WHOLE.entries[9].offset
JAVA = codec.encode_header(6)
OURS = codec.encode_header(6, LastMark(5, len(RECORDS)))
NEWER_RECORDS = RECORDS[codec.HEADER_BYTES :]


def verified(older: bytes, newer: bytes | None, mark: LastMark | None = MARK) -> FileVerdict:
    """Verify the older journal of two; ``newer`` None stands for no other one."""
    files = {OLDER: older} if newer is None else {OLDER: older, NEWER: newer}
    journal = JournalFile(OLDER, 5, len(older))
    (verdict,) = verify_journals(MemoryFileSystem(files), [journal], DigestBook(), mark=mark)
    return verdict


def damages(older: bytes, newer: bytes | None, mark: LastMark | None = MARK) -> list[tuple[int, int, str]]:
    found: tuple[Damage, ...] = verified(older, newer, mark).damage
    return [(damage.offset, damage.end, damage.reason) for damage in found]


def test_a_whole_journal_is_clean_in_front_of_every_other_one() -> None:
    for newer in (None, b"", JAVA, OURS, JAVA + NEWER_RECORDS, OURS + NEWER_RECORDS):
        assert verified(RECORDS, newer).verdict is Verdict.CLEAN


def test_the_newest_journal_may_end_within_a_record() -> None:
    assert verified(RECORDS[:WITHIN], None).verdict is Verdict.TORN_TAIL


@pytest.mark.parametrize("newer", [b"", JAVA[:100], JAVA, JAVA + bytes(8192), bytes(4096)])
def test_so_may_the_newest_one_with_records(newer: bytes) -> None:
    assert verified(RECORDS[:WITHIN], newer).verdict is Verdict.TORN_TAIL


def test_a_record_that_is_cut_in_an_older_journal_is_damage() -> None:
    at = BETWEEN
    assert damages(RECORDS[:WITHIN], JAVA + NEWER_RECORDS) == [(at, WITHIN, "cut journal")]


@pytest.mark.parametrize("older", [b"", b"BKLG", JAVA[:100], JAVA, JAVA + bytes(4096), bytes(8192)])
def test_an_older_journal_behind_the_mark_without_a_record_is_damage(older: bytes) -> None:
    for mark in (LastMark(0, 0), LastMark(4, 4096)):
        assert verified(older, JAVA + NEWER_RECORDS, mark).verdict is Verdict.DAMAGED


@pytest.mark.parametrize(("older", "offset"), [(b"", 0), (JAVA, 0), (JAVA, 512), (JAVA + bytes(4096), 512)])
def test_an_empty_journal_that_the_mark_names_was_replayed(older: bytes, offset: int) -> None:
    """A start that was killed before its first record leaves it, and the next start's mark names it."""
    mark = LastMark(5, offset)
    for newer in (JAVA, codec.encode_header(6, mark)):
        assert not damages(older, newer + NEWER_RECORDS, mark)


def test_a_torn_record_in_front_of_the_mark_was_replayed() -> None:
    """A mark of a replay stands behind what it has examined; Java's does as well."""
    older = RECORDS[:WITHIN]
    assert verified(older, JAVA + NEWER_RECORDS, LastMark(5, WITHIN)).verdict is Verdict.TORN_TAIL
    assert verified(older, JAVA + NEWER_RECORDS, LastMark(6, 512)).verdict is Verdict.TORN_TAIL


def test_without_a_mark_any_journal_may_be_the_one_of_a_killed_bookie() -> None:
    assert verified(RECORDS[:WITHIN], JAVA + NEWER_RECORDS, None).verdict is Verdict.TORN_TAIL
    assert verified(b"", JAVA + NEWER_RECORDS, None).verdict is Verdict.CLEAN


@pytest.mark.parametrize("older", [RECORDS[:WITHIN], RECORDS[:BETWEEN], RECORDS[: MARK.offset], JAVA, b""])
@pytest.mark.parametrize("newer", [OURS, OURS + NEWER_RECORDS])
@pytest.mark.parametrize("mark", [MARK, LastMark(4, 512), None])
def test_our_next_journal_says_where_the_records_end(
    older: bytes, newer: bytes, mark: LastMark | None
) -> None:
    found = damages(older, newer, mark)
    assert [(end, reason) for _, end, reason in found] == [(len(RECORDS), "cut journal")]


@pytest.mark.parametrize("start", [WITHIN, BETWEEN, MARK.offset, codec.HEADER_BYTES])
def test_zeros_to_the_end_are_no_preallocation_where_records_were(start: int) -> None:
    zeroed = RECORDS[:start] + bytes(len(RECORDS) - start)
    (*_, last) = damages(zeroed, OURS + NEWER_RECORDS)
    assert last[1] == len(RECORDS)
    assert verified(zeroed, OURS + NEWER_RECORDS).verdict is Verdict.DAMAGED


def test_what_stands_behind_the_stated_end_is_no_damage() -> None:
    """Zeros of a preallocation, and the torn record of the bookie that was killed in front of the start."""
    for rest in (bytes(8192), RECORDS[WHOLE.entries[9].offset : WITHIN]):
        for newer in (OURS, OURS + NEWER_RECORDS):
            for mark in (MARK, None):
                assert not damages(RECORDS + rest, newer, mark)


@pytest.mark.parametrize("kind", [DigestType.CRC32C, DigestType.MAC])
def test_records_that_stand_behind_the_stated_end_are_found(kind: DigestType) -> None:
    """A record across it is damage unless it proves itself; those behind it are records as any others."""
    built = simple_journal(digester=Digester.of(kind, b"secret"), padded=False)
    across = built.entries[9].offset
    found = verified(built.data, codec.encode_header(6, LastMark(5, across + 30)))
    left_out = int(kind is DigestType.MAC)
    assert [(each.offset, each.reason) for each in found.damage] == [(across, LONG_RECORD)] * left_out
    assert found.entries == len(built.entries) - left_out


def test_nothing_is_missing_behind_a_mark_at_the_stated_end() -> None:
    """What was not synced when it was replayed may be gone behind a power cut: it is in the logs."""
    assert not damages(RECORDS[:BETWEEN], OURS + NEWER_RECORDS, LastMark(5, len(RECORDS)))


def test_a_mark_beyond_the_end_of_its_journal_is_damage() -> None:
    for newer in (None, JAVA + NEWER_RECORDS):
        ((offset, end, reason),) = damages(RECORDS[:BETWEEN], newer, LastMark(5, len(RECORDS)))
        assert (offset, end, reason) == (BETWEEN, len(RECORDS) + 1, "cut journal")


@pytest.mark.parametrize("end", [BETWEEN, WITHIN])
def test_zeros_from_far_in_front_of_the_mark_are_no_preallocation(end: int) -> None:
    """The file is as long as it was, and no replay has examined so many zeros."""
    mark = LastMark(5, BETWEEN + (1 << 17))
    older = RECORDS[:end] + bytes(1 << 18)
    ((offset, damage_end, reason),) = damages(older, None, mark)
    assert (damage_end, reason) == (mark.offset, "cut journal")
    assert BETWEEN <= offset <= WHOLE.entries[10].offset
    assert damages(older, None, LastMark(5, end + 1)) == []


def test_a_statement_that_is_damaged_or_about_another_journal_says_nothing() -> None:
    flipped = bytearray(OURS)
    flipped[30] ^= 1
    for newer in (bytes(flipped), codec.encode_header(6, LastMark(4, len(RECORDS)))):
        assert not damages(RECORDS[:BETWEEN], newer + NEWER_RECORDS)


def test_journals_without_any_record_are_clean() -> None:
    """The bookie was cut off in two starts, one behind the other."""
    for older in (b"", JAVA, JAVA + bytes(4096)):
        assert not damages(older, JAVA, LastMark(4, 512))


def test_zeros_within_a_special_record_are_damage_as_for_a_start() -> None:
    """With its ids zeroed it would be an entry, and is too short for one: no write was cut there."""
    fence = codec.encode_record(codec.fence_record(11))
    content = codec.encode_header(6) + fence[:12] + bytes(4096)
    book = DigestBook({11: Digester.of(DigestType.CRC32C, b"")})
    journal = JournalFile(OLDER, 5, len(content))
    (verdict,) = verify_journals(MemoryFileSystem({OLDER: content}), [journal], book, mark=LastMark(5, 0))
    assert verdict.verdict is Verdict.DAMAGED
