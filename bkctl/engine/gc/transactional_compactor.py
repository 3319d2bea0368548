"""Transactional compaction: a log's live entries go to a log of their own, all of them or none.

Source log S, target D; names are hexadecimal::

    D.log.compacting     being written                             at the next pass: removed
    D.log.S.compacted    complete and durable: the point of no     finished
                         return
    D.log                the same file, by a second name           finished
    index: S -> D        rows that still name S are changed        done again
    D.log.S.compacted, S.log removed                               S alone left: a log without live entries

The file gets its final name before the index knows of it, so that readers find it by that name at any time,
also after a crash and without recovery. Rows are changed by reading D: whoever recovers needs nothing else.

Java 4.17.3 recovers into a file named by the decimal id, and does so again at every pass; names here are
hexadecimal in every phase, and a stray ``28.log`` of Java's is a log like any other.

Source: ``org.apache.bookkeeper.bookie.TransactionalEntryLogCompactor``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from bkctl.codec.entry import EntryBatch
from bkctl.codec.last_id import LOG_ID_MAX
from bkctl.engine.entrylog.log_writer import OFFSET_MAX, LogWriter
from bkctl.engine.gc.copying import Copied, Pace, Piece, live_pieces, located
from bkctl.engine.gc.log_reading import corruption_of
from bkctl.engine.gc.settings import GcSettings
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.errors import BkctlError, CorruptionError, NotFoundError
from bkctl.scan.damage import Damage, Tail
from bkctl.scan.entrylog import EntryLogScan
from bkctl.vfs import WritableFileSystem

_log = logging.getLogger(__name__)
_COMPACTING = re.compile(r"([0-9a-f]+)\.log\.compacting")
#: Target and source in the name of a complete copy.
COMPACTED = re.compile(r"([0-9a-f]+)\.log\.([0-9a-f]+)\.compacted")


@dataclass(slots=True)
class RecoveredCompactions:
    """What earlier compactions had left.

    ``unresolved`` maps the log ids (source and target) of those that cannot be finished to the reason; none
    of these logs may be removed.
    """

    finished: list[int] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unresolved: dict[int, str] = field(default_factory=dict)


class TransactionalCompactor:
    """Compacts logs of one ledger directory; used by one thread, its collector's."""

    def __init__(
        self, storage: LedgerStorage, filesystem: WritableFileSystem, settings: GcSettings, pace: Pace
    ) -> None:
        self._storage = storage
        self._filesystem = filesystem
        self._settings = settings
        self._pace = pace

    def compact(self, log_id: int, dead: Container[int], holes: Sequence[tuple[int, int]] = ()) -> Copied:
        """Copy what lives in a settled log to a new log, then remove it.

        Raises CorruptionError, NoSpaceError, StorageError; before the point of no return the target is
        removed again, after it the next pass finishes.
        """
        copied = Copied()
        target: LogWriter | None = None
        done = False
        try:
            for piece in live_pieces(self._storage, self._filesystem, self._settings, log_id, dead, holes):
                self._pace(len(piece), piece.size_bytes)
                if target is None:
                    target = self._begin()
                append_piece(target, piece)
                copied.add(piece)
            if target is not None:
                self._complete(target, log_id)
            done = True
        finally:
            if target is not None:
                with suppress(BkctlError):
                    target.file.close()
                if not done:
                    with suppress(BkctlError):
                        self._filesystem.remove(f"{self._path(target.log_id)}.compacting")
        if target is None:
            self._storage.entry_logger.remove(log_id)
            self._sync_names()
        else:
            self._finish(target.log_id, log_id)
        return copied

    def recover(self) -> RecoveredCompactions:
        """Finish or undo what a crash has cut off. Raises StorageError when the names cannot be read."""
        found = RecoveredCompactions()
        for name in self._filesystem.names(self._directory):
            compacting = _COMPACTING.fullmatch(name)
            compacted = COMPACTED.fullmatch(name)
            try:
                if compacting is not None:
                    self._filesystem.remove(f"{self._directory}/{name}")
                    found.removed.append(name)
                elif compacted is not None:
                    target, source = int(compacted[1], 16), int(compacted[2], 16)
                    if max(target, source) > LOG_ID_MAX:
                        continue
                    self._finish(target, source)
                    found.finished.append(target)
            except BkctlError as error:
                _log.error("%s/%s: cannot be finished now: %s", self._directory, name, error)
                if compacted is not None:
                    ids = (int(compacted[1], 16), int(compacted[2], 16))
                    found.unresolved.update(dict.fromkeys(ids, f"{name}: {error}"))
        if found.removed:
            self._sync_names()
        return found

    def _begin(self) -> LogWriter:
        log_id = self._storage.while_quiet(self._storage.entry_logger.new_log_id)
        target = LogWriter(log_id, self._filesystem.create(f"{self._path(log_id)}.compacting"))
        target.write_header()
        return target

    def _complete(self, target: LogWriter, source: int) -> None:
        """Up to the point of no return."""
        target.finish()
        # Records, map and header are on disk before the name says that they are.
        target.sync()
        path = self._path(target.log_id)
        self._filesystem.rename(f"{path}.compacting", self._compacted(target.log_id, source))
        # The name is durable before anything that only a finished compaction may do.
        self._sync_names()

    def _finish(self, target: int, source: int) -> None:
        """Everything behind the point of no return; as often as it takes."""
        compacted, path = self._compacted(target, source), self._path(target)
        if self._filesystem.status(path) is None:
            self._filesystem.link(compacted, path)
        # Readers find the log by its name, also after a crash, before an index row sends them there.
        self._sync_names()
        self.change_index(target, source)
        self._filesystem.remove(compacted)
        with suppress(NotFoundError):
            self._storage.entry_logger.remove(source)
        self._sync_names()

    def change_index(self, target: int, source: int) -> None:
        """Every entry of the target whose row still names the source gets its new location, durably.

        Raises CorruptionError for a target that is not whole, StorageError.
        """
        with EntryLogScan(self._filesystem, self._path(target)) as scan:
            for item in scan:
                if isinstance(item, Damage):
                    raise corruption_of(item)
                if isinstance(item, Tail) and item.kind == "torn":
                    raise CorruptionError(
                        "compacted log", offset=item.offset, expected="a record", found=item.found
                    ).located(scan.file.path)
                if isinstance(item, EntryBatch):
                    self._storage.while_quiet(partial(self._change_rows, item, target, source))

    def _change_rows(self, batch: EntryBatch, target: int, source: int) -> None:
        """Under the flush lock: a row that a flush has changed meanwhile is newer and stays."""
        keys, fresh = located(batch, target)
        locations = self._storage.locations
        found = locations.get_many(keys)
        chosen = [number for number, there in enumerate(found) if there is not None and there >> 32 == source]
        if chosen:
            # Synced: nothing points at the source any more when all batches are through.
            locations.put_many([keys[number] for number in chosen], [fresh[number] for number in chosen])

    @property
    def _directory(self) -> str:
        return self._path(0).rpartition("/")[0]

    def _path(self, log_id: int) -> str:
        return self._storage.entry_logger.path(log_id)

    def _compacted(self, target: int, source: int) -> str:
        return f"{self._path(target)}.{source:x}.compacted"

    def _sync_names(self) -> None:
        self._storage.while_quiet(self._storage.entry_logger.sync_names)


def append_piece(target: LogWriter, piece: Piece) -> None:
    """Write a piece to a compaction's target. Raises CorruptionError when that gets too large for a log."""
    sizes = list(map(len, piece.bodies))
    places = target.fitting(sizes, OFFSET_MAX)
    if len(places) <= len(sizes):
        # Its live entries are a part of a log that was small enough.
        raise CorruptionError("compacted log", expected="less than 2 GiB", found=f"{sum(sizes)} bytes more")
    target.write(piece.keys, piece.bodies, sizes, places)
