"""Explicit LACs: what a writer confirms without adding an entry (Java: ``setExplicitLac``)."""

from __future__ import annotations

import struct
import threading
from functools import partial

from bkctl.clock import Clock
from bkctl.codec import journal as journal_codec
from bkctl.engine.engine_thread import Actions, call_all, reported
from bkctl.engine.journal.batch import JournalBatch
from bkctl.engine.ledger_descriptor import Done, LedgerDescriptor
from bkctl.engine.ledger_table import LedgerTable
from bkctl.engine.write_stage import WriteStage
from bkctl.errors import BadRequestError, BkctlError, BookieIOError
from bkctl.reporting import counted

_FRONT = struct.Struct(">qq")
_ANSWER = "an answer to an explicit LAC"
_NOTING = "noting an explicit LAC"


class ExplicitLacs:
    """Keeps explicit LACs; thread-safe, never waits.

    Without ``journaled`` (journal formats before 6 have no such record) they are durable only when the
    ledger rows are flushed, as with Java.
    """

    def __init__(
        self, lock: threading.Lock, table: LedgerTable, writes: WriteStage, clock: Clock, *, journal: bool
    ) -> None:
        self._lock = lock
        self._table = table
        self._writes = writes
        self._clock = clock
        self._journal = journal

    def write(self, blob: bytes, master_key: bytes, done: Done, *, high_priority: bool = False) -> None:
        """Keep a LAC packet (``codec.explicit_lac``) as it came; its own ledger id and LAC count.

        A fenced ledger takes it, an unknown one is created, unless it was fenced and then deleted. ``done``
        is called once, perhaps before this returns. Raises BadRequestError for a packet that is too short or
        too long, or has a negative ledger id, ReadOnlyBookieError, LedgerFencedError, UnauthorizedError.
        """
        if len(blob) < _FRONT.size:
            raise BadRequestError(
                f"a LAC packet of {counted(len(blob), 'byte')}: at least {_FRONT.size} are needed"
            )
        if len(blob) > journal_codec.BLOB_BYTES_MAX:
            most = journal_codec.BLOB_BYTES_MAX
            raise BadRequestError(f"a LAC packet of {counted(len(blob), 'byte')}: at most {most} are kept")
        ledger, lac = _FRONT.unpack_from(blob)
        if ledger < 0:
            raise BadRequestError(f"ledger {ledger}: ids are not negative", ledger=ledger)
        actions: Actions = []
        with self._lock:
            self._writes.check_writable(ledger, high_priority=high_priority)
            self._table.refuse_buried(ledger, self._clock.monotonic())
            descriptor = self._table.open(ledger, master_key)
            self._table.change_row(ledger, explicit_lac=blob)
            if self._journal:
                record = journal_codec.encode_record(journal_codec.explicit_lac_record(ledger, blob))
                self._table.append(descriptor, [record], entries=1, sink=self, context=done)
            else:
                actions.append(partial(done, None))
            # The journal answers from here on, also after an error, and nobody else may.
            reported(_NOTING, self._note, descriptor, lac, actions)
        call_all(_ANSWER, actions)

    def _note(self, descriptor: LedgerDescriptor, lac: int, actions: Actions) -> None:
        """Note the LAC, and wake the watches that wait for it."""
        descriptor.raise_lac(lac)
        actions.extend(descriptor.due_watches(self._clock.time_ms()))

    def journaled(self, batches: list[JournalBatch]) -> None:
        """Answer for records that the journal reports as durable."""
        call_all(_ANSWER, [partial(_done(batch), None) for batch in batches])

    def journal_failed(self, batches: list[JournalBatch], error: BkctlError) -> None:
        """Answer for records that, as the journal reports, may not be on disk."""
        failure = BookieIOError(f"the LAC is not durable: {error}")
        call_all(_ANSWER, [partial(_done(batch), failure) for batch in batches])


def _done(batch: JournalBatch) -> Done:
    assert callable(batch.context)
    return batch.context
