"""Fencing: after the answer no plain add to the ledger is accepted any more (Java: ``fenceAndLogInLedger``).

One critical section, which the check of adds shares, sets the flag, changes the row and appends the fence
record. So every add that was accepted before stands in the journal in front of the fence record, and every
later one is refused. The answer waits until that record, and with it those adds, are on disk. A second fence
that comes during this time waits for the same record.

The row keeps the fence when the journal is gone: a last mark passes the record only after the rows were
flushed.
"""

from __future__ import annotations

import threading
from functools import partial

from bkctl.clock import Clock
from bkctl.codec import journal as journal_codec
from bkctl.engine.engine_thread import Actions, call_all, reported
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.ledger_descriptor import Done, LedgerDescriptor
from bkctl.engine.ledger_table import LedgerTable
from bkctl.errors import BkctlError, BookieIOError, NoLedgerError

_ANSWER = "an answer to a fence"
_WATCHES = "ending the long polls of a ledger that was fenced"


class Fencing:
    """Fences ledgers; thread-safe, never waits."""

    def __init__(self, lock: threading.Lock, table: LedgerTable, clock: Clock) -> None:
        self._lock = lock
        self._table = table
        self._clock = clock

    def fence(self, ledger: int, master_key: bytes, done: Done) -> None:
        """Fence a ledger; one that the bookie does not know is created with this key, and fenced.

        One that was fenced and deleted stays so: it takes no adds, and a row of it would only be collected
        again. Raises NoLedgerError then, by which a recovery knows that there is nothing here.
        ``done`` is called once, when the fence is durable (None) or cannot be made so (BookieIOError);
        perhaps before this returns. Raises UnauthorizedError for another key than the ledger's, StorageError
        when the journal takes nothing. Also a fence that failed keeps adds out from here on.
        """
        actions: Actions = []
        with self._lock:
            if self._table.is_buried(ledger, self._clock.monotonic()):
                raise NoLedgerError(f"ledger {ledger} was fenced and then deleted", ledger=ledger)
            descriptor = self._table.open(ledger, master_key)
            if descriptor.fence_waiters is not None:
                descriptor.fence_waiters.append(done)
            elif descriptor.fenced and not descriptor.fence_owed:
                actions.append(partial(done, None))
            else:
                self._append(descriptor, done)
                # The journal answers from here on, also after an error, and nobody else may.
                reported(_WATCHES, self._end_watches, descriptor, actions)
        call_all(_ANSWER, actions)

    def _append(self, descriptor: LedgerDescriptor, done: Done) -> None:
        try:
            descriptor.fenced = True
            descriptor.fence_waiters = [done]
            self._table.refuse(descriptor)
            self._table.change_row(descriptor.ledger, fenced=True)
            record = journal_codec.encode_record(journal_codec.fence_record(descriptor.ledger))
            self._table.append(descriptor, [record], entries=1, sink=self, context=descriptor)
        except Exception:
            # Nothing is on its way that a later fence could wait for.
            descriptor.fence_waiters = None
            descriptor.fence_owed = True
            raise

    @staticmethod
    def _end_watches(descriptor: LedgerDescriptor, actions: Actions) -> None:
        actions.extend(descriptor.due_watches(None))

    def journaled(self, batches: list[JournalBatch]) -> None:
        """Answer for fence records that the journal reports as durable."""
        self._answer(batches, None)

    def journal_failed(self, batches: list[JournalBatch], error: BkctlError) -> None:
        """Answer for fence records that, as the journal reports, may not be on disk."""
        self._answer(batches, error)

    def _answer(self, batches: list[JournalBatch], error: BkctlError | None) -> None:
        for batch in batches:
            # The fences of other ledgers are answered, whatever is wrong with this one.
            reported(_ANSWER, self._answer_one, batch, error)

    def _answer_one(self, batch: JournalBatch, error: BkctlError | None) -> None:
        descriptor = batch.context
        assert isinstance(descriptor, LedgerDescriptor)
        with self._lock:
            waiters, descriptor.fence_waiters = descriptor.fence_waiters or [], None
            descriptor.fence_owed = error is not None
        failure = None
        if error is not None:
            failure = BookieIOError(f"ledger {descriptor.ledger}: the fence is not durable: {error}")
        call_all(_ANSWER, [partial(done, failure) for done in waiters])
