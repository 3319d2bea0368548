"""A cluster that goes while its ledgers are read: an error, and never ledgers that seem to be deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from bkctl.admin.online.ledgers import LedgerFilter, list_ledgers
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.errors import NotFoundError
from bkctl.metadata.api import LedgerManager, NoClusterError, StoredLedger, find_ledger
from bkctl.metadata.uri import open_metadata_store
from bkctl.pipeline.tables.ledger_source import described_ledgers
from bkctl.types import LedgerState
from bkctl.vfs import PosixFileSystem

METADATA = LedgerMetadata(3, 1, 1, 1, 0, -1, LedgerState.CLOSED, (Segment(0, ("a:1",)),))


class Ledgers:
    """Of three listed ledgers the second cannot be found, for this reason."""

    def __init__(self, error: NotFoundError) -> None:
        self._error = error

    def ledgers(self) -> Iterator[int]:
        yield from (1, 2, 3)

    def read_ledger(self, ledger: int) -> StoredLedger:
        if ledger == 2:
            raise self._error
        return StoredLedger(ledger, METADATA, 0, 0)


def listed(error: NotFoundError) -> list[int]:
    return [found.ledger for found in list_ledgers(cast("LedgerManager", Ledgers(error)), LedgerFilter())]


def test_a_deleted_ledger_is_left_out() -> None:
    assert listed(NotFoundError("no ledger 2")) == [1, 3]


def test_a_cluster_that_is_gone_is_no_deleted_ledger() -> None:
    with pytest.raises(NoClusterError):
        listed(NoClusterError("no cluster"))


def test_ledgers_by_their_ids(tmp_path: Path) -> None:
    uri = f"embedded://{tmp_path}/metadata.db"
    with open_metadata_store(uri) as store:
        with pytest.raises(NoClusterError):
            find_ledger(store.ledgers, 7)
        with pytest.raises(NoClusterError):
            list(described_ledgers(PosixFileSystem(), uri, [7]))
        store.layout.initialise_cluster()
        assert find_ledger(store.ledgers, 7) is None
        assert list(described_ledgers(PosixFileSystem(), uri, [7])) == []
