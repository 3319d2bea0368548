"""The ledgers of a bookie that is being started, as the replay of its journals changes them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Container, Sequence
from dataclasses import replace

from bkctl.codec.ledger_data import LedgerData
from bkctl.engine.keyless_ledgers import KeylessLedgers
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.engine.replay_report import ReplayReport
from bkctl.reporting import counted

_log = logging.getLogger(__name__)


class ReplayedLedgers:
    """Rows and entries over all ledger directories; ``lock`` is the engine lock.

    ``keyless`` decides which ledgers without a row are kept.
    """

    def __init__(
        self,
        storages: Sequence[LedgerStorage],
        lock: threading.Lock,
        report: ReplayReport,
        keyless: KeylessLedgers,
    ) -> None:
        self.storages = storages
        self.keyless = keyless
        #: Directories whose ledger rows are lost: a ledger without a row is not known to be deleted.
        self.without_rows: set[LedgerStorage] = set()
        self._lock = lock
        self._report = report

    def storage_of(self, ledger: int) -> LedgerStorage:
        """Return the directory of a ledger."""
        return self.storages[ledger % len(self.storages)]

    def row(self, ledger: int) -> LedgerData | None:
        """Return the ledger's row, None when it is not known."""
        return self.storage_of(ledger).ledgers.get(ledger)

    def kept_row(self, ledger: int) -> LedgerData | None:
        """Return the row of a ledger with records; one is made where the metadata still place it here."""
        row = self.row(ledger)
        if row is None and self.keyless.is_kept(ledger):
            return self.row_behind_a_loss(ledger)
        return row

    def set_row(self, ledger: int, row: LedgerData) -> None:
        """Set a ledger's row, and count it when that puts the ledger in limbo."""
        ledgers = self.storage_of(ledger).ledgers
        known = ledgers.get(ledger)
        if row.limbo and (known is None or not known.limbo):
            self._report.limbo_ledgers += 1
        ledgers.set(ledger, row)

    def row_behind_a_loss(self, ledger: int) -> LedgerData:
        """Return the ledger's row; one is made, fenced and in limbo, when the loss may have taken its key."""
        row = self.row(ledger)
        if row is None:
            row = LedgerData(fenced=True, master_key=b"", limbo=True)
            self.set_row(ledger, row)
        return row

    def forget(self, ledger: int) -> None:
        """Forget the row and all entries of a ledger; what is put from here on is a new ledger's."""
        with self._lock:
            self.storage_of(ledger).delete_ledger(ledger)

    def set_limbo(self, number: int, journals: int) -> None:
        """Put every known ledger of one of ``journals`` journal directories in limbo."""
        for storage in self.storages:
            for ledger in storage.ledgers.ledgers():
                if ledger % journals == number:
                    self.set_ledger_limbo(ledger)

    def add_those_kept_here(self, journals: Container[int], count: int) -> None:
        """Give a row to each ledger that the cluster places here, and of which everything may be lost.

        ``journals`` are the numbers of the journal directories, of ``count``, that lost something. The rows
        are fenced and in limbo.
        """
        added = 0
        for ledger in self.keyless.all_kept():
            lossy = ledger % count in journals or self.storage_of(ledger) in self.without_rows
            if lossy and self.row(ledger) is None:
                self.row_behind_a_loss(ledger)
                added += 1
        if added:
            _log.warning(
                "the metadata place %s here of which index and journals have nothing any more; fenced and in"
                " limbo until 'bkctl ledger repair' or 'bkctl index limbo --clear'",
                counted(added, "ledger"),
            )

    def set_ledger_limbo(self, ledger: int) -> None:
        """Put a known ledger in limbo: a missing entry is answered as unknown."""
        row = self.row(ledger)
        if row is not None and not row.limbo:
            self.set_row(ledger, replace(row, limbo=True))

    def put(self, storage: LedgerStorage, keys: list[bytes], bodies: list[bytes]) -> None:
        """Put entries into a directory's cache, flushing as often as it is full."""
        size_bytes = sum(map(len, bodies))
        while True:
            with self._lock:
                if storage.has_room(size_bytes, len(keys)):
                    storage.put_many(keys, bodies, size_bytes)
                    break
            storage.flush()
        self._report.entries += len(keys)
        self._report.bytes += size_bytes
