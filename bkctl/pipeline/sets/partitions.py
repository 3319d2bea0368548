"""Partition the tables of sets by bookie and day, as SQL engines find them.

::

    <folder>/_bkctl-tables.json                                      it is a folder of such tables
    <folder>/<table>/bookie=<bookie>/day=<YYYY-MM-DD>/<set>.parquet  rows of a set; without column bookie
    <folder>/sets/bookie=<bookie>/day=<YYYY-MM-DD>/<set>.parquet     one row: the set; written last
    <folder>/_replacing/<set>/<table>.parquet                        what will take the place of an older set
    <folder>/_exports/                                               who writes (see ``export_turn``)

The day is that on which the pass of a set began, in UTC. Of each bookie and day there is one set. A partition
of table ``sets`` says that the partitions of the other tables are whole: a reader that joins it sees nothing
of an export that did not finish. The rows that replace another set's are all written before anything of that
one is removed. Engines do not read folders whose names begin with ``_``. Names of directories are those of
Hive: what is no letter, digit or one of ``._-`` is escaped with ``%``.

Table ``sets`` has a row for each set::

    set_id       string         name of the set in its store
    started_ms   int64          when its pass began, milliseconds since 1970
    ended_ms     int64          when it ended
    host         string         the machine on which it was made
    instance_id  string         the cluster; null where it is not known
    verdict      string         clean, found or unexamined
    guards       list<string>   what could not be read, or was not given
    not_read     list<string>   tables that lack a part
    tables       list<string>   tables that were exported
    rows         int64          rows of these
    log_bytes    int64          bytes of the bookie's entry logs
    version      string         version of bkctl that made the set
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bkctl.errors import CorruptionError, RefusedError, StorageError
from bkctl.pipeline.locations import Location
from bkctl.pipeline.sets.manifest import PartFile
from bkctl.pipeline.sets.parts import PartWriter
from bkctl.pipeline.sets.set_tables import TABLES
from bkctl.pipeline.sets.store import CompleteSet
from bkctl.reporting import Advance, counted, nobody

FOLDER_MARK = "_bkctl-tables.json"
SETS_TABLE = "sets"
REPLACING_FOLDER = "_replacing"
_MARK_TEXT = b'{"format":1}\n'

SETS = pa.schema(
    [
        ("set_id", pa.string()),
        ("started_ms", pa.int64()),
        ("ended_ms", pa.int64()),
        ("host", pa.string()),
        ("instance_id", pa.string()),
        ("verdict", pa.string()),
        ("guards", pa.list_(pa.string())),
        ("not_read", pa.list_(pa.string())),
        ("tables", pa.list_(pa.string())),
        ("rows", pa.int64()),
        ("log_bytes", pa.int64()),
        ("version", pa.string()),
    ]
)

#: States of an export: written; there before, with all its tables; another set of that day is there and
#: stays; another set of that day was there; not to be read or written.
EXPORTED, UNCHANGED, KEPT, REPLACED, FAILED = "exported", "unchanged", "kept", "replaced", "failed"

#: Rows that are read at once. A set's row groups have up to four times as many.
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class ExportedSet:
    """The result of exporting a set: ``state``, and rows and bytes of the files that were written."""

    complete: CompleteSet
    day: str
    state: str
    tables: tuple[str, ...] = ()
    rows: int = 0
    bytes: int = 0
    why: str | None = None
    #: Tables that were asked for, and that the set that stays does not have.
    lacks: tuple[str, ...] = ()

    def as_row(self) -> dict[str, Any]:
        """Return the set as a row of JSON."""
        return {
            "bookie": self.complete.manifest.bookie,
            "day": self.day,
            "set": self.complete.location.text,
            "state": self.state,
            "verdict": self.complete.manifest.verdict,
            "tables": list(self.tables),
            "rows": self.rows,
            "bytes": self.bytes,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class _Published:
    """The set whose rows a partition has, as its row of table ``sets`` says."""

    set_id: str
    started_ms: int
    tables: frozenset[str]


class PartitionedTables:
    """A folder of tables, partitioned by bookie and day. Every method raises StorageError."""

    def __init__(self, location: Location, check_turn: Callable[[], None] = lambda: None) -> None:
        """Name the folder; ``check_turn`` raises StorageError where another export may write to it."""
        self.location = location
        self._check_turn = check_turn

    def claim(self) -> None:
        """Make the directory a folder of tables. Raises RefusedError where something else is."""
        if self.location.holds(FOLDER_MARK):
            return
        names = self.location.names()
        if names:
            raise RefusedError(
                f"--to {self.location.text}: holds {names[0]}, but no exported tables; "
                "choose another directory"
            )
        self.location.write(FOLDER_MARK, _MARK_TEXT)

    def export(
        self,
        sets: Iterable[CompleteSet],
        tables: Sequence[str],
        replace: bool,
        threads: int,
        advance: Advance,
    ) -> Iterator[ExportedSet]:
        """Write the rows of sets, each of another bookie, several at a time; they come in their order.

        One that cannot be read or written is reported, and the others are done all the same.
        """

        def exported(one: CompleteSet) -> ExportedSet:
            try:
                return self.export_set(one, tables, replace, advance)
            except (StorageError, CorruptionError) as error:
                return ExportedSet(one, day_of(one), FAILED, why=str(error))

        self.location.child(REPLACING_FOLDER).remove()  # of an export that was killed
        with ThreadPoolExecutor(threads, "export") as pool:
            yield from pool.map(exported, sets)

    def export_set(
        self, one: CompleteSet, tables: Sequence[str], replace: bool = False, advance: Advance = nobody
    ) -> ExportedSet:
        """Write the rows of a set, unless those of another set of that day are there.

        With ``replace`` an older set gives way, once all of the new one has been written; a newer one stays.
        Raises CorruptionError for a set whose rows are not those that its manifest counts.
        """
        self._check_turn()
        day = day_of(one)
        partition = f"bookie={quote(one.manifest.bookie, safe='')}/day={day}"
        there = self._published(partition)
        if there is None:
            # Tables of an export that did not finish, or whose row is torn, are written again.
            wanted = _ordered({*tables, *self._standing(partition)})
            self._clear(partition)
            return self._written(one, day, partition, EXPORTED, wanted, advance)
        if there.set_id == one.manifest.set_id:
            whole = there.tables - self._removed(one, there.tables, partition)
            missing = _ordered({*tables, *there.tables} - whole)
            if not missing:
                return ExportedSet(one, day, UNCHANGED)
            return self._written(one, day, partition, EXPORTED, missing, advance, whole)
        if not replace or there.started_ms > one.manifest.started_ms:
            lacks = tuple(_ordered(set(tables) - there.tables))
            why = f"set {there.set_id} of that day is there"
            why += f", without {', '.join(lacks)}" if lacks else ""
            return ExportedSet(one, day, KEPT, why=why, lacks=lacks)
        return self._replaced(one, day, partition, _ordered(there.tables.union(tables)), advance)

    def _written(
        self,
        one: CompleteSet,
        day: str,
        partition: str,
        state: str,
        tables: Sequence[str],
        advance: Advance,
        before: Iterable[str] = (),
    ) -> ExportedSet:
        """Write tables of a set, and then its row; tables of ``before`` are there."""
        places = {table: _place(one, table, partition) for table in tables}
        written = self._write_tables(one, places, advance)
        self._write_row(one, partition, _ordered({*before, *tables}))
        return _counted(one, day, state, tables, written.values())

    def _replaced(
        self, one: CompleteSet, day: str, partition: str, tables: Sequence[str], advance: Advance
    ) -> ExportedSet:
        """Write tables of a set beside those of an older one, and let them take their place.

        An error before the older set's row is removed leaves all of that set; one behind it leaves a day
        without a row, and the next export of the set writes it again.
        """
        folder = f"{REPLACING_FOLDER}/{one.manifest.set_id}"
        beside = {table: f"{folder}/{table}.parquet" for table in tables}
        try:
            written = self._write_tables(one, beside, advance)
            self._check_turn()
            self._clear(partition)
            for table in written:
                self.location.move_file(beside[table], _place(one, table, partition))
            self._write_row(one, partition, tables)
        finally:
            self.location.child(folder).remove()
        return _counted(one, day, REPLACED, tables, written.values())

    def _removed(self, one: CompleteSet, tables: Iterable[str], partition: str) -> set[str]:
        """Return those of the set's tables that have rows, but no file in the partition any more."""
        return {
            table
            for table in tables
            if any(part.rows for part in one.manifest.tables.get(table, ()))
            and not self.location.holds(_place(one, table, partition))
        }

    def _published(self, partition: str) -> _Published | None:
        """Return what the row of ``sets`` says; None without one that is whole: its export did not finish."""
        folder = self.location.child(SETS_TABLE).child(partition)
        for name in folder.names():
            path = f"{folder.path}/{name}"
            try:
                (row,) = pq.read_table(path, filesystem=folder.filesystem, partitioning=None).to_pylist()
                return _Published(row["set_id"], row["started_ms"], frozenset(row["tables"]))
            except (pa.ArrowInvalid, ValueError, KeyError):
                continue
            except OSError as error:
                raise StorageError(f"{folder.text_of(name)}: {error}", path=folder.text_of(name)) from error
        return None

    def _standing(self, partition: str) -> list[str]:
        """Return the tables that have anything in a partition."""
        return [table for table in TABLES if self.location.child(table).child(partition).names()]

    def _clear(self, partition: str) -> None:
        """Remove a partition of all tables: that of ``sets`` first."""
        for table in (SETS_TABLE, *TABLES):
            folder = self.location.child(table).child(partition)
            if folder.names():
                folder.remove()

    def _write_tables(
        self, one: CompleteSet, places: dict[str, str], advance: Advance
    ) -> dict[str, PartFile]:
        """Write tables of a set to their places; return the files of those that have rows."""
        written = {}
        for table, place in places.items():
            kept = pa.schema([field for field in TABLES[table] if field.name != "bookie"])
            with PartWriter(self.location, place, kept) as writer:
                for batch in _rows_of_table(one, table, advance):
                    writer.add(batch.select(kept.names))
                part = writer.close()
            if part is not None:
                written[table] = part
        return written

    def _write_row(self, one: CompleteSet, partition: str, tables: Sequence[str]) -> None:
        manifest = one.manifest
        row = {
            "set_id": manifest.set_id,
            "started_ms": manifest.started_ms,
            "ended_ms": manifest.ended_ms,
            "host": manifest.host,
            "instance_id": manifest.instance_id,
            "verdict": manifest.verdict,
            "guards": list(manifest.guards),
            "not_read": sorted(manifest.not_read),
            "tables": list(tables),
            "rows": sum(part.rows for name in tables for part in manifest.tables.get(name, ())),
            "log_bytes": sum(file.bytes for file in manifest.files if file.kind == "entry_log"),
            "version": manifest.version,
        }
        with PartWriter(self.location, _place(one, SETS_TABLE, partition), SETS) as writer:
            writer.add(pa.RecordBatch.from_pylist([row], schema=SETS))
            writer.close()


