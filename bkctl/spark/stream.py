"""A stream of the entries that bookies write: entry logs are tailed.

An offset is what was delivered, by directory (``spark.stream_offset``). A position in a log is the end of a
whole record, so that a record which is being written waits for the next batch; a log that has its ledgers map
is rolled, and when it was delivered to the end it may go. A log that goes away before, or gets shorter, is
data that the stream has lost: an error, unless ``failOnDataLoss`` is false.

Every record is delivered once, also over a restart from a checkpoint. A compaction of the bookie copies
entries to a new log, which is a second record of theirs.

Damage in front of further records is passed when the log has been rolled; until then the stream waits there,
because a torn record cannot be distinguished from a damaged one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from bkctl.codec.entrylog import parse_compacted_name, parse_compacting_name, parse_log_name
from bkctl.errors import NotFoundError, StorageError, UsageError
from bkctl.pipeline.tables.ledger_source import known_digests
from bkctl.pipeline.tables.log_extent import Extent, follow
from bkctl.pipeline.tables.options import TableOptions, parse_flag, parse_size
from bkctl.pipeline.tables.places import log_files
from bkctl.pipeline.tables.registry import table_named
from bkctl.pipeline.tables.split import STREAM, Split, SplitFile, packed
from bkctl.spark.reader import SplitPartition
from bkctl.spark.stream_offset import DirectoryState, Offset, states_of
from bkctl.vfs import FileSystem, PosixFileSystem

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
    )
except ImportError:  # Spark 4.1 has no limits: a batch takes what is there
    ReadAllAvailable = ReadLimit = ReadMaxBytes = ReadMaxFiles = None  # type: ignore[misc,assignment]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """``from_start`` False begins behind what is there now. ``bytes_max`` and ``files_max`` bound a batch, 0
    for no bound. ``fail_on_data_loss`` as in :class:`TableOptions`."""

    from_start: bool = True
    bytes_max: int = 0
    files_max: int = 0
    fail_on_data_loss: bool = True

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> StreamOptions:
        """Return the options given as text, names in lower case. Raises UsageError."""
        starting = given.get("startingoffsets", "earliest").lower()
        if starting not in ("earliest", "latest"):
            raise UsageError(f"option startingOffsets: expected earliest or latest, found {starting!r}")
        return cls(
            starting == "earliest",
            parse_size("maxBytesPerTrigger", given.get("maxbytespertrigger", "0")),
            parse_size("maxFilesPerTrigger", given.get("maxfilespertrigger", "0")),
            parse_flag("failOnDataLoss", given.get("failondataloss", "true")),
        )


class _Listed:
    """Entry logs as they are now: those of directories by id, those that were named themselves by path."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem
        self.directories: dict[str, dict[int, SplitFile]] = {}
        self.named: dict[str, SplitFile] = {}

    def log(self, path: str) -> SplitFile | None:
        """Return a log by its path, None when it is gone."""
        if path in self.named:
            return self.named[path]
        number = parse_log_name(os.path.basename(path))
        return None if number is None else self.directories.get(os.path.dirname(path), {}).get(number)

    def coming(self, folder: str) -> list[int]:
        """Return the ids of logs that a compaction writes under another name."""
        try:
            names = self._filesystem.names(folder)
        except NotFoundError:
            return []
        whole = (parse_compacted_name(name) for name in names)
        parts = (parse_compacting_name(name) for name in names)
        return [*(found[0] for found in whole if found), *(found for found in parts if found is not None)]


class _Budget:
    """Bounds of one batch; 0 is no bound."""

    def __init__(self, bytes_max: int, files_max: int) -> None:
        self._filesystem = PosixFileSystem()
        self._bounded_bytes, self._bounded_files = bool(bytes_max), bool(files_max)
        self._bytes, self._files = bytes_max, files_max

    def follow(self, log: SplitFile, position: int) -> Extent | None:
        """Follow a log from a position.

        Return None when the log is gone, which the next batch reports, or when it is not its turn.
        """
        if (self._bounded_bytes and self._bytes <= 0) or (self._bounded_files and self._files <= 0):
            return None
        with suppress(NotFoundError):
            extent = follow(self._filesystem, log, position, self._bytes if self._bounded_bytes else None)
            self._bytes -= extent.end - position
            self._files -= extent.end > position
            return extent
        return None


def _check_loss(path: str, log: SplitFile | None, position: int) -> None:
    if log is None:
        raise StorageError(
            f"{path}: gone after {position} bytes were read of it; entries behind them may be lost to this "
            "stream (failOnDataLoss=false goes on without them)",
            path=path,
        )
    if log.bytes < position:
        raise StorageError(
            f"{path}: has {log.bytes} bytes, {position} were read before; it is not the log that it was "
            "(failOnDataLoss=false reads on)",
            path=path,
        )


def _pieces(
    folder: str, before: DirectoryState, after: DirectoryState, listed: _Listed
) -> Iterator[SplitFile]:
    """Yield what a batch reads of a directory: logs to their end, and to where an open one has come."""
    stops: dict[int, int | None] = dict.fromkeys(sorted(after.batch))
    stops |= after.open
    for number, stop in stops.items():
        first = before.open.get(number, 0)
        if not before.is_done(number) and (stop is None or stop > first):
            path = os.path.join(folder, f"{number:x}.log")
            yield _piece(path, listed.log(path), first, stop)


def _piece(path: str, log: SplitFile | None, first: int, last: int | None) -> SplitFile:
    """Return a piece of a log, which its reader may find gone."""
    found = log or SplitFile(path, os.path.dirname(path), None, 0, last or first)
    if last is None:
        return replace(found, start=first)
    return replace(found, bytes=max(found.bytes, last), start=first, stop=last)


