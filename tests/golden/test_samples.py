"""The damaged samples ``jr`` and ``el`` against what Java's readers made of them (``*.expected.txt``).

Every file has a row: our verdict, every entry we deliver, every damage we name. A row without ``why`` gives
exactly Java's entries and finds nothing wrong; a row with one differs from Java on purpose, for that reason.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from bkctl.scan.damage import Damage, Verdict
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.files.entrylogs import LogEntries, scan_logs, verify_logs
from bkctl.scan.files.journals import JournalEntries, scan_journals, verify_journals
from bkctl.scan.files.paths import entry_logs, journals
from bkctl.scan.files.verdicts import FileVerdict
from bkctl.vfs import PosixFileSystem

SAMPLES = Path(__file__).parents[1] / "data/samples"
FILES = PosixFileSystem()

#: offset of the size word, size, ledger, entry
Entry = tuple[int, int, int, int]


class Row(NamedTuple):
    """What is expected of one file. ``damage`` is (offset, bytes, reason)."""

    verdict: str
    entries: list[Entry]
    damage: list[tuple[int, int, str]]
    why: str | None = None


class Java(NamedTuple):
    """What Java made of one file; an entry is (offset, size, ledger)."""

    entries: list[tuple[int, int, int]]
    failed: bool


def clean(*entries: Entry) -> Row:
    return Row("clean", list(entries), [])


def torn(*entries: Entry, why: str | None = None) -> Row:
    return Row("torn_tail", list(entries), [], why)


def damaged(why: str, damage: list[tuple[int, int, str]], *entries: Entry) -> Row:
    return Row("damaged", list(entries), damage, why)


#: Every log starts with these two, except the ones that say otherwise.
TWO: tuple[Entry, Entry] = ((1024, 46, 5, 0), (1074, 46, 5, 1))

LOGS = {
    "1": clean(*TWO),
    "2": torn(*TWO),
    "3": torn(*TWO),
    "4": clean(*TWO),
    "5": damaged("bytes between records are named", [(1124, 3, "record size")], *TWO, (1127, 46, 5, 2)),
    "6": damaged("a negative size is named", [(1124, 4, "record size")], *TWO, (1128, 46, 5, 2)),
    "7": damaged(
        "a size of 2 GiB is not allocated, and the entry behind it is delivered",
        [(1124, 4, "record size")],
        *TWO,
        (1128, 46, 5, 2),
    ),
    "8": clean(*TWO),
    "9": damaged("an unknown version is named", [(4, 4, "entry log version")], *TWO),
    "a": damaged("a wrong magic is named", [(0, 4, "entry log header")], *TWO),
    "b": clean(*TWO),
    "c": damaged("the map holds fewer ledgers than the header says", [(1124, 4, "ledgers map")], *TWO),
    "d": damaged("the header counts no ledgers and the map has one", [(1124, 4, "ledgers map")], *TWO),
    "e": damaged(
        "the map counts bytes of a ledger that the log does not hold",
        [(1124, 80, "ledgers map disagrees with the log")],
        *TWO,
    ),
    "f": damaged("the map is cut, so the log lost its end", [(8, 8, "ledgers map offset")], *TWO),
    "10": damaged("nothing follows a map but maps", [(1168, 4, "ledgers map batch")], *TWO, (1164, 46, 6, 0)),
    "11": clean(),
    "12": torn(),
    "13": clean(),
    "14": damaged(
        "Java resynchronises in the middle of zeros and delivers two phantom entries of phantom ledgers",
        [(1124, 512, "zeros")],
        *TWO,
        (1636, 336, 5, 2),
    ),
    "15": damaged("the map's offset is behind the end of the log", [(8, 8, "ledgers map offset")], *TWO),
    "16": damaged("the map's offset is negative", [(8, 8, "ledgers map offset")], *TWO),
    "17": damaged(
        "a negative ledger id is no entry",
        [(1024, 50, "ledger id")],
        (1074, 46, 5, 0),
        (1124, 46, 5, 1),
    ),
}

JOURNALS = {
    "1": clean((0, 16, 1, 1), (20, 16, 1, 2)),
    "2": clean((8, 16, 2, 1)),
    "3": clean((8, 16, 3, 1)),
    "4": clean((8, 16, 4, 1)),
    "5": clean((512, 16, 5, 1), (545, 16, 5, 2), (573, 16, 5, 3)),
    "6": clean((512, 16, 6, 1), (552, 16, 6, 2)),
    "7": damaged(
        "an unknown version is named, and the records are read as version 6",
        [(4, 4, "journal version")],
        (512, 16, 7, 1),
    ),
    "8": torn((512, 16, 8, 1)),
    "9": clean((512, 16, 9, 1)),
    "a": damaged(
        "behind a negative length the next record is delivered",
        [(532, 4, "record size")],
        (512, 16, 10, 1),
        (536, 16, 10, 2),
    ),
    "b": damaged("a length of 2 GB is not allocated", [(532, 54, "record size")], (512, 16, 11, 1)),
    "c": torn((512, 16, 12, 1)),
    "d": damaged(
        "a negative padding length is damage, not a failure", [(532, 58, "record size")], (512, 16, 13, 1)
    ),
    "e": damaged(
        "a record of 5 bytes cannot be one; replaying it stops a Java bookie",
        [(532, 9, "record size")],
        (512, 16, 14, 1),
        (541, 16, 14, 2),
    ),
    "f": damaged(
        "Java takes a zero length for the end and loses the record behind the zeros",
        [(532, 512, "zeros")],
        (512, 16, 15, 1),
        (1044, 16, 15, 2),
    ),
    "10": damaged(
        "padding before version 5 is named, and the record behind it delivered",
        [(28, 12, "record size")],
        (8, 16, 16, 1),
        (40, 16, 16, 2),
    ),
    "11": torn(why="a cut header is no record of 1.1 GB"),
    "12": clean(),
    "13": clean(),
    "14": torn(),
    "15": damaged(
        "zeros where a header should be are named, and the record behind them delivered",
        [(0, 8, "journal header")],
        (8, 16, 21, 1),
    ),
    "16": damaged(
        "version 0 is named, and the record delivered", [(4, 4, "journal version")], (8, 16, 22, 1)
    ),
}


def java_results(name: str, noun: str) -> dict[str, Java]:
    """The blocks of an expected.txt by file id."""
    text = (SAMPLES / name).read_text()
    results = {}
    for block in re.split(rf"^{noun} ", text, flags=re.MULTILINE)[1:]:
        file_id, _, rest = block.partition("\n")
        # "lid=5 off=1024 size=46" or "v5 off=512 len=16 lid=5 eid=1"; a record of 5 bytes has no ids.
        entries = [
            (int(offset), int(size), int(before or after or -1))
            for before, offset, size, after in re.findall(
                r"^ +(?:v\d |lid=(-?\d+) )off=(\d+) (?:size|len)=(\d+)(?: lid=(-?\d+))?", rest, re.MULTILINE
            )
        ]
        results[file_id.strip()] = Java(entries, "->" in rest)
    return results


JAVA_LOGS = java_results("el.expected.txt", "log")
JAVA_JOURNALS = java_results("jr.expected.txt", "journal")


def test_every_sample_has_a_row_and_a_verdict_of_java() -> None:
    logs = {path.stem for path in (SAMPLES / "el/l/current").iterdir()}
    files = {path.stem for path in (SAMPLES / "jr/j/current").iterdir()}
    assert logs == LOGS.keys() == JAVA_LOGS.keys()
    assert files == JOURNALS.keys() == JAVA_JOURNALS.keys()
    assert sum(len(java.entries) for java in JAVA_LOGS.values()) == 46
    assert sum(len(java.entries) for java in JAVA_JOURNALS.values()) == 21


def compare(row: Row, java: Java, entries: list[Entry], damage: list[tuple[int, int, str]]) -> None:
    """Ours is the row; the row is Java's, or it differs and says why."""
    assert entries == row.entries
    assert damage == row.damage
    same = not java.failed and not row.damage and [entry[:3] for entry in entries] == java.entries
    assert same is (row.why is None)