def _place(one: CompleteSet, table: str, partition: str) -> str:
    """Return where a table of a set is, in the folder."""
    return f"{table}/{partition}/{one.manifest.set_id}.parquet"


def _counted(
    one: CompleteSet, day: str, state: str, tables: Sequence[str], written: Iterable[PartFile]
) -> ExportedSet:
    parts = list(written)
    rows, size = sum(part.rows for part in parts), sum(part.bytes for part in parts)
    return ExportedSet(one, day, state, tuple(tables), rows, size)


def day_of(one: CompleteSet) -> str:
    """Return the day on which the pass of a set began, in UTC."""
    started = datetime.datetime.fromtimestamp(one.manifest.started_ms / 1000, datetime.UTC)
    return f"{started:%Y-%m-%d}"


def _ordered(tables: Iterable[str]) -> list[str]:
    """Return tables in the order in which they are written."""
    asked = set(tables)
    return [name for name in TABLES if name in asked]


def _rows_of_table(one: CompleteSet, table: str, advance: Advance = nobody) -> Iterator[pa.RecordBatch]:
    """Give the rows of a table of a set. Raises CorruptionError, StorageError."""
    for part in one.manifest.tables.get(table, ()):
        yield from _rows_of(one, part, TABLES[table])
        advance(part.bytes)


def _rows_of(one: CompleteSet, part: PartFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Give the rows of a file of a set. Raises CorruptionError, StorageError."""
    text = one.location.text_of(part.name)
    rows = 0
    try:
        with one.location.filesystem.open_input_file(f"{one.location.path}/{part.name}") as stream:
            for batch in pq.ParquetFile(stream).iter_batches(_BATCH_ROWS):
                _check_bookie(batch, one.manifest.bookie, text)
                rows += batch.num_rows
                yield batch.cast(schema)
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise CorruptionError("table of a set", expected="rows", found=str(error), path=text) from error
    except OSError as error:
        raise StorageError(f"{text}: {error}", path=text) from error
    if rows != part.rows:
        raise CorruptionError(
            "table of a set", expected=counted(part.rows, "row"), found=f"{rows}", path=text
        )


def _check_bookie(batch: pa.RecordBatch, bookie: str, text: str) -> None:
    """Check that rows are of the bookie whose partition they go to. Raises CorruptionError."""
    others = [name for name in pc.unique(batch.column("bookie")).to_pylist() if name not in (bookie, None)]
    if others:
        raise CorruptionError(
            "table of a set", expected=f"rows of bookie {bookie}", found=f"bookie {others[0]}", path=text
        )
