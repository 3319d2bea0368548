"""A bookie's directories before and while it runs: cookies, locks, the mark DIRTY.

Order at the start: :func:`examine` (writes nothing), :func:`bkctl.directories.cookie_rules.decide`,
:func:`make_current` and :class:`DirectoryLocks`, :func:`examine` and ``decide`` again under the locks,
:func:`stamp`, storage and replay, :func:`mark_dirty` right before the network. At the end, after the last
flush, :func:`clear_dirty`.

Source: ``BookieImpl.checkDirectoryStructure``, ``LegacyCookieValidation``, ``UncleanShutdownDetectionImpl``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from posixpath import join
from types import TracebackType

from bkctl.codec.cookie import encode_cookie
from bkctl.config.server_keys.journal import DirectorySettings
from bkctl.directories.bookie_directories import every_directory, examine, refuse_old_layout
from bkctl.directories.cookie_rules import CookieDecision
from bkctl.directories.holders import DirectoryLock
from bkctl.directories.stored_cookies import read_stored
from bkctl.errors import NotFoundError, RefusedError
from bkctl.kvstore.planted import refuse_planted_link
from bkctl.metadata.api import AlreadyExistsError, CookieStore, VersionConflictError
from bkctl.scan.directory import COOKIE_NAME, DIRTY_NAME, current
from bkctl.vfs import FileSystem
from bkctl.vfs.base import WritableFileSystem

__all__ = [
    "DirectoryLocks",
    "clear_dirty",
    "every_directory",
    "examine",
    "make_current",
    "mark_dirty",
    "read_stored",
    "refuse_planted_links",
    "refuse_shared_partitions",
    "stamp",
    "was_unclean",
]


def refuse_planted_links(directories: DirectorySettings) -> None:
    """Raise RefusedError for a directory to which a link leads whose owner does not own the directory."""
    for directory in every_directory(directories):
        refuse_planted_link(current(directory))


def make_current(filesystem: WritableFileSystem, directories: DirectorySettings) -> None:
    """Make the missing ``current`` directories, durably.

    Raises RefusedError as :func:`examine`, StorageError.
    """
    for directory in every_directory(directories):
        path = current(directory)
        if filesystem.status(path) is None:
            refuse_old_layout(filesystem, directory)
            filesystem.make_directories(path)


def refuse_shared_partitions(filesystem: WritableFileSystem, directories: DirectorySettings) -> None:
    """Refuse two directories of one kind on one file system.

    This is ``allowMultipleDirsUnderSameDiskPartition=false``. The ``current`` directories exist. Raises
    RefusedError, StorageError.
    """
    if directories.allow_same_partition:
        return
    for key, paths in (
        ("journalDirectories", directories.journals),
        ("ledgerDirectories", directories.ledgers),
        ("indexDirectories", directories.indexes),
    ):
        first: dict[int, str] = {}
        for path in paths:
            device = filesystem.disk_space(current(path)).device
            if device in first:
                raise RefusedError(
                    f"{key}: {first[device]} and {path} are on the same file system. Put them on different "
                    "ones, or allow this with allowMultipleDirsUnderSameDiskPartition=true"
                )
            first[device] = path


def stamp(filesystem: WritableFileSystem, cookies: CookieStore, decision: CookieDecision) -> None:
    """Write the decided cookies: directories first, each durable before the next, then the store.

    A stop at any point leaves a state from which the next start comes to the same end. Raises RefusedError
    when another process has stored a cookie since the decision, StorageError, and the store's errors.
    """
    content = encode_cookie(decision.cookie)
    for directory in decision.stamp_directories:
        # Atomic and durable: a half-written VERSION would keep the bookie from starting.
        filesystem.replace(join(current(directory), COOKIE_NAME), content)
    if not decision.stamp_store:
        return
    bookie = decision.cookie.bookie_host
    try:
        if decision.store_version is None:
            cookies.create_cookie(bookie, content)
        else:
            cookies.update_cookie(bookie, content, decision.store_version)
    except (AlreadyExistsError, VersionConflictError, NotFoundError) as error:
        raise RefusedError(
            f"another process has changed the cookie of bookie {bookie} in the metadata store. Check "
            "whether a bookie with the same id runs elsewhere, then start again"
        ) from error


class DirectoryLocks:
    """Keeps every other process off the bookie's directories while it runs; a context manager.

    It is the lock of bkctl's writing commands (:class:`bkctl.directories.holders.DirectoryLock`, flock(2)
    on the ``current`` directories), so that these refuse while the bookie runs and it does not start while
    they do. Nothing is left on disk and the lock ends with the process. A running Java bookie, which takes no
    such lock, is seen by its databases' LOCK and its open files. Bookies of one process exclude each other.

    Entering raises RefusedError naming the process, NotFoundError when a ``current`` is missing.
    """

    def __init__(self, directories: Sequence[str]) -> None:
        # One lock for each place: a second one on the same would exclude the first.
        for directory in directories:
            refuse_planted_link(current(directory))
        places = {os.path.realpath(current(directory)): None for directory in directories}
        self._lock = DirectoryLock(*places)

    def __enter__(self) -> DirectoryLocks:
        self._lock.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.__exit__(kind, error, trace)


def was_unclean(filesystem: FileSystem, ledger_directories: Iterable[str]) -> bool:
    """Return whether the last bookie here ended without :func:`clear_dirty`."""
    return any(
        filesystem.status(join(current(directory), DIRTY_NAME)) is not None
        for directory in ledger_directories
    )


def mark_dirty(filesystem: WritableFileSystem, ledger_directories: Iterable[str]) -> None:
    """Put an empty DIRTY into every ledger directory. Raises StorageError."""
    for directory in ledger_directories:
        path = current(directory)
        if filesystem.status(join(path, DIRTY_NAME)) is None:
            filesystem.create(join(path, DIRTY_NAME)).close()
            # The mark is there after a power cut as well, before the first client is.
            filesystem.sync_directory(path)


def clear_dirty(filesystem: WritableFileSystem, ledger_directories: Iterable[str]) -> None:
    """Remove the marks, after everything was flushed. Raises StorageError."""
    for directory in ledger_directories:
        path = current(directory)
        with suppress(NotFoundError):
            filesystem.remove(join(path, DIRTY_NAME))
        # Without this a power cut would bring the mark back: a false alarm, not a loss.
        filesystem.sync_directory(path)
