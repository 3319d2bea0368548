"""Parquet files of a set, written straight to where the set is."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from bkctl.errors import StorageError
from bkctl.pipeline.locations import Location
from bkctl.pipeline.sets.manifest import PartFile

_ROW_GROUP_ROWS = 1 << 18
#: Ids in order, sizes and offsets: differences of these are small.
_DELTA = ("first", "last", "entry", "block", "offset", "ledger", "log_id", "bad_offset")
_WAITING_BYTES = 8 << 20


def part_name(table: str) -> str:
    """Return a name for a file of a set's table. It is never used again: an attempt that is ended leaves a
    file that no manifest names."""
    return f"{table}/part-{secrets.token_hex(8)}.parquet"


class PartWriter:
    """One Parquet file of a table, ``name`` in the directory ``place``, made when the first row comes.

    As a context manager it is abandoned where an exception ends the context.
    """

    def __init__(self, place: Location, name: str, schema: pa.Schema) -> None:
        self._place = place
        self._schema = schema
        self.name = name
        self._stack = ExitStack()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._rows = 0
        self._size = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows; many small batches are written as one."""
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _WAITING_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting, self._bytes = [], 0
        try:
            if self._writer is None:
                self._stream = self._stack.enter_context(self._place.opened(self.name))
                self._writer = self._stack.enter_context(_writer(self._stream, self._schema))
            self._writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)
        except (OSError, pa.ArrowException) as error:
            raise StorageError(f"{self._place.text_of(self.name)}: {error}") from error
        self._rows += table.num_rows

    def close(self) -> PartFile | None:
        """Finish the file; None where there was no row. Raises StorageError."""
        try:
            self._flush()
            if self._writer is None:
                return None
            self._writer.close()
            self._size = int(self._stream.tell())
            self._stack.close()
        except (OSError, pa.ArrowException) as error:
            raise StorageError(f"{self._place.text_of(self.name)}: {error}") from error
        return PartFile(self.name, self._rows, self._size)

    def abandon(self) -> None:
        """Close the file without a word of it in a manifest."""
        self._waiting = []
        # A writer that failed fails again when it is closed; the first error is the one to report.
        with suppress(OSError, pa.ArrowException, StorageError):
            self._stack.close()

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abandon()


def _writer(stream: object, schema: pa.Schema) -> pq.ParquetWriter:
    delta = [name for name in schema.names if name in _DELTA and pa.types.is_int64(schema.field(name).type)]
    texts = [name for name in schema.names if pa.types.is_string(schema.field(name).type)]
    return pq.ParquetWriter(
        stream,
        schema,
        compression="zstd",
        use_dictionary=texts,
        column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED"),
    )


class PartWriters:
    """A file for each of some tables. A context manager: what was not finished is abandoned."""

    def __init__(self, place: Location, schemas: dict[str, pa.Schema]) -> None:
        self._writers = {
            table: PartWriter(place, part_name(table), schema) for table, schema in schemas.items()
        }

    def add(self, table: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows of a table."""
        for batch in batches:
            self._writers[table].add(batch)

    def close(self) -> dict[str, PartFile]:
        """Finish all files; those that there are."""
        return dict(self._closed())

    def _closed(self) -> Iterator[tuple[str, PartFile]]:
        for name, writer in self._writers.items():
            part = writer.close()
            if part is not None:
                yield name, part

    def __enter__(self) -> PartWriters:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            for writer in self._writers.values():
                writer.abandon()
