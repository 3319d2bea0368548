"""Putting a verified database in the place of the old one, so that a kill leaves one of the two there.

The old and the new directory change names in one step (``renameat2`` with ``RENAME_EXCHANGE``): at every
moment a complete database has the name that a bookie opens. Then the old one, which now has the new one's
name in the work directory, gets its backup name.

A rerun finds out how far the swap came by ``swap.json``, written before the exchange: it has the backup's
name, and RocksDB's own IDENTITY of the new database. If that database is in place, only the rest is left to
do.

A file system without the exchange (``EINVAL``; NFS, some overlays) gets two renames: old to backup, new into
place. A kill between the two leaves no database under the name; the rerun finds both and goes on.
"""

from __future__ import annotations

import ctypes
import errno
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bkctl.admin.index.rebuild.state import (
    DROPPING,
    SWAP_MARKER,
    WorkDirectory,
    read_json,
    remove_tree,
    sync_directory,
    sync_file,
    write_json,
)
from bkctl.errors import NotFoundError, RefusedError, StorageError, as_storage_errors, storage_error
from bkctl.scan.directory import REBUILD_SUFFIX
from bkctl.vfs.presence import is_there
from bkctl.vfs.small_file import read_small_file

BACKUP = ".BACKUP-"
_STAMP = "%Y%m%dT%H%M%S.%fZ"
_DATABASE = "database"
_IDENTITY_BYTES_MAX = 4096
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


@dataclass(frozen=True, slots=True)
class Swap:
    """The database ``name`` in ``current`` is replaced by ``database`` in ``work``."""

    current: str
    name: str
    work: WorkDirectory

    @property
    def live(self) -> str:
        """The path that a bookie opens."""
        return os.path.join(self.current, self.name)

    @property
    def fresh(self) -> str:
        """The path at which the new database is built; after the exchange the old one stands there."""
        return self.work.at(_DATABASE)

    @property
    def proved(self) -> str:
        """The path of the database that the marker is about."""
        marker = read_json(self.work.at(SWAP_MARKER))
        in_place = marker is not None and _identity(self.live) == marker["identity"]
        return self.live if in_place else self.fresh

    @property
    def backup(self) -> str:
        """The path that the old database gets. Raises StorageError where no new one was announced."""
        marker = read_json(self.work.at(SWAP_MARKER))
        if marker is None:
            raise StorageError(f"{self.work.path}: no verified database in it", path=self.work.path)
        return os.path.join(self.current, marker["backup"])


def backup_stamp() -> str:
    """Format the UTC time for the name of a backup, without the colons of Java's, so that the two differ."""
    return datetime.now(UTC).strftime(_STAMP)


def has_marker(work_path: str) -> bool:
    """Return whether a work folder may have a verified index in it, or had one that is in place."""
    return is_there(os.path.join(work_path, SWAP_MARKER))


def earlier_result(swap: Swap, fingerprint: str, *, only_in_place: bool = False) -> dict[str, Any] | None:
    """Return an earlier run's result, if its new database is in place, or verified and still fits.

    ``fingerprint`` stands for the inputs and options of the build; a marker with another one is removed. With
    ``only_in_place`` a database that waits for its swap does not count. Raises StorageError.
    """
    marker = read_json(swap.work.at(SWAP_MARKER))
    if marker is None:
        return None
    places = [swap.live] if only_in_place else [swap.live, swap.fresh]
    here = marker["identity"] in map(_identity, places)
    if marker["fingerprint"] == fingerprint and here:
        result: dict[str, Any] = marker["result"]
        return result
    # The result is not used, but the swap is finished: the old database must get its name.
    finish_exchange(swap)
    swap.work.forget_swap()
    return None


def announce(swap: Swap, stamp: str, fingerprint: str, result: dict[str, Any]) -> None:
    """Note that the new database is verified; from now on a rerun only has to swap. Raises StorageError.

    ``result`` is what the verb says in the end, so that a rerun can say it as well.
    """
    identity = _identity(swap.fresh)
    if identity is None:
        raise StorageError(f"{swap.fresh}: the new database has no IDENTITY", path=swap.fresh)
    _sync_tree(swap.fresh)
    name = f"{swap.name}{BACKUP}{stamp}"
    if is_there(os.path.join(swap.current, name)):
        raise RefusedError(f"{os.path.join(swap.current, name)}: is there already; run the command again")
    marker = {"backup": name, "identity": identity, "fingerprint": fingerprint, "result": result}
    write_json(swap.work.at(SWAP_MARKER), marker)
    # The work directory's own name must be as durable as the marker in it.
    sync_directory(swap.current)


