"""The rows of the index that a bookie has: of its ledgers, and of its entries with the logs that they name.

They are taken from the index and not from the logs: logs still hold ledgers that were deleted, and know
nothing of limbo and explicit LACs. A row that does not decode, or names no log, is refused: its entry or
ledger would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from posixpath import join

import numpy as np

from bkctl.admin.conversion.bookie_places import BookiePlaces
from bkctl.admin.index.rebuild.old_rows import read_old_rows
from bkctl.admin.index.rows.location_runs import Rows, of_ledgers, rows_of
from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.codec.file_info import FENCED, LIMBO, NO_LEDGER, encode_header, index_path
from bkctl.codec.ledger_data import LedgerData
from bkctl.engine.interleaved_storage.index_headers import header_of
from bkctl.engine.interleaved_storage.interleaved_ledger_storage import ENTRY_ID_MAX
from bkctl.errors import CorruptionError, RefusedError
from bkctl.scan.columns.column import Column
from bkctl.scan.directory import LogFile, inspect_directory
from bkctl.scan.idx_tree import IdxTree
from bkctl.scan.index import READERS
from bkctl.scan.index_databases import LEDGERS, LOCATIONS, open_store
from bkctl.scan.index_rows import IndexDamage
from bkctl.storage_kinds import DB, IDX, StorageKind
from bkctl.vfs.base import FileSystem

_REBUILD = "rebuild the index first: bkctl index rebuild"
_LOG_SHIFT = 32


def read_ledgers(fs: FileSystem, places: BookiePlaces, kind: StorageKind) -> dict[int, LedgerData]:
    """Return the row of every ledger.

    Raises RefusedError where a row is damaged or has what the files of another storage have no room for,
    CorruptionError, StorageError.
    """
    ledgers = _LEDGERS[kind](fs, places)
    for ledger, data in ledgers.items():
        if data.unknown:
            raise RefusedError(f"ledger {ledger}: its row has fields of a later version, which would be lost")
    return ledgers


def _of_databases(fs: FileSystem, places: BookiePlaces) -> dict[int, LedgerData]:
    del fs
    found: dict[int, LedgerData] = {}
    for position, directory in enumerate(places.indexes):
        path = join(directory, LEDGERS)
        old = read_old_rows(path)
        if old.problem is not None:
            raise RefusedError(f"{path}: {old.problem}; {_REBUILD}")
        if old.damaged:
            raise RefusedError(f"{path}: the row of ledger {min(old.damaged)} does not decode; {_REBUILD}")
        if old.flags is not None and any(old.flags):
            raise RefusedError(
                f"{path}: a data integrity check is due (its flags are {old.flags.hex()}), which the files "
                "of another storage cannot note. Start the bookie once, so that it makes the check"
            )
        count = len(places.indexes)
        strange = next((ledger for ledger in old.rows if ledger % count != position), None)
        if strange is not None:
            raise RefusedError(
                f"{path}: has ledger {strange}, which belongs to directory {strange % count + 1} of "
                f"{count}, but this is directory {position + 1}. Give the directories in the right order"
            )
        found.update(old.rows)
        for ledger in old.rows:
            check_room(ledger, old.rows[ledger])
    return found


def check_room(ledger: int, data: LedgerData) -> None:
    """Raise RefusedError for a row that the header of an index file has no room for."""
    try:
        encode_header(header_of(data))
    except ValueError as error:
        raise RefusedError(
            f"ledger {ledger}: the header of an index file cannot hold its row: {error}"
        ) from None


def refuse_beyond_slots(rows: Rows) -> None:
    """Raise RefusedError for an entry that an index file has no slot for."""
    beyond = rows.entries > ENTRY_ID_MAX
    if bool(beyond.any()):
        first = int(np.argmax(beyond))
        raise RefusedError(
            f"ledger {int(rows.ledgers[first])} entry {int(rows.entries[first])}: an index file has no slot "
            f"for entries above {ENTRY_ID_MAX}"
        )


def _of_idx_files(fs: FileSystem, places: BookiePlaces) -> dict[int, LedgerData]:
    found: dict[int, LedgerData] = {}
    for directory in places.indexes:
        tree = IdxTree(fs, directory)
        for row in tree.ledger_rows():
            if isinstance(row, IndexDamage):
                raise RefusedError(f"{row.path}: {row.reason}; {_REBUILD}")
            path = join(directory, index_path(row.ledger))
            if fs.status(path) is None:
                raise RefusedError(
                    f"{path}.rloc: was being moved to this directory. Start the bookie once, which finishes "
                    "this"
                )
            header = tree.header(row.ledger)
            if header is not None and (unknown := header.state & ~(FENCED | LIMBO | NO_LEDGER)):
                raise RefusedError(f"{path}: has unknown state bits, {unknown:x}")
            if row.ledger in found:
                raise RefusedError(f"ledger {row.ledger} has two index files, one of them {path}; {_REBUILD}")
            found[row.ledger] = row.data
    return found


_LEDGERS: Mapping[StorageKind, Callable[[FileSystem, BookiePlaces], dict[int, LedgerData]]] = {
    DB: _of_databases,
    IDX: _of_idx_files,
}


class OldLogs:
    """The entry logs of each ledger directory; ``shares_ids``: an id means one log, wherever it is."""

    def __init__(self, fs: FileSystem, directories: Sequence[str], *, shares_ids: bool) -> None:
        self.of = [
            {log.log_id: log for log in inspect_directory(fs, path).logs if not log.compaction}
            for path in directories
        ]
        self._shares_ids = shares_ids
        self._own_ids = [np.array(sorted(logs), np.int64) for logs in self.of]
        homes: dict[int, int] = {}
        for position, logs in enumerate(self.of):
            for log_id, log in logs.items() if shares_ids else ():
                if log_id in homes:
                    first = self.of[homes[log_id]][log_id].path
                    raise RefusedError(
                        f"{log.path} and {first}: two logs of one id, and the index does not say which of "
                        "them it names"
                    )
                homes[log_id] = position
        self._ids = np.array(sorted(homes), np.int64)
        self._homes = np.array([homes[log_id] for log_id in sorted(homes)], np.int64)

    def positions(self, rows: Rows, index_position: int) -> Column:
        """Return the ledger directory of the log of each row, -1 where there is no such log."""
        ids = rows.locations >> _LOG_SHIFT
        there = self._ids if self._shares_ids else self._own_ids[index_position]
        if not len(there):
            return np.full(len(ids), -1, np.int64)
        at = np.minimum(np.searchsorted(there, ids), len(there) - 1)
        homes = self._homes[at] if self._shares_ids else index_position
        return np.where(there[at] == ids, homes, -1)

    def every(self) -> Iterator[tuple[int, LogFile]]:
        """Yield each log with the number of its directory."""
        for position, logs in enumerate(self.of):
            for log_id in sorted(logs):
                yield position, logs[log_id]


class OldRows:
    """The rows of entries, of ledgers that have a row; ``left_out`` counts the others once all were read.

    Those belong to ledgers that were deleted: no bookie reads them.
    """

    def __init__(
        self, fs: FileSystem, places: BookiePlaces, kind: StorageKind, ledgers: Sequence[int], logs: OldLogs
    ) -> None:
        self._fs, self._places, self._kind, self._logs = fs, places, kind, logs
        self._ledgers = np.array(sorted(ledgers), np.int64)
        self.left_out = 0

    def batches(self) -> Iterator[tuple[Rows, Column]]:
        """Yield rows with the ledger directory of each.

        Raises CorruptionError for a row that does not decode or names a log that is not there, RefusedError
        for an index that was lost, StorageError.
        """
        self.left_out = 0
        for position, directory in enumerate(self._places.indexes):
            _refuse_lost(
                self._kind, directory, any(log.size_bytes > HEADER_BYTES for log in self._logs_of(position))
            )
            index = READERS[self._kind](self._fs, directory, open_store)
            if index is None:
                continue
            with closing(index):
                for item in index.locations.rows():
                    if isinstance(item, IndexDamage):
                        raise CorruptionError(
                            f"row {item.key_hex}: {item.reason}; {_REBUILD}", path=item.path
                        )
                    rows = self._wanted(rows_of(item))
                    if len(rows):
                        yield rows, self._placed(rows, position, directory)

    def _logs_of(self, position: int) -> list[LogFile]:
        of = self._logs.of
        return list(of[position].values()) if position < len(of) else []

    def _wanted(self, rows: Rows) -> Rows:
        kept = rows.select((rows.ledgers >= 0) & (rows.entries >= 0))
        kept = of_ledgers(kept, self._ledgers)
        self.left_out += len(rows) - len(kept)
        return kept

    def _placed(self, rows: Rows, position: int, directory: str) -> Column:
        homes = self._logs.positions(rows, position)
        if bool((homes < 0).any()):
            first = int(np.argmax(homes < 0))
            raise CorruptionError(
                f"ledger {int(rows.ledgers[first])} entry {int(rows.entries[first])}",
                expected=f"log {int(rows.locations[first]) >> _LOG_SHIFT:x}, which the index names",
                found=f"no such log; {_REBUILD}",
                path=directory,
            )
        return homes


def _refuse_lost(kind: StorageKind, directory: str, has_logs: bool) -> None:
    """Refuse a database of locations that was made in the place of one that was lost."""
    if not (kind.has_databases and has_logs):
        return
    store = open_store(join(directory, LOCATIONS))
    try:
        if store.never_written:
            raise RefusedError(f"{store.path}: nothing was ever written to it; {_REBUILD}")
    finally:
        store.close()
