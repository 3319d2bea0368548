"""The released Java reads what our journal wrote: versions 4 to 6, rolled, with zeros, after an abort."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bkctl.clock import SystemClock
from bkctl.codec import journal as codec
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.engine.journal import Journal, JournalBatch, zeros_ahead
from bkctl.vfs import PosixFileSystem
from tests.support.grades import every_pair
from tests.support.java_bookkeeper import JavaDriver, start_driver
from tests.support.journal_records import entry_record
from tests.support.journal_rig import RecordingSink, body

pytestmark = pytest.mark.interop

Record = tuple[int, int]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaDriver]:
    with start_driver() as driver:
        yield driver


def records_of(number: int, version: int) -> list[codec.JournalRecord]:
    """One batch: a key before the first entry, sizes around those of blocks, a fence, a LAC."""
    sizes = [24, 100, 480, 496, 504, 505, 512, 3000, 70_000]
    records = [entry_record(body(number, entry, size)) for entry, size in enumerate(sizes)]
    records.insert(0, codec.master_key_record(number, bytes(range(20))))
    records.append(codec.fence_record(number))
    if version >= 6:
        records.append(codec.explicit_lac_record(number, bytes(24)))
    return records


def write(directory: Path, settings: JournalSettings, *, killed: bool) -> list[codec.JournalRecord]:
    """A journal with 30 batches, each in a group of its own; its records."""
    current = directory / "current"
    current.mkdir(parents=True)
    sink = RecordingSink()
    journal = Journal(0, str(current), PosixFileSystem(), SystemClock(), settings, lambda _error: None)
    journal.start()
    written = []
    for number in range(30):
        records = records_of(number, settings.format_version)
        pieces = [codec.encode_record(record) for record in records]
        journal.append(JournalBatch(pieces, sum(map(len, pieces)), len(records), sink))
        sink.wait_for(number + 1)
        written += records
    if killed:
        journal.abort()
    else:
        journal.stop()
    assert len(sink.journaled_contexts) == 30
    return written


@every_pair(
    "each pair of these is there",
    version=[4, 5, 6],
    step=[0, 4096, 1 << 20],
    alignment=[512, 4096],
    killed=[False, True],
)
def test_java_reads_every_record_of_ours(
    java: JavaDriver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    step: int,
    alignment: int,
    killed: bool,
) -> None:
    monkeypatch.setattr(zeros_ahead, "GROUP_BYTES_MAX", 1 << 40)
    settings = JournalSettings(
        format_version=version,
        preallocation_bytes=step,
        alignment_bytes=alignment,
        size_bytes_max=600_000,
    )
    written = write(tmp_path / "journal", settings, killed=killed)
    (tmp_path / "ledgers/current").mkdir(parents=True)
    ids = sorted(int(path.stem, 16) for path in (tmp_path / "journal/current").glob("*.txn"))
    assert len(ids) == 4
    assert ids == list(range(ids[0], ids[0] + 4))
    delivered = []
    for journal_id in ids:
        verdict = java.journal(tmp_path / "journal", tmp_path / "ledgers", journal_id)
        assert verdict.error is None
        assert {record.version for record in verdict.records} == {version}
        data = (tmp_path / "journal/current" / codec.journal_name(journal_id)).read_bytes()
        delivered += [
            (record.ledger, record.entry, data[record.offset + 4 : record.offset + 4 + record.length])
            for record in verdict.records
        ]
    assert delivered == [(record.ledger, record.entry, record.body) for record in written]


def test_java_finds_no_record_in_a_new_journal(java: JavaDriver, tmp_path: Path) -> None:
    current = tmp_path / "journal/current"
    current.mkdir(parents=True)
    (tmp_path / "ledgers/current").mkdir(parents=True)
    journal = Journal(
        0, str(current), PosixFileSystem(), SystemClock(), JournalSettings(), lambda _error: None
    )
    journal.start()
    journal.stop()
    verdict = java.journal(tmp_path / "journal", tmp_path / "ledgers", journal.mark.journal_id)
    assert (verdict.records, verdict.error) == ([], None)
