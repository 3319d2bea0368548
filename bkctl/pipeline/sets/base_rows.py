"""Rows that a pass takes over from the set before."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from bkctl.errors import StorageError
from bkctl.pipeline.sets.store import CompleteSet


class BaseUnreadError(StorageError):
    """The set before has a file that cannot be read, or has lost one: nothing can be taken over from it."""


def base_rows(
    base: CompleteSet, table: str, schema: pa.Schema, wanted: pc.Expression
) -> Iterator[pa.RecordBatch]:
    """Give rows of a table out of an earlier set. Raises BaseUnreadError."""
    names = [f"{base.location.path}/{part.name}" for part in base.manifest.tables.get(table, ()) if part.rows]
    if not names:
        return
    try:
        data = ds.dataset(names, schema=schema, format="parquet", filesystem=base.location.filesystem)
        yield from data.to_batches(filter=wanted, batch_readahead=2, fragment_readahead=1)
    except (OSError, pa.ArrowException) as error:
        text = base.location.text
        raise BaseUnreadError(f"{text}, table {table}: {error}", path=text) from error
