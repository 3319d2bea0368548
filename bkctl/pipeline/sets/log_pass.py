"""One reading of one entry log into all tables of a set that are about it.

The tables that ``bkctl.pipeline.tables`` reads one by one are made here from the same windows: runs, ledgers,
digests, blocks. A log with a fault is read once more, to find the exact damage.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from bkctl.errors import NotFoundError, StorageError
from bkctl.pipeline.sets.blocks import Blocks, BlockSums
from bkctl.pipeline.sets.manifest import PARTLY_READ, UNREADABLE, SetFile
from bkctl.pipeline.sets.set_tables import BLOCKS, STRIPED_RUNS
from bkctl.pipeline.sets.stripes import Stripes, concatenated_stripes, joined_stripes, striped
from bkctl.pipeline.tables.arrow_columns import batch_of, rows_batches
from bkctl.pipeline.tables.checks import check_rows
from bkctl.pipeline.tables.damage import ENTRY_LOG, LogJudge, damage_rows, everything_of, unread_row
from bkctl.pipeline.tables.known_digests import KnownDigests
from bkctl.pipeline.tables.log_reader import LogReader
from bkctl.pipeline.tables.log_rows import LogRows, wanted_rows
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.run_lengths import RunJoiner, Runs
from bkctl.pipeline.tables.runs import window_runs
from bkctl.pipeline.tables.schemas import LOG_LEDGERS, LOGS, VERIFICATION
from bkctl.pipeline.tables.split import Split, SplitFile
from bkctl.pipeline.tables.stored_digests import StoredDigests
from bkctl.pipeline.tables.verification import check_row, damage_row
from bkctl.vfs import FileSystem, PosixFileSystem

Keep = Callable[[str, Iterator[pa.RecordBatch]], None]

_END_BYTES = 4096
#: In place of the checksum of an end that cannot be read.
UNREAD_END = -1
#: Runs that are held before they are joined: their columns stay in a processor's cache.
_RUNS_HELD = 1 << 14
#: Stripes of a log that are held until its end, to be joined once more.
_STRIPES_MAX = 1 << 20


def file_state(filesystem: FileSystem, kind: str, file: SplitFile) -> SetFile | None:
    """Look at a file without reading it: size, time, checksums of both ends; None when it is gone.

    A file whose ends the disk does not give (``UNREAD_END``) is not that of any other look, and what it holds
    is for its reader to say. Raises StorageError where the system refuses it to this user.
    """
    facts = filesystem.status(file.path)
    if facts is None:
        return None
    size, head, tail = facts.size_bytes, UNREAD_END, UNREAD_END
    try:
        opened = filesystem.open(file.path)
        try:
            size = opened.size_bytes
            head = zlib.crc32(opened.read_at(0, _END_BYTES))
            tail = zlib.crc32(opened.read_at(max(0, size - _END_BYTES), _END_BYTES))
        finally:
            opened.close()
    except NotFoundError:
        return None
    except StorageError as error:
        if error.is_denied:
            raise
    mtime_ms = int(facts.mtime_s * 1000)
    return SetFile(kind, file.dir, file.id, file.path, size, mtime_ms, head, tail, "read", 0)


class LogPass:
    """Reads logs into ``keep(table, batches)``; ``pace`` gets the bytes that were read."""

    def __init__(self, options: TableOptions, keep: Keep, pace: Callable[[int], None]) -> None:
        self._options = replace(everything_of(options), cores=0)
        self._keep = keep
        self._pace = pace

    def read(self, file: SplitFile, known: KnownDigests | StoredDigests, looked_at: SetFile) -> SetFile:
        """Read a log; what was seen of it is the state that is returned."""
        filesystem = PosixFileSystem()
        try:
            with LogReader(filesystem, file, known, self._options) as reader:
                whole = self._tables(file, reader, looked_at)
                sealed = reader.head.ledgers_map is not None
                lacks = reader.lacks_records or reader.broken is not None
                state = PARTLY_READ if lacks else looked_at.state
        except NotFoundError:
            return replace(looked_at, state="gone")
        except StorageError as error:
            row = damage_row(unread_row(file, ENTRY_LOG, error))
            self._keep("verification", rows_batches(VERIFICATION, [row], 1))
            return replace(looked_at, state=UNREADABLE, whole=False)
        if not whole:
            structure = replace(self._options, digest="off", metadata=None)
            rows = damage_rows(file, Split((file,), kind=ENTRY_LOG), structure, known_unclean=True)
            self._keep(
                "verification",
                rows_batches(VERIFICATION, map(damage_row, rows), self._options.batch_rows),
            )
        return replace(looked_at, state=state, sealed=sealed, whole=whole and state != PARTLY_READ)

    def _tables(self, file: SplitFile, reader: LogReader, looked_at: SetFile) -> bool:
        """Write the rows of all tables; return whether the log is clean."""
        judge = LogJudge()
        seen = _Seen(file.id)
        windows = (wanted_rows(seen.add(rows), self._options) for rows in self._paced(judge.windows(reader)))
        checks = map(check_row, check_rows(file, windows, self._options))
        self._keep("verification", rows_batches(VERIFICATION, checks, self._options.batch_rows))
        clean = judge.is_clean(reader) and seen.well
        stripes, blocks = seen.end()
        checked = self._options.digest != "off"
        if stripes is not None:
            self._keep("runs", iter([_run_batch(file, stripes, checked=checked)]))
        if blocks is not None:
            self._keep("blocks", iter([_block_batch(file, blocks)]))
        mapped = reader.head.ledgers_map
        totals, source = (judge.totals(), "walk") if mapped is None else (mapped, "map")
        ledgers = (
            (file.bookie, file.dir, file.id, ledger, size, source) for ledger, size in sorted(totals.items())
        )
        self._keep("log_ledgers", rows_batches(LOG_LEDGERS, ledgers, self._options.batch_rows))
        head = reader.head
        known = not head.short and not any(damage.offset < 8 for damage in head.damage)
        log = (
            file.bookie,
            file.dir,
            file.id,
            file.path,
            head.size_bytes,
            head.header.version if known else None,
            head.header.has_map,
            head.header.ledgers if head.header.has_map else None,
            looked_at.mtime_ms,
            bool(head.damage),
        )
        self._keep("logs", rows_batches(LOGS, [log], 1))
        return clean

    def _paced(self, windows: Iterator[LogRows]) -> Iterator[LogRows]:
        for rows in windows:
            if len(rows):
                self._pace(int(rows.sizes.sum()) + 4 * len(rows))
            yield rows


class _Seen:
    """Runs, blocks and stripes of one log, window by window; ``well`` until an entry's digest fails."""

    def __init__(self, log_id: int) -> None:
        self._log_id = log_id
        self._joiner = RunJoiner(_RUNS_HELD)
        self._stripes: list[Stripes] = []
        self._rows = 0
        self._blocks = BlockSums()
        self.well = True

    def add(self, rows: LogRows) -> LogRows:
        """Take a window, and give it back."""
        if len(rows):
            self.well = self.well and not bool((rows.results == 0).any())
            self._take(self._joiner.add(window_runs(self._log_id, rows)))
            self._blocks.add(rows)
        return rows

    def _take(self, runs: Runs | None) -> None:
        if runs is None or not len(runs):
            return
        self._stripes.append(striped(runs))
        self._rows += len(self._stripes[-1])
        if self._rows > _STRIPES_MAX:
            self._join()

    def _join(self) -> None:
        if len(self._stripes) > 1:
            rows = concatenated_stripes(self._stripes)
            rows = rows.select(rows.ledgers.argsort(kind="stable"))
            self._stripes = [joined_stripes(rows)]
        self._rows = 0

    def end(self) -> tuple[Stripes | None, Blocks | None]:
        """Return what the log holds; None of no entry."""
        self._take(self._joiner.end())
        if not self._stripes:
            return None, None
        self._join()
        return self._stripes[0], self._blocks.end(self._stripes[0])


