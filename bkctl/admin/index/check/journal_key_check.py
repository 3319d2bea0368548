"""Find master keys in the journals that are damaged, or that nearly match the row of their ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bkctl.admin.index.check.finding import Finding, Kind
from bkctl.admin.index.check.journaled_keys import JournaledKey, WrongKey, journaled_keys, wrong_keys
from bkctl.admin.index.check.master_keys import MetadataOf
from bkctl.codec.last_mark import ZERO_MARK
from bkctl.directories.index_spaces import IndexSpace
from bkctl.scan.directory import last_mark_of
from bkctl.scan.index import DirectoryIndex
from bkctl.vfs import FileSystem


def check_journal_keys(
    fs: FileSystem, space: IndexSpace, indexes: Sequence[DirectoryIndex], metadata_of: MetadataOf | None
) -> Iterator[Finding]:
    """Yield findings about the key records that the next start replays, of the ledgers of a space.

    Raises CorruptionError when the rows cannot be read, StorageError, and BkctlError as the metadata do.
    """
    for directory in space.journal_dirs:
        mark = last_mark_of(fs, directory, space.mark_dirs) or ZERO_MARK
        keys = [key for key in journaled_keys(fs, directory, mark) if not space.is_elsewhere(key.ledger)]
        rows = dict(_rows(indexes, keys))
        for wrong in wrong_keys(keys, rows, metadata_of):
            yield _finding(directory.path, wrong)


def _rows(indexes: Sequence[DirectoryIndex], keys: Sequence[JournaledKey]) -> Iterator[tuple[int, bytes]]:
    for ledger in {key.ledger for key in keys}:
        for index in indexes:
            row = index.ledgers.get(ledger)
            if row is not None:
                yield ledger, row.data.master_key
                break


def _finding(directory: str, wrong: WrongKey) -> Finding:
    found = wrong.found
    where = f"{found.path}: the master key at offset {found.offset}"
    if wrong.right is not None:
        kind = Kind.DAMAGED_JOURNAL_KEY
        detail = (
            f"{where} has some bytes that were changed: the next start is refused, or takes a key that no "
            "client brings (bkctl journal salvage writes that of the metadata into its copy)"
        )
    else:
        kind = Kind.DOUBTFUL_MASTER_KEY
        detail = (
            f"{where} is not the one in the ledger index, but nearly: one of the two is damaged, and the "
            "next start is refused"
        )
    return Finding(kind, directory, found.ledger, None, None, found.offset, detail, found.journal_id)
