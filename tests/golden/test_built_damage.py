"""Damage that Java's tools do not notice, in files built here: named, and what lies behind it delivered.

The cases are those that were reproduced on the 4.17.3 jars: one bad size ends the scan of an entry log
silently (100 of 200 entries indexed, success reported); a zeroed block in a journal reads as its clean end
(300 of 1000 records); a flipped ledger id is accepted; a negative length stops the scan.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bkctl.codec import entry, entrylog, journal
from bkctl.codec.digest import Digester
from bkctl.codec.last_mark import LastMark, encode_last_mark
from bkctl.scan.damage import Verdict
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.files.entrylogs import LogEntries, scan_logs, verify_logs
from bkctl.scan.files.journals import JournalEntries, scan_journals, verify_journals
from bkctl.scan.files.paths import entry_logs, journals
from bkctl.scan.files.verdicts import FileVerdict
from bkctl.types import DigestType
from bkctl.vfs import PosixFileSystem
from tests.support.journal_records import entry_record

FILES = PosixFileSystem()
CRC32C = Digester(DigestType.CRC32C)
LEDGER = 5
JOURNAL_ID = 0x1A1FDEB6FC0

Key = tuple[int, int]


def body(ledger: int, number: int) -> bytes:
    """An entry of 200 bytes and some, of a ledger with CRC32C digests."""
    data = bytes((number * 7 + position) % 251 + 1 for position in range(200 + number % 13))
    return entry.encode(entry.EntryHeader(ledger, number, number - 1, 200 * (number + 1)), data, CRC32C)


class Built(NamedTuple):
    """A file's bytes and where the size word of each of its entries stands."""

    data: bytearray
    at: dict[Key, int]


def built_log(keys: list[Key], *, mapped: bool = False) -> Built:
    data = bytearray(entrylog.encode_header(entrylog.EntryLogHeader()))
    at = {}
    totals: dict[int, int] = {}
    for key in keys:
        at[key] = len(data)
        record = entry.frame(body(*key))
        totals[key[0]] = totals.get(key[0], 0) + len(record)
        data += record
    if mapped:
        header = entrylog.EntryLogHeader(map_offset=len(data), ledgers=len(totals))
        data += entrylog.encode_map(totals)
        offset, update = entrylog.encode_map_update(header)
        data[offset : offset + len(update)] = update
    return Built(data, at)


def built_journal(keys: list[Key], *, padded: bool) -> Built:
    """With ``padded``, batches of ten records are padded to 512 bytes, as a bookie writes them."""
    data = bytearray(journal.encode_header(6))
    data += journal.encode_record(journal.master_key_record(keys[0][0], bytes(20)))
    at = {}
    for number, key in enumerate(keys, 1):
        at[key] = len(data)
        data += journal.encode_record(entry_record(body(*key)))
        padding = journal.padding_record(len(data), 512) if padded and number % 10 == 0 else None
        if padding is not None:
            data += journal.encode_record(padding)
    return Built(data + bytes(64 << 10), at)


def entries(ledger: int, count: int) -> list[Key]:
    return [(ledger, number) for number in range(count)]


class Report(NamedTuple):
    """What scan and verify say of one file; ``checked`` are entries delivered with a digest that checks."""

    verdict: FileVerdict
    checked: list[Key]

    def named(self) -> list[tuple[int, int, str]]:
        return [(damage.offset, damage.size_bytes, damage.reason) for damage in self.verdict.damage]


def report(path: Path) -> Report:
    if path.suffix == ".log":
        files = entry_logs(FILES, [str(path)])
        (verdict,) = verify_logs(FILES, files, DigestBook())
        items = [
            item.entries for item in scan_logs(FILES, files, DigestBook()) if isinstance(item, LogEntries)
        ]
    else:
        files_of_journal = journals(FILES, [str(path)])
        (verdict,) = verify_journals(FILES, files_of_journal, DigestBook())
        found = scan_journals(FILES, files_of_journal, DigestBook())
        items = [item.entries for item in found if isinstance(item, JournalEntries)]
    checked = [
        (ledger, number)
        for item in items
        for index, (ledger, number) in enumerate(zip(item.batch.ledgers, item.batch.entries, strict=True))
        if item.check.ok(index, ledger)
    ]
    return Report(verdict, checked)


def saved_log(folder: Path, built: Built) -> Path:
    path = folder / "1c.log"
    path.write_bytes(built.data)
    return path


def saved_journal(folder: Path, built: Built, mark: LastMark | None, *, newer: bool = False) -> Path:
    """A journal directory beside a ledger directory with a last mark; ``newer``: with a younger journal."""
    current = folder / "journal/current"
    current.mkdir(parents=True)
    path = current / journal.journal_name(JOURNAL_ID)
    path.write_bytes(built.data)
    if newer:
        younger = built_journal(entries(1, 1), padded=True)
        (current / journal.journal_name(JOURNAL_ID + 1)).write_bytes(younger.data)
    if mark is not None:
        (folder / "ledgers/current").mkdir(parents=True)
        (folder / "ledgers/current/lastMark").write_bytes(encode_last_mark(mark))
    return path


