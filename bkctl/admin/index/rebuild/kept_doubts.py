"""The doubts that a rebuild could not settle, kept beside its index until a later one does.

They are read by :mod:`bkctl.scan.kept_doubts`. An index over several directories has them in each: whatever
becomes of one, or of their order, and whichever storage they are converted to, they are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from posixpath import join

from bkctl.admin.index.rebuild.options import RebuildRecord
from bkctl.scan.directory import NOT_PROVED_NAME
from bkctl.scan.kept_doubts import encode_doubts
from bkctl.vfs.base import WritableFileSystem

#: Why an index is not believed that can be read.
MADE_IN_DOUBT = "the index is the work of a rebuild that could not prove it"


def keep_doubts(
    filesystem: WritableFileSystem,
    record: RebuildRecord,
    index_dirs: Iterable[str],
    doubts: Sequence[str],
    *,
    rows_unproved: bool,
) -> None:
    """Keep the doubts durably, in the place of those that are kept. Raises RefusedError, StorageError.

    ``rows_unproved``: ledgers may have lost their rows together with their logs.
    """
    for directory in index_dirs:
        path = join(directory, NOT_PROVED_NAME)
        record.announce_file(path)
        filesystem.replace(path, encode_doubts(doubts, rows_unproved=rows_unproved))


def forget_doubts(filesystem: WritableFileSystem, record: RebuildRecord, index_dirs: Iterable[str]) -> None:
    """Remove what is kept, if there is anything: it is proved that the logs have every entry.

    Raises RefusedError, StorageError.
    """
    for directory in index_dirs:
        path = join(directory, NOT_PROVED_NAME)
        if filesystem.status(path) is not None:
            record.announce_file(path)
            filesystem.remove(path)
            filesystem.sync_directory(directory)
