"""Ledgers that may have lost their rows with their logs, behind an index rebuild that could not prove all.

Such a rebuild leaves an index that reads well: nothing in it says that a ledger without a row was lost, and
not deleted. Only the cluster knows. The next start asks it, once, and each ledger that it places here and
that has no row gets one, fenced and in limbo. Where the cluster does not answer, the start ends and can be
tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import join

from bkctl.scan.directory import NOT_PROVED_NAME
from bkctl.scan.kept_doubts import are_rows_unproved, encode_doubts, kept_doubts
from bkctl.vfs import FileSystem, WritableFileSystem


def unproved_indexes(filesystem: FileSystem, indexes: Sequence[str]) -> list[int]:
    """Return the numbers of the index directories whose rows are not proved. Raises StorageError."""
    return [number for number, path in enumerate(indexes) if are_rows_unproved(filesystem, path)]


def note_rows_asked(filesystem: WritableFileSystem, index: str) -> None:
    """Note durably that every ledger which may have lost its row has one. The doubts of the logs are kept.

    Raises StorageError.
    """
    doubts = kept_doubts(filesystem, [index])
    filesystem.replace(join(index, NOT_PROVED_NAME), encode_doubts(doubts, rows_unproved=False))
