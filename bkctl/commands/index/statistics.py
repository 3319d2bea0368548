"""``bkctl index stats``: what the databases of an index are made of."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PathsArgument
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.commands.index.databases import DATABASE, DIR, index_dirs
from bkctl.errors import UsageError
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.index.statistics import LedgerRowsRow
    from bkctl.kvstore.base import StoreStatistics
    from bkctl.scan.index_rows import IndexDamage

STORES_SCHEMA: Schema = (
    DIR,
    DATABASE,
    Key("rows_estimate", "int", "about how many rows there are"),
    Key("files", "int", "number of table files"),
    Key("files_per_level", "array", "number of table files of level 0, 1, ..."),
    Key("bytes", "int", "size of the table files; with --ledgers of the ledger's rows, 24 bytes an entry"),
    Key("point_tombstones", "int", "deleted keys that no compaction has removed yet"),
    Key("range_tombstones", "int", "deleted ranges that no compaction has removed yet"),
    Key("memtable_rows", "int", "rows that are only in write-ahead logs"),
)


class Measure(StrEnum):
    """Values of ``--by``."""

    ENTRIES = "entries"
    DATA = "data"


LEDGERS_SCHEMA: Schema = (
    DIR,
    Key("ledger", "int", "ledger id (with --ledgers)"),
    Key("entries", "int", "entries of the ledger in the index (with --ledgers)"),
    Key("first_entry", "int", "smallest entry id (with --ledgers)"),
    Key("last_entry", "int", "largest entry id (with --ledgers)"),
    Key(
        "bytes",
        "int",
        "bytes of the ledger's rows in the index before compression, 24 an entry, not of its data (with "
        "--ledgers)",
    ),
    Key(
        "data_bytes",
        "int or null",
        "bytes of the ledger's entries in the entry logs of this directory, size words and copies that "
        "replays and compactions left included (with --ledgers); null where no log is here",
    ),
)

_STATS_SCHEMA: Schema = (*STORES_SCHEMA, *(key for key in LEDGERS_SCHEMA if key.key not in ("dir", "bytes")))


@takes(_STATS_SCHEMA)
def stats_command(
    paths: PathsArgument,
    ledgers: Annotated[
        bool,
        typer.Option(
            "--ledgers",
            help="Show the entries of each ledger, counted in all locations, and the bytes of its data.",
        ),
    ] = False,
    top: Annotated[
        int | None,
        typer.Option("--top", metavar="N", help="With --ledgers: show only the N largest ledgers."),
    ] = None,
    by: Annotated[
        Measure,
        typer.Option(
            "--by",
            metavar="entries|data",
            help="Whether --top compares ledgers by entries or by bytes of data.",
        ),
    ] = Measure.ENTRIES,
    output: OutputOption = None,
) -> None:
    """[offline] [reads] Count rows, files, levels, bytes and tombstones of the index's databases.

    The command takes no lock and leaves no file behind, so it can also read the databases of a running
    bookie. Many range tombstones in 'locations' slow down reads; 'bkctl index compact' removes them. With
    --ledgers, .idx files are read, too.

    Examples:

      bkctl index stats /data/bookie/ledgers

      bkctl index stats /data/bookie --ledgers --top 20 --by data
    """
    from bkctl.admin.index.statistics import store_statistics

    if top is not None and (not ledgers or top < 1):
        raise UsageError("--top needs --ledgers, and a number above 0")
    filesystem = PosixFileSystem()
    dirs = index_dirs(paths)
    if ledgers:
        raise typer.Exit(_write_ledgers(dirs, top, by, output))
    rows = [
        {"dir": row.dir, "database": row.database, **_store_keys(row.statistics)}
        for row in store_statistics(filesystem, dirs)
    ]
    if not rows:
        raise UsageError(f"{', '.join(dirs)}: .idx files and no database; add --ledgers")
    write_rows(rows, STORES_SCHEMA, output)


def _write_ledgers(dirs: list[str], top: int | None, by: Measure, output: OutputOption) -> int:
    import heapq

    from bkctl.admin.index.statistics import ledger_statistics

    damages: list[IndexDamage] = []
    with progress("reading the index", streams_rows=top is None):
        rows: Iterable[LedgerRowsRow] = _watched(ledger_statistics(PosixFileSystem(), dirs), damages)
        if top is not None:
            rows = heapq.nlargest(
                top, rows, key=lambda row: row.entries if by is Measure.ENTRIES else row.data_bytes or 0
            )
        write_rows(rows, LEDGERS_SCHEMA, output)
    return int(bool(damages))


def _watched(
    found: Iterator[LedgerRowsRow | IndexDamage], damages: list[IndexDamage]
) -> Iterator[LedgerRowsRow]:
    from bkctl.scan.index_rows import IndexDamage

    for row in found:
        if isinstance(row, IndexDamage):
            damages[:] = [row]
            sys.stderr.write(f"bkctl: {row.path}: damage {row.key_hex}: {row.reason}\n")
        else:
            yield row


def _store_keys(statistics: StoreStatistics) -> dict[str, Any]:
    return {
        "rows_estimate": statistics.rows_estimate,
        "files": statistics.files,
        "files_per_level": statistics.files_per_level,
        "bytes": statistics.bytes,
        "point_tombstones": statistics.point_tombstones,
        "range_tombstones": statistics.range_tombstones,
        "memtable_rows": statistics.memtable_rows,
    }