class EntryStream(DataSourceStreamReader):
    """Tails the logs that ``paths`` stand for; new logs and directories are found with every batch."""

    def __init__(
        self, paths: Sequence[str], columns: Sequence[str], options: TableOptions, stream: StreamOptions
    ) -> None:
        self._paths = list(paths)
        self._columns = list(columns)
        self._options = replace(options, fail_on_data_loss=stream.fail_on_data_loss)
        self._stream = stream
        self._last: Offset = {}
        #: Whether a batch has taken what the last offset says: Spark 4.1 may ask twice before it takes one.
        self._served = False

    def initialOffset(self) -> Offset:
        """Return an empty offset, or the ends of the logs as they are now."""
        if self._stream.from_start:
            return {}
        offset = self._advanced({}, 0, 0)
        for value in offset.values():
            value.pop("batch", None)  # nothing of it is delivered
        return offset

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the bound of a batch that the options ask for."""
        if self._stream.bytes_max:
            return ReadMaxBytes(self._stream.bytes_max)
        if self._stream.files_max:
            return ReadMaxFiles(self._stream.files_max)
        return ReadAllAvailable()

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return how far whole records go. Raises StorageError when data was lost and that is to fail."""
        bytes_max = files_max = 0
        if limit is not None and isinstance(limit, ReadMaxBytes):
            bytes_max = limit.max_bytes
        elif limit is not None and isinstance(limit, ReadMaxFiles):
            files_max = limit.max_files
        if start is not None:
            self._last, self._served = start, True
        self._last = self._advanced(self._last, bytes_max, files_max)
        self._served = False
        return self._last

    def _advanced(self, start: Offset, bytes_max: int, files_max: int) -> Offset:
        """Return ``start`` moved on by whole records, by about as many bytes or files as are allowed."""
        listed = self._listed()
        directories, files = states_of(start)
        self._check_losses(directories, files, listed)
        budget = _Budget(bytes_max, files_max)
        reached: Offset = {}
        for path, log in listed.named.items():
            before = files.get(path, {"position": 0, "rolled": False})
            extent = None if before["rolled"] else budget.follow(log, before["position"])
            now = before if extent is None else {"position": extent.end, "rolled": extent.rolled}
            reached[path] = {**now, "named": True}
        for folder in dict.fromkeys((*directories, *listed.directories)):
            before_state = directories.get(folder, DirectoryState())
            state = self._advanced_directory(before_state, listed, folder, budget)
            reached[folder] = (before_state if state.same_as(before_state) else state).as_value()
        return start if reached == start else reached

    def _advanced_directory(
        self, before: DirectoryState, listed: _Listed, folder: str, budget: _Budget
    ) -> DirectoryState:
        logs = listed.directories.get(folder, {})
        positions: dict[int, int] = {}
        rolled = set()
        for number, log in logs.items():
            if before.is_done(number):
                continue
            positions[number] = before.open.get(number, 0)
            extent = budget.follow(log, positions[number])
            if extent is not None:
                positions[number] = extent.end
                if extent.rolled:
                    rolled.add(number)
        unserved = frozenset[int]() if self._served else before.batch
        return before.advanced(positions, frozenset(rolled), logs, listed.coming(folder), unserved)

    def _listed(self) -> _Listed:
        filesystem = PosixFileSystem()
        one_by_one = bool(self._options.log_ids)
        of_files = {os.path.normpath(path) for path in self._paths if not os.path.isdir(path)}
        listed = _Listed(filesystem)
        for log in log_files(filesystem, self._paths, self._options):
            if one_by_one or os.path.normpath(log.path) in of_files:
                listed.named[log.path] = log
            else:
                listed.directories.setdefault(log.dir, {})[log.id] = log
        return listed

    def _check_losses(
        self, directories: Mapping[str, DirectoryState], files: Offset, listed: _Listed
    ) -> None:
        """Name a log that is gone, or shorter than what was read of it, before all of it was delivered."""
        if not self._stream.fail_on_data_loss:
            return
        for path, before in files.items():
            if not before["rolled"]:
                _check_loss(path, listed.log(path), before["position"])
            elif (log := listed.log(path)) is not None:
                _check_loss(path, log, before["position"])
        for folder, state in directories.items():
            for number in (*state.open, *sorted(state.waiting)):
                path = os.path.join(folder, f"{number:x}.log")
                _check_loss(path, listed.log(path), state.open.get(number, 0))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the pieces of the logs between two offsets. Raises StorageError as :meth:`latestOffset`."""
        known = known_digests(PosixFileSystem(), self._options)
        listed = self._listed()
        # Spark 4.1 asks for the end without saying the start: after a restart it is first known here.
        before, files = states_of(start)
        self._check_losses(before, files, listed)
        after, files_after = states_of(end)
        pieces = [
            _piece(path, listed.log(path), first, reached["position"])
            for path, reached in files_after.items()
            if reached["position"] > (first := files.get(path, {"position": 0})["position"])
        ]
        for folder, state in after.items():
            pieces += _pieces(folder, before.get(folder, DirectoryState()), state, listed)
        if end == self._last:
            self._served = True
        groups = packed(pieces, self._options.split_bytes, self._options.cores)
        return [SplitPartition(Split(group, known, kind=STREAM)) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the entries of some pieces. Raises NotFoundError when one is gone and that is to fail."""
        assert isinstance(partition, SplitPartition)
        yield from table_named("entries").read(partition.split, self._columns, self._options)

    def commit(self, end: Offset) -> None:
        """Keep nothing: the checkpoint has the offsets."""

    def stop(self) -> None:
        """Give nothing back: nothing is held between batches."""
