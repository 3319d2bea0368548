"""Taking a ledger out of limbo while the bookie runs: only when the index has every entry that it should.

The command that copied the entries has proved that they are the right ones, and has read them back. This
module makes sure that none is missing, and that the ledger is fenced, because the fence may have been lost
with the entries. The change of the row is durable with the next flush, after the locations of the entries
that were added before; a crash before that leaves the ledger in limbo.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from bkctl.engine.ledger_table import LedgerTable
from bkctl.errors import NoLedgerError, RefusedError

#: Missing entries that are named.
NAMED_MAX = 10


class LimboExit:
    """Says which ledgers are in limbo, and takes those out of it that are whole; thread-safe."""

    def __init__(self, lock: threading.Lock, table: LedgerTable) -> None:
        self._lock = lock
        self._table = table

    def is_limbo(self, ledger: int) -> bool:
        """Return whether a missing entry of the ledger is answered as unknown. Raises NoLedgerError."""
        self._require(ledger)
        return self._table.is_limbo(ledger)

    def leave(self, ledger: int, expected: Iterable[int]) -> bool:
        """Take a ledger without a writer out of limbo; False when it was not in limbo.

        ``expected`` are the entries that it should have here, ascending. Reads the index: not on an event
        loop. Raises NoLedgerError, BookieIOError, and RefusedError when entries are missing or the ledger is
        not fenced here.
        """
        if not self.is_limbo(ledger):
            return False
        missing = self._missing(ledger, expected)
        if missing:
            named = ", ".join(map(str, missing)) + (" ..." if len(missing) >= NAMED_MAX else "")
            raise RefusedError(f"ledger {ledger} stays in limbo: entries are not here: {named}")
        with self._lock:
            rows = self._table.storage_of(ledger).ledgers
            row = rows.get(ledger)
            if row is None:
                raise NoLedgerError(f"ledger {ledger} is not known here", ledger=ledger)
            if not row.fenced:
                raise RefusedError(
                    f"ledger {ledger} stays in limbo: it is not fenced here, and what was lost may have "
                    "been its fence"
                )
            rows.set(ledger, replace(row, limbo=False))
        return True

    def _missing(self, ledger: int, expected: Iterable[int]) -> list[int]:
        here = iter(self._table.storage_of(ledger).entries(ledger))
        at = next(here, None)
        missing: list[int] = []
        for entry in expected:
            while at is not None and at < entry:
                at = next(here, None)
            if at != entry:
                missing.append(entry)
                if len(missing) >= NAMED_MAX:
                    break
        return missing

    def _require(self, ledger: int) -> None:
        if self._table.storage_of(ledger).ledgers.get(ledger) is None:
            raise NoLedgerError(f"ledger {ledger} is not known here", ledger=ledger)
