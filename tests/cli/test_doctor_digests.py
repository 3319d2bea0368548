"""``bkctl doctor --deep``: entries whose digests fail, or cannot be checked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.last_mark import ZERO_MARK, LastMark, encode_last_mark
from bkctl.metadata.uri import open_metadata_store
from tests.support.doctored_bookie import DoctoredBookie
from tests.support.rows import from_ndjson

DEMO = Path(__file__).parents[1] / "data" / "demo" / "bookie1"

pytestmark = pytest.mark.usefixtures("half_full_disks")

Run = Callable[..., Any]


@pytest.fixture
def bookie(tmp_path: Path) -> DoctoredBookie:
    return DoctoredBookie.of(DEMO, tmp_path / "bookie1")


def examined(run_cli: Run, *words: object) -> tuple[int, list[dict[str, Any]], str]:
    result = run_cli("doctor", *words, "-o", "ndjson", env={"BKCTL_METADATA_URI": None})
    return result.exit_code, from_ndjson(result.stdout), result.stderr


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_entries_that_could_not_be_checked_are_reported(run_cli: Run, bookie: DoctoredBookie) -> None:
    code, rows, said = examined(run_cli, bookie.root, "--deep")
    assert code == 3
    assert [(row["check"], row["severity"], row["count"]) for row in rows] == [
        ("journals", "unchecked", 266),
        ("entry_logs", "unchecked", 266),
    ]
    assert rows[1]["found"] == "266 of 665 entries could not be checked (ledgers 2, 3)"
    assert "give --metadata FILE|URI" in rows[1]["instead"]
    assert rows[1]["next"] == f"bkctl entrylog verify {bookie.ledgers}"
    assert "nothing found in what could be checked; 2 with unchecked entries" in said


def test_entries_of_ledgers_that_were_deleted_are_a_note(run_cli: Run, bookie: DoctoredBookie) -> None:
    """Nothing shows their digests any more, and nobody reads them: it is no reason to look every night."""
    with open_metadata_store(bookie.uri) as store:
        for ledger in (2, 3):
            stored = store.ledgers.read_ledger(ledger)
            assert stored is not None
            store.ledgers.delete_ledger(ledger, stored.version)
    words = (bookie.root, "--deep", "--only", "journals,entry_logs", "--metadata", bookie.uri)
    code, rows, said = examined(run_cli, *words)
    assert (code, rows) == (0, []), said
    _, rows, _ = examined(run_cli, *words, "--notes")
    rows = [row for row in rows if row["kind"] == "unchecked_entries"]
    assert [(row["check"], row["severity"], row["count"]) for row in rows] == [
        ("journals", "note", 266),
        ("entry_logs", "note", 266),
    ]
    # A dump may be older than the ledgers.
    dump = bookie.root / "dump.json"
    assert run_cli("metadata", "dump", "--metadata", bookie.uri, "--out", dump).exit_code == 0
    code, rows, _ = examined(run_cli, bookie.root, "--deep", "--only", "entry_logs", "--metadata", dump)
    assert (code, [row["severity"] for row in rows]) == (3, ["unchecked"])


def leave_everything(bookie: DoctoredBookie) -> None:
    """Have an index, as a bookie has behind its first flush."""


def lose_index_and_logs(bookie: DoctoredBookie) -> None:
    """Have journals alone, as a bookie has in front of its first flush."""
    for name in ("ledgers", "locations"):
        shutil.rmtree(bookie.ledgers / name)
    for path in bookie.ledgers.glob("*.log"):
        path.unlink()


@pytest.mark.parametrize("lose", [leave_everything, lose_index_and_logs])
def test_an_entry_that_fails_in_the_journal_is_missing(
    run_cli: Run, bookie: DoctoredBookie, lose: Callable[[DoctoredBookie], None]
) -> None:
    """Behind the mark of the newest journal a power cut explains it: ours leaves it out, Java's serves it."""
    lose(bookie)
    (journal,) = bookie.journal.glob("*.txn")
    (bookie.ledgers / "lastMark").write_bytes(encode_last_mark(LastMark(int(journal.stem, 16), 512)))
    records = from_ndjson(run_cli("journal", "scan", bookie.journal, "--ledger", "1").stdout)
    place = next(record for record in records if record["entry"] >= 40 and record["size"] > 200)
    end = place["offset"] + 4 + place["size"]
    overwrite(journal, end - 100, bytes(90))
    words = (bookie.root, "--deep", "--metadata", bookie.uri, "--only", "index,metadata,journals,marks")
    code, rows, said = examined(run_cli, *words)
    (row,) = (row for row in rows if row["kind"] == "missing_entries")
    assert code == 1, said
    assert "ledger 1: 1 of 133 entries" in row["found"]


