"""Compaction of a log on a disk without room for its copy: by way of a directory on another disk.

An index row names a log by its id, and a log is looked for in its ledger directory alone. So that rows may
name the copy before the source is gone, and the source may go before there is room for the copy, the copy's
name in the ledger directory is at first a symbolic link::

    scratch/D.log.compacting     being written                          at the next pass: removed
    scratch/D.log.S.compacted    complete and durable                   removed, unless it is linked
    D.log -> that file           the point of no return; durable        finished
    index: S -> D                rows that still name S are changed     done again
    S.log removed                its room is won
    D.log.compacting             a copy of the copy, durable            removed and made again
    D.log                        renamed over the link; durable
    scratch file removed         D.log is a log like any other          removed

Between any two steps every entry is durable and readable where the index has it, by a Java bookie too, which
follows the link. Only the scratch disk must not be taken away while a link is there; then reads of these
entries fail, as of any disk that is gone. When the room that the source gave back is taken by others
meanwhile, the link stays and later passes try again.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Container, Sequence
from contextlib import suppress
from posixpath import abspath, basename, dirname, join

from bkctl.engine.entrylog.log_ids import sort_names
from bkctl.engine.entrylog.log_writer import LogWriter
from bkctl.engine.gc.copying import Copied, Pace, live_pieces
from bkctl.engine.gc.pace import StoppedError
from bkctl.engine.gc.settings import GcSettings
from bkctl.engine.gc.transactional_compactor import (
    COMPACTED,
    RecoveredCompactions,
    TransactionalCompactor,
    append_piece,
)
from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.errors import BkctlError, NoSpaceError, NotFoundError, SyncError
from bkctl.scan.directory import COOKIE_NAME, SCRATCH_NAME, read_small
from bkctl.vfs import WritableFileSystem

_log = logging.getLogger(__name__)

_COPY_BYTES = 1 << 20
_SCRATCH_FILE = re.compile(r"[0-9a-f]+\.log(?:\.compacting|\.[0-9a-f]+\.compacted)")


class ScratchCompactor:
    """Compacts logs of one ledger directory by way of ``scratch`` directories; used by one thread.

    The directories must be on other disks and stay where they are: links hold their paths.
    """

    def __init__(
        self,
        storage: LedgerStorage,
        filesystem: WritableFileSystem,
        settings: GcSettings,
        pace: Pace,
        scratch: Sequence[str],
    ) -> None:
        self._storage = storage
        self._filesystem = filesystem
        self._settings = settings
        self._pace = pace
        self._directory = dirname(storage.entry_logger.path(0))
        tag = self._tag()
        # Absolute: a link's path is looked up from the directory that the link is in.
        self._places = {each: join(abspath(each), SCRATCH_NAME, tag) for each in scratch}
        self._rows = TransactionalCompactor(storage, filesystem, settings, pace)

    def _tag(self) -> str:
        """Tells ledger directories apart that share a scratch directory, also of bookies that see the same
        path (containers): nothing but this directory's own files may ever be cleaned away.
        """
        digest = hashlib.sha256(abspath(self._directory).encode())
        with suppress(NotFoundError):
            digest.update(read_small(self._filesystem, join(self._directory, COOKIE_NAME)))
        return digest.hexdigest()[:16]

    def roomy(self, size_bytes: int) -> str | None:
        """The scratch directory on another disk with most room, if that is enough for so many bytes."""
        device = self._filesystem.disk_space(self._directory).device
        found: list[tuple[int, str]] = []
        for each in self._places:
            try:
                space = self._filesystem.disk_space(each)
            except BkctlError as error:
                _log.warning("%s cannot be a scratch directory: %s", each, error)
                continue
            if space.device != device and space.free_bytes >= size_bytes + self._settings.free_bytes_min:
                found.append((space.free_bytes, each))
        return max(found)[1] if found else None

    def compact(
        self, log_id: int, dead: Container[int], holes: Sequence[tuple[int, int]] = (), *, scratch: str
    ) -> Copied:
        """Copy what lives in a settled log by way of ``scratch``, then remove the log.

        Raises CorruptionError, NoSpaceError, StorageError; before the point of no return nothing has changed,
        after it the next :meth:`recover` finishes. A copy that could not be brought back is none of these:
        it is in use where it is.
        """
        place = self._places[scratch]
        self._filesystem.make_directories(place)
        copied = Copied()
        target: LogWriter | None = None
        done = False
        try:
            for piece in live_pieces(self._storage, self._filesystem, self._settings, log_id, dead, holes):
                self._pace(len(piece), piece.size_bytes)
                if target is None:
                    target = self._begin(place)
                append_piece(target, piece)
                copied.add(piece)
            if target is not None:
                self._complete(target, log_id, place)
            done = True
        finally:
            if target is not None:
                with suppress(BkctlError):
                    target.file.close()
                if not done:
                    self._remove_quietly(join(place, f"{target.log_id:x}.log.compacting"))
        if target is None:
            self._remove_log(log_id)
        else:
            self._finish(target.log_id, log_id, join(place, _compacted(target.log_id, log_id)))
        return copied

    def recover(self) -> RecoveredCompactions:
        """Finish what was linked, remove what was not. Raises StorageError when names cannot be read."""
        found = RecoveredCompactions()
        linked: set[str] = set()
        for log_id in sort_names(self._filesystem.names(self._directory)).logs:
            copy = self._filesystem.link_target(self._path(log_id))
            if copy is None:
                continue
            linked.add(basename(copy))
            named = COMPACTED.fullmatch(basename(copy))
            if named is None or int(named[1], 16) != log_id:
                continue  # somebody else's link
            source = int(named[2], 16)
            try:
                self._finish(log_id, source, copy)
                found.finished.append(log_id)
            except StoppedError:
                raise
            except BkctlError as error:
                _log.error("%s cannot be finished now: %s", self._path(log_id), error)
                found.unresolved.update(dict.fromkeys((log_id, source), f"{copy}: {error}"))
        found.removed += self._clean(linked)
        return found

    def _begin(self, place: str) -> LogWriter:
        log_id = self._storage.while_quiet(self._storage.entry_logger.new_log_id)
        target = LogWriter(log_id, self._filesystem.create(join(place, f"{log_id:x}.log.compacting")))
        target.write_header()
        return target

    def _complete(self, target: LogWriter, source: int, place: str) -> None:
        """Up to the point of no return."""
        target.finish()
        target.sync()
        copy = join(place, _compacted(target.log_id, source))
        self._filesystem.rename(join(place, f"{target.log_id:x}.log.compacting"), copy)
        # The copy has its name for good before anything leads to it.
        self._filesystem.sync_directory(place)
        self._filesystem.link_to(copy, self._path(target.log_id))
        # Readers find it by its link, after a crash too, before an index row sends them there.
        self._sync_names()

    def _finish(self, target: int, source: int, copy: str) -> None:
        """Everything behind the point of no return; as often as it takes."""
        if self._filesystem.status(copy) is None:
            raise NotFoundError(f"{copy}: not there; is its disk mounted?")
        if self._filesystem.status(self._path(source)) is not None:
            # The link may have come from a run that ended before it had made it durable.
            self._sync_names()
            self._rows.change_index(target, source)
            self._remove_log(source)
        try:
            self._bring_back(target, copy)
        except NoSpaceError as error:
            _log.warning("%s stays at %s for now: %s", self._path(target), copy, error)

    def _bring_back(self, target: int, copy: str) -> None:
        """Put the copy in the place of its link. Raises NoSpaceError, StorageError; it stays a link then."""
        path = self._path(target)
        temporary = f"{path}.compacting"
        status = self._filesystem.status(copy)
        free_bytes = self._filesystem.disk_space(self._directory).free_bytes
        if status is not None and status.size_bytes > free_bytes:
            raise NoSpaceError(f"{path}: needs {status.size_bytes} bytes, {free_bytes} are free", path=path)
        with suppress(NotFoundError):
            self._filesystem.remove(temporary)
        done = False
        try:
            self._copy(copy, temporary)
            self._filesystem.rename(temporary, path)
            done = True
        finally:
            if not done:
                self._remove_quietly(temporary)
        # Before the other copy goes.
        self._sync_names()
        self._storage.entry_logger.reopen(target)
        self._remove_quietly(copy)

    def _copy(self, source: str, target: str) -> None:
        """All bytes of a file, durable when this returns."""
        reader = self._filesystem.open(source)
        try:
            writer = self._filesystem.create(target)
            try:
                offset = 0
                while data := reader.read_at(offset, _COPY_BYTES):
                    self._pace(0, len(data))
                    writer.write_at(offset, data)
                    offset += len(data)
                writer.sync_data()
            finally:
                writer.close()
        finally:
            reader.close()

    def _clean(self, linked: Container[str]) -> list[str]:
        """Remove what no link leads to: it was not finished, or is not needed any more.

        A link is known by its file's name: the way to the scratch directory may have been another one then.
        """
        removed: list[str] = []
        for place in self._places.values():
            try:
                stale = self._stale(place, linked)
                if stale and not removed:
                    # A log may just have come home in a run that was killed before that was durable.
                    self._sync_names()
                for path in stale:
                    self._filesystem.remove(path)
                    removed.append(path)
            except SyncError:
                raise
            except BkctlError as error:
                # A scratch disk that fails costs the directory nothing but this room.
                _log.warning("%s: copies that nobody needs stay: %s", place, error)
        return removed

    def _stale(self, place: str, linked: Container[str]) -> list[str]:
        if self._filesystem.status(place) is None:
            return []
        names = self._filesystem.names(place)
        return [join(place, name) for name in names if _SCRATCH_FILE.fullmatch(name) and name not in linked]

    def _remove_log(self, log_id: int) -> None:
        with suppress(NotFoundError):
            self._storage.entry_logger.remove(log_id)
        # The room is ours again after a crash too.
        self._sync_names()

    def _sync_names(self) -> None:
        self._storage.while_quiet(self._storage.entry_logger.sync_names)

    def _remove_quietly(self, path: str) -> None:
        # What stays is removed by the next recovery.
        with suppress(BkctlError):
            self._filesystem.remove(path)

    def _path(self, log_id: int) -> str:
        return self._storage.entry_logger.path(log_id)


def _compacted(target: int, source: int) -> str:
    return f"{target:x}.log.{source:x}.compacted"