def _run_batch(file: SplitFile, stripes: Stripes, *, checked: bool) -> pa.RecordBatch:
    no_lac = stripes.min_lac > stripes.max_lac
    made = {
        "ledger": pa.array(stripes.ledgers),
        "first": pa.array(stripes.first),
        "last": pa.array(stripes.last),
        "entries": pa.array(stripes.entries),
        "bytes": pa.array(stripes.bytes),
        "min_lac": pa.array(stripes.min_lac, mask=no_lac),
        "max_lac": pa.array(stripes.max_lac, mask=no_lac),
        "ids_hash": pa.array(stripes.hashes),
        "step": pa.array(stripes.step.astype("int32")),
        "width": pa.array(stripes.width.astype("int32")),
        "phase": pa.array(stripes.phase.astype("int32")),
    }
    if checked:
        made["bad_digests"] = pa.array(stripes.bad)
    constants = {"bookie": file.bookie, "dir": file.dir, "log_id": file.id, "bad_digests": None}
    return batch_of(STRIPED_RUNS, STRIPED_RUNS.names, len(stripes), made, constants)


def _block_batch(file: SplitFile, blocks: Blocks) -> pa.RecordBatch:
    made = {
        "ledger": pa.array(blocks.ledgers),
        "block": pa.array(blocks.block),
        "step": pa.array(blocks.step.astype("int32")),
        "residue": pa.array(blocks.residue.astype("int32")),
        "entries": pa.array(blocks.entries),
        "digest": pa.array(blocks.digests),
    }
    constants = {"bookie": file.bookie, "dir": file.dir, "log_id": file.id}
    return batch_of(BLOCKS, BLOCKS.names, len(blocks), made, constants)
