"""A record that is whole but for its size word: the copy has it, or it is a loss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkctl.admin.journals.examined_journals import examined
from bkctl.admin.journals.journal_copy import SalvagedJournal, copy_journal
from bkctl.admin.journals.journal_losses import JournalLosses
from bkctl.admin.journals.skipped_records import JournalRecords
from bkctl.admin.journals.stopped_bookie import JournalPlace
from bkctl.codec.digest import Digester
from bkctl.codec.journal import encode_header
from bkctl.codec.last_mark import ZERO_MARK, LastMark
from bkctl.errors import CorruptionError
from bkctl.scan.damage import Verdict
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import inspect_directory
from bkctl.scan.files.journals import verify_journals
from bkctl.scan.known_end import LONG_RECORD
from bkctl.types import DigestType
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.log_builder import Built, simple_journal

HOME = "/j/current"
PATH = f"{HOME}/1.txn"
COPY = f"{HOME}/1.txn.tmp"
LEDGERS = (11, 12)
LAST = 15
DIGESTERS = [Digester.of(kind, b"secret") for kind in (DigestType.MAC, DigestType.CRC32C, DigestType.CRC32)]
MAC = DIGESTERS[0]


def book_of(digester: Digester) -> DigestBook:
    return DigestBook(dict.fromkeys(LEDGERS, digester))


def with_size(built: Built, number: int, change: int) -> bytes:
    """Return the journal with another size word in front of an entry."""
    data, offset = bytearray(built.data), built.entries[number].offset
    size = int.from_bytes(data[offset : offset + 4], "big")
    data[offset : offset + 4] = ((size ^ 1 << 31) if change == 0 else size + change).to_bytes(4, "big")
    return bytes(data)


def planned(
    files: MemoryFileSystem, book: DigestBook, copied_with: DigestBook
) -> tuple[list[SalvagedJournal], JournalLosses, JournalRecords]:
    """Return the copies to make of journals, and the losses; the records are found with another book."""
    place, behind = JournalPlace(inspect_directory(files, HOME), 0, 1), JournalRecords()
    verdicts = list(verify_journals(files, list(place.directory.journals), book, mark=ZERO_MARK))
    journals, lost = examined(files, place, ZERO_MARK, verdicts, {}, copied_with, behind)
    return journals, lost, behind


@pytest.mark.parametrize(
    ("number", "change"),
    [
        pytest.param(5, 1 << 16, id="it grows"),
        pytest.param(5, -16, id="it shrinks"),
        pytest.param(5, 0, id="its sign changes"),
        pytest.param(5, None, id="it ends where the next record does"),
        pytest.param(LAST, 1 << 16, id="the last one grows"),
        pytest.param(LAST, -16, id="the last one shrinks"),
        pytest.param(LAST, 0, id="the sign of the last one changes"),
    ],
)
@pytest.mark.parametrize("digester", DIGESTERS, ids=lambda digester: digester.type.value)
def test_the_copy_is_the_journal_without_the_damage(
    digester: Digester, number: int, change: int | None
) -> None:
    built = simple_journal(digester=digester, padded=False)
    swallowed = built.entries[1].offset - built.entries[0].offset
    damaged = with_size(built, number, swallowed if change is None else change)
    files = MemoryFileSystem({PATH: damaged})
    book = book_of(digester)
    (salvaged,), lost, behind = planned(files, book, book)
    assert [damage.readable for damage in salvaged.damage] == [True]
    assert salvaged.is_damaged, "its copy differs, so that one in place replaces it"
    assert (lost.ranges, lost.is_certain) == ({}, True)
    assert {ledger: records.entries for ledger, records in behind.ledgers.items()} == {
        11: ((0, 7),),
        12: ((0, 7),),
    }
    copy_journal(files, salvaged, ZERO_MARK, COPY)
    assert files.files[COPY] == built.data
    files.rename(COPY, PATH)
    (verdict,) = verify_journals(files, list(inspect_directory(files, HOME).journals), book, mark=ZERO_MARK)
    assert verdict.verdict is Verdict.CLEAN


@pytest.mark.parametrize("change", [1 << 16, -16])
def test_a_record_that_the_copy_lacks_or_has_with_the_wrong_size_is_a_loss(change: int) -> None:
    files = MemoryFileSystem({PATH: with_size(simple_journal(digester=MAC), 5, change)})
    (salvaged,), lost, _ = planned(files, book_of(MAC), copied_with=DigestBook())
    assert [damage.readable for damage in salvaged.damage] == [False]
    assert not lost.is_certain, "nothing says that no other record is lost"


def test_a_copy_with_other_records_than_planned_is_refused() -> None:
    files = MemoryFileSystem({PATH: with_size(simple_journal(digester=MAC), 5, 1 << 16)})
    (salvaged,), _, _ = planned(files, book_of(MAC), book_of(MAC))
    assert salvaged.records == 2 + 16
    with pytest.raises(CorruptionError, match="19 records"):
        copy_journal(files, replace(salvaged, records=19), ZERO_MARK, COPY)
    as_many = replace(salvaged, reading=replace(salvaged.reading, book=DigestBook()), records=17)
    with pytest.raises(CorruptionError, match="the records that were planned"):
        copy_journal(files, as_many, ZERO_MARK, f"{COPY}2")


def test_records_in_one_that_goes_on_behind_the_stated_end_are_in_the_copy() -> None:
    """No digest is known: only what the next journal says of the end shows the damage."""
    built = simple_journal(digester=MAC, padded=False)
    end = built.entries[-1].offset + (built.entries[1].offset - built.entries[0].offset)
    files = MemoryFileSystem(
        {PATH: with_size(built, 10, 1 << 9), f"{HOME}/2.txn": encode_header(6, LastMark(1, end))}
    )
    (salvaged, _), lost, behind = planned(files, DigestBook(), DigestBook())
    assert [damage.reason for damage in salvaged.damage] == [LONG_RECORD]
    assert not lost.is_certain
    assert behind.ledgers[12].entries == ((0, 7),)
    assert behind.ledgers[11].entries == ((0, 4), (6, 7))
    copy_journal(files, salvaged, ZERO_MARK, COPY)
    files.rename(COPY, PATH)
    (verdict, _) = verify_journals(
        files, list(inspect_directory(files, HOME).journals), DigestBook(), mark=ZERO_MARK
    )
    assert (verdict.damages, verdict.entries) == (0, 15)
