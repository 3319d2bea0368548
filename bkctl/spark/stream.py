"""A stream of the entries that bookies write: entry logs are tailed.

An offset is what was delivered of each log: ``{path: {"position": n, "rolled": false}}``. ``position`` is the
end of a whole record, so that a record which is being written waits for the next batch; ``rolled`` tells that
the log has its ledgers map and was delivered to the end, after which it may go. A log that goes away before,
or gets shorter, is data that the stream has lost: an error, unless ``failOnDataLoss`` is false.

Every record is delivered once, also over a restart from a checkpoint. A compaction of the bookie copies
entries to a new log, which is a second record of theirs.

Damage in front of further records is passed when the log has been rolled; until then the stream waits there,
because a torn record and a damaged one look the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from bkctl.errors import NotFoundError, StorageError, UsageError
from bkctl.pipeline.tables.ledger_source import known_digests
from bkctl.pipeline.tables.log_extent import follow
from bkctl.pipeline.tables.options import TableOptions, parse_flag, parse_size
from bkctl.pipeline.tables.places import log_files
from bkctl.pipeline.tables.registry import table_named
from bkctl.pipeline.tables.split import STREAM, Split, SplitFile, packed
from bkctl.spark.reader import SplitPartition
from bkctl.vfs import PosixFileSystem

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

Offset = dict[str, dict[str, Any]]


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
        """Options given as text, names in lower case. Raises UsageError."""
        starting = given.get("startingoffsets", "earliest").lower()
        if starting not in ("earliest", "latest"):
            raise UsageError(f"option startingOffsets: expected earliest or latest, found {starting!r}")
        return cls(
            starting == "earliest",
            parse_size("maxBytesPerTrigger", given.get("maxbytespertrigger", "0")),
            parse_size("maxFilesPerTrigger", given.get("maxfilespertrigger", "0")),
            parse_flag("failOnDataLoss", given.get("failondataloss", "true")),
        )


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

    def initialOffset(self) -> Offset:
        """Nothing, or the ends of the logs as they are now."""
        return {} if self._stream.from_start else self._advanced({}, 0, 0)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the bound of a batch that the options ask for."""
        if self._stream.bytes_max:
            return ReadMaxBytes(self._stream.bytes_max)
        if self._stream.files_max:
            return ReadMaxFiles(self._stream.files_max)
        return ReadAllAvailable()

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """How far whole records go. Raises StorageError when data was lost and that is to fail."""
        bytes_max = files_max = 0
        if limit is not None and isinstance(limit, ReadMaxBytes):
            bytes_max = limit.max_bytes
        elif limit is not None and isinstance(limit, ReadMaxFiles):
            files_max = limit.max_files
        self._last = self._advanced(self._last if start is None else start, bytes_max, files_max)
        return self._last

    def _advanced(self, start: Offset, bytes_max: int, files_max: int) -> Offset:
        """``start`` moved on by whole records, by about as many bytes or files as are allowed."""
        filesystem = PosixFileSystem()
        logs = {log.path: log for log in log_files(filesystem, self._paths, self._options)}
        self._check_losses(start, logs)
        reached: Offset = {}
        left, files = bytes_max, 0
        for path, log in logs.items():
            before = reached[path] = start.get(path, {"position": 0, "rolled": False})
            if before["rolled"] or (bytes_max and left <= 0) or (files_max and files >= files_max):
                continue
            # What is listed is in the offset, read or not: the next batch tells when it is gone by then.
            with suppress(NotFoundError):
                extent = follow(filesystem, log, before["position"], left if bytes_max else None)
                reached[path] = {"position": extent.end, "rolled": extent.rolled}
                left -= extent.end - before["position"]
                files += extent.end > before["position"]
        return reached

    def _check_losses(self, start: Offset, logs: Mapping[str, SplitFile]) -> None:
        """Name a log that is gone, or shorter than what was read of it, before all of it was delivered."""
        if not self._stream.fail_on_data_loss:
            return
        for path, before in start.items():
            log = logs.get(path)
            if log is None and not before["rolled"]:
                raise StorageError(
                    f"{path}: gone after {before['position']} bytes were read of it; entries behind them may "
                    "be lost to this stream (failOnDataLoss=false goes on without them)",
                    path=path,
                )
            if log is not None and log.bytes < before["position"]:
                raise StorageError(
                    f"{path}: has {log.bytes} bytes, {before['position']} were read before; it is not the "
                    "log that it was (failOnDataLoss=false reads on)",
                    path=path,
                )

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Pieces of the logs between two offsets. Raises StorageError as :meth:`latestOffset`."""
        filesystem = PosixFileSystem()
        known = known_digests(filesystem, self._options)
        logs = {log.path: log for log in log_files(filesystem, self._paths, self._options)}
        # Spark 4.1 asks for the end without saying the start: after a restart it is first known here.
        self._check_losses(start, logs)
        pieces = []
        for path, reached in end.items():
            first = start.get(path, {"position": 0})["position"]
            last = reached["position"]
            if last > first:
                pieces.append(self._piece(path, logs.get(path), first, last))
        groups = packed(pieces, self._options.split_bytes, self._options.cores)
        return [SplitPartition(Split(group, known, kind=STREAM)) for group in groups]

    @staticmethod
    def _piece(path: str, log: SplitFile | None, first: int, last: int) -> SplitFile:
        """Return a piece of a log, which its reader may find gone."""
        found = log or SplitFile(path, os.path.dirname(path), None, 0, last)
        return replace(found, bytes=max(found.bytes, last), start=first, stop=last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Entries of some pieces. Raises NotFoundError when one is gone and that is to fail."""
        assert isinstance(partition, SplitPartition)
        yield from table_named("entries").read(partition.split, self._columns, self._options)

    def commit(self, end: Offset) -> None:
        """Nothing is kept here: the checkpoint has the offsets."""

    def stop(self) -> None:
        """Nothing is held between batches."""
