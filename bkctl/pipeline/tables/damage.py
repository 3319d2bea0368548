"""Table ``damage``: ranges of entry logs, journals and indexes that cannot be read as what they should be.

Of a log that is not clean the table has what ``entrylog verify`` says, entries whose digest fails among it
(``reason`` ``digest``). An index row that does not decode has no offset in a database, and 0 bytes. A file
that cannot be opened at all is a row with the reason. Ranges of a journal that a power cut explains are no
damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bkctl.errors import BkctlError, CorruptionError, NotFoundError, StorageError, UsageError
from bkctl.pipeline.tables.arrow_columns import rows_batches
from bkctl.pipeline.tables.index import location_columns
from bkctl.pipeline.tables.ledger_source import known_digests
from bkctl.pipeline.tables.log_reader import LogReader, book_of
from bkctl.pipeline.tables.log_rows import LogRows
from bkctl.pipeline.tables.log_splits import plan_logs
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.places import index_directories, journal_files, log_files
from bkctl.pipeline.tables.schemas import DAMAGE
from bkctl.pipeline.tables.split import Split, SplitFile, packed
from bkctl.pipeline.tables.stretch_sums import LedgerBytes
from bkctl.pipeline.tables.table import known_columns
from bkctl.scan.damage import Damage
from bkctl.scan.directory import JournalFile, LogFile
from bkctl.scan.files.entrylogs import verify_logs
from bkctl.scan.files.indexes import list_index_ledgers
from bkctl.scan.files.journals import verify_journals
from bkctl.scan.index_rows import IndexDamage
from bkctl.vfs import FileSystem, PosixFileSystem

ENTRY_LOG = "entry_log"
JOURNAL = "journal"
INDEX = "index"


@dataclass(frozen=True, slots=True)
class _Found:
    """A damage's row without its file."""

    path: str
    offset: int | None
    bytes: int
    reason: str


class DamageTable:
    """One row for each damage; see the module. Option ``damage`` does not matter to it."""

    name = "damage"
    schema = DAMAGE

    def plan(self, paths: Sequence[str], options: TableOptions) -> list[Split]:
        return plan_everything(paths, options)

    def read(self, split: Split, columns: Sequence[str], options: TableOptions) -> Iterator[pa.RecordBatch]:
        names = known_columns(self, columns)
        rows = (row for file in split.files for row in damage_rows(file, split, options))
        for batch in rows_batches(DAMAGE, rows, options.batch_rows):
            yield batch.select(names)


def plan_everything(
    paths: Sequence[str], options: TableOptions, *, journals: TableOptions | None = None
) -> list[Split]:
    """Return tasks over whole entry logs, journals (under options of their own, if given) and indexes.

    The ``kind`` of a task is one of these three. Each path gives tasks of the kinds that it holds. Raises
    what planning the logs raises when a path holds nothing of any kind.
    """
    filesystem = PosixFileSystem()
    held: dict[str, list[str]] = {ENTRY_LOG: [], JOURNAL: [], INDEX: []}
    for path in paths:
        for kind in _kinds_in(filesystem, path, options):
            held[kind].append(path)
    splits = []
    if held[ENTRY_LOG]:
        splits += _tagged(plan_logs(held[ENTRY_LOG], options, pieces=False), ENTRY_LOG)
    if held[JOURNAL]:
        splits += _journal_splits(filesystem, held[JOURNAL], journals or options)
    files = index_directories(filesystem, held[INDEX], options)
    return splits + [Split((file,), kind=INDEX) for file in files]


def _kinds_in(filesystem: FileSystem, path: str, options: TableOptions) -> list[str]:
    """Return the kinds of files that a path has. Raises the first refusal where it has none."""
    kinds: list[str] = []
    refusals: list[BkctlError] = []
    listings: dict[str, Callable[[FileSystem, Sequence[str], TableOptions], list[SplitFile]]] = {
        ENTRY_LOG: log_files,
        JOURNAL: journal_files,
        INDEX: index_directories,
    }
    for kind, listing in listings.items():
        try:
            listing(filesystem, [path], options)
            kinds.append(kind)
        except (UsageError, NotFoundError) as error:
            refusals.append(error)
    if not kinds:
        raise refusals[0]
    return kinds


def _tagged(splits: list[Split], kind: str) -> list[Split]:
    return [replace(split, kind=kind) for split in splits]


def _journal_splits(filesystem: FileSystem, paths: Sequence[str], options: TableOptions) -> list[Split]:
    files = journal_files(filesystem, paths, options)
    known = known_digests(filesystem, options)
    return [Split(group, known, kind=JOURNAL) for group in packed(files, options.split_bytes, options.cores)]


