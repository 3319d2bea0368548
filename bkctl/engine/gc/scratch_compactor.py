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
entries fail, as of any disk that is gone. When other files take the room that the source gave back, the link
stays and later passes try again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from posixpath import abspath, basename, dirname, join

from bkctl.codec.entrylog import (
    HEADER_BYTES,
    compacted_name,
    compacting_name,
    decode_header,
    parse_compacted_name,
    parse_compacting_name,
)
from bkctl.config.server_keys.garbage import GcSettings
from bkctl.engine.entrylog.log_ids import sort_names
from bkctl.engine.gc.copying import Copied, Pace
from bkctl.engine.gc.log_copier import LogCopier, RecoveredCompactions
from bkctl.engine.gc.pace import StoppedError
from bkctl.engine.gc.policy import fits
from bkctl.engine.gc.rows_into_logs import RowCounts
from bkctl.engine.ledger_storage import LogKeeper
from bkctl.errors import BkctlError, CorruptionError, NoSpaceError, NotFoundError, StorageError, SyncError
from bkctl.reporting import counted
from bkctl.scan.directory import COOKIE_NAME, QUARANTINE_NAME, SCRATCH_NAME, read_small
from bkctl.vfs import WritableFileSystem
from bkctl.vfs.file_copy import copy_file

_log = logging.getLogger(__name__)


