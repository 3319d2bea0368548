"""``bkctl index compact``: the databases of an index made smaller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PathsArgument
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.commands.index.databases import DATABASE, DIR, index_dirs, locked
from bkctl.errors import UsageError
from bkctl.reporting import counted
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.kvstore.base import StoreStatistics

COMPACT_SCHEMA: Schema = (
    DIR,
    DATABASE,
    Key("files_before", "int", "table files before"),
    Key("files_after", "int or null", "table files after"),
    Key("bytes_before", "int", "their size before"),
    Key("bytes_after", "int or null", "their size after"),
    Key("tombstones_before", "int", "deleted keys and ranges before"),
    Key("tombstones_after", "int or null", "deleted keys and ranges after"),
    Key("seconds", "number or null", "how long it took"),
)


@takes(COMPACT_SCHEMA)
def compact_command(
    paths: PathsArgument,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Compact the index's databases: remove tombstones, so that reads are fast again.

    The command rewrites every table, in the format of a Java bookie. It is refused (exit code 4) while a
    bookie uses the directory. Ctrl-C ends the command after the current table; tables that are already
    compacted stay compacted.

    Examples:

      bkctl index compact /data/bookie/ledgers --dry-run

      bkctl index compact /data/bookie/ledgers --yes
    """
    from bkctl.admin.index.statistics import compact, store_statistics

    filesystem = PosixFileSystem()
    dirs = index_dirs(paths)
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
    with locked(dirs):
        stores = list(store_statistics(filesystem, dirs))
        if not stores:
            raise UsageError(f"{', '.join(dirs)}: .idx files and no database; there is nothing to compact")
        bytes_total = sum(store.statistics.bytes for store in stores)
        ask(f"compact {counted(len(stores), 'database')}, {counted(bytes_total, 'byte')}", yes=yes)
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