def test_a_corrupt_entry_is_never_under_a_clean_bill(run_cli: Run, bookie: DoctoredBookie) -> None:
    """An entry of a MAC ledger: found with the metadata, and without it reported as not checked."""
    entries = from_ndjson(run_cli("entrylog", "scan", bookie.ledgers, "--ledger", "2").stdout)
    place = entries[50]
    overwrite(Path(place["path"]), place["offset"] + place["size"] - 2, b"\xaa\x55")
    code, rows, _ = examined(run_cli, bookie.root, "--deep", "--only", "entry_logs")
    assert (code, [row["severity"] for row in rows]) == (3, ["unchecked"])
    code, rows, _ = examined(run_cli, bookie.root, "--deep", "--only", "entry_logs", "--metadata", bookie.uri)
    assert (code, [row["severity"] for row in rows], rows[0]["ledger"]) == (1, ["error"], 2)


def test_an_entry_in_quarantine_that_the_metadata_do_not_place_here_is_a_note(
    run_cli: Run, bookie: DoctoredBookie
) -> None:
    """A journal record with a damaged id becomes an entry that no replica has and nobody asks for."""
    (journal,) = bookie.journal.glob("*.txn")
    mark = LastMark(int(journal.stem, 16), journal.stat().st_size)
    (bookie.ledgers / "lastMark").write_bytes(encode_last_mark(mark))
    entries = from_ndjson(run_cli("entrylog", "scan", bookie.ledgers, "--ledger", "1").stdout)
    place = max(entries, key=lambda row: row["entry"])
    overwrite(Path(place["path"]), place["offset"] + 30, b"\xaa\x55")
    words = (bookie.root, "--deep", "--metadata", bookie.uri, "--only", "index,metadata")
    assert run_cli("entrylog", "salvage", place["path"], "--metadata", bookie.uri, "--yes").exit_code == 1
    assert "salvaged_location" in {row["kind"] for row in examined(run_cli, *words)[1]}
    with open_metadata_store(bookie.uri) as store:
        stored = store.ledgers.read_ledger(1)
        assert stored is not None
        closed = replace(stored.metadata, last_entry=place["entry"] - 1)
        store.ledgers.update_ledger(1, closed, stored.version)
    _, rows, _ = examined(run_cli, *words, "--notes")
    found = {row["kind"]: row for row in rows}
    assert "salvaged_location" not in found
    assert found["misplaced_ledger"]["severity"] == "note"
    assert "or these entries of it" in found["misplaced_ledger"]["found"]


def dumped(run_cli: Run, bookie: DoctoredBookie) -> Path:
    dump = bookie.root / "dump.json"
    assert run_cli("metadata", "dump", "--metadata", bookie.uri, "--out", dump).exit_code == 0
    return dump


def lose_everything(bookie: DoctoredBookie) -> None:
    """Lose the index, the logs and what the journal held, of a bookie in front of its first flush."""
    lose_index_and_logs(bookie)
    (bookie.ledgers / "lastMark").write_bytes(encode_last_mark(ZERO_MARK))
    for journal in bookie.journal.glob("*.txn"):
        journal.write_bytes(b"")


def test_entries_that_a_dump_places_here_and_that_nothing_has_are_not_passed_over(
    run_cli: Run, bookie: DoctoredBookie
) -> None:
    """A dump may be older than a deletion, so that they are no proved loss; but no clean bill either."""
    words = (bookie.root, "--deep", "--metadata", dumped(run_cli, bookie), "--only", "index")
    code, rows, _ = examined(run_cli, *words)
    assert (code, rows) == (0, [])
    lose_everything(bookie)
    code, (row,), _ = examined(run_cli, *words)
    assert (code, row["kind"], row["severity"]) == (3, "missing_entries", "unchecked")
    assert "the dump places here" in row["found"]


def test_entries_are_missing_where_all_journals_are_gone(run_cli: Run, bookie: DoctoredBookie) -> None:
    """The directory of the journals is there, and it is known that a start replays nothing."""
    lose_everything(bookie)
    for journal in bookie.journal.glob("*.txn"):
        journal.unlink()
    code, rows, _ = examined(
        run_cli, bookie.root, "--deep", "--metadata", bookie.uri, "--only", "index,metadata"
    )
    assert code == 1
    assert "missing_entries" in {row["kind"] for row in rows}


def test_a_ledger_directory_of_which_the_cookie_alone_is_left_is_not_passed_over(
    run_cli: Run, bookie: DoctoredBookie
) -> None:
    lose_index_and_logs(bookie)
    for path in bookie.ledgers.iterdir():
        if path.name != "VERSION":
            path.unlink()
    for journal in bookie.journal.glob("*.txn"):
        journal.write_bytes(b"")
    for metadata, ends in ((dumped(run_cli, bookie), 3), (bookie.uri, 1)):
        words = (bookie.root, "--deep", "--metadata", metadata, "--only", "index,metadata")
        code, rows, _ = examined(run_cli, *words)
        assert (code, "missing_entries" in {row["kind"] for row in rows}) == (ends, True)
