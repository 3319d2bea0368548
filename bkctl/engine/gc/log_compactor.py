"""The common part of every way of compacting a log: reading its live entries, and removing it."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Sequence
from contextlib import suppress

from bkctl.config.server_keys.garbage import GcSettings
from bkctl.engine.gc.copying import Copied, LivePieces, Pace, Piece
from bkctl.engine.gc.one_ahead import OneAhead
from bkctl.engine.gc.rows_into_logs import RowCounts, refuse_rows
from bkctl.engine.ledger_storage import LogKeeper
from bkctl.errors import NoSpaceError, NotFoundError
from bkctl.vfs import WritableFileSystem


class LogCompactor:
    """Compacts logs of one ledger directory; used by one thread, its collector's.

    ``pace`` waits before something is copied. ``going_on`` is called often, also from the thread that reads
    ahead, and raises to end the compaction.
    """

    def __init__(
        self,
        storage: LogKeeper,
        filesystem: WritableFileSystem,
        settings: GcSettings,
        pace: Pace,
        going_on: Callable[[], None] = lambda: None,
    ) -> None:
        self._storage = storage
        self._filesystem = filesystem
        self._settings = settings
        self._pace = pace
        self._going_on = going_on

    def _pieces(
        self, log_id: int, dead: Container[int], holes: Sequence[tuple[int, int]], copied: Copied
    ) -> Generator[Piece]:
        """Yield the live entries of a log, as fast as the rate limit allows; ``copied`` learns if it is all.

        Raises as :class:`LivePieces`.
        """
        pieces = LivePieces(
            self._storage, self._filesystem, self._settings, log_id, dead, holes, going_on=self._going_on
        )
        # One piece is read while the one before it is copied and synced.
        with OneAhead(iter(pieces), f"reading log {log_id:x} ahead") as ahead:
            for piece in ahead:
                self._pace(len(piece), piece.size_bytes)
                yield piece
        copied.is_all = pieces.is_all

    def _check_none_left(
        self, log_id: int, dead: Container[int], copied: Copied, rows: RowCounts | None
    ) -> None:
        """Check that no row points into a log of which all was moved, if the log does not prove it.

        Raises CorruptionError where one still does.
        """
        if copied.is_all:
            return
        before = None if rows is None else rows.counted(log_id)
        if rows is not None and before is None and rows.count(log_id) == 0:
            return
        if before != copied.entries:
            self._refuse_rows(log_id, dead)

    def _refuse_rows(
        self, log_id: int, dead: Container[int] = (), copied: Iterable[Sequence[bytes]] = ()
    ) -> None:
        """Raise CorruptionError where a row points into a log, but for those of the keys that were copied."""
        refuse_rows(
            self._storage.locations,
            log_id,
            self._path(log_id),
            dead,
            self._going_on,
            copied=copied,
        )

    def _remove_log(self, log_id: int) -> None:
        """Remove a log that no row of a live ledger points into any more, if it is there.

        The rows of the log's copies are durable. From here on damage to these rows must be noticed, too, for
        which the index notes that they are synced. On a full disk that can wait, because the removal is to
        give room: the next checkpoint makes up for it.
        """
        with suppress(NoSpaceError):
            self._storage.note_synced()
        with suppress(NotFoundError):
            self._storage.entry_logger.remove(log_id)
        # With the sync the room is free after a crash too.
        self._sync_names()

    def _sync_names(self) -> None:
        self._storage.while_quiet(self._storage.entry_logger.sync_names)

    def _path(self, log_id: int) -> str:
        return self._storage.entry_logger.path(log_id)
