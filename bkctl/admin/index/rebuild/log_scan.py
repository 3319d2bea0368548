"""Reading one entry log into runs of location rows, with its damage judged as ``entrylog verify`` does.

A clean log is read once (``log_columns``): the chain of records is whole up to the last byte, it agrees with
the ledgers map, and every digest whose type is known checks. At the first thing that is otherwise the log is
read again, slowly, by the reader that knows damage; entries whose digest fails are never taken over.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from bkctl.admin.index.rebuild.log_task import FoundInLog, LogTask
from bkctl.admin.index.rebuild.state import LogManifest, WorkDirectory, identity_of
from bkctl.admin.index.rows.location_runs import Rows, RunWriter
from bkctl.codec.digest import Digester
from bkctl.codec.entry import EntryBatch
from bkctl.errors import RefusedError
from bkctl.reporting import Advance
from bkctl.scan.columns.log_columns import NotCleanError, RecordColumns, clean_columns
from bkctl.scan.columns.stretches import stretches
from bkctl.scan.digest_book import STRANGER_ENTRIES_MAX, DigestBook
from bkctl.scan.entrylog import read_head
from bkctl.scan.steady_file import SteadyFile
from bkctl.types import DigestType
from bkctl.vfs import PosixFileSystem

_I64 = struct.Struct(">q")
#: Entries of a ledger that wait for its digest type; three that check settle it.
_WAITING_ENTRIES_MAX = 16


def scan_log(task: LogTask, advance: Advance) -> tuple[int, LogManifest | None]:
    """Get the id and the manifest of a log: of an earlier run when it still holds, else of runs written now.

    There is none for a log that is not clean, which :func:`scan_damaged` reads. Raises StorageError, and
    RefusedError when the log changes while it is read.
    """
    known = None if task.again else WorkDirectory(task.work_directory).manifest(task.log, task.mode)
    if known is not None:
        advance(known.size_bytes)
        return task.log.log_id, known
    try:
        return task.log.log_id, _scanned(task, _read_clean, advance)
    except NotCleanError:
        return task.log.log_id, None


def scan_damaged(task: LogTask, advance: Advance) -> LogManifest:
    """Get the manifest of a log that is not clean. Raises as :func:`scan_log`."""
    # Here, because few logs need it and every process would load it.
    from bkctl.admin.index.rebuild.damaged_log import read_slowly

    return _scanned(task, read_slowly, advance)


def _scanned(
    task: LogTask, read: Callable[[LogTask, RunWriter, Advance], FoundInLog], advance: Advance
) -> LogManifest:
    """Read a log into runs, and keep its manifest. Raises what ``read`` raises, and RefusedError."""
    work, log_id = WorkDirectory(task.work_directory), task.log.log_id
    identity = identity_of(task.log.path)
    writer = RunWriter(lambda number: work.run_path(log_id, number), task.rows_max)
    found = read(task, writer, advance)
    manifest = LogManifest(
        log_id,
        *(identity or (0, 0)),
        task.mode,
        found.entries,
        found.unchecked,
        tuple(sorted(found.ledgers)),
        tuple(writer.close()),
        found.damage,
        found.lost,
        missing=found.missing,
        learnt=tuple(sorted((ledger, digester.type.value) for ledger, digester in found.digesters.items())),
        unsettled=_unsettled(found) if task.mode != "off" else (),
        cut=found.cut,
        doubts=found.doubts,
    )
    if identity is None or identity_of(task.log.path) != identity:
        raise RefusedError(
            f"{task.log.path}: changed while it was read. Stop the process that writes there, and try again"
        )
    work.keep(manifest)
    return manifest


def _unsettled(found: FoundInLog) -> tuple[int, ...]:
    """Return the ledgers whose entries could not be checked: of unknown digest, or of MACs without a key."""
    known = found.digesters
    checked = {ledger for ledger, one in known.items() if one.key or one.type is not DigestType.MAC}
    return tuple(sorted(found.ledgers - checked))


def _read_clean(task: LogTask, writer: RunWriter, advance: Advance) -> FoundInLog:
    file = SteadyFile(PosixFileSystem().open(task.log.path))
    try:
        head = read_head(file)
        checks = _Checks(task.book(), head.ledgers_map)
        found = FoundInLog()
        done = 0
        for columns in clean_columns(file, head):
            checks.window(columns)
            found.entries += len(columns)
            writer.add(Rows(columns.ledgers, columns.entries, columns.locations(task.log.log_id)))
            advance(columns.base - done)
            done = columns.base
        checks.end()
        advance(file.size_bytes - done)
        found.ledgers = checks.ledgers
        found.unchecked = checks.unchecked
        found.digesters = checks.digesters
        return found
    finally:
        file.close()


class _Checks:
    """Digests and the ledgers map of a log that seems clean. All methods raise NotCleanError.

    The digest type of a ledger is learnt from its first entries, which wait in a copy until it is.
    """

    def __init__(self, book: DigestBook, ledgers_map: Mapping[int, int] | None) -> None:
        self._book = book
        self._map = ledgers_map
        self._bytes: dict[int, int] = {}
        self.digesters: dict[int, Digester] = {}
        self._waiting: dict[int, list[bytes]] = {}
        self._counts: Counter[int] = Counter()
        self.ledgers: set[int] = set()
        self.unchecked = 0

    def window(self, columns: RecordColumns) -> None:
        """Check what can be checked now."""
        parts = _by_ledger(columns)
        ledgers: list[int] = parts.ledgers
        self.ledgers.update(ledgers)
        if self._map is not None:
            for ledger, total in zip(ledgers, parts.sums(columns.sizes + 4), strict=True):
                self._bytes[ledger] = self._bytes.get(ledger, 0) + total
        if not self._book.enabled:
            self.unchecked += len(columns)
            return
        strange = [ledger for ledger in ledgers if ledger not in self.digesters]
        if strange:
            self._learn(columns, parts, strange)
        by_digester: dict[Digester, list[int]] = {}
        for number, ledger in enumerate(ledgers):
            digester = self.digesters.get(ledger)
            if digester is not None:
                by_digester.setdefault(digester, []).append(number)
        for digester, numbers in by_digester.items():
            if digester.type is DigestType.MAC and not digester.key:
                self.unchecked += int(sum(parts.counts[number] for number in numbers))
                continue
            starts, sizes = columns.starts, columns.sizes
            if len(numbers) < len(ledgers):
                chosen = parts.indices(numbers)
                starts, sizes = starts[chosen], sizes[chosen]
            if digester.failing_columns(columns.buffer, starts.tobytes(), sizes.tobytes()):
                raise NotCleanError

    def _learn(self, columns: RecordColumns, parts: _Parts, strange: list[int]) -> None:
        """Settle ledgers; the entries of those that are not settled yet wait."""
        for ledger in strange:
            number = parts.ledgers.index(ledger)
            chosen = parts.indices([number])
            tried = chosen[:_WAITING_ENTRIES_MAX]
            places = zip(columns.starts[tried].tolist(), columns.sizes[tried].tolist(), strict=True)
            records = [columns.buffer[start : start + 4 + size] for start, size in places]
            self._book.survey(_batch_of(records))
            digester = self._book.digester(ledger)
            if digester is None:
                self._counts[ledger] += len(chosen)
                waiting = self._waiting.setdefault(ledger, [])
                waiting += records[: _WAITING_ENTRIES_MAX - len(waiting)]
            else:
                self.digesters[ledger] = digester
                self._settle(ledger, digester)

    def _settle(self, ledger: int, digester: Digester) -> None:
        """Check the entries that waited; there may be more than were kept, which only the slow way finds."""
        records = self._waiting.pop(ledger, [])
        if self._counts.pop(ledger, 0) > len(records):
            raise NotCleanError
        batch = _batch_of(records)
        if digester.failing(batch.buffer, batch.starts, batch.sizes):
            raise NotCleanError

    def end(self) -> None:
        """Settle the remaining ledgers.

        Ledgers with few entries that do not settle need the second scan, as their ids may be damaged; so does
        a log that its map disagrees with.
        """
        self._book.close_survey()
        for ledger in list(self._waiting):
            digester = self._book.digester(ledger)
            if digester is not None:
                self.digesters[ledger] = digester
                self._settle(ledger, digester)
            elif self._counts[ledger] <= STRANGER_ENTRIES_MAX:
                raise NotCleanError
        self.unchecked += self._counts.total()
        if self._map is not None and self._map != self._bytes:
            raise NotCleanError


@dataclass(frozen=True, slots=True)
class _Parts:
    """The entries of a window by ledger: ``counts`` of each of ``ledgers``; ``which`` is an entry's."""

    ledgers: list[int]
    counts: list[int]
    which: NDArray[np.intp]

    def sums(self, values: NDArray[np.int64]) -> list[int]:
        """Sum ``values`` for each ledger; the sums are exact below 2^53."""
        if len(self.ledgers) == 1:
            return [int(values.sum())]
        return [int(total) for total in np.bincount(self.which, values, len(self.ledgers)).tolist()]

    def indices(self, numbers: list[int]) -> NDArray[np.intp]:
        """Find the entries of the ledgers at ``numbers``."""
        wanted = np.zeros(len(self.ledgers), np.bool_)
        wanted[numbers] = True
        return np.flatnonzero(wanted[self.which])


def _by_ledger(columns: RecordColumns) -> _Parts:
    """Group entries by ledger: they mostly stand in runs of one ledger, so the runs are what is sorted."""
    firsts, lengths = stretches(columns.ledgers)
    present, which_run = np.unique(columns.ledgers[firsts], return_inverse=True)
    counts = np.bincount(which_run, lengths, len(present))
    return _Parts(present.tolist(), [int(c) for c in counts.tolist()], np.repeat(which_run, lengths))


def _batch_of(records: list[bytes]) -> EntryBatch:
    """Make a batch of its own of whole records, size words included."""
    buffer = b"".join(records)
    starts = list(accumulate((len(record) for record in records[:-1]), initial=0)) if records else []
    sizes = [len(record) - 4 for record in records]
    ledgers = [_I64.unpack_from(buffer, start + 4)[0] for start in starts]
    entries = [_I64.unpack_from(buffer, start + 12)[0] for start in starts]
    return EntryBatch(buffer, 0, starts, sizes, ledgers, entries)
