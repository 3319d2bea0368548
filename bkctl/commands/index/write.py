"""``bkctl index repair | limbo | stats | compact``: the index's rows and databases, written if told so."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.cluster_options import ClusterConfOption, MetadataUriOption, OverrideOption
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.known_cluster import ClusterWords, TrustDumpOption, known_cluster
from bkctl.commands.frame.options import LedgerMetadataOption, OutputOption, PathsArgument, schema_option
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.commands.frame.targets import paths_or_default, split_targets
from bkctl.errors import UsageError
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.index.repair import RepairPlan
    from bkctl.admin.index.statistics import LedgerRowsRow
    from bkctl.directories.holders import DirectoryLock
    from bkctl.kvstore.base import StoreStatistics
    from bkctl.scan.index_rows import IndexDamage

_DIR = Key("dir", "string", "directory of the index")
_DATABASE = Key("database", "string", "locations, ledgers or metadata-cache")

REPAIR_SCHEMA: Schema = (
    _DIR,
    Key("kind", "string", "collapsed (two rows into one), converted, deleted, or damaged (left as it is)"),
    Key("ledger", "int or null", "ledger id"),
    Key("detail", "string", "what the row is now, or what is wrong with it"),
)

LIMBO_SCHEMA: Schema = (
    _DIR,
    Key("ledger", "int", "ledger id"),
    Key("limbo", "bool", "whether a missing entry means that it is unknown"),
    Key("changed", "bool", "whether it was different before"),
)

STORES_SCHEMA: Schema = (
    _DIR,
    _DATABASE,
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
    _DIR,
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

COMPACT_SCHEMA: Schema = (
    _DIR,
    _DATABASE,
    Key("files_before", "int", "table files before"),
    Key("files_after", "int or null", "table files after"),
    Key("bytes_before", "int", "their size before"),
    Key("bytes_after", "int or null", "their size after"),
    Key("tombstones_before", "int", "deleted keys and ranges before"),
    Key("tombstones_after", "int or null", "deleted keys and ranges after"),
    Key("seconds", "number or null", "how long it took"),
)

_STATS_SCHEMA: Schema = (*STORES_SCHEMA, *(key for key in LEDGERS_SCHEMA if key.key not in ("dir", "bytes")))


def register(app: typer.Typer) -> None:
    """Add the commands to the app of ``bkctl index``."""
    app.command("repair")(repair_command)
    app.command("limbo")(limbo_command)
    app.command("stats")(stats_command)
    app.command("compact")(compact_command)


def repair_command(
    context: typer.Context,
    paths: PathsArgument,
    ledger_metadata: LedgerMetadataOption = None,
    trust_dump: TrustDumpOption = False,
    conf: ClusterConfOption = None,
    override: OverrideOption = None,
    metadata_uri: MetadataUriOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(REPAIR_SCHEMA)] = False,
) -> None:
    """[offline] [writes] Replace the 16-byte rows that Java's ledger index rebuild wrote by 8-byte rows.

    A 16-byte row wins over its ledger's 8-byte row whenever a Java bookie starts: the ledger is fenced and
    without master key again, or back although it was deleted. Each becomes one 8-byte row; of two rows the
    8-byte one stays, fenced if either was. The 16-byte rows of ledgers that are proven to exist no more are
    deleted with their locations: by --metadata-uri, or by a dump (--ledger-metadata) that is complete and
    newer than the ledger.

    Refuses (4) while a bookie uses the directory, and the metadata of another cluster. Exit code 1 when there
    are rows that do not decode; they are left as they are ('bkctl index rebuild --ledgers' makes them anew).

    Examples:

      bkctl index repair /data/bookie/ledgers --dry-run

      bkctl index repair /data/bookie/ledgers --ledger-metadata zk.json --yes
    """
    from bkctl.admin.index.repair import plan_repair, repair
    from bkctl.admin.ledgers.known_ledgers import known_in

    filesystem = PosixFileSystem()
    dirs = _index_dirs(paths)
    words = ClusterWords(ledger_metadata, trust_dump, conf, override, metadata_uri)
    with known_cluster(context, words) as cluster:
        known = {directory: known_in(filesystem, cluster, [directory]) for directory in dirs}
        if dry_run:
            plans = [plan_repair(filesystem, directory, known[directory]) for directory in dirs]
            _write_repairs(plans, output)
        else:
            with _locked(dirs):
                plans = [plan_repair(filesystem, directory, known[directory]) for directory in dirs]
                changes = sum(plan.changes for plan in plans)
                if changes:
                    ask(f"replace {changes} rows with 16-byte keys in {_counted(dirs)}", yes=yes)
                    plans = [repair(filesystem, directory, known[directory]) for directory in dirs]
                _write_repairs(plans, output)
    raise typer.Exit(int(any(row.kind == "damaged" for plan in plans for row in plan.rows)))


def _write_repairs(plans: Iterable[RepairPlan], output: OutputOption) -> None:
    write_rows((row for plan in plans for row in plan.rows), REPAIR_SCHEMA, output)


def limbo_command(
    targets: Annotated[
        list[str], typer.Argument(metavar="LEDGER... [PATH...]", help="The ledgers, and where to look.")
    ],
    clear: Annotated[bool, typer.Option("--clear", help="Clear the flag instead of setting it.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(LIMBO_SCHEMA)] = False,
) -> None:
    """[offline] [writes] Set or clear the limbo flag of ledgers: a missing entry is unknown, not absent.

    Set it where entries may have been lost: a client then asks other bookies instead of taking the loss for
    the end of the ledger. Clear it when the entries are back, or known to be nowhere. Only DbLedgerStorage
    has the flag; .idx files are refused (4). Exit code 6, and nothing changed, when a ledger has no row.

    Examples:

      bkctl index limbo 42 43 /data/bookie/ledgers --yes

      bkctl index limbo 42 /data/bookie/ledgers --clear --dry-run
    """
    from bkctl.admin.index.limbo import plan_limbo, set_limbo

    paths, ledgers = split_targets(targets, int)
    if not ledgers:
        raise UsageError("name the ledgers: bkctl index limbo LEDGER... [PATH...]")
    filesystem = PosixFileSystem()
    dirs = _index_dirs(paths_or_default(paths))
    if dry_run:
        write_rows(plan_limbo(filesystem, dirs, ledgers, limbo=not clear), LIMBO_SCHEMA, output)
        return
    with _locked(dirs):
        rows = plan_limbo(filesystem, dirs, ledgers, limbo=not clear)
        changes = sum(row.changed for row in rows)
        if changes:
            ask(f"{'clear' if clear else 'set'} the limbo flag of {changes} ledgers", yes=yes)
            rows = set_limbo(filesystem, dirs, ledgers, limbo=not clear)
        write_rows(rows, LIMBO_SCHEMA, output)


def stats_command(
    paths: PathsArgument,
    ledgers: Annotated[
        bool,
        typer.Option(
            "--ledgers",
            help="Entries of each ledger, by a pass over all locations, and bytes of its data.",
        ),
    ] = False,
    top: Annotated[
        int | None, typer.Option("--top", metavar="N", help="With --ledgers: only the N largest.")
    ] = None,
    by: Annotated[
        Measure, typer.Option("--by", metavar="entries|data", help="What --top measures ledgers by.")
    ] = Measure.ENTRIES,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(_STATS_SCHEMA)] = False,
) -> None:
    """[offline] [reads] Rows, files, levels, bytes and tombstones of the index's databases.

    Read without a lock and without leaving a file behind, a running bookie's databases included. Many range
    tombstones in 'locations' slow down reads; 'bkctl index compact' removes them. With --ledgers .idx files
    are read, too.

    Examples:

      bkctl index stats /data/bookie/ledgers

      bkctl index stats /data/bookie --ledgers --top 20 --by data
    """
    from bkctl.admin.index.statistics import store_statistics

    if top is not None and (not ledgers or top < 1):
        raise UsageError("--top needs --ledgers, and a number above 0")
    filesystem = PosixFileSystem()
    dirs = _index_dirs(paths)
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


def compact_command(
    paths: PathsArgument,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
    schema: Annotated[bool, schema_option(COMPACT_SCHEMA)] = False,
) -> None:
    """[offline] [writes] Compact the index's databases: tombstones go, reads get fast again.

    Every table is rewritten, in the format of a Java bookie. Refuses (4) while a bookie uses the directory.
    Ctrl-C ends it after the table at hand; what was compacted so far stays.

    Examples:

      bkctl index compact /data/bookie/ledgers --dry-run

      bkctl index compact /data/bookie/ledgers --yes
    """
    from bkctl.admin.index.statistics import compact, store_statistics

    filesystem = PosixFileSystem()
    dirs = _index_dirs(paths)
    if dry_run:
        write_rows(
            (
                _compaction(row.dir, row.database, row.statistics)
                for row in store_statistics(filesystem, dirs)
            ),
            COMPACT_SCHEMA,
            output,
        )
        return
    with _locked(dirs):
        stores = list(store_statistics(filesystem, dirs))
        if not stores:
            raise UsageError(f"{', '.join(dirs)}: .idx files and no database; there is nothing to compact")
        bytes_total = sum(store.statistics.bytes for store in stores)
        ask(f"compact {len(stores)} databases, {bytes_total} bytes", yes=yes)
        with progress("compacting", bytes_total) as advance:
            rows = [
                _compaction(row.dir, row.database, row.before, row.after, row.seconds)
                for row in compact(filesystem, dirs, advance)
            ]
    write_rows(rows, COMPACT_SCHEMA, output)


def _compaction(
    directory: str,
    database: str,
    before: StoreStatistics,
    after: StoreStatistics | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    return {
        "dir": directory,
        "database": database,
        "files_before": before.files,
        "files_after": None if after is None else after.files,
        "bytes_before": before.bytes,
        "bytes_after": None if after is None else after.bytes,
        "tombstones_before": _tombstones(before),
        "tombstones_after": None if after is None else _tombstones(after),
        "seconds": seconds,
    }


def _tombstones(statistics: StoreStatistics) -> int:
    return statistics.point_tombstones + statistics.range_tombstones


def _index_dirs(paths: list[str]) -> list[str]:
    from bkctl.scan.files.paths import directories

    found = [directory.path for directory in directories(PosixFileSystem(), paths) if directory.indexes]
    if not found:
        raise UsageError(f"{', '.join(paths)}: no index in it (locations/ and ledgers/, or .idx files)")
    return found


def _locked(dirs: list[str]) -> DirectoryLock:
    """A lock on the directories to be entered; says what else there is to know about them."""
    from bkctl.directories.holders import DirectoryLock

    lock = DirectoryLock(*dirs)
    for directory in lock.dirty:
        sys.stderr.write(f"bkctl: {directory}: marked DIRTY; its bookie did not shut down cleanly\n")
    return lock


def _counted(dirs: list[str]) -> str:
    return dirs[0] if len(dirs) == 1 else f"{len(dirs)} directories"
