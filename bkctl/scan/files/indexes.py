"""``index scan``, ``index ledgers`` and ``index get``: what the indexes of ledger directories say.

All of them take ``current`` directories that were found already, and read without a trace. Damage comes as
:class:`~bkctl.scan.index_rows.IndexDamage` among the rows. All raise CorruptionError or StorageError when an
index cannot be read any further, and NotFoundError when none of the directories has an index, so that a
wrong directory never reads as an empty one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bkctl.codec.explicit_lac import decode_explicit_lac
from bkctl.codec.ledger_data import encode_ledger_key
from bkctl.codec.location import ID_MAX
from bkctl.errors import CorruptionError, NotFoundError, StorageError, UsageError
from bkctl.scan.index import DirectoryIndex, open_index
from bkctl.scan.index_rows import IndexDamage, LedgerRow, reason_of
from bkctl.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class LocationRow:
    """The place of one entry: ``offset`` of the body in entry log ``log_id`` of the directory ``dir``."""

    dir: str
    ledger: int
    entry: int
    log_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class LedgerIndexRow:
    """The row that a bookie has of a ledger. ``explicit_lac`` is an entry id; ``key_bytes`` is 8 or 16."""

    dir: str
    ledger: int
    fenced: bool
    master_key: bytes = field(repr=False)
    explicit_lac: int | None
    limbo: bool
    key_bytes: int


def scan_index(
    fs: FileSystem,
    dirs: Sequence[str],
    *,
    ledger: int | None = None,
    entries: tuple[int, int] | None = None,
) -> Iterator[LocationRow | IndexDamage]:
    """Yield every location, directory by directory, in order of ledger and entry.

    ``entries`` is the first and the last entry id, inclusive. Raises UsageError for ids that do not exist.
    """
    _check_ids(ledger, *(entries or ()))
    return _scan(fs, dirs, ledger, entries)


def _scan(
    fs: FileSystem, dirs: Sequence[str], ledger: int | None, entries: tuple[int, int] | None
) -> Iterator[LocationRow | IndexDamage]:
    for index in _indexes(fs, dirs):
        directory = index.path
        for batch in index.locations.rows(ledger, entries):
            if isinstance(batch, IndexDamage):
                yield batch
                continue
            for row in zip(batch.ledgers, batch.entries, batch.log_ids, batch.offsets, strict=True):
                yield LocationRow(directory, *row)


def list_index_ledgers(
    fs: FileSystem, dirs: Sequence[str], *, every_row: bool = False
) -> Iterator[LedgerIndexRow | IndexDamage]:
    """Yield every ledger, directory by directory, in order of ledgers.

    One row for each ledger, the 8-byte one where Java's index rebuild left a second; both with
    ``every_row``. An explicit LAC that does not decode is damage, and None in its ledger's row.
    """
    for index in _indexes(fs, dirs):
        source = index.ledgers
        for row in source.rows() if every_row else source.merged():
            if isinstance(row, IndexDamage):
                yield row
                continue
            lac = None
            if row.data.explicit_lac:
                try:
                    lac = decode_explicit_lac(row.data.explicit_lac).lac
                except CorruptionError as error:
                    key = encode_ledger_key(row.ledger).hex()
                    yield IndexDamage(source.path, key, reason_of(error))
            yield _ledger_row(index.path, row, lac)


def _ledger_row(directory: str, row: LedgerRow, lac: int | None) -> LedgerIndexRow:
    data = row.data
    return LedgerIndexRow(
        directory, row.ledger, data.fenced, data.master_key, lac, bool(data.limbo), row.key_bytes
    )


def get_index_entry(fs: FileSystem, dirs: Sequence[str], ledger: int, entry: int) -> list[LocationRow]:
    """Return the places of an entry, one row for each directory whose index has it.

    Raises NotFoundError when every index could be read and none has it, UsageError for ids that do not
    exist, and the first CorruptionError or StorageError when an index failed and no other has the entry.
    """
    _check_ids(ledger, entry)
    rows: list[LocationRow] = []
    failure: CorruptionError | StorageError | None = None
    for index in _indexes(fs, dirs):
        try:
            found = index.locations.get(ledger, entry)
        except (CorruptionError, StorageError) as error:
            failure = failure or error
            continue
        if found is not None:
            rows.append(LocationRow(index.path, ledger, entry, found.log_id, found.offset))
    if rows:
        return rows
    if failure is not None:
        raise failure
    raise NotFoundError(
        f"ledger {ledger}, entry {entry}: not in the index of {', '.join(dirs)}; "
        f"'bkctl journal scan PATH --ledger {ledger}' shows an entry that is not flushed yet, "
        f"'bkctl ledger show {ledger}' names the bookies that should have it"
    )


def _indexes(fs: FileSystem, dirs: Sequence[str]) -> Iterator[DirectoryIndex]:
    """Yield the indexes of those directories that have one, each closed before the next is opened."""
    found = False
    for directory in dirs:
        index = open_index(fs, directory)
        if index is not None:
            found = True
            with index:
                yield index
    if not found:
        raise NotFoundError(f"{', '.join(dirs)}: no location or ledger index here")


def _check_ids(*ids: int | None) -> None:
    for number in ids:
        if number is not None and not 0 <= number <= ID_MAX:
            raise UsageError(f"{number}: ids are 0 to {ID_MAX}")
