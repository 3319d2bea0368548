"""Entries of a ledger in a journal whose key record is damaged: never "no such ledger" without a word."""

from __future__ import annotations

import logging

import pytest

from bkctl.codec import journal as journal_codec
from bkctl.errors import BkctlError, CorruptionError, LedgerLimboError, NoLedgerError, StorageError
from tests.support.engine_rig import KEY, EngineRig, entry_body, small_settings
from tests.unit.engine.gc.gc_rig import Cluster
from tests.unit.engine.test_lossy_starts import journal_ids, journal_path, read_or_error, remove_journal

BIT_OF_THE_LEDGER = 4 + 7


def without_its_key(cluster: Cluster | None, *ledgers: int) -> EngineRig:
    """Ledgers with two entries in the journal alone, whose key records name the ledgers 1 above."""
    rig = EngineRig()
    rig.start()
    rig.add(2, 0)
    rig.bookie.checkpoint()
    for ledger in ledgers:
        rig.add(ledger, 0)
        rig.add(ledger, 1)
    after = rig.cut_off(cluster=cluster)
    path = journal_path(journal_ids(after)[-1])
    file = after.memory.open_to_write(path)
    for ledger in ledgers:
        key = journal_codec.encode_record(journal_codec.master_key_record(ledger, KEY))
        at = after.memory.files[path].index(key) + BIT_OF_THE_LEDGER
        file.write_at(at, bytes([ledger + 1]))
    file.sync()
    file.close()
    return after


def test_a_ledger_that_the_metadata_place_here_is_kept_in_limbo(caplog: pytest.LogCaptureFixture) -> None:
    with without_its_key(Cluster([2, 6]), 6) as rig:
        report = rig.start()
        assert (report.entries, report.skipped_records, report.keyless_ledgers) == (2, 0, 1)
        assert read_or_error(rig, 6, range(3)) == [entry_body(6, 0), entry_body(6, 1), LedgerLimboError]
        row = rig.bookie.storages[0].ledgers.get(6)
        assert row is not None
        assert row.fenced
        assert "the first: 6; fenced and in limbo" in caplog.text
        # Its client's next copies are taken again.
        rig.bookie.checkpoint()
        with rig.cut_off() as again:
            assert again.start().keyless_ledgers == 0
            assert read_or_error(again, 6, range(3)) == [
                entry_body(6, 0), entry_body(6, 1), LedgerLimboError
            ]  # fmt: skip


def test_a_ledger_that_was_deleted_or_moved_away_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster([2, 8])
    cluster.elsewhere.add(8)
    caplog.set_level(logging.INFO)
    with without_its_key(cluster, 6, 8) as rig:
        report = rig.start()
        assert (report.entries, report.skipped_records, report.skipped_ledgers) == (0, 4, 2)
        assert read_or_error(rig, 6, range(1)) == [NoLedgerError]
        assert read_or_error(rig, 8, range(1)) == [NoLedgerError]
        assert cluster.reads == 2
        assert "records of 2 ledgers without a row and a key were left out" in caplog.text


@pytest.mark.parametrize("error", [StorageError("away"), CorruptionError("ledger metadata")])
def test_what_nobody_can_tell_is_kept(error: BkctlError) -> None:
    cluster = Cluster([2])
    cluster.read_error = error
    with without_its_key(cluster, 6, 8) as rig:
        assert rig.start().keyless_ledgers == 2
        assert read_or_error(rig, 8, range(2)) == [entry_body(8, 0), entry_body(8, 1)]
        # A store that does not answer is not asked about every ledger.
        assert cluster.reads == (2 if isinstance(error, CorruptionError) else 1)


def test_without_a_cluster_the_records_are_left_out_loudly(caplog: pytest.LogCaptureFixture) -> None:
    with without_its_key(None, 6) as rig:
        report = rig.start()
        assert (report.skipped_records, report.skipped_ledgers) == (2, 1)
        assert [line.levelname for line in caplog.records if "left out" in line.message] == ["WARNING"]


def test_a_fence_without_a_key_asks_nobody() -> None:
    """Java journals the fence of a ledger without entries without its key."""
    rig = EngineRig()
    file = rig.memory.create("/journal0/current/1.txn")
    fence = journal_codec.encode_record(journal_codec.fence_record(90))
    file.write_at(0, journal_codec.encode_header(6) + fence)
    file.sync()
    rig.memory.sync_directory("/journal0/current")
    cluster = Cluster([])
    with rig.cut_off(cluster=cluster) as after:
        report = after.start()
        assert (report.fences, report.keyless_ledgers, cluster.reads) == (1, 0, 0)


@pytest.mark.parametrize("journals", [1, 3])
def test_behind_an_accepted_loss_no_ledger_that_the_metadata_place_here_is_denied(
    journals: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything of ledger 7 stood in a journal that is gone; ledger 8 is another bookie's."""
    cluster = Cluster([2, 7, 8])
    cluster.elsewhere.add(8)
    rig = EngineRig(small_settings(journals=journals))
    rig.start()
    rig.add(2, 0)
    rig.bookie.checkpoint()
    rig.add(7, 0)
    with rig.cut_off(cluster=cluster) as after:
        directory = f"/journal{7 % journals}/current"
        for journal in journal_ids(after, directory):
            remove_journal(after, journal, directory)
        report = after.start(accept_loss=True)
        assert report.missing_journals == 1
        assert read_or_error(after, 7, range(1)) == [LedgerLimboError]
        row = after.bookie.storages[0].ledgers.get(7)
        assert row is not None
        assert row.fenced
        assert read_or_error(after, 8, range(1)) == [NoLedgerError]
        assert (
            "the metadata place 1 ledger here of which index and journals have nothing any more"
            in caplog.text
        )


def test_an_accepted_loss_waits_for_the_answer_of_the_cluster() -> None:
    """Everything of ledger 7 stood in the journal that is gone: nobody else knows that it was here."""
    cluster = Cluster([2, 7])
    rig = EngineRig()
    rig.start()
    rig.add(2, 0)
    rig.bookie.checkpoint()
    rig.add(7, 0)
    lost = rig.cut_off(cluster=cluster)
    for journal in journal_ids(lost):
        remove_journal(lost, journal)
    cluster.read_error = StorageError("away")
    with pytest.raises(StorageError, match="away"):
        lost.start(accept_loss=True)
    cluster.read_error = None
    with lost.cut_off(cluster=cluster) as accepting:
        accepting.start(accept_loss=True)
        assert read_or_error(accepting, 7, range(1)) == [LedgerLimboError]
