"""Transactional compaction: a log's live entries go to a log of their own, all of them or none.

Source log S, target D; names are hexadecimal::

    D.log.compacting     being written                             at the next pass: removed
    D.log.S.compacted    complete and durable: the point of no     finished
                         return
    D.log                the same file, by a second name           finished
    index: S -> D        rows that still name S are changed        done again
    D.log.S.compacted, S.log removed                               S alone left: a log without live entries

The file gets its final name before the index knows of it, so that readers find it by that name at any time,
also after a crash and without recovery. Rows are changed by reading D: a recovery needs nothing else.

Java 4.17.3 recovers into a file named by the decimal id, and does so again at every pass; names here are
hexadecimal in every phase, and a stray ``28.log`` of Java's is a log like any other.

Source: ``org.apache.bookkeeper.bookie.TransactionalEntryLogCompactor``.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence
from posixpath import join

from bkctl.codec.entrylog import compacted_name, parse_compacted_name, parse_compacting_name
from bkctl.codec.last_id import LOG_ID_MAX
from bkctl.engine.gc.copying import Copied
from bkctl.engine.gc.log_copier import LogCopier, RecoveredCompactions
from bkctl.engine.gc.pace import StoppedError
from bkctl.engine.gc.rows_into_logs import RowCounts
from bkctl.errors import BkctlError

_log = logging.getLogger(__name__)


class TransactionalCompactor(LogCopier):
    """Copies to a log of its own in the same ledger directory."""

    def compact(
        self,
        log_id: int,
        dead: Container[int],
        holes: Sequence[tuple[int, int]] = (),
        *,
        rows: RowCounts | None = None,
    ) -> Copied:
        """Copy the live entries of a settled log to a new log, then remove the old one.

        The arguments are those of :meth:`bkctl.engine.gc.compactor.Compactor.compact`.

        Raises CorruptionError, NoSpaceError, StorageError; before the point of no return the target is
        removed again, after it the next pass finishes.
        """
        copied, target = self._copy_live(log_id, dead, holes, self._storage.directory, rows)
        if target is None:
            self._remove_uncopied(log_id)
        else:
            # The name is durable before anything that only a finished compaction may do.
            self._sync_names()
            self._finish(target, log_id, is_all=True)
        return copied

    def recover(self) -> RecoveredCompactions:
        """Finish or undo compactions that a crash cut off. Raises StorageError when names cannot be read."""
        found = RecoveredCompactions()
        directory = self._storage.directory
        for name in self._filesystem.names(directory):
            compacted = parse_compacted_name(name)
            try:
                if parse_compacting_name(name) is not None:
                    self._filesystem.remove(join(directory, name))
                    found.removed.append(name)
                elif compacted is not None and max(compacted) <= LOG_ID_MAX:
                    self._finish(*compacted, is_all=False)
                    found.finished.append(compacted[0])
            except StoppedError:
                raise
            except BkctlError as error:
                _log.error("%s/%s: cannot be finished now: %s", directory, name, error)
                if compacted is not None:
                    found.unresolved.update(dict.fromkeys(compacted, f"{name}: {error}"))
        if found.removed:
            self._sync_names()
        return found

    def _finish(self, target: int, source: int, *, is_all: bool) -> None:
        """Take every step behind the point of no return; it may be called again until all are taken.

        ``is_all`` says that the target is known to have all that the index has in the source.
        """
        compacted, path = join(self._storage.directory, compacted_name(target, source)), self._path(target)
        if self._filesystem.status(path) is None:
            self._filesystem.link(compacted, path)
        # Readers find the log by its name, also after a crash, before an index row sends them there.
        self._sync_names()
        self._change_index(target, source)
        if not is_all:
            self._refuse_rows(source)
        self._filesystem.remove(compacted)
        self._remove_log(source)
