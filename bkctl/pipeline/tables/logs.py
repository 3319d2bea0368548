"""Tables ``logs`` and ``log_ledgers``: what headers and ledgers maps of entry logs say.

A log without a map, or with one that does not decode, is walked for its ledgers (``source`` ``walk``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from bkctl.errors import NotFoundError, StorageError
from bkctl.pipeline.tables.arrow_columns import rows_batches
from bkctl.pipeline.tables.known_digests import KnownDigests
from bkctl.pipeline.tables.log_reader import LogReader, corruption, note_lacking
from bkctl.pipeline.tables.log_rows import LogRows
from bkctl.pipeline.tables.log_splits import plan_logs
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.schemas import LOG_LEDGERS, LOGS
from bkctl.pipeline.tables.split import Split, SplitFile, packed
from bkctl.pipeline.tables.stretch_sums import LedgerBytes
from bkctl.pipeline.tables.table import known_columns
from bkctl.pipeline.tables.unread_notes import note_unopened
from bkctl.scan.entrylog import EntryLogHead, read_head
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import FileSystem, PosixFileSystem

#: Heads of logs are small, and so are ledgers maps: this many logs make one task.
_HEADS_PER_SPLIT = 2_000
_MAPS_PER_SPLIT = 200


class Logs:
    """One row for each log; ``damaged`` is by its header and map, ``version`` is null when unreadable."""

    name = "logs"
    schema = LOGS

    def plan(self, paths: Sequence[str], options: TableOptions) -> list[Split]:
        return _groups(_planned(paths, options), _HEADS_PER_SPLIT)

    def read(self, split: Split, columns: Sequence[str], options: TableOptions) -> Iterator[pa.RecordBatch]:
        names = known_columns(self, columns)
        filesystem = PosixFileSystem()
        rows = (row for file in split.files for row in _log_rows(filesystem, file, options))
        for batch in rows_batches(LOGS, rows, options.batch_rows):
            yield batch.select(names)


def _planned(paths: Sequence[str], options: TableOptions) -> list[SplitFile]:
    splits = plan_logs(paths, options, digests=False, pieces=False)
    return [file for split in splits for file in split.files]


def _groups(files: Sequence[SplitFile], size: int) -> list[Split]:
    return [Split(tuple(files[at : at + size])) for at in range(0, len(files), size)]


def _log_rows(filesystem: FileSystem, file: SplitFile, options: TableOptions) -> Iterator[tuple[object, ...]]:
    facts = filesystem.status(file.path)
    try:
        head = _head_of(filesystem, file)
    except NotFoundError:
        facts = None
    except StorageError as error:
        if not note_unopened(options, file.path, error):
            raise
        return
    if facts is None:
        return  # a running bookie's GC removed it since it was listed
    header = head.header
    known = not head.short and not any(damage.offset < 8 for damage in head.damage)
    yield (
        file.bookie,
        file.dir,
        file.id,
        file.path,
        head.size_bytes,
        header.version if known else None,
        header.has_map,
        header.ledgers if header.has_map else None,
        int(facts.mtime_s * 1000),
        bool(head.damage),
    )


def _head_of(filesystem: FileSystem, file: SplitFile) -> EntryLogHead:
    log = SteadyFile(filesystem.open(file.path))
    try:
        return read_head(log)
    finally:
        log.close()


class LogLedgers:
    """One row for each ledger in a log; ``bytes`` counts its records with their size words."""

    name = "log_ledgers"
    schema = LOG_LEDGERS

    def plan(self, paths: Sequence[str], options: TableOptions) -> list[Split]:
        """Plan the newest log of a directory as one to be walked: it has no map while it is written."""
        files = _planned(paths, options)
        newest = {file.dir: file for file in sorted(files, key=lambda file: file.id)}
        walked = [file for file in files if file is newest[file.dir]]
        mapped = [file for file in files if file is not newest[file.dir]]
        by_size = [Split(group) for group in packed(walked, options.split_bytes, options.cores)]
        return by_size + _groups(mapped, _MAPS_PER_SPLIT)

    def read(self, split: Split, columns: Sequence[str], options: TableOptions) -> Iterator[pa.RecordBatch]:
        names = known_columns(self, columns)
        filesystem = PosixFileSystem()
        rows = (row for file in split.files for row in _ledger_rows(filesystem, file, options))
        for batch in rows_batches(LOG_LEDGERS, rows, options.batch_rows):
            yield batch.select(names)


def _ledger_rows(
    filesystem: FileSystem, file: SplitFile, options: TableOptions
) -> Iterator[tuple[object, ...]]:
    unchecked = replace(options, digest="off")
    try:
        reader = LogReader(filesystem, file, KnownDigests(), unchecked)
    except NotFoundError:
        return  # as in _log_rows
    except StorageError as error:
        if not note_unopened(options, file.path, error):
            raise
        return
    with reader:
        if reader.head.ledgers_map is not None:
            totals, source = reader.head.ledgers_map, "map"
            if options.damage == "fail" and reader.head.damage:
                raise corruption(reader.head.damage[0])
        else:
            totals, source = _walked(reader), "walk"
            note_lacking(reader, options)
    for ledger, size in sorted(totals.items()):
        if options.wants_ledger(ledger):
            yield file.bookie, file.dir, file.id, ledger, size, source


def _walked(reader: LogReader) -> dict[int, int]:
    found = LedgerBytes()
    for item in reader.items():
        if isinstance(item, LogRows):
            found.add(item.ledgers, item.sizes)
    return found.totals()
