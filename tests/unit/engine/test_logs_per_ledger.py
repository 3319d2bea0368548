"""A ledger storage with one log for each ledger: when logs end, and what garbage collection makes of it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from bkctl.config.loader import load
from bkctl.config.server_keys.storage import EntryLogSettings
from bkctl.engine.disks import DiskState, DiskUse
from bkctl.errors import NoSpaceError, StorageError
from bkctl.server.life.engine_settings import bookie_settings
from bkctl.vfs.faulty import FaultRule
from tests.support.engine_rig import EngineRig, small_settings
from tests.support.storage_rig import DIRECTORY
from tests.unit.engine.entrylog.entry_logging import ledgers_map
from tests.unit.engine.gc.gc_rig import MAJOR, GcRig

IDLE_S = 300


def rig_of(**changes: int) -> GcRig:
    rig = GcRig(per_ledger=True, **changes)
    rig.open()
    return rig


def written(rig: GcRig, *ledgers: int) -> None:
    for ledger in ledgers:
        rig.write(ledger, range(3))
    rig.storage.flush()


def test_a_deleted_ledger_leaves_nothing_behind_and_nothing_is_copied() -> None:
    rig = rig_of()
    written(rig, 1, 2, 3)
    before = rig.log_names()
    assert len(before) == 3
    rig.cluster.live.remove(2)
    # The first pass deletes the rows, with which the log ends; the second finds it settled.
    first = rig.collect(MAJOR)
    assert (first.deleted_ledgers, first.deleted_logs) == (1, 0)
    second = rig.collect(MAJOR)
    assert (second.deleted_logs, second.copied_bytes) == (1, 0)
    assert len(rig.log_names()) == 2
    for ledger in (1, 3):
        rig.check(ledger, 3)


def test_an_idle_log_ends_although_nothing_is_written() -> None:
    rig = rig_of()
    written(rig, 1, 2)
    rig.clock.advance(IDLE_S - 1)
    rig.storage.flush()
    assert rig.entry_logger.settled_log_ids() == []
    rig.clock.advance(1)
    rig.storage.flush()
    assert rig.entry_logger.settled_log_ids() == rig.entry_logger.log_ids()
    assert ledgers_map(rig.disk.crash(), 0, DIRECTORY) == {1: 3 * 304}
    assert rig.collect().logs == 2


def test_a_pass_tells_what_it_may_not_touch_yet() -> None:
    rig = rig_of()
    written(rig, 1, 2)
    rig.clock.advance(IDLE_S)
    written(rig, 3)
    # 1 and 2 ended with that flush; 3 is being written.
    report = rig.collect()
    assert (report.logs, report.unflushed_logs, report.least_unflushed_log_id) == (2, 1, 2)
    assert {state.why for state in rig.collector.explain().logs if state.log_id == 2} == {
        "it is being written"
    }


def test_a_slowly_written_ledger_does_not_keep_newer_logs() -> None:
    """Java collects nothing above the least log id that is being written."""
    rig = rig_of(log_bytes_max=1 << 20)
    written(rig, 1)
    for ledger in range(10, 20):
        rig.write(1, [ledger])
        written(rig, ledger)
        rig.cluster.live.remove(ledger)
    freed = rig.collect().freed_bytes + rig.collect().freed_bytes
    assert rig.entry_logger.least_unflushed_log_id == 0
    assert freed > 9 * 3 * 300
    assert len(rig.log_names()) == 1


def test_a_disk_too_full_for_a_map_costs_the_flush_nothing() -> None:
    rig = rig_of()
    written(rig, 1, 2)
    rig.faulty.inject(FaultRule("write", "/0.log", error_number=errno.ENOSPC))
    rig.delete(1)
    rig.storage.flush()
    assert rig.failures == []
    # The log ends without its map; the next flush has nothing to do with it.
    assert rig.entry_logger.settled_log_ids() == [0]
    assert ledgers_map(rig.disk, 0, DIRECTORY) is None
    rig.faulty.heal()
    written(rig, 2, 3)
    rig.check(2, 3)


def test_a_disk_too_full_for_the_last_id_fails_the_flush_and_not_the_bookie() -> None:
    rig = rig_of()
    written(rig, 1)
    rig.write(2, range(3))
    rig.faulty.inject(FaultRule("create", lambda path: "lastId" in path, error_number=errno.ENOSPC))
    with pytest.raises(NoSpaceError):
        rig.storage.flush()
    assert rig.failures == []
    # Nothing of the attempt is left, and nothing names what it wrote.
    assert rig.log_names() == ["0.log"]
    rig.faulty.heal()
    rig.storage.flush()
    for ledger in (1, 2):
        rig.check(ledger, 3)
        rig.after_crash().check(ledger, 3)


def test_a_header_that_finds_the_disk_full_is_written_by_the_next_flush() -> None:
    rig = rig_of()
    written(rig, 1)
    rig.clock.advance(IDLE_S)
    # The first write is the map, the second one the header that names it.
    rig.faulty.inject(FaultRule("write", "/0.log", first=2, error_number=errno.ENOSPC))
    rig.storage.flush()
    assert rig.failures == []
    assert rig.entry_logger.unflushed_log_ids == {0}
    rig.faulty.heal()
    written(rig, 2)
    assert rig.entry_logger.settled_log_ids() == [0]
    assert ledgers_map(rig.disk.crash(), 0, DIRECTORY) == {1: 3 * 304}


def test_a_failed_sync_of_a_log_that_ends_stops_the_storage() -> None:
    rig = rig_of()
    written(rig, 1)
    rig.clock.advance(IDLE_S)
    rig.faulty.inject(FaultRule("sync", "/0.log"))
    with pytest.raises(StorageError, match="could not be made durable"):
        rig.storage.flush()
    assert len(rig.failures) == 1


@pytest.mark.parametrize("per_ledger", [False, True])
def test_a_disk_that_gets_full_ends_its_logs_once(per_ledger: bool) -> None:
    settings = small_settings(directories=2)
    object.__setattr__(
        settings,
        "entry_log",
        EntryLogSettings(per_ledger=per_ledger, force_threads=1, flush_interval_ms=3_600_000),
    )
    with EngineRig(settings) as rig:
        rig.start()
        for ledger in range(4):
            rig.add(ledger, 0)
        rig.bookie.checkpoint()
        first, second = (storage.entry_logger for storage in rig.bookie.storages)
        assert first.settled_log_ids() == second.settled_log_ids() == []
        uses = [
            DiskUse(storage.directory, 100, 1, storage is rig.bookie.storages[0])
            for storage in rig.bookie.storages
        ]
        state = DiskState(tuple(uses), read_only=False, high_priority_too=False)
        rig.bookie._disks_looked_at(state)
        rig.bookie.checkpoint()
        assert first.settled_log_ids() == first.log_ids() != []
        assert second.settled_log_ids() == []
        # Still full: what is written now goes on in its new logs.
        for ledger in range(4):
            rig.add(ledger, 1)
        rig.bookie.checkpoint()
        logs = first.log_ids()
        rig.bookie._disks_looked_at(state)
        for ledger in range(4):
            rig.add(ledger, 2)
        rig.bookie.checkpoint()
        assert first.log_ids() == logs


def test_the_keys_of_the_configuration(tmp_path: Path) -> None:
    lines = {
        "metadataServiceUri": f"embedded://{tmp_path}/m.db",
        "ledgerDirectories": str(tmp_path / "l"),
        "journalDirectories": str(tmp_path / "j"),
        "logSizeLimit": "4096",
        "flushEntrylogBytes": "8192",
        "entryLogPerLedgerEnabled": "true",
        "maximumNumberOfActiveEntryLogs": "7",
        "entrylogMapAccessExpiryTimeInSeconds": "9",
        "numOfMemtableFlushThreads": "3",
    }
    conf = tmp_path / "bk_server.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    config, notices = load(str(conf), {}, {})
    assert not [str(notice) for notice in notices if "no effect" in str(notice)]
    assert bookie_settings(config).entry_log == EntryLogSettings(
        size_bytes_max=4096,
        force_bytes=8192,
        per_ledger=True,
        active_logs_max=7,
        active_idle_ms=9000,
        force_threads=3,
    )
