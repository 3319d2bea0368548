"""Plain compaction: live entries go to the end of the log that is being written, then their log goes.

In pieces, each of which is moved while no flush runs::

    check that the index still points at the old record
    append to the current log, force      the copy is durable
    new locations into the index          a crash leaves the old location or the new one

Only when every piece is through, and no row points into the log any more, the index is synced, the log
removed, and the directory synced. A crash anywhere leaves the log and at worst a copy of some of its entries
that no row points at; index rows name the old record or the new one, and both are there.

An entry that is written again during the compaction has another location when the turn of its piece comes, or
gets one by a later flush, which wins. An entry of a ledger that was deleted has no location.

Source: ``org.apache.bookkeeper.bookie.EntryLogCompactor``.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import closing
from functools import partial

from bkctl.engine.gc.copying import Copied, Piece, still_there
from bkctl.engine.gc.log_compactor import LogCompactor
from bkctl.engine.gc.rows_into_logs import RowCounts


class Compactor(LogCompactor):
    """Copies live entries to the log to which new entries are written as well."""

    def compact(
        self,
        log_id: int,
        dead: Container[int],
        holes: Sequence[tuple[int, int]] = (),
        *,
        rows: RowCounts | None = None,
    ) -> Copied:
        """Move the live entries of a settled log, then remove the log.

        ``dead`` are ledgers whose entries are left behind, ``holes`` (offset, end) of damage that no row
        points into. Where the log does not prove that all was moved which the index has in it, its ``rows``
        decide, and without them the index does. Raises CorruptionError when a record cannot be read or is not
        where the index has it, NoSpaceError, StorageError; the log is still there then, and nothing is lost.
        """
        copied = Copied()
        with closing(self._pieces(log_id, dead, holes, copied, rows)) as pieces:
            for piece in pieces:
                copied.add(self._storage.while_quiet(partial(self._move, piece)))
        self._check_none_left(log_id, dead, copied, rows)
        # The new locations are on disk from here on, so that the old records are not needed any more.
        self._storage.while_quiet(self._storage.locations.sync)
        self._remove_log(log_id)
        return copied

    def _move(self, piece: Piece) -> Piece:
        """Move a piece, under the flush lock, and return the entries that were moved."""
        logs, locations = self._storage.entry_logger, self._storage.locations
        piece = still_there(piece, locations)
        if len(piece):
            batches = piece.batches()
            fresh = [logs.append_batch(batch) for batch in batches]
            # The copies are on disk when this returns; only then may the index name them.
            logs.force()
            for batch, places in zip(batches, fresh, strict=True):
                locations.move_many(batch.key_list(), places)
        return piece