def damage_rows(
    file: SplitFile, split: Split, options: TableOptions, *, known_unclean: bool = False
) -> Iterator[tuple[object, ...]]:
    """Yield the rows of one file. ``known_unclean``: it is a log that was read already, and not clean."""
    filesystem = PosixFileSystem()
    found: Iterator[_Found]
    if split.kind == ENTRY_LOG:
        found = _of_log(filesystem, file, split, options, known_unclean)
    elif split.kind == JOURNAL:
        found = _of_journal(filesystem, file, split, options)
    else:
        found = _of_index(filesystem, file, options)
    number = None if split.kind == INDEX else file.id
    try:
        for item in found:
            yield (
                file.bookie, file.dir, item.path, split.kind, number, item.offset, item.bytes, item.reason,
            )  # fmt: skip
    except (NotFoundError, StorageError, CorruptionError) as error:
        if isinstance(error, NotFoundError) and split.kind != INDEX:
            return  # a running bookie removed it since it was listed; its index it never removes
        if isinstance(error, StorageError) and error.is_denied:
            raise
        yield unread_row(file, split.kind, error)


def unread_row(file: SplitFile, kind: str, error: BkctlError | str) -> tuple[object, ...]:
    """Return the row of a file that cannot be read, or not to its end, and why."""
    number = None if kind == INDEX else file.id
    return file.bookie, file.dir, file.path, kind, number, 0, file.bytes, str(error)


def _of_log(
    filesystem: FileSystem, file: SplitFile, split: Split, options: TableOptions, known_unclean: bool
) -> Iterator[_Found]:
    if not known_unclean and _is_clean(filesystem, file, split, options):
        return
    log = LogFile(file.path, file.id, file.bytes)
    for verdict in verify_logs(filesystem, [log], book_of(split.known, options)):
        yield from map(_found, verdict.damage)


def _is_clean(filesystem: FileSystem, file: SplitFile, split: Split, options: TableOptions) -> bool:
    """Return whether the fast reader finds nothing: no damage, no failing digest, no map that disagrees."""
    judge = LogJudge()
    with LogReader(filesystem, file, split.known, everything_of(options)) as reader:
        for rows in judge.windows(reader):
            if not (judge.clean and rows.results.all()):
                return False
        return judge.is_clean(reader)


def everything_of(options: TableOptions) -> TableOptions:
    """Return the options under which a whole log is delivered, with its damage."""
    return replace(options, ledgers=(), entries=(), damage="rows")


class LogJudge:
    """Finds, while somebody reads a whole log, whether anything is wrong with its structure."""

    def __init__(self) -> None:
        self.clean = True
        self._bytes = LedgerBytes()

    def windows(self, reader: LogReader) -> Iterator[LogRows]:
        """Yield the reader's windows; ``clean`` is False from the first damage on."""
        for item in reader.items():
            if isinstance(item, Damage):
                self.clean = False
                continue
            self._bytes.add(item.ledgers, item.sizes)
            yield item

    def totals(self) -> dict[int, int]:
        """Return the bytes of the records so far by ledger, size words included."""
        return self._bytes.totals()

    def is_clean(self, reader: LogReader) -> bool:
        """Return at the end whether there is no damage and the ledgers map agrees with what is there."""
        rolled = reader.head.ledgers_map
        torn = reader.tail is not None and reader.tail.kind == "torn"
        return self.clean and (rolled is None or (rolled == self.totals() and not torn))


def _of_journal(
    filesystem: FileSystem, file: SplitFile, split: Split, options: TableOptions
) -> Iterator[_Found]:
    journal = JournalFile(file.path, file.id, file.bytes)
    for verdict in verify_journals(filesystem, [journal], book_of(split.known, options)):
        yield from (_found(damage) for damage in verdict.damage if not damage.unsynced)


def _of_index(filesystem: FileSystem, file: SplitFile, options: TableOptions) -> Iterator[_Found]:
    for item in location_columns(file, everything_of(options)):
        if isinstance(item, IndexDamage):
            yield _row_damage(item)
    for row in list_index_ledgers(filesystem, [file.path]):
        if isinstance(row, IndexDamage):
            yield _row_damage(row)


def _found(damage: Damage) -> _Found:
    text = damage.reason
    if damage.expected:
        text += f": expected {damage.expected}, found {damage.found}"
    return _Found(damage.path, damage.offset, damage.size_bytes, text)


def _row_damage(damage: IndexDamage) -> _Found:
    text = f"row {damage.key_hex}: {damage.reason}" if damage.key_hex else damage.reason
    return _Found(damage.path, damage.offset, 0, text)


def index_damage_row(damage: IndexDamage) -> tuple[object, ...]:
    """Return the row of an index's damage, from its path on."""
    found = _row_damage(damage)
    return found.path, INDEX, None, found.offset, found.bytes, found.reason
