"""Compaction by way of a log of its own: all live entries of a log are copied to it, or none.

The copy is made in a directory under two names: ``D.log.compacting`` while it is being written, and
``D.log.S.compacted`` (the copy, and the log that it is to replace) when it is whole. Names are hexadecimal.
The subclasses decide on the further steps.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from posixpath import join

from bkctl import _kernels
from bkctl.codec.entrylog import compacted_name, compacting_name
from bkctl.codec.location import ABSENT
from bkctl.engine.cache.record_batch import keys_of
from bkctl.engine.entrylog.log_writer import OFFSET_MAX, LogWriter
from bkctl.engine.gc.copying import PASS_ENTRIES, Copied, Piece, first_location
from bkctl.engine.gc.log_compactor import LogCompactor
from bkctl.engine.gc.log_reading import corruption_of
from bkctl.engine.gc.rows_into_logs import RowCounts
from bkctl.errors import BkctlError, CorruptionError
from bkctl.reporting import counted
from bkctl.scan.damage import Damage, Tail
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.record_windows import RecordWindow, record_windows


@dataclass(slots=True)
class RecoveredCompactions:
    """The remains of earlier compactions.

    ``unresolved`` maps the log ids (source and target) of those that cannot be finished to the reason; none
    of these logs may be removed.
    """

    finished: list[int] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unresolved: dict[int, str] = field(default_factory=dict)


class LogCopier(LogCompactor):
    """Makes copies, and has the index point into them."""

    def _copy_live(
        self,
        log_id: int,
        dead: Container[int],
        holes: Sequence[tuple[int, int]],
        directory: str,
        rows: RowCounts | None,
    ) -> tuple[Copied, int | None]:
        """Copy the live entries of a settled log to a new one; return its id, None without a live entry.

        The copy in ``directory`` is durable and whole when this returns, its name is not yet durable. No row
        points at anything else in the log by then. Raises CorruptionError, NoSpaceError,
        StorageError; the copy is removed again then.
        """
        copied = Copied()
        target: LogWriter | None = None
        done = False
        try:
            with closing(self._pieces(log_id, dead, holes, copied, rows)) as pieces:
                for piece in pieces:
                    if target is None:
                        target = self._begin(directory)
                        target.write_header()
                    _append(target, piece)
                    copied.add(piece)
            copies = () if target is None else (join(directory, compacting_name(target.log_id)),)
            self._check_all_copied(log_id, dead, copied, copies, rows)
            if target is not None:
                target.finish()
                # Records, map and header are on disk before the name says that they are.
                target.sync()
                self._filesystem.rename(
                    join(directory, compacting_name(target.log_id)),
                    join(directory, compacted_name(target.log_id, log_id)),
                )
            done = True
        finally:
            if target is not None:
                with suppress(BkctlError):
                    target.file.close()
                if not done:
                    self._remove_quietly(join(directory, compacting_name(target.log_id)))
        return copied, None if target is None else target.log_id

    def _begin(self, directory: str) -> LogWriter:
        log_id = self._storage.while_quiet(self._storage.entry_logger.new_log_id)
        return LogWriter(log_id, self._filesystem.create(join(directory, compacting_name(log_id))))

    def _check_all_copied(
        self,
        log_id: int,
        dead: Container[int],
        copied: Copied,
        copies: Sequence[str],
        rows: RowCounts | None,
    ) -> None:
        """Check that the copies have all that the index has in a log, if the log does not prove it.

        Call it before a row is changed. Raises CorruptionError where the index points at more.
        """
        if copied.is_all:
            return
        if rows is not None:
            counted = rows.count(log_id)
            # Counted behind the copying, or behind the reading ahead: entries whose rows a flush has changed
            # by now must not count, or they would make up for rows of which nothing was found.
            is_behind = copied.is_behind_count
            if counted == (copied.entries if is_behind else self._still_named(log_id, copies)):
                return
        self._refuse_rows(log_id, dead, partial(self._keys_in, copies))

    def _still_named(self, source: int, copies: Sequence[str]) -> int:
        """Count the entries of the copies whose rows name their source; raises what ``going_on`` does."""
        locations = self._storage.locations
        count = 0
        for keys in self._keys_in(copies):
            self._going_on()
            count += sum(place != ABSENT and place >> 32 == source for place in locations.places(keys))
        return count

    def _keys_in(self, copies: Sequence[str]) -> Iterator[list[bytes]]:
        for path in copies:
            for window in self._windows_of(path):
                yield keys_of(_joined_keys(window)[1])

    def _change_index(self, target: int, source: int) -> None:
        """Give every entry of the target whose row still names the source its new location, durably.

        Raises CorruptionError for a target that is not whole, StorageError.
        """
        for window in self._windows_of(self._path(target)):
            self._going_on()
            self._storage.while_quiet(partial(self._change_rows, window, target, source))
        # The rows are on disk: nothing points at the source any more.
        self._storage.while_quiet(self._storage.locations.sync)

    def _windows_of(self, path: str) -> Iterator[RecordWindow]:
        """Yield the records of a copy. Raises CorruptionError for one that is not whole, StorageError."""
        with EntryLogScan(self._filesystem, path) as scan:
            for item in record_windows(scan):
                if isinstance(item, Damage):
                    raise corruption_of(item)
                if isinstance(item, Tail) and item.kind == "torn":
                    raise CorruptionError(
                        "compacted log", offset=item.offset, expected="a record", found=item.found
                    ).located(scan.file.path)
                if isinstance(item, RecordWindow):
                    yield from item.parts(PASS_ENTRIES, len(item.buffer))

    def _change_rows(self, window: RecordWindow, target: int, source: int) -> None:
        """Change rows under the flush lock; a row that a flush has changed since is newer and stays."""
        starts, joined = _joined_keys(window)
        keys = keys_of(joined)
        locations = self._storage.locations
        in_source = [there != ABSENT and there >> 32 == source for there in locations.places(keys)]
        if any(in_source):
            first = first_location(window, target)
            fresh = [first + start for start in compress(array("q", starts), in_source)]
            locations.move_many(list(compress(keys, in_source)), fresh)

    def _remove_uncopied(self, log_id: int) -> None:
        """Remove a log of which nothing had to be copied.

        Another compaction may have moved its rows, and have been cut off in front of the sync.
        """
        self._storage.while_quiet(self._storage.locations.sync)
        self._remove_log(log_id)

    def _remove_quietly(self, path: str) -> None:
        # The next recovery removes a file that stays.
        with suppress(BkctlError):
            self._filesystem.remove(path)


def _joined_keys(window: RecordWindow) -> tuple[bytes, bytes]:
    """Return the starts and the keys of a window's records, both as columns."""
    starts, _, joined = _kernels.records_but(window.starts, window.sizes, window.ledgers, window.entries, ())
    return starts, joined


def _append(target: LogWriter, piece: Piece) -> None:
    """Write a piece to a compaction's target. Raises CorruptionError when that gets too large for a log."""
    for batch in piece.batches():
        written = len(target.write_batch(batch, 0, OFFSET_MAX)) - 1
        if written < batch.count:
            # The live entries are a part of a log that was small enough.
            left = len(batch.records) - (batch.ends[written - 1] if written else 0)
            raise CorruptionError(
                "compacted log", expected="less than 2 GiB", found=f"{counted(left, 'byte')} more"
            )
