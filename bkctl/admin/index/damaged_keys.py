"""Master keys of ledger rows of which some bytes were changed, and the keys that the metadata prove.

Only a key that is nearly that of the metadata is replaced: one that differs altogether may be that of an
earlier ledger of the same id, and so may be the entries. In an ``.idx`` file the key stands within the first
sector, and its 20 bytes are written over the old ones, which a disk does as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from bkctl.admin.index.check.master_keys import is_damaged_key, other_keys
from bkctl.admin.ledgers.grouped_metadata import LEDGERS_AT_ONCE
from bkctl.admin.ledgers.known_ledgers import KnownLedgers
from bkctl.codec.file_info import KEY_AT
from bkctl.codec.ledger_data import LedgerData
from bkctl.scan.idx_tree import IdxTree
from bkctl.scan.index_rows import IndexDamage, LedgerRow
from bkctl.vfs.base import FileSystem, WritableFileSystem


def damaged_keys(
    rows: Iterable[LedgerRow | IndexDamage], known: KnownLedgers | None
) -> Iterator[tuple[LedgerRow, bytes]]:
    """Yield the rows with a damaged key, each with the right key. Raises BkctlError as the metadata do."""
    if known is None or not known.cluster.is_asked:
        return
    held: list[LedgerRow] = []
    for row in rows:
        if isinstance(row, LedgerRow):
            held.append(row)
        if len(held) >= LEDGERS_AT_ONCE:
            yield from _damaged(held, known)
            held.clear()
    yield from _damaged(held, known)


def right_keys(rows: Mapping[int, LedgerData], known: KnownLedgers) -> dict[int, bytes]:
    """Return the metadata's key of each ledger whose row has a damaged one. Raises BkctlError as they do."""
    read = (LedgerRow(ledger, data) for ledger, data in rows.items())
    return {row.ledger: right for row, right in damaged_keys(read, known)}


def _damaged(rows: list[LedgerRow], known: KnownLedgers) -> Iterator[tuple[LedgerRow, bytes]]:
    for row, right in other_keys(rows, known.cluster.metadata_of):
        if is_damaged_key(row.data.master_key, right):
            yield row, right


def damaged_headers(
    fs: FileSystem, current_dir: str, known: KnownLedgers | None
) -> Iterator[tuple[int, str, bytes]]:
    """Yield ledger, path and right key of ``.idx`` files whose key is damaged."""
    tree = IdxTree(fs, current_dir)
    _, files = tree.files()
    for row, right in damaged_keys(tree.ledger_rows(), known):
        if len(row.data.master_key) == len(right):
            yield row.ledger, files[row.ledger], right


def write_key(fs: WritableFileSystem, path: str, key: bytes) -> None:
    """Write the master key of an ``.idx`` file over one of the same length, durably. Raises StorageError."""
    with closing(fs.open_to_write(path)) as file:
        file.write_at(KEY_AT, key)
        file.sync()