class ScratchCompactor(LogCopier):
    """Copies to a log of its own by way of ``scratch`` directories.

    The directories must be on other disks and stay where they are: links hold their paths.
    """

    def __init__(
        self,
        storage: LogKeeper,
        filesystem: WritableFileSystem,
        settings: GcSettings,
        pace: Pace,
        going_on: Callable[[], None],
        scratch: Sequence[str],
        *,
        is_asked: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(storage, filesystem, settings, pace, going_on, is_asked=is_asked)
        self._directory = storage.directory
        tag = self._tag()
        # Absolute: a link's path is looked up from the directory that the link is in.
        self._places = {each: join(abspath(each), SCRATCH_NAME, tag) for each in scratch}

    def _tag(self) -> str:
        """Return a name that distinguishes the ledger directories that share a scratch directory.

        The name differs for directories of bookies that see the same path (containers), too: nothing but this
        directory's own files may ever be cleaned away.
        """
        digest = hashlib.sha256(abspath(self._directory).encode())
        with suppress(NotFoundError):
            digest.update(read_small(self._filesystem, join(self._directory, COOKIE_NAME)))
        return digest.hexdigest()[:16]

    def roomy(self, size_bytes: int) -> str | None:
        """Find the scratch directory on another disk with most room, if that is enough for so many bytes."""
        device = self._filesystem.disk_space(self._directory).device
        found: list[tuple[int, str]] = []
        for each in self._places:
            try:
                space = self._filesystem.disk_space(each)
            except BkctlError as error:
                _log.warning("%s cannot be a scratch directory: %s", each, error)
                continue
            if space.device != device and fits(size_bytes, space.free_bytes, self._settings):
                found.append((space.free_bytes, each))
        return max(found)[1] if found else None

    def compact(
        self,
        log_id: int,
        dead: Container[int],
        holes: Sequence[tuple[int, int]] = (),
        *,
        scratch: str,
        rows: RowCounts | None = None,
    ) -> Copied:
        """Copy the live entries of a settled log by way of ``scratch``, then remove the log.

        The arguments are those of :meth:`bkctl.engine.gc.compactor.Compactor.compact`.

        Raises CorruptionError, NoSpaceError, StorageError; before the point of no return nothing has changed,
        after it the next :meth:`recover` finishes. A scratch disk that takes no copy counts as one without
        room. A copy that could not be brought back is none of these: it is in use where it is.
        """
        place = self._places[scratch]
        try:
            self._filesystem.make_directories(place)
            copied, target = self._copy_live(log_id, dead, holes, place, rows)
        except StorageError as error:
            if isinstance(error, SyncError) or not _is_below(dirname(place), error.path):
                raise
            raise NoSpaceError(f"no copy on the scratch disk: {error}", path=error.path) from error
        if target is None:
            self._remove_uncopied(log_id)
        else:
            copy = join(place, compacted_name(target, log_id))
            self._link(copy, target)
            self._finish(target, log_id, copy, is_all=True)
        return copied

    def recover(self) -> RecoveredCompactions:
        """Finish the linked copies, remove the others. Raises StorageError when names cannot be read."""
        found = RecoveredCompactions()
        linked = self._linked_in_quarantine()
        is_each_known = True
        for log_id in sort_names(self._filesystem.names(self._directory)).logs:
            path = self._path(log_id)
            try:
                copy = self._filesystem.link_target(path)
            except StorageError as error:
                # It may be a link. The log is left alone, and so is every copy: one of them may be its own.
                _log.error("whether it is a link cannot be told: %s", error)
                found.unresolved[log_id] = str(error)
                is_each_known = False
                continue
            if copy is None:
                continue
            linked.add(basename(copy))
            named = parse_compacted_name(basename(copy))
            if named is None or named[0] != log_id:
                continue  # somebody else's link
            source = named[1]
            try:
                self._finish(log_id, source, copy, is_all=False)
                found.finished.append(log_id)
            except StoppedError:
                raise
            except BkctlError as error:
                _log.error("%s cannot be finished now: %s", path, error)
                found.unresolved.update(dict.fromkeys((log_id, source), f"{copy}: {error}"))
        if is_each_known:
            found.removed += self._clean(linked)
        return found

    def _link(self, copy: str, target: int) -> None:
        """Take the steps up to the point of no return."""
        # The name of the copy is durable before anything leads to the copy.
        self._filesystem.sync_directory(dirname(copy))
        self._filesystem.link_to(copy, self._path(target))
        # Readers find the copy by its link, after a crash too, before an index row sends them there.
        self._sync_names()

    def _finish(self, target: int, source: int, copy: str, *, is_all: bool) -> None:
        """Take every step behind the point of no return; it may be called again until all are taken.

        ``is_all`` says that the target is known to have all that the index has in the source.
        """
        if self._filesystem.status(copy) is None:
            raise NotFoundError(f"{copy}: not there; is its disk mounted?")
        self._require_copy(copy)
        if self._filesystem.status(self._path(source)) is not None:
            # The link may have come from a run that ended before it had made it durable.
            self._sync_names()
            self._change_index(target, source)
            if not is_all:
                self._refuse_rows(source)
            self._remove_log(source)
        try:
            self._bring_back(target, copy)
        except NoSpaceError as error:
            _log.warning("%s stays at %s for now: %s", self._path(target), copy, error)

    def _require_copy(self, copy: str) -> None:
        """Refuse a link of the ledger directory that leads to something else than a copy of a compaction.

        The owner of the directory may have made the link. A command that root runs there must not copy a file
        that only root can read. Raises CorruptionError, StorageError.
        """
        if basename(dirname(dirname(copy))) != SCRATCH_NAME or self._filesystem.link_target(copy) is not None:
            raise StorageError(
                f"{copy}: not a file in a directory {SCRATCH_NAME}/*/ of a compaction", path=copy
            )
        reader = self._filesystem.open(copy)
        try:
            decode_header(reader.read_at(0, HEADER_BYTES))
        except CorruptionError as error:
            raise error.located(copy) from None
        finally:
            reader.close()

    def _bring_back(self, target: int, copy: str) -> None:
        """Put the copy in the place of its link. Raises NoSpaceError, StorageError; it stays a link then."""
        path = self._path(target)
        temporary = join(self._directory, compacting_name(target))
        status = self._filesystem.status(copy)
        free_bytes = self._filesystem.disk_space(self._directory).free_bytes
        if status is not None and status.size_bytes > free_bytes:
            raise NoSpaceError(
                f"{path}: needs {counted(status.size_bytes, 'byte')}, {free_bytes} are free", path=path
            )
        with suppress(NotFoundError):
            self._filesystem.remove(temporary)
        done = False
        try:
            copy_file(self._filesystem, copy, temporary, lambda size: self._pace(0, size))
            self._filesystem.rename(temporary, path)
            done = True
        finally:
            if not done:
                self._remove_quietly(temporary)
        # The names are synced before the other copy is removed.
        self._sync_names()
        self._storage.entry_logger.reopen(target)
        self._remove_quietly(copy)

    def _linked_in_quarantine(self) -> set[str]:
        """Return the names of the files that links in quarantine lead to: such a log may come back."""
        folder = join(self._directory, QUARANTINE_NAME)
        if self._filesystem.status(folder) is None:
            return set()
        copies = [self._filesystem.link_target(join(folder, name)) for name in self._filesystem.names(folder)]
        return {basename(copy) for copy in copies if copy is not None}

    def _clean(self, linked: Container[str]) -> list[str]:
        """Remove copies that no link leads to: they were not finished, or are not needed any more.

        A link is recognised by the name of its file: the path of the scratch directory may have been another.
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
        return [
            join(place, name)
            for name in self._filesystem.names(place)
            if _is_copy(name) and name not in linked
        ]


def _is_below(directory: str, path: str | None) -> bool:
    return path is not None and (path == directory or path.startswith(f"{directory}/"))


def _is_copy(name: str) -> bool:
    return parse_compacting_name(name) is not None or parse_compacted_name(name) is not None
