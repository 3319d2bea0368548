"""Keep what a rebuild has done already, so that a run after a kill goes on from there.

The work directory stands beside the index it replaces. Each log that was read leaves a manifest, written
only after its runs are on disk; it holds the log's size and time of change and the checksums of the runs.
A log that changed, a run that is damaged, or another way of checking digests makes the log be read again. So
does damage of the log, unless an index waits for its swap: what is an entry there depends on the old index,
which may be another one by now.

::

    <current>/locations.bkctl-rebuild/
        logs/<hex id>.json        manifest of one log
        logs/<hex id>-<n>.run     its rows (location_runs)
        places/<n>.run            what the old index has in damaged logs (old_places)
        digests.column            how entries are checked, by the metadata (digest_columns)
        ledgers.column            ledgers that have a row
        merged/                   runs of very many logs, merged in groups (run_merging)
        tables/<n>.sst            tables, moved into the database when it is made
        database/                 the new database
        check/<n>.run             rows read back from it, in order of locations
        check/merged/             the same merged in groups
        swap.json                 the database is verified (swap)
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import uuid
from array import array
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bkctl.errors import NotFoundError, RefusedError, StorageError, as_storage_errors, storage_error
from bkctl.scan.directory import LogFile
from bkctl.vfs.presence import is_there
from bkctl.vfs.small_file import read_small_file

if TYPE_CHECKING:
    from bkctl.admin.index.rows.location_runs import Run

#: The name of a directory that is being removed, so that a kill never leaves half of it under its own.
DROPPING = ".dropping"
#: A new index is verified, or in place (``swap``).
SWAP_MARKER = "swap.json"
#: A manifest of another format was made by other rules.
_FORMAT = 2
#: Far more than a manifest of a log of very many ledgers needs.
_JSON_BYTES_MAX = 256 << 20


@dataclass(frozen=True, slots=True)
class LogManifest:
    """The results of reading a log.

    ``mode`` names the way digests were checked; ``entries`` counts records, ``unchecked`` those whose digest
    type is not known; ``damage`` is empty or says what is wrong, ``missing`` what was lost; ``lost`` are the
    ledgers that may have lost entries, None for all of the directory. ``learnt`` has the digest types (value
    of ``DigestType``) that were found by the log's entries, ``unsettled`` the ledgers of which the log has
    too few entries for that. ``cut`` says that it ends within a record, or in zeros. ``doubts`` say which
    records may have stood inside a damaged entry.
    """

    log_id: int
    size_bytes: int
    mtime_ns: int
    mode: str
    entries: int
    unchecked: int
    ledgers: tuple[int, ...]
    runs: tuple[Run, ...]
    damage: tuple[str, ...] = ()
    lost: tuple[int, ...] | None = ()
    format: int = _FORMAT
    missing: tuple[str, ...] = ()
    learnt: tuple[tuple[int, str], ...] = ()
    unsettled: tuple[int, ...] = ()
    cut: bool = False
    doubts: tuple[str, ...] = ()

    @property
    def damaged(self) -> bool:
        """Whether entries may be missing from the runs."""
        return bool(self.damage)

    @property
    def depends_on_old_index(self) -> bool:
        """Whether the old index has decided what is an entry."""
        return bool(self.damage or self.doubts)


class WorkDirectory:
    """The directory ``path``; made when it is not there."""

    def __init__(self, path: str) -> None:
        self.path = path

    def at(self, *names: str) -> str:
        """Make a path in the work directory."""
        return os.path.join(self.path, *names)

    def prepare(self, *names: str) -> None:
        """Make the directory and those below it, for this user alone.

        Raises RefusedError when there is one that somebody else could have filled: its links would have this
        process write elsewhere. Raises StorageError.
        """
        with as_storage_errors(self.path):
            for path in (self.path, *(self.at(name) for name in names)):
                os.makedirs(path, mode=0o700, exist_ok=True)
                _require_own_directory(path)

    def discard(self, *names: str) -> None:
        """Remove what lies below these names. Raises StorageError."""
        for name in names:
            remove_tree(self.at(name))

    def forget_swap(self) -> None:
        """Remove the marker of a swap, durably: what is built next is not what it is about.

        Raises StorageError.
        """
        self.discard(SWAP_MARKER)
        if self.exists():
            sync_directory(self.path)

    def drop(self) -> None:
        """Remove the work directory, if there is one; in one step for whoever looks. Raises StorageError."""
        if is_there(self.path):
            drop_whole(self.path)

    def exists(self, *names: str) -> bool:
        """Return whether there is such a path in the work directory."""
        return is_there(self.at(*names))

    def manifest_path(self, log_id: int) -> str:
        """Return the path of the manifest of a log."""
        return self.at("logs", f"{log_id:x}.json")

    def run_path(self, log_id: int, number: int) -> str:
        """Return the path of a run of a log."""
        return self.at("logs", f"{log_id:x}-{number}.run")

    def manifest(self, log: LogFile, mode: str) -> LogManifest | None:
        """Read the manifest of a log when it still holds for the file as it is now."""
        from bkctl.admin.index.rows.location_runs import Run, is_whole  # numpy is behind it

        content = read_json(self.manifest_path(log.log_id))
        if content is None or content.get("format") != _FORMAT or content.get("mode") != mode:
            return None
        try:
            runs = tuple(
                Run(**{**run, "path": self.run_path(log.log_id, number)})
                for number, run in enumerate(content.pop("runs"))
            )
            manifest = LogManifest(**{**content, **_tuples(content)}, runs=runs)
            if (manifest.size_bytes, manifest.mtime_ns) != identity_of(log.path):
                return None
            if manifest.depends_on_old_index and not self.exists(SWAP_MARKER):
                return None
            return manifest if all(is_whole(run) for run in manifest.runs) else None
        except (TypeError, KeyError):
            return None

    def kept(self, log_id: int) -> LogManifest:
        """Return the manifest of a log that this rebuild has read. Raises StorageError."""
        from bkctl.admin.index.rows.location_runs import Run

        path = self.manifest_path(log_id)
        content = read_json(path)
        if content is None:
            raise StorageError(f"{path}: is gone since it was written", path=path)
        runs = tuple(Run(**run) for run in content.pop("runs"))
        return LogManifest(**{**content, **_tuples(content)}, runs=runs)

    def keep(self, manifest: LogManifest) -> None:
        """Write a manifest; its runs are on disk. Raises StorageError."""
        write_json(self.manifest_path(manifest.log_id), asdict(manifest))

    def write_ledgers(self, ledgers: Iterable[int]) -> str:
        """Write the ascending ids of ledgers that have a row, for the workers; return the file's path."""
        path = self.at("ledgers.column")
        with as_storage_errors(path), open(path, "wb", opener=_open_no_link) as file:
            array("q", sorted(ledgers)).tofile(file)
        return path


