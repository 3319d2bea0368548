"""``entrylog quarantine``: a log out of every bookie's sight, and back.

Rows of the index stay as they are and name a log that is not there: a read of such an entry fails with an I/O
error, ours and Java's alike, which clients take for unknown. An entry that stands elsewhere is served. So no
ledger is put into limbo, where a Java bookie would answer nothing of it.

The steps: ``lastId`` counts the log, so that its id never comes again; the manifest; a second name in
quarantine; the first name goes. Back in the same way: the first name, then manifest and second name go.
"""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import basename, dirname, join

from bkctl.admin.entrylogs.log_place import LogPlace
from bkctl.admin.repairs.kept_files import refuse_link
from bkctl.admin.repairs.repair_journal import begin_repair, changes_file, makes_directory, moves_file
from bkctl.clock import Clock
from bkctl.codec.entrylog import log_name
from bkctl.codec.last_id import LAST_ID_BYTES_MAX, LAST_ID_NAME, decode_last_id, encode_last_id
from bkctl.codec.quarantine_manifest import QuarantineManifest, encode_manifest, manifest_name
from bkctl.engine.entrylog.log_allocator import LogIds
from bkctl.errors import CorruptionError, NotFoundError, RefusedError
from bkctl.scan.directory import QUARANTINE_NAME, first_bytes
from bkctl.scan.quarantined_logs import quarantined_logs
from bkctl.vfs.base import FileSystem, WritableFileSystem

QUARANTINED_BY = "entrylog quarantine"
RELEASED_BY = "entrylog quarantine --release"


@dataclass(frozen=True, slots=True)
class Move:
    """A log that goes into quarantine, or comes back."""

    place: LogPlace
    source: str
    target: str
    manifest: str

    @property
    def log_id(self) -> int:
        """The log's id."""
        return self.place.log.log_id


def plan_quarantine(fs: FileSystem, place: LogPlace) -> Move:
    """Return the way into quarantine; nothing is written.

    Raises RefusedError when it is taken, StorageError.
    """
    if place.in_quarantine:
        raise RefusedError(f"{place.log.path}: is in quarantine already")
    log_id = place.log.log_id
    target = join(place.quarantine_dir, log_name(log_id))
    manifest = join(place.quarantine_dir, manifest_name(log_id))
    refuse_taken(fs, target, manifest)
    return Move(place, place.log.path, target, manifest)


def refuse_taken(fs: FileSystem, *paths: str) -> None:
    """Raise RefusedError for a path that is there, or lies behind a link."""
    for path in paths:
        if basename(dirname(path)) == QUARANTINE_NAME:
            refuse_link(fs, dirname(path))
        refuse_link(fs, path)
        if fs.status(path) is not None:
            raise RefusedError(f"{path}: is there already")


def quarantine_log(fs: WritableFileSystem, clock: Clock, move: Move, reason: str) -> None:
    """Move a log into quarantine, in directories that a ``DirectoryLock`` holds. Raises StorageError."""
    place, folder = move.place, move.place.quarantine_dir
    last_id = join(place.current_dir, LAST_ID_NAME)
    repair = begin_repair(
        fs,
        clock,
        place.every_dir,
        QUARANTINED_BY,
        f"log {move.log_id:x}",
        [
            changes_file(last_id),
            makes_directory(folder),
            changes_file(move.manifest),
            moves_file(move.source, move.target),
        ],
    )
    note_id(fs, place, move.log_id)
    set_aside(fs, move, QuarantineManifest(move.log_id, place.log.size_bytes, reason, clock.time_ms()))
    repair.finish()


def note_id(fs: WritableFileSystem, place: LogPlace, log_id: int) -> None:
    """Let ``lastId`` count a log whose name is going away. Raises StorageError.

    Where it says nothing, or 0, a bookie goes by the names of the logs. Once it says something, Java's does
    not look at the names any more, so that it gets the largest id there is.
    """
    last_id = join(place.current_dir, LAST_ID_NAME)
    try:
        noted = decode_last_id(first_bytes(fs, last_id, LAST_ID_BYTES_MAX))
    except (CorruptionError, NotFoundError):
        noted = -1
    if noted <= 0:
        ids = LogIds(place.log_dirs, fs)
        ids.open()
        log_id = max(log_id, ids.last)
    if noted < log_id:
        fs.replace(last_id, encode_last_id(log_id))


def set_aside(fs: WritableFileSystem, move: Move, manifest: QuarantineManifest) -> None:
    """Write the manifest, then move the log, if it is not there already. Raises StorageError."""
    folder = move.place.quarantine_dir
    fs.make_directories(folder)
    fs.replace(move.manifest, encode_manifest(manifest))
    if move.source != move.target:
        _move(fs, move.source, move.target)


def plan_release(fs: FileSystem, place: LogPlace) -> Move:
    """Return the way back; nothing is written.

    Raises RefusedError when the log is not in quarantine, when another one has its name, and when its records
    were copied to another log.
    """
    if not place.in_quarantine:
        raise RefusedError(f"{place.log.path}: is not in quarantine")
    log_id = place.log.log_id
    (known,) = (each for each in quarantined_logs(fs, place.current_dir) if each.log.log_id == log_id)
    if known.is_salvaged:
        raise RefusedError(
            f"{place.log.path}: its records were copied to another log, to which the index points now. So the"
            " log is not needed in its old place. To go back, use 'bkctl repair undo'"
        )
    refuse_taken(fs, place.path_in_use)
    manifest = join(place.quarantine_dir, manifest_name(log_id))
    return Move(place, place.log.path, place.path_in_use, manifest)


def release_log(fs: WritableFileSystem, clock: Clock, move: Move) -> None:
    """Move a log out of quarantine, in directories that a ``DirectoryLock`` holds. Raises StorageError."""
    place = move.place
    repair = begin_repair(
        fs,
        clock,
        place.every_dir,
        RELEASED_BY,
        f"log {move.log_id:x}",
        [changes_file(move.manifest), moves_file(move.source, move.target)],
    )
    _move(fs, move.source, move.target)
    if fs.status(move.manifest) is not None:
        fs.remove(move.manifest)
        fs.sync_directory(place.quarantine_dir)
    repair.finish()


def _move(fs: WritableFileSystem, source: str, target: str) -> None:
    """Give a file its new name before the old one goes; a kill may leave both."""
    fs.link(source, target)
    fs.sync_directory(dirname(target))
    fs.remove(source)
    fs.sync_directory(dirname(source))
