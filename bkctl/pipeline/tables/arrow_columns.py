"""Windows of entries as Arrow columns, without a Python object for an entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bkctl.codec.digest import DIGEST_BYTES
from bkctl.codec.entry import HEADER_BYTES
from bkctl.pipeline.tables.log_digests import KINDS
from bkctl.pipeline.tables.log_rows import LogRows
from bkctl.pipeline.tables.schemas import PAYLOAD, PAYLOAD_CRC, chosen
from bkctl.scan.columns.column import Column
from bkctl.scan.columns.log_columns import gather_i64

_SIZE_BYTES = 4
#: Offset of the payload in a body, by digest type.
_FRONTS = np.array([HEADER_BYTES + DIGEST_BYTES[kind] for kind in KINDS], np.int64)

ColumnMaker = Callable[[LogRows], pa.Array]


def constant(value: str | int | None, kind: pa.DataType, count: int) -> pa.Array:
    """Return ``count`` times the same value, null included."""
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def header_field(rows: LogRows, position: int) -> pa.Array:
    """Return an i64 of the entries' headers, null where the body is too short for a header."""
    whole = rows.sizes >= HEADER_BYTES
    if whole.all():
        return pa.array(gather_i64(rows.buffer, rows.starts + _SIZE_BYTES + position))
    if not whole.any():
        return pa.nulls(len(rows), pa.int64())
    # The buffer holds a whole header somewhere, so that reading at its first byte stays inside.
    starts = np.where(whole, rows.starts, 0)
    return pa.array(gather_i64(rows.buffer, starts + _SIZE_BYTES + position), mask=~whole)


def payload_lengths(rows: LogRows) -> tuple[Column, NDArray[np.bool_]]:
    """Return the bytes of payload, and which are unknown: the digest type is, or the body is too short."""
    lengths = rows.sizes - _FRONTS[rows.kinds]
    return lengths, (rows.kinds < 0) | (lengths < 0)


def _payload_bytes(rows: LogRows) -> pa.Array:
    lengths, unknown = payload_lengths(rows)
    return pa.array(lengths.astype(np.int32), mask=unknown)


def _digest(rows: LogRows) -> pa.Array:
    kinds = rows.kinds
    if (kinds == kinds[0]).all():
        name = None if kinds[0] < 0 else KINDS[int(kinds[0])].value
        return constant(name, pa.string(), len(rows))
    # Not made at import: it loads pandas, half a second in each process that only plans.
    names = pa.array([kind.value for kind in KINDS])
    return names.take(pa.array(kinds, mask=kinds < 0))


def _digest_ok(rows: LogRows) -> pa.Array:
    return pa.array(rows.results == 1, mask=rows.results < 0)


def _payload(rows: LogRows) -> pa.Array:
    """Return the payloads, copied once.

    Between two of them lies what is not payload, so that every second value of a binary array over the whole
    buffer is one; a null one is empty there.
    """
    lengths, unknown = payload_lengths(rows)
    ends = rows.starts + _SIZE_BYTES + rows.sizes
    begins = ends - np.where(unknown, 0, lengths)
    offsets = np.empty(2 * len(rows), np.int32)
    offsets[::2] = begins
    offsets[1::2] = ends
    whole = pa.Array.from_buffers(
        pa.binary(),
        2 * len(rows) - 1,
        [None, pa.py_buffer(offsets), pa.py_buffer(rows.buffer)],
    )
    return whole.take(pa.array(np.arange(0, 2 * len(rows), 2, dtype=np.int32), mask=unknown))


def _payload_crc(rows: LogRows) -> pa.Array:
    from crc32c import crc32c

    lengths, unknown = payload_lengths(rows)
    view = memoryview(rows.buffer)
    ends = rows.starts + _SIZE_BYTES + rows.sizes
    begins = ends - np.where(unknown, 0, lengths)
    found = [crc32c(view[a:b]) for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
    return pa.array(np.array(found, np.int64), mask=unknown)


ENTRY_MAKERS: dict[str, ColumnMaker] = {
    "size": lambda rows: pa.array(rows.sizes.astype(np.int32)),
    "ledger": lambda rows: pa.array(rows.ledgers),
    "entry": lambda rows: pa.array(rows.entries),
    "lac": lambda rows: header_field(rows, 16),
    "ledger_length": lambda rows: header_field(rows, 24),
    "payload_bytes": _payload_bytes,
    "digest": _digest,
    "digest_ok": _digest_ok,
    PAYLOAD_CRC: _payload_crc,
    PAYLOAD: _payload,
}


def batch_of(
    schema: pa.Schema,
    names: Sequence[str],
    count: int,
    made: Mapping[str, pa.Array],
    constants: Mapping[str, str | int | None],
) -> pa.RecordBatch:
    """Make a batch of ``count`` rows with the columns ``names`` of a table's ``schema``, also with none.

    ``made`` has columns, ``constants`` the one value that all rows have; between them every name.
    """
    if not names:
        rows = pa.StructArray.from_arrays([constant(0, pa.int8(), count)], names=["row"])
        return pa.RecordBatch.from_struct_array(rows).select([])
    arrays = [
        made[name] if name in made else constant(constants[name], schema.field(name).type, count)
        for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=chosen(schema, names))


def joined(batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Join rows into larger batches: up to ``rows_max`` rows, and about ``bytes_max`` bytes."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if waiting and (rows + batch.num_rows > rows_max or size + batch.nbytes > bytes_max):
            yield _one(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def rows_batches(
    schema: pa.Schema, rows: Iterable[tuple[object, ...]], rows_max: int
) -> Iterator[pa.RecordBatch]:
    """Yield few rows given as tuples, in batches; for tables that have a row per file or per ledger."""
    waiting: list[tuple[object, ...]] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) >= rows_max:
            yield _from_rows(schema, waiting)
            waiting = []
    if waiting:
        yield _from_rows(schema, waiting)


def _from_rows(schema: pa.Schema, rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(list(values), kind) for values, kind in zip(columns, schema.types, strict=True)],
        schema=schema,
    )
