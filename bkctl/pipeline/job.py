"""The parts of a pipeline job: tables in, one SQL text, tables out, and what of these is a finding.

The text stands in ``jobs/NAME.sql`` and is a sequence of named queries, each under a line of its own::

    -- view NAME      a query that later ones use
    -- step NAME      the same, written down first, because several queries use it or it is costly
    -- table NAME     a result: written as ``OUT/NAME/*.parquet``, its columns cast as declared
    -- expand NAME    no query: inputs that wait for it are read now, only of the ledgers in it

It keeps to what DuckDB and Spark SQL mean the same by: columns that are keywords are qualified
(``e.offset``), integers are divided by the functions of :mod:`bkctl.pipeline.portable_sql`, sums are cast,
and no order of rows is relied upon. One result is named ``summary`` and has one row of counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Literal

from bkctl.errors import UsageError

#: The job that is no SQL text (``bkctl.pipeline.index_rebuild``).
REBUILD_NAME = "index-rebuild"

_HEADING = re.compile(r"^-- (view|step|table|expand) ([a-z_]+)$", re.MULTILINE)

_BOOKIE_ID = re.compile(r"[A-Za-z0-9_.:\[\]%-]+")

Kind = Literal["view", "step", "table", "expand"]
_KINDS: dict[str, Kind] = {"view": "view", "step": "step", "table": "table", "expand": "expand"}

Meaning = Literal["good", "warning", "bad", "unknown", "amount"]

SqlType = Literal["BIGINT", "INT", "DOUBLE", "BOOLEAN", "STRING"]


class Snapshot(Enum):
    """Which reading of ledger metadata: the one before the bookies' files were read, or the one after."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Input:
    """A table that a job reads: ``name`` in its SQL and of the Parquet files, ``source`` the table of
    ``bkctl.pipeline.tables`` that it is made from.

    ``columns`` are read, all but those on demand when empty. ``reduce`` is a query over the source, by its
    name, run on every part that is read by itself: the job sums up over parts. ``digest`` has digests
    checked. ``snapshot`` says which reading of metadata a table of metadata is. ``wanted_by`` names the
    option of :class:`Parameters` without which it is not read. ``may_lack`` is for what a set of directories
    need not have (no journals were copied): the table is then empty, and that is reported. ``expands`` names
    the query whose column ``ledger`` says which ledgers are read at all; the heading ``-- expand`` says when.
    ``published_only``: the table is in sets of a store alone, and empty where there is none.
    ``behind_mark_only``: of journals it has only what the next start replays, so that it lacks nothing for
    what cannot be read in front of that.
    """

    name: str
    source: str
    columns: tuple[str, ...] = ()
    reduce: str | None = None
    digest: bool = False
    snapshot: Snapshot | None = None
    wanted_by: str | None = None
    may_lack: bool = False
    expands: str | None = None
    published_only: bool = False
    behind_mark_only: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result."""

    name: str
    type: SqlType
    meaning: str


def share_not_judged(meaning: str) -> Column:
    """Return the column of a summary that says how much of what was read the verdict says nothing about."""
    return Column("share_not_judged", "DOUBLE", f"share that was not judged: {meaning}")


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A result. ``shown`` says that its first rows are what people want to see; ``order`` is by what they
    want them sorted (SQL)."""

    name: str
    summary: str
    columns: tuple[Column, ...]
    order: str
    shown: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart for the report: horizontal bars over the rows of a result.

    ``labels`` name the rows, and together distinguish them; ``values`` are the lengths of the bars.
    ``meanings`` say what each value means, and so its colour; without them a value is only an amount.
    """

    title: str
    table: str
    labels: tuple[str, ...]
    values: tuple[str, ...]
    order: str
    bytes_axis: bool = False
    meanings: tuple[Meaning, ...] = ()


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a run; in SQL the columns of the one-row view ``parameters``.

    ``two_snapshots``: metadata was read before and after the files, so what neither has is proved gone.
    ``bookies_gone`` count as holding nothing (view ``gone_bookies``); with ``complete`` so does every bookie
    whose directories were not given. ``threshold``: share of live bytes below which a log is compacted.
    ``budget_bytes``: at most so much is copied by a plan; 0 is no bound. ``top``: rows of lists of the
    largest. ``entries``: also the table of every entry. ``now_ms``: what ages are counted from.
    """

    two_snapshots: bool = False
    complete: bool = False
    bookies_gone: tuple[str, ...] = ()
    threshold: float = 0.8
    budget_bytes: int = 0
    top: int = 20
    entries: bool = False
    now_ms: int = 0

    def __post_init__(self) -> None:
        for name in self.bookies_gone:
            # Spark reads backslashes in a text, DuckDB does not: nothing that either would read goes in.
            if not _BOOKIE_ID.fullmatch(name):
                raise UsageError(f"{name!r} is no id of a bookie")

    def wants(self, name: str | None) -> bool:
        """Return whether an option that something depends on is set."""
        return name is None or bool(getattr(self, name))

    def views(self) -> dict[str, str]:
        """Return the views ``parameters`` and ``gone_bookies`` as queries."""
        scalars = [
            f"{_literal(getattr(self, item.name))} AS {item.name}"
            for item in fields(self)
            if item.name != "bookies_gone"
        ]
        gone = " UNION ALL ".join(f"SELECT '{name}' AS bookie" for name in self.bookies_gone)
        return {
            "parameters": f"SELECT {', '.join(scalars)}",
            "gone_bookies": gone or "SELECT CAST(NULL AS STRING) AS bookie WHERE 1 = 0",
        }


