"""Entries without a row in an index: which are lost, which wait for a flush, and what becomes of logs."""

from __future__ import annotations

import pytest

from bkctl.codec.digest import Digester
from bkctl.errors import ConnectionFailedError, NoSpaceError, StorageError
from bkctl.kvstore.base import Delete
from bkctl.types import DigestType
from tests.support.faulty_store import StoreFaultRule
from tests.support.storage_rig import DIRECTORY, key_of
from tests.unit.engine.gc.gc_rig import MAJOR, TRANSACTIONAL, digested_by, opened


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
def test_entries_that_wait_for_another_flush_are_not_taken_for_lost(
    transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush failed behind its force: its entries stand in a settled log, and no row names them."""
    rig = opened(transactional=transactional)
    rig.write(3, range(5))
    rig.storage.flush()
    rig.write(2, range(30))
    rig.location_store.inject(StoreFaultRule("write", count=1))
    with pytest.raises(StorageError):
        rig.storage.flush()
    rig.cluster.live.remove(3)

    def full() -> None:
        raise NoSpaceError("no room for a flush")

    with monkeypatch.context() as patch:
        patch.setattr(rig.storage, "flush", full)
        report = rig.collect(MAJOR)
    assert (report.set_aside_logs, report.deleted_ledgers, report.compacted_logs) == (0, 1, 1)
    rig.storage.flush()
    rig.check(2, 30)
    rig.after_crash().check(2, 30)


def test_a_log_that_could_not_be_copied_goes_with_its_last_ledger() -> None:
    rig = opened()
    rig.fill([1, 2], entries=12)
    rig.location_rows.write([Delete(key_of(2, 0))], sync=True)
    rig.cluster.live.remove(1)
    assert rig.collect(MAJOR).set_aside_logs == 1
    (aside,) = rig.collector.status().set_aside
    # It is not tried again and again, and stays as long as anything in it may be alive.
    assert rig.collect().deleted_logs == 0
    assert rig.entry_logger.path(aside) in rig.disk.files
    assert list(rig.collector.status().set_aside) == [aside]
    rig.cluster.live.remove(2)
    assert rig.collect().deleted_logs >= 1
    assert rig.entry_logger.path(aside) not in rig.disk.files
    rig.collect()
    assert rig.collector.status().set_aside == {}


def test_a_listing_alone_is_no_proof_for_a_ledger_whose_row_is_lost() -> None:
    rig = opened()
    rig.fill([1, 2, 3], entries=12)
    rig.storage.ledgers.delete(1)
    rig.cluster.hidden = {1}
    rig.cluster.live.remove(2)
    report = rig.collect(MAJOR)
    assert (report.unindexed_ledgers, report.deleted_ledgers) == (1, 1)
    assert report.compacted_logs
    rig.check(1, 12)
    # A read that fails is no proof either.
    rig.cluster.live.remove(1)
    rig.cluster.read_error = ConnectionFailedError("away")
    assert rig.collect(MAJOR).listing_failed
    rig.check(1, 12)
    rig.cluster.read_error = None
    logs = len(rig.log_names())
    assert rig.collect(MAJOR).compacted_logs
    assert len(rig.log_names()) < logs
    rig.check(3, 12)


@TRANSACTIONAL
@pytest.mark.parametrize("asked", [True, False], ids=["kept here", "not known"])
@pytest.mark.parametrize("digest", [DigestType.DUMMY, DigestType.CRC32C])
def test_entries_of_a_ledger_of_which_the_index_has_nothing_keep_their_log(
    transactional: bool, asked: bool, digest: DigestType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger's row and its locations are lost; the cluster says that it belongs here, or nothing."""
    digested_by(Digester(digest), monkeypatch)
    rig = opened(transactional=transactional)
    rig.fill([1, 2, 3], entries=12)
    rig.storage.ledgers.delete(1)
    rig.location_rows.write([Delete(key_of(1, entry)) for entry in range(12)], sync=True)
    rig.cluster.live.remove(2)
    if not asked:
        rig.collect()
        rig.cluster.listing_error = ConnectionFailedError("away")
    report = rig.collect(MAJOR)
    assert (report.compacted_logs, report.failure) == (0, None)
    assert report.set_aside_logs
    left = b"".join(rig.disk.files[f"{DIRECTORY}/{name}"] for name in rig.log_names())
    assert all(key_of(1, entry) in left for entry in range(12))
    # It is no quarantine: as soon as the ledger is known to be gone its logs are compacted.
    rig.cluster.live.remove(1)
    rig.cluster.listing_error = None
    assert rig.collector.status().set_aside == {}
    assert rig.collect(MAJOR).compacted_logs
    rig.check(3, 12)
