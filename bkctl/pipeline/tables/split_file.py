"""Splits in a file: what a task has planned, for the tasks that read.

An Arrow file with a record batch for each split and a row for each of its files, which whoever has the
number of a split finds without reading the others. Nothing in it is code.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from bkctl.errors import as_storage_errors
from bkctl.pipeline.locations import arrow_file, opened_file
from bkctl.pipeline.tables.known_digests import KnownDigests
from bkctl.pipeline.tables.split import Split, SplitFile
from bkctl.pipeline.tables.stored_digests import StoredDigests

_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("dir", pa.string()),
        ("bookie", pa.string()),
        ("id", pa.int64()),
        ("bytes", pa.int64()),
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("kind", pa.string()),
        ("ledgers", pa.binary()),
        ("digests", pa.string()),
    ]
)


def write_splits(path: str, splits: Iterable[Split]) -> tuple[int, int]:
    """Write a file of splits; return how many, and how much there is to read of them. Raises StorageError.

    ``path`` may be a URL.
    """
    count = size = 0
    filesystem, name = opened_file(path)
    with (
        as_storage_errors(path),
        filesystem.open_output_stream(name) as stream,
        pa.ipc.new_file(stream, _SCHEMA) as writer,
    ):
        for split in splits:
            writer.write_batch(_batch(split))
            count += 1
            size += split.bytes
    return count, size


def _batch(split: Split) -> pa.RecordBatch:
    stored = split.known
    if not isinstance(stored, StoredDigests) and len(stored):
        raise ValueError("digests of ledgers do not go into a file of splits")
    digests = stored.path if isinstance(stored, StoredDigests) else None
    rows = [
        {
            **{name: getattr(file, name) for name in _SCHEMA.names[:7]},
            "kind": split.kind,
            "ledgers": split.ledgers,
            "digests": digests,
        }
        for file in split.files
    ]
    return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def splits_in(path: str) -> int:
    """Return how many splits are in a file. Raises StorageError."""
    with arrow_file(path) as file:
        return int(file.num_record_batches)


def planned_split(path: str, number: int, digest_secret: bytes | None = None) -> Split:
    """Return one split of a file; ``digest_secret`` opens the keys of its digests. Raises StorageError."""
    with arrow_file(path) as file:
        rows = file.get_batch(number).to_pylist()
    files = tuple(SplitFile(**{name: row[name] for name in _SCHEMA.names[:7]}) for row in rows)
    one = rows[0]
    known = KnownDigests() if one["digests"] is None else StoredDigests(one["digests"], digest_secret)
    return Split(files, known, one["ledgers"], one["kind"])
