"""Plain compaction: live entries go to the end of the log that is being written, then their log goes.

In pieces, each of which is moved while no flush runs::

    look whether the index still points at the old record
    append to the current log, force      the copy is durable
    new locations into the index, synced  the old record is not needed any more

Only when every piece is through, the log is removed, and the directory synced. A crash anywhere leaves the
log and at worst a copy of some of its entries that nobody points at; index rows name the old record or the
new one, and both are there.

An entry that is written anew meanwhile has another location when its piece's turn comes, or gets one by a
later flush, which wins. One of a ledger that is deleted has none.

Source: ``org.apache.bookkeeper.bookie.EntryLogCompactor``.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import partial

from bkctl.engine.gc.copying import Copied, Pace, Piece, live_pieces, still_there
from bkctl.engine.gc.settings import GcSettings
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.vfs import WritableFileSystem


class Compactor:
    """Compacts logs of one ledger directory; used by one thread, its collector's."""

    def __init__(
        self, storage: LedgerStorage, filesystem: WritableFileSystem, settings: GcSettings, pace: Pace
    ) -> None:
        self._storage = storage
        self._filesystem = filesystem
        self._settings = settings
        self._pace = pace

    def compact(self, log_id: int, dead: Container[int], holes: Sequence[tuple[int, int]] = ()) -> Copied:
        """Move what lives in a settled log, then remove the log.

        ``dead`` are ledgers whose entries are left behind, ``holes`` (offset, end) of damage that nobody
        points into. Raises CorruptionError when a record cannot be read, NoSpaceError, StorageError; the log
        is still there then, and nothing is lost.
        """
        copied = Copied()
        for piece in live_pieces(self._storage, self._filesystem, self._settings, log_id, dead, holes):
            self._pace(len(piece), piece.size_bytes)
            copied.add(self._storage.while_quiet(partial(self._move, piece)))
        self._remove(log_id)
        return copied

    def _move(self, piece: Piece) -> Piece:
        """Under the flush lock; what was moved."""
        logs, locations = self._storage.entry_logger, self._storage.locations
        piece = still_there(piece, locations)
        if len(piece):
            fresh = logs.append(piece.keys, piece.bodies)
            # The copies are on disk when this returns; only then may the index name them.
            logs.force()
            # Synced: nothing points at the old records from here on.
            locations.put_many(piece.keys, fresh)
        return piece

    def _remove(self, log_id: int) -> None:
        logs = self._storage.entry_logger
        logs.remove(log_id)
        # The room is ours again after a crash too.
        self._storage.while_quiet(logs.sync_names)