def option_of(parameter: str) -> str:
    """Return the option of ``pipeline run`` that gives a parameter, with underscores."""
    return parameter.removesuffix("_bytes")


def _literal(value: bool | float) -> str:
    kind = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE"}[type(value)]
    return f"CAST({str(value).lower()} AS {kind})"


@dataclass(frozen=True, slots=True)
class Statement:
    """One named query of a job's text."""

    kind: Kind
    name: str
    query: str


@dataclass(frozen=True, slots=True)
class Job:
    """A question to a fleet's files and the SQL that answers it.

    ``found`` are counts of the summary that make exit code 1 when above 0, ``unexamined`` those that make 3
    (a part of the fleet could not be judged). ``trusts_absence``: an entry that no table has is a finding, so
    logs that go away during the run leave it unjudged. ``notes`` say what the job takes for granted, for the
    reader of its results, ``one_snapshot_notes`` what it does with one reading of metadata only. ``advice``
    names the commands that go on from what was found. ``parameters`` are those of :class:`Parameters` that
    it heeds. ``sentence`` says in one sentence what the counts of the summary come to.
    """

    name: str
    summary: str
    inputs: tuple[Input, ...]
    sql: str
    results: tuple[ResultTable, ...]
    sentence: Callable[[Mapping[str, int]], str]
    found: tuple[str, ...] = ()
    unexamined: tuple[str, ...] = ()
    needs_metadata: bool = True
    parameters: tuple[str, ...] = ()
    trusts_absence: bool = False
    notes: tuple[str, ...] = ()
    one_snapshot_notes: tuple[str, ...] = ()
    advice: str = ""
    plots: tuple[Plot, ...] = field(default=())

    def statements(self) -> Iterator[Statement]:
        """Yield the queries of the text in their order."""
        parts = _HEADING.split(self.sql)
        for kind, name, query in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            yield Statement(_KINDS[kind], name, query.strip())

    def notes_for(self, *, two_snapshots: bool) -> tuple[str, ...]:
        """Return the notes on a run."""
        return self.notes if two_snapshots else (*self.notes, *self.one_snapshot_notes)

    def result(self, name: str) -> ResultTable:
        """Return a result by its name."""
        return next(result for result in self.results if result.name == name)


def result_query(result: ResultTable, query: str) -> str:
    """Return a query with its columns in the declared order and types, whichever engine runs it."""
    columns = ", ".join(
        f"CAST(q.{column.name} AS {column.type}) AS {column.name}" for column in result.columns
    )
    return f"SELECT {columns} FROM ({query}) q"  # noqa: S608 - of a job's own text
