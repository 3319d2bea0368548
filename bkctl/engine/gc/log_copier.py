"""Compaction by way of a log of its own: all live entries of a log are copied to it, or none.

The copy is made in a directory under two names, ``D.log.compacting`` while it is being written, and
``D.log.S.compacted`` (the copy, and the log that it is to take the place of) when it is whole. Names are
hexadecimal. What becomes of it then is for the subclasses to say.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from posixpath import join

from bkctl.codec.entry import EntryBatch
from bkctl.codec.entrylog import compacted_name, compacting_name
from bkctl.engine.entrylog.log_writer import OFFSET_MAX, LogWriter
from bkctl.engine.gc.copying import Copied, Piece, located
from bkctl.engine.gc.log_compactor import LogCompactor
from bkctl.engine.gc.log_reading import corruption_of
from bkctl.errors import BkctlError, CorruptionError
from bkctl.scan.damage import Damage, Tail
from bkctl.scan.entrylog import EntryLogScan


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
        self, log_id: int, dead: Container[int], holes: Sequence[tuple[int, int]], directory: str
    ) -> tuple[Copied, int | None]:
        """Copy what lives in a settled log to a new one in ``directory``; its id, None where nothing lives.

        The copy is durable and whole when this returns, its name is not yet durable. Raises CorruptionError,
        NoSpaceError, StorageError; the copy is removed again then.
        """
        copied = Copied()
        target: LogWriter | None = None
        done = False
        try:
            for piece in self._pieces(log_id, dead, holes):
                if target is None:
                    target = self._begin(directory)
                _append(target, piece)
                copied.add(piece)
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
        target = LogWriter(log_id, self._filesystem.create(join(directory, compacting_name(log_id))))
        target.write_header()
        return target

    def _change_index(self, target: int, source: int) -> None:
        """Give every entry of the target whose row still names the source its new location, durably.

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
        """Change rows under the flush lock: one that a flush has changed meanwhile is newer and stays."""
        keys, fresh = located(batch, target)
        locations = self._storage.locations
        found = locations.get_many(keys)
        chosen = [number for number, there in enumerate(found) if there is not None and there >> 32 == source]
        if chosen:
            # Synced: nothing points at the source any more when all batches are through.
            locations.put_many([keys[number] for number in chosen], [fresh[number] for number in chosen])

    def _remove_quietly(self, path: str) -> None:
        # What stays is removed by the next recovery.
        with suppress(BkctlError):
            self._filesystem.remove(path)


def _append(target: LogWriter, piece: Piece) -> None:
    """Write a piece to a compaction's target. Raises CorruptionError when that gets too large for a log."""
    sizes = list(map(len, piece.bodies))
    places = target.fitting(sizes, OFFSET_MAX)
    if len(places) <= len(sizes):
        # Its live entries are a part of a log that was small enough.
        raise CorruptionError("compacted log", expected="less than 2 GiB", found=f"{sum(sizes)} bytes more")
    target.write(piece.keys, piece.bodies, sizes, places)
