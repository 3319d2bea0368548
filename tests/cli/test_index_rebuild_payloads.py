"""``bkctl index rebuild`` over a log in which a damaged entry has a whole log as its payload."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.index.rebuild import db_rebuild
from bkctl.codec.location import decode_key
from bkctl.pipeline.tables.known_digests import KnownDigests
from bkctl.pipeline.tables.log_reader import LogReader
from bkctl.pipeline.tables.log_rows import LogRows
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.split import SplitFile
from bkctl.scan.damage import Damage
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import JournalFile
from bkctl.scan.files.journals import survey_journals
from bkctl.scan.index_databases import open_store
from tests.cli.test_entrylog_salvage_lengths import PLAIN, SECRET, SUMS
from tests.cli.test_entrylog_salvage_payloads import OUTER, ArchivingBookie
from tests.support.checked_bookie import FILES
from tests.support.log_builder import CRC32C, DUMMY, MAC, EntryLogBuilder, JournalBuilder, entry_body
from tests.support.readable import readable

Run = Callable[..., Any]

#: Entries of another bookie's ledgers of the same ids; the first ones are intact here, elsewhere.
_ARCHIVED = (*range(3), *range(100, 110))


def archive(ledger: int) -> bytes:
    log = EntryLogBuilder()
    for entry in _ARCHIVED:
        log.add(entry_body(ledger, entry, b"of another", CRC32C))
    return log.build().data


def bookie_at(path: Path, archived: int, *, storage: str = "db") -> ArchivingBookie:
    """Two ledgers and the one that is archived: entries ``OUTER`` have it as their payload."""
    made = ArchivingBookie(path, storage=storage, archived=archive(archived))
    made.fill(made.digesters, 9)
    return made


def lead_out(bookie: ArchivingBookie, ledger: int) -> None:
    """Flip one bit of the size word of the entry with the payload."""
    data = bytearray(bookie.log.read_bytes())
    data[bookie.start_of(ledger, OUTER)] ^= 0x40
    bookie.log.write_bytes(data)


def rebuilt(run_cli: Run, bookie: ArchivingBookie, *words: str, code: int = 1) -> list[dict[str, Any]]:
    done = run_cli("index", "rebuild", bookie.root, "--yes", "--accept-loss", "-o", "json", *words)
    assert done.exit_code == code, done.stderr
    found = json.loads(done.stdout)
    return found["differences"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("storage", ["db", "idx"])
@pytest.mark.parametrize("ledger", [SUMS, SECRET, PLAIN])
@pytest.mark.parametrize("archived", [SUMS, SECRET])
def test_what_stands_in_a_damaged_entry_gets_no_rows(
    run_cli: Run, tmp_path: Path, ledger: int, archived: int, storage: str
) -> None:
    """Nor do its records take the places of entries that are intact, or teach a wrong digest."""
    bookie = bookie_at(tmp_path / "bookie", archived, storage=storage)
    bookie.write()
    whole = readable(bookie.root)
    lead_out(bookie, ledger)
    told = rebuilt(run_cli, bookie)
    del whole[ledger, OUTER]
    assert readable(bookie.root) == whole
    (lost,) = (each for each in told if each["kind"] == "locations_lost")
    assert (lost["ledger"], lost["detail"].split(":")[0]) == (ledger, f"1 entry ({OUTER})")
    assert any("100 to 109" in each["detail"] for each in told), told


def test_a_size_that_leads_into_the_payload_is_no_way_in(run_cli: Run, tmp_path: Path) -> None:
    """The chain of records is whole: only the digest of the entry around them does not check."""
    bookie = bookie_at(tmp_path / "bookie", SUMS)
    bookie.write()
    whole = readable(bookie.root)
    payload_at = len(entry_body(SUMS, OUTER, b"", CRC32C))
    bookie.resize(SUMS, OUTER, payload_at + 1024 - len(bookie.body(SUMS, OUTER)))
    rebuilt(run_cli, bookie)
    del whole[SUMS, OUTER]
    assert readable(bookie.root) == whole


def test_entries_behind_the_last_old_row_are_found_and_listed(run_cli: Run, tmp_path: Path) -> None:
    bookie = bookie_at(tmp_path / "bookie", SUMS)
    for entry in range(20, 24):
        bookie.store(SUMS, entry)
    bookie.write()
    whole = readable(bookie.root)
    bookie.overwrite(PLAIN, 8)
    told = rebuilt(run_cli, bookie)
    del whole[PLAIN, 8]
    now = readable(bookie.root)
    assert [now.pop((SUMS, entry)) for entry in range(20, 24)] == [
        bookie.body(SUMS, entry) for entry in range(20, 24)
    ]
    assert now == whole
    assert any("taken for entries: ledger 1: entries 20 to 23" in each["detail"] for each in told), told


def test_without_old_locations_records_behind_damage_are_listed(run_cli: Run, tmp_path: Path) -> None:
    bookie = bookie_at(tmp_path / "bookie", SUMS)
    bookie.write()
    lead_out(bookie, PLAIN)
    shutil.rmtree(bookie.current() / "locations")
    done = run_cli("index", "rebuild", bookie.root, "--yes", "--accept-loss", "-o", "json")
    assert done.exit_code in (1, 3), done.stderr
    assert "no old index says" in done.stderr
    assert "100 to 109" in done.stderr


@pytest.mark.parametrize("is_apart", [False, True])
def test_types_are_learnt_by_the_old_locations_wherever_they_are(
    run_cli: Run, tmp_path: Path, is_apart: bool
) -> None:
    """One entry in front of the damage says too little; those behind it that the index names are sure."""
    bookie = ArchivingBookie(tmp_path / "bookie", archived=archive(SECRET))
    bookie.add(SECRET, 0)
    bookie.add(PLAIN, OUTER)
    for entry in range(1, 9):
        bookie.add(SECRET, entry)
    bookie.ledger(SECRET)
    bookie.ledger(PLAIN)
    bookie.write()
    lead_out(bookie, PLAIN)
    current, index = bookie.current(), tmp_path / "bookie/i0/current"
    words: tuple[object, ...] = ()
    if is_apart:
        index.mkdir(parents=True)
        shutil.copy(current / "VERSION", index)
        for name in ("ledgers", "locations"):
            (current / name).rename(index / name)
        words = ("--ledger-dir", current, "--index-dir", index)
    rebuilt(run_cli, bookie, *words)
    with closing(open_store(str((index if is_apart else current) / "locations"))) as store:
        found = {decode_key(key) for key, _ in store.iterate()}
    assert {(SECRET, entry) for entry in range(9)} <= found


def test_a_verification_learns_no_digest_from_a_payload(run_cli: Run, tmp_path: Path) -> None:
    """Entries of a ledger whose digest is a MAC are not called damaged by the CRC-32C of another bookie's."""
    bookie = bookie_at(tmp_path / "bookie", SECRET)
    bookie.write()
    lead_out(bookie, PLAIN)
    done = run_cli("entrylog", "verify", bookie.log, "-o", "json")
    assert done.exit_code == 3, done.stderr
    assert '"digest"' not in done.stdout


