"""The pipeline's tables over the full directories of real bookies, against the command line's readers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.admin.logs.digests import digest_book
from bkctl.codec.journal import RecordKind
from bkctl.pipeline.tables.options import TableOptions
from bkctl.scan.files.journals import JournalEntries, JournalMarked, scan_journals
from bkctl.scan.files.paths import journals
from bkctl.vfs import PosixFileSystem
from tests.support.manifest import IMAGES
from tests.support.table_rows import command_line_rows, small_windows, table_rows

pytestmark = pytest.mark.corpora

FILES = PosixFileSystem()


@pytest.mark.parametrize(("corpus", "state"), IMAGES)
def test_entries_are_those_of_the_command_line(
    corpora: Callable[[str], Path], corpus: str, state: str
) -> None:
    root = corpora(corpus)
    dump = str(root / f"zk-{state}.json")
    options = TableOptions(metadata=dump, damage="rows")
    found = table_rows("entries", [root / state], options)
    expected = command_line_rows(root / state, metadata_file=dump)
    assert [{name: row[name] for name in expected[0]} for row in found] == expected
    if (corpus, state) == ("sorted", "crash"):
        assert not found, "its bookies were killed before their first flush"
        return
    assert found
    assert all(row["digest_ok"] for row in found if row["digest"] is not None)
    assert {row["bookie"] is None for row in found} == {False}
    with small_windows(4096, 8192):
        assert table_rows("entries", [root / state], options) == found
    runs = table_rows("runs", [root / state], options)
    assert sum(run["entries"] for run in runs) == len(found)
    assert {run["bad_digests"] for run in runs} == {0}


@pytest.mark.parametrize(("corpus", "state"), [("db", "clean"), ("db", "crash"), ("sorted", "crash")])
def test_journal_records_are_those_of_the_command_line(
    corpora: Callable[[str], Path], corpus: str, state: str
) -> None:
    root = corpora(corpus)
    dump = str(root / f"zk-{state}.json")
    expected = []
    for journal in journals(FILES, [str(root / state)]):
        book = digest_book(FILES, metadata_file=dump)
        for item in scan_journals(FILES, [journal], book):
            if isinstance(item, JournalEntries):
                batch = item.entries.batch
                expected += [
                    (journal.path, batch.offset(index), "entry", batch.ledgers[index], batch.entries[index])
                    for index in range(len(batch))
                ]
            elif isinstance(item, JournalMarked) and item.record.kind not in (None, RecordKind.PADDING):
                record = item.record
                expected.append((journal.path, record.offset, record.kind.value, record.ledger, record.entry))
    rows = table_rows("journal", [root / state], TableOptions(metadata=dump, damage="rows"))
    assert [
        tuple(row[name] for name in ("path", "offset", "kind", "ledger", "entry")) for row in rows
    ] == expected
    assert all(row["digest_ok"] is not False for row in rows)
    assert {row["after_mark"] is None for row in rows} == {False}