def is_between(swap: Swap) -> bool:
    """Return whether a kill came between the two renames that stand for an exchange. Raises StorageError."""
    marker = read_json(swap.work.at(SWAP_MARKER))
    return marker is not None and _is_between(swap, marker)


def _is_between(swap: Swap, marker: dict[str, Any]) -> bool:
    if is_there(swap.live):
        return False
    return is_there(os.path.join(swap.current, marker["backup"])) and is_there(swap.fresh)


def finish_exchange(swap: Swap) -> None:
    """Go on where a kill stopped an exchange; one that had not begun is left alone. Raises StorageError."""
    marker = read_json(swap.work.at(SWAP_MARKER))
    if marker is not None and (_is_between(swap, marker) or _identity(swap.live) == marker["identity"]):
        _exchange(swap, marker)


def exchange(swap: Swap) -> str | None:
    """Swap what was announced, or what is left of it.

    Returns the path of the backup, None when nothing was replaced.

    May be called again. Raises StorageError; the old or the new database is in place then.
    """
    marker = read_json(swap.work.at(SWAP_MARKER))
    if marker is None:
        raise StorageError(f"{swap.work.path}: no verified database in it", path=swap.work.path)
    return _exchange(swap, marker)


def _exchange(swap: Swap, marker: dict[str, Any]) -> str | None:
    backup = os.path.join(swap.current, marker["backup"])
    if _identity(swap.live) != marker["identity"]:
        _put_in_place(swap, backup)
    if is_there(swap.fresh):
        # Exchanged: the old database stands in the work directory.
        try:
            os.rename(swap.fresh, backup)
        except OSError as error:
            raise storage_error(error, backup) from error
        sync_directory(swap.work.path)
        sync_directory(swap.current)
    return backup if is_there(backup) else None


def _put_in_place(swap: Swap, backup: str) -> None:
    try:
        if not is_there(swap.live):
            os.rename(swap.fresh, swap.live)
        elif not _exchange_names(swap.fresh, swap.live):
            os.rename(swap.live, backup)
            sync_directory(swap.current)
            os.rename(swap.fresh, swap.live)
    except OSError as error:
        raise storage_error(error, swap.live, "cannot swap") from error
    # Both names, before anything is done that relies on them.
    sync_directory(swap.work.path)
    sync_directory(swap.current)


def _exchange_names(one: str, other: str) -> bool:
    """Exchange two names atomically; False where the system or the file system cannot. Raises OSError."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    if renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), other)


def _identity(database: str) -> str | None:
    """Return RocksDB's own id of a database, by which it is known whatever its name.

    Of a damaged file it is what stands there: no id of another database.
    """
    try:
        content = read_small_file(os.path.join(database, "IDENTITY"), _IDENTITY_BYTES_MAX)
    except NotFoundError:
        return None
    return content.decode("ascii", "backslashreplace").strip()


def _sync_tree(directory: str) -> None:
    """Sync every file of a database, then the names.

    RocksDB has synced what counts; this is cheap certainty.
    """
    with as_storage_errors(directory):
        paths = [entry.path for entry in os.scandir(directory)]
    for path in paths:
        sync_file(path)
    sync_directory(directory)


def backups(current: str, name: str) -> list[str]:
    """List the backups that rebuilds of ours left of ``name`` (``locations``, ``ledgers``, ``idx``)."""
    prefix = f"{name}{BACKUP}"
    with as_storage_errors(current):
        names = sorted(os.listdir(current))
    return [os.path.join(current, found) for found in names if _is_ours(found.removeprefix(prefix), found)]


def _is_ours(stamp: str, name: str) -> bool:
    try:
        datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return False
    return stamp != name


def half_dropped(current: str, name: str) -> list[str]:
    """Find what a kill left of backups and work directories of ``name`` that were being removed."""
    with as_storage_errors(current):
        halves = [found for found in sorted(os.listdir(current)) if found.endswith(DROPPING)]
    ours = []
    for half in halves:
        whole = half.removesuffix(DROPPING)
        if whole == name + REBUILD_SUFFIX or _is_ours(whole.removeprefix(name + BACKUP), whole):
            ours.append(os.path.join(current, half))
    return ours


def finish_drops(current: str, *names: str) -> None:
    """Remove what :func:`half_dropped` finds. Raises StorageError."""
    halves = [half for name in names for half in half_dropped(current, name)]
    for half in halves:
        remove_tree(half)
    if halves:
        sync_directory(current)