def entries_of(item: LogEntries | JournalEntries) -> list[Entry]:
    batch = item.entries.batch
    return [
        (batch.offset(index), batch.sizes[index], batch.ledgers[index], batch.entries[index])
        for index in range(len(batch))
    ]


def assert_verdict(verdict: FileVerdict, expected: Verdict) -> None:
    """Without damage, entries of which nothing is known make the verdict ``unchecked``."""
    if expected is Verdict.DAMAGED:
        assert verdict.verdict is expected
    else:
        assert verdict.tail is expected
        assert verdict.verdict is (Verdict.UNCHECKED if verdict.entries else expected)
    assert verdict.unchecked == verdict.entries


@pytest.mark.parametrize("log", LOGS)
def test_entry_log(log: str) -> None:
    files = entry_logs(FILES, [str(SAMPLES / f"el/l/current/{log}.log")])
    items = list(scan_logs(FILES, files, DigestBook()))
    (verdict,) = verify_logs(FILES, files, DigestBook())
    assert_verdict(verdict, Verdict(LOGS[log].verdict))
    named = [(damage.offset, damage.size_bytes, damage.reason) for damage in verdict.damage]
    entries = [entry for item in items if isinstance(item, LogEntries) for entry in entries_of(item)]
    compare(LOGS[log], JAVA_LOGS[log], entries, named)
    assert verdict.records == len(entries)
    scanned = [item for item in items if isinstance(item, Damage)]
    # Only verify compares the map with the log.
    assert len(scanned) == len(named) - ("ledgers map disagrees with the log" in str(named))


@pytest.mark.parametrize("journal", JOURNALS)
def test_journal(journal: str) -> None:
    files = journals(FILES, [str(SAMPLES / f"jr/j/current/{journal}.txn")])
    items = list(scan_journals(FILES, files, DigestBook()))
    (verdict,) = verify_journals(FILES, files, DigestBook())
    assert_verdict(verdict, Verdict(JOURNALS[journal].verdict))
    named = [(damage.offset, damage.size_bytes, damage.reason) for damage in verdict.damage]
    entries = [entry for item in items if isinstance(item, JournalEntries) for entry in entries_of(item)]
    compare(JOURNALS[journal], JAVA_JOURNALS[journal], entries, named)
    assert verdict.records == len(entries)
    assert sum(isinstance(item, Damage) for item in items) == len(named)


def test_what_java_cannot_know_the_map_tells() -> None:
    (verdict,) = verify_logs(FILES, entry_logs(FILES, [str(SAMPLES / "el/l/current/e.log")]), DigestBook())
    (missing,) = verdict.damage[0].missing
    assert (missing.ledger, missing.bytes, missing.evidence) == (6, 50, "map")
