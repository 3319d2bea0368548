"""Journals: what Journal.scanJournal of BookKeeper delivers from crafted, real and our own files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkctl.codec import journal as codec
from bkctl.codec.digest import Digester, master_key
from bkctl.codec.entry import EntryBatch, EntryHeader, encode
from bkctl.codec.last_mark import LastMark, encode_last_mark
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.journal import JournalScan
from bkctl.types import DigestType
from bkctl.vfs import PosixFileSystem
from tests.support.java_bookkeeper import (
    JavaDriver,
    JournalRecord,
    JournalVerdict,
    copy_directory,
    sample_directory,
    start_driver,
)
from tests.support.journal_records import entry_record

pytestmark = pytest.mark.interop

_RECORD = re.compile(r"v(\d+) off=(\d+) len=(\d+)(?: lid=(-?\d+) eid=(-?\d+))?$")

# (offset of the length word, length, ledger, entry)
Delivered = tuple[int, int, int | None, int | None]

# Crafted journals of which we deliver other records than Java: (what Java alone, what we alone deliver).
DELIBERATE_DIFFERENCES: dict[int, tuple[set[Delivered], set[Delivered]]] = {
    0x07: (set(), {(512, 16, 7, 1)}),  # version 7: the header is damage, the records prove themselves
    0x0A: (set(), {(536, 16, 10, 2)}),  # a length of -1: Java ends with an error
    0x0E: ({(532, 5, None, None)}, set()),  # five bytes cannot hold the ids: damage
    0x0F: (set(), {(1044, 16, 15, 2)}),  # a zero word in the middle: Java takes it for the end
    0x10: (set(), {(40, 16, 16, 2)}),  # padding in version 4: Java ends with an error
    0x15: (set(), {(8, 16, 21, 1)}),  # a zeroed header: to Java an empty file of version 1
    0x16: (set(), {(8, 16, 22, 1)}),  # version 0
}


@pytest.fixture(scope="module")
def java() -> Iterator[JavaDriver]:
    with start_driver() as driver:
        yield driver


def shipped_verdicts(text: str) -> dict[int, JournalVerdict]:
    """The content of ``jr.expected.txt``."""
    verdicts: dict[int, JournalVerdict] = {}
    for block in re.split(r"^journal ", text, flags=re.MULTILINE)[1:]:
        name, *lines = block.splitlines()
        records: list[JournalRecord] = []
        position, error = None, None
        for line in map(str.strip, lines):
            if line.startswith("end="):
                position = int(line[4:])
            elif line.startswith("-> "):
                error = line[3:]
            elif found := _RECORD.match(line):
                version, offset, length, *ids = found.groups()
                ledger, entry = (None if number is None else int(number) for number in ids)
                records.append(JournalRecord(int(version), int(offset), int(length), ledger, entry))
        verdicts[int(name, 16)] = JournalVerdict(records, position, error)
    return verdicts


def test_the_shipped_verdicts_are_those_of_the_jars(
    java: JavaDriver, corpora: Callable[[str], Path], tmp_path: Path
) -> None:
    copy = copy_directory(sample_directory("jr/j", corpora), tmp_path / "j")
    expected = shipped_verdicts(sample_directory("jr.expected.txt", corpora).read_text())
    assert len(expected) == 22
    for journal_id, shipped in expected.items():
        assert (journal_id, java.journal(copy, tmp_path / "l", journal_id)) == (journal_id, shipped)


def test_from_crafted_journals_we_deliver_what_java_does_but_for_the_deliberate_differences(
    java: JavaDriver, corpora: Callable[[str], Path], tmp_path: Path
) -> None:
    copy = copy_directory(sample_directory("jr/j", corpora), tmp_path / "j")
    for path in sorted((copy / "current").glob("*.txn")):
        journal_id = int(path.stem, 16)
        theirs = set(records_of(java.journal(copy, tmp_path / "l", journal_id)))
        our_own = set(ours(path))
        expected = DELIBERATE_DIFFERENCES.get(journal_id, (set(), set()))
        assert (journal_id, theirs - our_own, our_own - theirs) == (journal_id, *expected)


@pytest.mark.parametrize("sample", ["a", "a18", "r", "d", "i", "i0", "v4", "pd", "pd4", "g", "s", "pl"])
def test_real_journals_read_the_same(
    java: JavaDriver, corpora: Callable[[str], Path], tmp_path: Path, sample: str
) -> None:
    copy = copy_directory(sample_directory(f"{sample}/j", corpora), tmp_path / "j")
    compare_all(java, copy, tmp_path / "l")


@pytest.mark.corpora
@pytest.mark.parametrize("storage", ["db", "sorted", "interleaved", "perledger"])
@pytest.mark.parametrize("state", ["clean", "crash"])
def test_the_journals_of_real_bookies_read_the_same(
    java: JavaDriver, corpora: Callable[[str], Path], tmp_path: Path, storage: str, state: str
) -> None:
    copy = copy_directory(corpora(storage) / state / "bookie1", tmp_path / "bookie1")
    compare_all(java, copy / "journal", copy / "ledgers")


def compare_all(java: JavaDriver, journal_dir: Path, ledger_dir: Path) -> None:
    journals = sorted((journal_dir / "current").glob("*.txn"))
    assert journals
    for path in journals:
        journal_id = codec.parse_journal_name(path.name)
        assert journal_id is not None
        verdict = java.journal(journal_dir, ledger_dir, journal_id)
        assert verdict.error is None
        assert ours(path) == records_of(verdict)


# --- they read ours -----------------------------------------------------------------------------------------


def records_for(version: int) -> list[codec.JournalRecord]:
    """A record of every kind that a version may hold, with entries of all digest types between them."""
    records = []
    for ledger, digest in enumerate(DigestType):
        body = encode(EntryHeader(ledger, 3, 2, 12), b"payload" * ledger, Digester.of(digest, b"pw"))
        if version >= 3:
            records.append(codec.master_key_record(ledger, master_key(b"pw")))
        records.append(entry_record(body))
        if version >= 4:
            records.append(codec.fence_record(ledger))
        if version >= 6:
            records.append(codec.explicit_lac_record(ledger, bytes(range(16))))
    return records


@pytest.mark.parametrize("alignment", [512, 4096])
@pytest.mark.parametrize("version", range(1, 7))
def test_java_reads_a_journal_that_we_wrote(
    java: JavaDriver, tmp_path: Path, version: int, alignment: int
) -> None:
    data = bytearray(codec.encode_header(version))
    written: list[Delivered] = []
    for record in records_for(version):
        written.append((len(data), record.size, record.ledger, record.entry))
        data += codec.encode_record(record)
        padding = codec.padding_record(len(data), alignment) if version >= codec.PADDED_FROM else None
        if padding is not None:
            data += codec.encode_record(padding)
    end = len(data)
    path = write_journal(tmp_path, 0x1C, bytes(data) + bytes(4096))
    verdict = java.journal(tmp_path / "journal", tmp_path / "ledgers", 0x1C)
    assert verdict.error is None
    assert records_of(verdict) == written == ours(path)
    assert {record.version for record in verdict.records} == {version}
    assert verdict.position == end + 4  # the scan has read the zero word


@pytest.mark.parametrize("left", range(9))
def test_java_crosses_padding_wherever_it_starts(java: JavaDriver, tmp_path: Path, left: int) -> None:
    """With fewer than 8 bytes left in the block, padding runs to the end of the next one."""
    body_bytes = 512 - left - 4
    record = entry_record(bytes(16) + b"x" * (body_bytes - 16))
    data = codec.encode_header(6) + codec.encode_record(record)
    padding = codec.padding_record(len(data), 512)
    padded = data + (codec.encode_record(padding) if padding else b"")
    assert len(padded) % 512 == 0
    write_journal(tmp_path, 1, padded + codec.encode_record(record))
    verdict = java.journal(tmp_path / "journal", tmp_path / "ledgers", 1)
    assert [found.offset for found in verdict.records] == [512, len(padded)]


def test_a_cut_journal_ends_for_java_and_for_us_at_the_same_record(java: JavaDriver, tmp_path: Path) -> None:
    record = codec.encode_record(entry_record(bytes(40)))
    whole = codec.encode_header(6) + record * 3
    for journal_id, size in enumerate(range(len(whole) - 60, len(whole), 7)):
        path = write_journal(tmp_path, journal_id, whole[:size])
        verdict = java.journal(tmp_path / "journal", tmp_path / "ledgers", journal_id)
        assert (size, ours(path)) == (size, records_of(verdict))


def test_java_starts_its_replay_at_the_greatest_of_our_marks(java: JavaDriver, tmp_path: Path) -> None:
    marks = [LastMark(7, 4096), LastMark(9, 512), LastMark(9, 100)]
    dirs = []
    for number, mark in enumerate(marks):
        current = tmp_path / f"ledgers{number}" / "current"
        current.mkdir(parents=True)
        (current / "lastMark").write_bytes(encode_last_mark(mark))
        dirs.append(current.parent)
    (tmp_path / "journal/current").mkdir(parents=True)
    assert LastMark(*java.last_mark(tmp_path / "journal", *dirs)) == max(marks)


def write_journal(directory: Path, journal_id: int, data: bytes) -> Path:
    (directory / "ledgers/current").mkdir(parents=True, exist_ok=True)
    path = directory / "journal/current" / codec.journal_name(journal_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def records_of(verdict: JournalVerdict) -> list[Delivered]:
    return [(record.offset, record.length, record.ledger, record.entry) for record in verdict.records]


def ours(path: Path) -> list[Delivered]:
    """Entries and special records in file order; padding is not delivered by Java either."""
    delivered: list[Delivered] = []
    with JournalScan(PosixFileSystem(), str(path)) as scan:
        for item in scan:
            if isinstance(item, EntryBatch):
                delivered += [
                    (item.offset(i), item.sizes[i], item.ledgers[i], item.entries[i])
                    for i in range(len(item))
                ]
            elif isinstance(item, MarkedRecord) and item.kind is not codec.RecordKind.PADDING:
                delivered.append((item.offset, item.framed_bytes - 4, item.ledger, item.entry))
    return delivered