@pytest.mark.parametrize("size", [300, 5_000, 40_000, 120 << 20, 0x7FFFFFFF, -1, -256, 0])
@pytest.mark.parametrize("mapped", [False, True])
def test_one_bad_size_in_an_entry_log_costs_nothing_but_itself(
    tmp_path: Path, size: int, mapped: bool
) -> None:
    built = built_log(entries(LEDGER, 200), mapped=mapped)
    offset = built.at[LEDGER, 100]
    built.data[offset : offset + 4] = size.to_bytes(4, "big", signed=True)
    seen = report(saved_log(tmp_path, built))
    assert seen.checked == entries(LEDGER, 200)  # the digest proves the size of number 100
    assert seen.named() == [(offset, 4, "record size")]
    assert seen.verdict.verdict is Verdict.DAMAGED
    assert seen.verdict.records == 200


def test_a_size_that_swallows_whole_records_is_found_out(tmp_path: Path) -> None:
    built = built_log(entries(LEDGER, 200))
    offset, following = built.at[LEDGER, 100], built.at[LEDGER, 104]
    built.data[offset : offset + 4] = (following - offset - 4).to_bytes(4, "big")
    seen = report(saved_log(tmp_path, built))
    assert seen.checked == entries(LEDGER, 200)
    assert seen.named() == [(offset, 4, "record size")]


def test_a_bad_size_and_a_bad_body_cost_one_entry(tmp_path: Path) -> None:
    built = built_log(entries(LEDGER, 200), mapped=True)
    offset, following = built.at[LEDGER, 100], built.at[LEDGER, 101]
    built.data[offset : offset + 4] = (1 << 20).to_bytes(4, "big")
    built.data[offset + 60] ^= 0x10
    seen = report(saved_log(tmp_path, built))
    assert seen.checked == [key for key in entries(LEDGER, 200) if key != (LEDGER, 100)]
    assert seen.named() == [(offset, following - offset, "record size")]
    missing = {(gap.ledger, gap.first_entry, gap.last_entry) for gap in seen.verdict.damage[0].missing}
    assert (LEDGER, 100, 100) in missing


def test_what_a_zeroed_block_of_a_log_took_is_named(tmp_path: Path) -> None:
    built = built_log(entries(LEDGER, 200), mapped=True)
    start, stop = built.at[LEDGER, 90], built.at[LEDGER, 110]
    built.data[start:stop] = bytes(stop - start)
    seen = report(saved_log(tmp_path, built))
    assert seen.checked == [*entries(LEDGER, 90), *entries(LEDGER, 200)[110:]]
    assert seen.named() == [(start, stop - start, "zeros")]
    missing = {
        (gap.first_entry, gap.last_entry, gap.bytes, gap.evidence) for gap in seen.verdict.damage[0].missing
    }
    assert missing == {(90, 109, None, "gap"), (None, None, stop - start, "map")}


class Hole(NamedTuple):
    """A journal of 1000 records with one 4 KiB block of zeros in its middle, and what is left."""

    built: Built
    start: int
    left: list[Key]


def journal_with_a_hole(*, padded: bool) -> Hole:
    built = built_journal(entries(LEDGER, 1000), padded=padded)
    start = built.at[LEDGER, 300] // 4096 * 4096 + 4096
    lengths = {key: 4 + len(body(*key)) for key in built.at}
    left = [
        key for key, offset in built.at.items() if offset + lengths[key] <= start or offset >= start + 4096
    ]
    built.data[start : start + 4096] = bytes(4096)
    assert 970 < len(left) < 990
    return Hole(built, start, left)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        ("newest, behind the mark", Verdict.UNSYNCED_TAIL),
        ("newest, in front of the mark", Verdict.DAMAGED),
        ("not the newest", Verdict.DAMAGED),
        ("no mark", Verdict.DAMAGED),
    ],
)
def test_a_zeroed_block_does_not_end_a_journal(
    tmp_path: Path, case: str, verdict: Verdict, padded: bool
) -> None:
    hole = journal_with_a_hole(padded=padded)
    mark = LastMark(JOURNAL_ID, hole.built.at[LEDGER, 600 if "front" in case else 200])
    path = saved_journal(
        tmp_path, hole.built, None if case == "no mark" else mark, newer=case == "not the newest"
    )
    seen = report(path)
    assert seen.checked == hole.left
    assert seen.verdict.verdict is verdict
    assert {damage.unsynced for damage in seen.verdict.damage} == {verdict is Verdict.UNSYNCED_TAIL}
    covered = [(damage.offset, damage.end) for damage in seen.verdict.damage]
    assert min(start for start, _ in covered) <= hole.start
    assert max(stop for _, stop in covered) >= hole.start + 4096
    lost = [key for key in hole.built.at if key not in set(hole.left)]
    named = {
        (LEDGER, number)
        for damage in seen.verdict.damage
        for gap in damage.missing
        if gap.first_entry is not None and gap.last_entry is not None
        for number in range(gap.first_entry, gap.last_entry + 1)
    }
    assert named == set(lost)


