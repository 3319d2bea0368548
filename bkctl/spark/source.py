"""The data source ``bookkeeper``.

Its options are those of ``TableOptions`` (``docs/spark.md``), and ``table``, ``path`` or ``paths``,
``payload`` (``true`` adds that column to the default schema) and ``pushdown``. A job gives ``plan`` in the
place of paths: a list of files in which its tasks have planned the reading.

``pushdown=true`` lets a query's conditions on ids prune what is read. Spark keeps what it pushed with the
DataFrame it was read as: whatever else is made of the same DataFrame then sees only those rows. So it is off
unless asked for, and meant for a DataFrame that is used once; conditions given as options hold for all uses.
"""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkctl.pipeline.tables.options import TableOptions

_OWN = frozenset({"table", "path", "paths", "payload", "pushdown", "plan"})
_STREAM = frozenset({"startingoffsets", "maxbytespertrigger", "maxfilespertrigger", "failondataloss"})


class BookKeeperSource(DataSource):
    """The data source of ``format("bookkeeper")``; every method but ``name`` raises UsageError for options
    without meaning."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = {key.lower(): value for key, value in options.items()}

    @classmethod
    def name(cls) -> str:
        return "bookkeeper"

    @property
    def _table(self) -> str:
        table = self._given.get("table")
        if table is None:
            raise UsageError("option table: say which one, for example .option('table', 'entries')")
        return table

    @property
    def _paths(self) -> list[str]:
        paths = self._given.get("paths")
        found: list[str] = json.loads(paths) if paths else []
        if self._given.get("plan") is not None:
            return found
        if self._given.get("path"):
            found.append(self._given["path"])
        if not found and not self._given.get("metadata"):
            raise UsageError("no path: name directories of bookies, .load('/data/bookie')")
        return found

    def _options(self) -> TableOptions:
        from bkctl.pipeline.tables.options import parse_options

        others = _OWN | _STREAM
        options = parse_options({key: value for key, value in self._given.items() if key not in others})
        return options if options.cores else replace(options, cores=os.cpu_count() or 1)

    def _flag(self, name: str, default: bool) -> bool:
        from bkctl.pipeline.tables.options import parse_flag

        given = self._given.get(name)
        return default if given is None else parse_flag(name, given)

    def schema(self) -> StructType:
        """Return all columns but ``payload``, which ``payload=true`` adds."""
        from pyspark.sql.pandas.types import from_arrow_schema

        from bkctl.pipeline.tables.registry import table_named
        from bkctl.pipeline.tables.schemas import PAYLOAD, chosen, default_columns

        schema = table_named(self._table).schema
        columns = default_columns(schema)
        if self._flag("payload", default=False):
            if PAYLOAD not in schema.names:
                raise UsageError(f"option payload: table {self._table} has no such column")
            columns.append(PAYLOAD)
        return from_arrow_schema(chosen(schema, columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns of ``schema`` and no others."""
        from bkctl.spark.reader import PushdownReader, TableReader

        self._check_columns(schema)
        pushdown = self._flag("pushdown", default=False)
        kind = PushdownReader if pushdown else TableReader
        plan = self._given.get("plan")
        plans = None if plan is None else json.loads(plan)
        return kind(self._table, self._paths, schema.names, self._options(), plans)

    def _check_columns(self, schema: StructType) -> None:
        """Check columns. Raises UsageError for one that the table lacks, or has with another type."""
        from pyspark.sql.pandas.types import from_arrow_type

        from bkctl.pipeline.tables.registry import table_named
        from bkctl.pipeline.tables.table import known_columns

        table = table_named(self._table)
        known_columns(table, schema.names)
        for field in schema.fields:
            ours = from_arrow_type(table.schema.field(field.name).type)
            if field.dataType != ours:
                raise UsageError(
                    f"table {table.name}: column {field.name} is {ours.simpleString()}, "
                    f"not {field.dataType.simpleString()}"
                )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a stream of the entry logs of the paths; only table ``entries`` can be streamed."""
        from bkctl.spark.stream import EntryStream, StreamOptions

        if self._table != "entries":
            raise UsageError(f"table {self._table}: only entries can be streamed")
        self._check_columns(schema)
        given = {key: value for key, value in self._given.items() if key in _STREAM}
        return EntryStream(self._paths, schema.names, self._options(), StreamOptions.parse(given))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of table ``index_locations`` into the ``locations`` database of a directory."""
        from bkctl.spark.index_writer import IndexWriter

        if self._table != "index_locations":
            raise UsageError(f"table {self._table}: only index_locations can be written")
        (directory,) = self._paths
        return IndexWriter(directory, schema.names, overwrite=overwrite)
