"""The ``.idx`` files of a bookie that lost a disk: files in limbo for what was there, and ids that are new.

A storage over index files has a ledger's file in any of its index directories, and the ledger's entries in
the logs of any ledger directory. So a disk that is lost takes the files of some ledgers, and entries of many.
A ledger whose file is still there needs no limbo: its slots name logs that are gone, so that what is lost of
it is an error and never "no such entry". A ledger that has no file any more gets one, without slots and in
limbo.

The ids of logs are one space. A new log with the id of a lost one would be read at the places of the lost
one's records, so each new ledger directory gets a ``lastId`` above every id that a slot names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from posixpath import join

from bkctl.codec.file_info import FENCED, LIMBO, FileInfoHeader
from bkctl.codec.last_id import LAST_ID_NAME, encode_last_id
from bkctl.engine.interleaved_storage.index_files import IndexFiles, IndexFileSettings
from bkctl.engine.interleaved_storage.index_places import was_written
from bkctl.errors import CorruptionError
from bkctl.scan.idx_tree import IdxTree
from bkctl.scan.index_rows import IndexDamage
from bkctl.vfs import WritableFileSystem

_BATCH_FILES = 1_000


@dataclass(frozen=True, slots=True)
class LostIndexFiles:
    """Directories of files (``current``) of a bookie over index files that lost some.

    ``there`` are the index directories that still are, ``new`` those that were lost, ``new_logs`` the ledger
    directories that were. ``lost_before`` are those of ``there`` that had lost their files before a run that
    was cut off.
    """

    there: tuple[str, ...]
    new: tuple[str, ...]
    new_logs: tuple[str, ...]
    lost_before: tuple[str, ...] = ()

    @property
    def made_in(self) -> tuple[str, ...]:
        """The directories in which files are made."""
        return self.new or self.there[:1]


class LimboFiles:
    """Makes and changes the files. Its methods raise CorruptionError, RefusedError and StorageError."""

    def __init__(self, filesystem: WritableFileSystem, directories: LostIndexFiles) -> None:
        self._fs = filesystem
        self._directories = directories
        self._known: set[int] | None = None

    def has(self, ledger: int) -> bool:
        """Return whether the file of a ledger is in a directory that was not lost; nothing is written."""
        if self._known is None:
            trees = [IdxTree(self._fs, directory) for directory in self._directories.there]
            self._known = {ledger for tree in trees for ledger in tree.files()[1]}
        return ledger in self._known

    @property
    def were_lost(self) -> bool:
        """Whether a directory that is there has no trace of a file: it has lost them, or never had one."""
        return bool(self.lost)

    @property
    def lost(self) -> list[str]:
        """The directories that are there, of which that is so now or was before a run that was cut off."""
        files = self._directories
        return [
            path for path in files.there if path in files.lost_before or not was_written(self._fs, [path])
        ]

    @property
    def made_first(self) -> tuple[str, ...]:
        """The directories in which the files that are made will be the first ones."""
        made, new = self._directories.made_in, self._directories.new
        return tuple(path for path in made if path in new or not was_written(self._fs, [path]))

    def write(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Put ledgers, each with its key, into limbo, durably: in their file, or in one without slots."""
        with ExitStack() as stack:
            there = self._opened(stack, self._directories.there)
            made = self._opened(stack, self._directories.made_in)
            assert made is not None, "there is a directory, one that is new or another"
            batch: list[tuple[int, bytes]] = []
            for row in rows:
                batch.append(row)
                if len(batch) >= _BATCH_FILES:
                    self._put_into_limbo(batch, there, made)
                    batch = []
            self._put_into_limbo(batch, there, made)
            # Also without any ledger they are directories that were written to.
            made.note_written()

    def _put_into_limbo(
        self, batch: Sequence[tuple[int, bytes]], there: IndexFiles | None, made: IndexFiles
    ) -> None:
        changed: dict[int, FileInfoHeader] = {}
        new: dict[int, FileInfoHeader] = {}
        for ledger, key in batch:
            limbo = FileInfoHeader(1, key, FENCED | LIMBO)
            path = None if there is None else there.path(ledger)
            if there is None or path is None:
                new[ledger] = limbo
                continue
            before = None if self._is_empty(path) else there.header(ledger)
            if before is None or not before.has_ledger:
                # The bit that says so would outweigh limbo, and what slots there are ended with a ledger.
                there.begin_anew(ledger, limbo)
            else:
                changed[ledger] = replace(before, state=before.state | FENCED | LIMBO)
        if there is not None:
            there.write_headers(changed)
        made.write_headers(new)

    def _opened(self, stack: ExitStack, directories: Sequence[str]) -> IndexFiles | None:
        if not directories:
            return None
        files = IndexFiles(self._fs, directories, IndexFileSettings())
        stack.callback(files.close)
        return files

    def note_log_ids(self) -> None:
        """Let no log in a new directory have an id that a slot names."""
        if not self._directories.new_logs:
            return
        last = max(map(self._last_log_id, self._directories.there), default=-1)
        for directory in self._directories.new_logs if last >= 0 else ():
            self._fs.replace(join(directory, LAST_ID_NAME), encode_last_id(last))

    def _last_log_id(self, directory: str) -> int:
        last = -1
        for columns in IdxTree(self._fs, directory).locations():
            if isinstance(columns, IndexDamage):
                if self._is_empty(columns.path):
                    continue
                raise CorruptionError(columns.reason, path=columns.path, offset=columns.offset or 0)
            last = max(last, *columns.log_ids)
        return last

    def _is_empty(self, path: str) -> bool:
        """Return whether a file has no byte: Java makes it so, and a start takes it for none."""
        facts = self._fs.status(path)
        return facts is not None and not facts.size_bytes