def test_the_command_line_tells_the_two_apart(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    hole = journal_with_a_hole(padded=True)
    path = saved_journal(tmp_path, hole.built, LastMark(JOURNAL_ID, 512))
    behind = run_cli("journal", "verify", path)
    assert behind.exit_code == 0
    assert '"verdict":"unsynced_tail"' in behind.stdout
    past = run_cli("journal", "verify", path, "--mark", f"{path.name}:{len(hole.built.data)}")
    assert past.exit_code == 1
    assert '"verdict":"damaged"' in past.stdout


def test_scanning_a_torn_tail_finds_nothing_wrong(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    """The last record was being written: its last bytes are the preallocated zeros."""
    built = built_journal(entries(LEDGER, 20), padded=False)
    offset = built.at[LEDGER, 19]
    built.data[offset + 100 : offset + 300] = bytes(200)
    path = saved_journal(tmp_path, built, LastMark(JOURNAL_ID, 512))
    verified = run_cli("journal", "verify", path)
    assert (verified.exit_code, '"verdict":"torn_tail"' in verified.stdout) == (0, True)
    scanned = run_cli("journal", "scan", path)
    assert scanned.stdout.count('"digest_ok":true') == 19
    assert scanned.exit_code == 0, "verify exits with 0 on the same file"


def test_scanning_an_unsynced_tail_finds_nothing_wrong(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    hole = journal_with_a_hole(padded=True)
    path = saved_journal(tmp_path, hole.built, LastMark(JOURNAL_ID, 512))
    scanned = run_cli("journal", "scan", path, "-o", "ndjson")
    assert scanned.stdout.count('"digest_ok":true') == len(hole.left)
    assert "hole of an unsynced tail at" in scanned.stderr
    assert scanned.exit_code == 0, "verify exits with 0 on the same file"


@pytest.mark.parametrize("length", [-1, -0x7FFFFFFF, 0x7FFFFFFF, 15, 0])
@pytest.mark.parametrize("padded", [False, True])
def test_one_bad_length_in_a_journal_costs_nothing_but_itself(
    tmp_path: Path, length: int, padded: bool
) -> None:
    built = built_journal(entries(LEDGER, 1000), padded=padded)
    offset = built.at[LEDGER, 300]
    built.data[offset : offset + 4] = length.to_bytes(4, "big", signed=True)
    seen = report(saved_journal(tmp_path, built, None))
    assert seen.checked == entries(LEDGER, 1000)
    assert seen.named() == [(offset, 4, "record size")]
    assert seen.verdict.verdict is Verdict.DAMAGED


@pytest.mark.parametrize("kind", ["log", "journal"])
@pytest.mark.parametrize("bit", [0, 17, 40])
def test_a_flipped_ledger_id_is_named_and_its_owner_proved(tmp_path: Path, kind: str, bit: int) -> None:
    keys = [*entries(LEDGER, 100), *entries(900, 100)]
    built = built_log(keys) if kind == "log" else built_journal(keys, padded=False)
    offset = built.at[LEDGER, 50]
    flipped = LEDGER ^ 1 << bit
    built.data[offset + 4 : offset + 12] = flipped.to_bytes(8, "big")
    seen = report(saved_log(tmp_path, built) if kind == "log" else saved_journal(tmp_path, built, None))
    assert seen.named() == [(offset + 4, 8, "ledger id")]
    (damage,) = seen.verdict.damage
    assert (damage.expected, damage.found) == ("5, as the entry's digest proves", str(flipped))
    assert seen.checked == [key for key in keys if key != (LEDGER, 50)]


@pytest.mark.parametrize("kind", ["log", "journal"])
def test_a_ledger_id_flipped_to_a_known_ledgers_is_found_by_the_digest(tmp_path: Path, kind: str) -> None:
    keys = [*entries(LEDGER, 100), *entries(LEDGER ^ 2, 100)]
    built = built_log(keys) if kind == "log" else built_journal(keys, padded=False)
    offset = built.at[LEDGER, 50]
    built.data[offset + 11] ^= 2
    seen = report(saved_log(tmp_path, built) if kind == "log" else saved_journal(tmp_path, built, None))
    assert seen.named() == [(offset + 4, 8, "ledger id")]
    (damage,) = seen.verdict.damage
    assert (damage.expected, damage.found) == (f"{LEDGER}, as the entry's digest proves", str(LEDGER ^ 2))
    assert seen.checked == [key for key in keys if key != (LEDGER, 50)]


def test_built_files_are_clean_before_they_are_damaged(tmp_path: Path) -> None:
    for mapped in (False, True):
        seen = report(saved_log(tmp_path, built_log(entries(LEDGER, 200), mapped=mapped)))
        assert (seen.verdict.verdict, seen.checked) == (Verdict.CLEAN, entries(LEDGER, 200))
    for padded in (False, True):
        folder = tmp_path / str(padded)
        seen = report(saved_journal(folder, built_journal(entries(LEDGER, 1000), padded=padded), None))
        assert (seen.verdict.verdict, seen.checked) == (Verdict.CLEAN, entries(LEDGER, 1000))
