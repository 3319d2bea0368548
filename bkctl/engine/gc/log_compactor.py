"""The common part of every way of compacting a log: reading its live entries, and removing it."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise

from bkctl.config.server_keys.garbage import GcSettings
from bkctl.engine.gc.copying import Copied, LivePieces, Pace, Piece
from bkctl.engine.gc.one_ahead import OneAhead
from bkctl.engine.gc.rows_into_logs import RowCounts, refuse_rows
from bkctl.engine.ledger_storage import LogKeeper
from bkctl.errors import NoSpaceError, NotFoundError, StorageError
from bkctl.vfs import WritableFileSystem


class _Reading:
    """The reading of one log, which is one piece ahead of its compaction.

    ``is_behind_count`` says that the rows into the log were counted before the reading began.
    """

    def __init__(self, log_id: int, pieces: LivePieces, *, is_behind_count: bool) -> None:
        self.log_id = log_id
        self.is_behind_count = is_behind_count
        self.pieces = pieces
        self.ahead = OneAhead(iter(pieces), f"reading log {log_id:x} ahead")


class LogCompactor:
    """Compacts logs of one ledger directory; used by one thread, its collector's.

    Two pieces are in memory besides the one that is copied: the next of the same log, and the first of the
    log that is compacted next (:meth:`in_order`).

    ``pace`` waits before something is copied. ``going_on`` is called between steps of work, also from the
    threads that read ahead; it may wait, and raises to end the compaction. While ``is_asked`` says that it
    waits for others, what is copied in one go is small.
    """

    def __init__(
        self,
        storage: LogKeeper,
        filesystem: WritableFileSystem,
        settings: GcSettings,
        pace: Pace,
        going_on: Callable[[], None] = lambda: None,
        *,
        is_asked: Callable[[], bool] = lambda: False,
    ) -> None:
        self._storage = storage
        self._filesystem = filesystem
        self._settings = settings
        self._pace = pace
        self._going_on = going_on
        self._is_asked = is_asked
        #: Makes the reading of the log that follows the one of an id.
        self._following: dict[int, Callable[[RowCounts | None], _Reading]] = {}
        self._next: _Reading | None = None

    @contextmanager
    def in_order(
        self, logs: Sequence[tuple[int, Sequence[tuple[int, int]]]], dead: Container[int]
    ) -> Iterator[None]:
        """Surround the compaction of logs, given with their ``holes``, one after the other in this order.

        While one is copied, synced and removed, the first piece of the next is read. Any may be left out.
        """
        self._following = {
            log_id: partial(self._reading, *following, dead) for (log_id, _), following in pairwise(logs)
        }
        try:
            yield
        finally:
            self._following = {}
            self.forget_next()

    def forget_next(self) -> None:
        """Give up what was read of the next log, and its descriptor."""
        # Before it is closed: a reading that was closed must not be waited for, also when that failed.
        reading, self._next = self._next, None
        if reading is not None:
            with suppress(StorageError):
                reading.ahead.close()

    def _begin_following(self, log_id: int, rows: RowCounts | None) -> None:
        """Begin to read the log behind this one; where the system gives no thread, it is read in its turn."""
        begin = self._following.get(log_id)
        if begin is None:
            return
        # Known before it begins: whatever happens then, its thread is ended with the order of the logs.
        self._next = begin(rows)
        try:
            self._next.ahead.begin()
        except StorageError:
            self.forget_next()

    def _reading(
        self, log_id: int, holes: Sequence[tuple[int, int]], dead: Container[int], rows: RowCounts | None
    ) -> _Reading:
        pieces = LivePieces(
            self._storage, self._filesystem, self._settings, log_id, dead, holes, going_on=self._going_on
        )
        return _Reading(log_id, pieces, is_behind_count=rows is not None and rows.counted(log_id) is not None)

    def _pieces(
        self,
        log_id: int,
        dead: Container[int],
        holes: Sequence[tuple[int, int]],
        copied: Copied,
        rows: RowCounts | None,
    ) -> Generator[Piece]:
        """Yield the live entries of a log, as fast as the rate limit allows; ``copied`` learns if it is all.

        Raises as :class:`LivePieces`.
        """
        reading = self._next
        if reading is not None and reading.log_id == log_id:
            self._next = None
        else:
            self.forget_next()
            reading = self._reading(log_id, holes, dead, rows)
        copied.is_behind_count = reading.is_behind_count
        # One piece is read while the one before it is copied and synced.
        with reading.ahead as ahead:
            self._begin_following(log_id, rows)
            for whole in ahead:
                for piece in whole.portions() if self._is_asked() else [whole]:
                    self._going_on()
                    self._pace(len(piece), piece.size_bytes)
                    yield piece
        copied.is_all = reading.pieces.is_all

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
        self,
        log_id: int,
        dead: Container[int] = (),
        copied: Callable[[], Iterable[Sequence[bytes]]] = tuple,
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