def test_a_job_learns_no_digest_from_a_payload(run_cli: Run, tmp_path: Path) -> None:
    bookie = bookie_at(tmp_path / "bookie", SECRET)
    bookie.write()
    lead_out(bookie, PLAIN)
    log = SplitFile(str(bookie.log), str(bookie.current()), None, 0, bookie.log.stat().st_size)
    with LogReader(FILES, log, KnownDigests(), TableOptions(), strict=False) as reader:
        items = list(reader.items())
    rows = [item for item in items if isinstance(item, LogRows)]
    assert any(isinstance(item, Damage) for item in items)
    assert sum(int((each.results == 0).sum()) for each in rows) == 0


def test_a_journal_teaches_no_digest_behind_damage(tmp_path: Path) -> None:
    """Records of a journal and of an entry log begin alike."""
    journal = JournalBuilder()
    for entry in range(4):
        journal.add(entry_body(SECRET, entry, b"ours", MAC))
    at = journal.add(entry_body(PLAIN, 0, archive(SECRET), DUMMY)).offset
    for entry in range(4, 8):
        journal.add(entry_body(SECRET, entry, b"ours", MAC))
    data = bytearray(journal.build().data)
    data[at : at + 20] = b"\xee" * 20
    path = tmp_path / "1.txn"
    path.write_bytes(data)
    book = DigestBook()
    survey_journals(FILES, [JournalFile(str(path), 1, len(data))], book)
    assert book.digester(SECRET) is None


def test_what_was_said_of_a_damaged_log_under_another_old_index_is_not_kept(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old locations come back behind a rebuild that was stopped: then they say what is no entry."""
    bookie = bookie_at(tmp_path / "bookie", SUMS)
    bookie.write()
    whole = readable(bookie.root)
    lead_out(bookie, PLAIN)
    locations, away = bookie.current() / "locations", tmp_path / "away"
    locations.rename(away)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(db_rebuild, "build_ledgers", stopped)
    run_cli("index", "rebuild", bookie.root, "--yes", "--accept-loss")
    assert not locations.exists()
    monkeypatch.undo()
    away.rename(locations)
    rebuilt(run_cli, bookie)
    del whole[PLAIN, OUTER]
    assert readable(bookie.root) == whole
