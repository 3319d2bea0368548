"""``bkctl pipeline export``: the tables of sets, in partitions by bookie and day, for other SQL engines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.commands.pipeline.options import SetOptions
from bkctl.errors import NotFoundError, UsageError
from bkctl.extras import need

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bkctl.pipeline.locations import Location
    from bkctl.pipeline.sets.store import CompleteSet, SetStore

EXPORT_SCHEMA: Schema = (
    Key("bookie", "string", "the bookie; value of the first partition column"),
    Key("day", "string", "the day on which the pass of the set began, UTC; value of the second one"),
    Key("set", "string", "directory of the set", wide=True),
    Key("state", "string", "exported, unchanged (was there), kept (another set was), replaced, failed"),
    Key("verdict", "string", "verdict of the set: clean, found, unexamined"),
    Key("tables", "array of strings", "tables that were written", wide=True),
    Key("rows", "int", "rows that were written"),
    Key("bytes", "int", "bytes of the files that were written"),
    Key("why", "string or null", "why the set was kept out, or what failed"),
)

#: Bound on what reads and writes at once.
_THREADS_MAX = 64

_Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH", show_default=False, help="Folders or URLs with sets: the --to of 'collect'."
    ),
]
_To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="URL",
        show_default=False,
        help="Where the tables are written: a directory, or s3://, gs://, abfs://, hdfs://, file://.",
    ),
]
_Table = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="NAME", help="A table to export; may be repeated. Default: all tables."),
]
_Replace = Annotated[bool, typer.Option("--replace", help="Replace an older set of the same bookie and day.")]
_Jobs = Annotated[
    int, typer.Option("--jobs", metavar="N", help="Number of sets that are exported at the same time.")
]


@takes(EXPORT_SCHEMA)
def export_command(
    paths: _Paths,
    to: _To,
    table: _Table = None,
    replace: _Replace = False,
    *,
    sets: SetOptions,
    jobs: _Jobs = 4,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Write the tables of sets by bookie and day, for any SQL engine.

    The newest complete set of each bookie is written to URL/TABLE/bookie=BOOKIE/day=DAY/SET.parquet. This is
    the layout of Hive's tables: Spark and DuckDB make columns bookie and day from it. Run the command each
    day after 'collect'; use --as-of for past days. In the tables, column 'bookie' is the partition's; all
    other columns are those of the sets.

    Table 'sets' has one row for each bookie and day, which is written last. If it has no row for a bookie and
    day, the rows of that bookie and day in the other tables are incomplete. An existing set of the same
    bookie and day stays, unless --replace is given: an older set is then removed once the new one is
    completely written. Only one export at a time writes to a folder.

    Exit code 3 when a bookie has no set, an old set (--max-age), or a set that cannot be read, and when a set
    that stays lacks a table that was asked for; 4 while another export writes there.

    Examples:

      bkctl pipeline export s3://audits/sets --to s3://audits/tables

      bkctl pipeline export /audits/sets --to /audits/tables --table logs --table log_ledgers
    """
    from bkctl.clock import SystemClock
    from bkctl.pipeline.locations import located
    from bkctl.pipeline.sets.choice import Cluster, choose_sets
    from bkctl.pipeline.sets.export_turn import ExportTurn
    from bkctl.pipeline.sets.partitions import FAILED, PartitionedTables
    from bkctl.pipeline.sets.store import SetStore

    need("bkctl pipeline export", "pyarrow")
    if not 1 <= jobs <= _THREADS_MAX:
        raise UsageError(f"--jobs {jobs}: from 1 to {_THREADS_MAX}")
    tables = _tables(table)
    stores = [SetStore(located(path)) for path in dict.fromkeys(paths)]
    _check_stores(stores, located(to))
    clock = SystemClock()
    choice = choose_sets(stores, sets.wish(), clock.time_ms(), Cluster())
    _check_once(choice.sets)
    PartitionedTables(located(to)).claim()
    with (
        ExportTurn(located(to), clock) as turn,
        progress("export", _bytes_of(choice.sets, tables)) as advance,
    ):
        folder = PartitionedTables(located(to), turn.check)
        exported = list(folder.export(choice.sets, tables, replace, jobs, advance))
    write_rows((one.as_row() for one in exported), EXPORT_SCHEMA, output, nothing="no complete set")
    for problem in choice.problems:
        sys.stderr.write(f"bkctl: note: {problem.unknown}: {problem.why}\n")
    is_lacking = any(one.state == FAILED or one.lacks for one in exported)
    raise typer.Exit(3 if is_lacking or choice.problems else 0)


def _tables(asked: list[str] | None) -> list[str]:
    """Return the tables to export. Raises UsageError for one that sets do not have."""
    from bkctl.pipeline.sets.set_tables import TABLES

    for name in asked or ():
        if name not in TABLES:
            raise UsageError(f"--table {name}: sets have tables {', '.join(TABLES)}")
    return list(asked or TABLES)


def _check_stores(stores: Sequence[SetStore], to: Location) -> None:
    """Raise NotFoundError for a place in which no sets have been published, UsageError for tables in one."""
    for store in stores:
        if to.path.startswith(f"{store.location.path}/") and to.filesystem == store.location.filesystem:
            raise UsageError(f"--to {to.text}: is in a store of sets, where it would be taken for a bookie")
        if not store.is_there():
            raise NotFoundError(f"{store.location.text}: holds no sets ('bkctl pipeline collect')")


def _check_once(sets: Sequence[CompleteSet]) -> None:
    """Raise UsageError where two stores have sets of one bookie: a day has room for one of them."""
    seen: dict[str, str] = {}
    for one in sets:
        other = seen.setdefault(one.manifest.bookie, one.location.text)
        if other != one.location.text:
            raise UsageError(f"bookie {one.manifest.bookie}: {other} and {one.location.text} are both of it")


def _bytes_of(sets: Sequence[CompleteSet], tables: Sequence[str]) -> int:
    return sum(part.bytes for one in sets for name in tables for part in one.manifest.tables.get(name, ()))
