"""Tables ``ledgers`` and ``fragments``: ledger metadata, from a store's URI or a dump.

A fragment is what one slot of one ensemble has to hold: one row for each segment of a ledger and each slot of
its ensemble. ``last_entry`` is null in the last segment of a ledger that is not closed. ``application`` and
``topic`` are what the custom metadata of a ledger say of its owner, in Apache Pulsar's names.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import pyarrow as pa

from bkctl.codec.pulsar_names import ledger_owner
from bkctl.pipeline.tables.arrow_columns import rows_batches
from bkctl.pipeline.tables.ledger_source import (
    DescribedLedger,
    described_ledgers,
    is_uri,
    ledger_ids,
    metadata_of,
)
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.schemas import FRAGMENTS, LEDGERS
from bkctl.pipeline.tables.split import Split, SplitFile
from bkctl.pipeline.tables.table import known_columns
from bkctl.types import LedgerState
from bkctl.vfs import PosixFileSystem

#: Ledgers that one task reads from a metadata store.
_LEDGERS_PER_SPLIT = 20_000

_Row = tuple[object, ...]


class MetadataTable:
    """A table of rows made from ledgers one by one."""

    def __init__(
        self, name: str, schema: pa.Schema, rows: Callable[[DescribedLedger], Iterable[_Row]]
    ) -> None:
        self.name = name
        self.schema = schema
        self._rows = rows

    def plan(self, paths: Sequence[str], options: TableOptions) -> list[Split]:
        metadata = metadata_of(options, paths)
        source = SplitFile(metadata, "", None, 0, 0)
        if not is_uri(metadata):
            return [Split((source,))]
        ids = (ledger for ledger in ledger_ids(metadata) if options.wants_ledger(ledger))
        splits = []
        while part := list(islice(ids, _LEDGERS_PER_SPLIT)):
            splits.append(Split((source,), ledgers=array("q", part).tobytes()))
        return splits

    def read(self, split: Split, columns: Sequence[str], options: TableOptions) -> Iterator[pa.RecordBatch]:
        names = known_columns(self, columns)
        wanted = None if split.ledgers is None else array("q", split.ledgers)
        described = described_ledgers(PosixFileSystem(), split.files[0].path, wanted)
        rows = (row for item in described if options.wants_ledger(item.ledger) for row in self._rows(item))
        for batch in rows_batches(self.schema, rows, options.batch_rows):
            yield batch.select(names)


def ledger_rows(item: DescribedLedger) -> Iterator[_Row]:
    """Yield the one row of a ledger."""
    found = item.metadata
    owner = ledger_owner(found.custom_metadata)
    yield (
        item.ledger,
        found.state.value,
        None if found.digest_type is None else found.digest_type.value,
        found.ensemble_size,
        found.write_quorum,
        found.ack_quorum,
        found.length,
        found.last_entry,
        item.ctime_ms,
        [{"first_entry": part.first_entry, "bookies": list(part.bookies)} for part in found.segments],
        [(name, base64.b64encode(value).decode("ascii")) for name, value in found.custom_metadata],
        item.version,
        owner.application,
        owner.topic,
    )


def fragment_rows(item: DescribedLedger) -> Iterator[_Row]:
    """Yield one row for each segment and slot; none for a segment that turned out empty."""
    found = item.metadata
    closed = found.state is LedgerState.CLOSED
    segments = found.segments
    for number, segment in enumerate(segments):
        if number + 1 < len(segments):
            last: int | None = segments[number + 1].first_entry - 1
        else:
            last = found.last_entry if closed else None
        if last is not None and last < segment.first_entry:
            continue
        for slot, bookie in enumerate(segment.bookies):
            yield (
                item.ledger,
                segment.first_entry,
                last,
                slot,
                bookie,
                found.ensemble_size,
                found.write_quorum,
                found.ack_quorum,
                found.state.value,
            )


ledgers_table = MetadataTable("ledgers", LEDGERS, ledger_rows)
fragments_table = MetadataTable("fragments", FRAGMENTS, fragment_rows)