def _require_own_directory(path: str) -> None:
    """Raise RefusedError for a link, and for a directory of another user or that others can write to."""
    # With a slash at its end a link would be followed.
    facts = os.lstat(path.rstrip("/"))
    own = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()
    if not own or stat.S_IMODE(facts.st_mode) & 0o022:
        raise RefusedError(
            f"{path}: not a directory of this user's alone, so what is in it cannot be trusted; look at it, "
            "remove it, and run the command again"
        )


def _tuples(content: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) for key, value in content.items() if isinstance(value, list)}


def identity_of(path: str) -> tuple[int, int] | None:
    """Return size and time of change (ns), by which a log is known again; None when it is gone."""
    try:
        facts = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error(error, path) from error
    return facts.st_size, facts.st_mtime_ns


def read_json(path: str) -> dict[str, Any] | None:
    """Read an object that :func:`write_json` wrote, None when there is no whole one.

    The run follows this file, so it counts only in a directory of this user's alone. Raises RefusedError,
    StorageError.
    """
    try:
        _require_own_directory(os.path.dirname(path))
        content = json.loads(read_small_file(path, _JSON_BYTES_MAX))
    except (FileNotFoundError, NotFoundError):
        return None
    except (ValueError, RecursionError):
        return None  # a kill while it was being made; it was never renamed into place, or is not ours
    except OSError as error:
        raise storage_error(error, path) from error
    return content if isinstance(content, dict) else None


def write_json(path: str, content: object) -> None:
    """Write an object, whole or not at all; file and name are on disk then. Raises StorageError."""
    half = f"{path}.{uuid.uuid4().hex}.tmp"  # containers share process ids
    try:
        with open(half, "w", encoding="utf-8", opener=_open_no_link) as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(half, path)
        sync_directory(os.path.dirname(path))
    except OSError as error:
        raise storage_error(error, path) from error


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o640)


def sync_directory(path: str) -> None:
    """Make the names in a directory durable. Raises SyncError."""
    _sync(path or ".", os.O_DIRECTORY)


def sync_file(path: str) -> None:
    """Make a file's content durable. Raises SyncError."""
    _sync(path, 0)


def _sync(path: str, flags: int) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise storage_error(error, path, syncing=True) from error


def drop_whole(path: str) -> None:
    """Remove a directory: renamed first, so that a half removed one cannot be taken for whole.

    That it is gone altogether is the caller's to sync. Raises StorageError.
    """
    half = path + DROPPING
    with as_storage_errors(path):
        os.rename(path, half)
    # The new name is on disk before anything below it is removed.
    sync_directory(os.path.dirname(path))
    remove_tree(half)


def remove_tree(path: str) -> None:
    """Remove a directory or a file, if it is there. Raises StorageError."""
    with as_storage_errors(path), suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
