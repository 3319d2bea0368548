"""``bkctl bookie convert``: a stopped bookie's index in the files of another ledger storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.commands.frame.bookie_options import ConfigurationOptions, bookie_config
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.config.byte_size import parse_byte_size
from bkctl.errors import UsageError
from bkctl.reporting import counted
from bkctl.storage_kinds import (
    DB,
    DB_LEDGER_STORAGE,
    IDX,
    INTERLEAVED_LEDGER_STORAGE,
    SORTED_LEDGER_STORAGE,
    StorageKind,
    short_names,
)

if TYPE_CHECKING:
    from bkctl.admin.conversion.conversion import ConversionOptions, ConvertedDirectory
    from bkctl.config.bookie import BookieConfig

CONVERT_SCHEMA: Schema = (
    Key("dir", "string", "directory of the index"),
    Key("state", "string", "converted, resumed, rolled_back, unchanged, empty, or planned by a dry run"),
    Key("ledgers", "int", "ledgers in the new index"),
    Key("rows", "int", "locations of entries in the new index"),
    Key(
        "left_out", "int", "locations of deleted ledgers, which no bookie reads; all counted in the first row"
    ),
    Key("limbo", "int", "ledgers in limbo, as before"),
    Key("copied", "int", "entries copied from logs of other ledger directories"),
    Key("renamed", "int", "entry logs with a new id"),
    Key("kept", "string or null", "where the old index is kept"),
    Key("needed_bytes", "int", "about so much is written there; the old index and the logs stay"),
)

#: Values of ``--to``: the files, and the class that the configuration names for them.
TARGETS: dict[str, tuple[StorageKind, str]] = {
    "db": (DB, DB_LEDGER_STORAGE),
    "interleaved": (IDX, INTERLEAVED_LEDGER_STORAGE),
    "sorted": (IDX, SORTED_LEDGER_STORAGE),
}

_To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="db|interleaved|sorted",
        help="New ledger storage; sorted uses the same files as interleaved.",
    ),
]
_Memory = Annotated[
    int,
    typer.Option(
        "--memory",
        metavar="SIZE",
        parser=parse_byte_size,
        help="Limit of the memory that is used, such as 256M or 1GiB.",
    ),
]
_Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        help="Number of processes. Default: one for each processor, if --memory allows.",
    ),
]
_DropOld = Annotated[
    bool,
    typer.Option("--drop-old", help="Without --to: remove the old indexes that conversions have kept."),
]


@takes(CONVERT_SCHEMA)
def convert_command(
    to: _To = None,
    memory: _Memory = "256M",  # type: ignore[assignment] # typer parses the default as well
    jobs: _Jobs = None,
    drop_old: _DropOld = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    *,
    configuration: ConfigurationOptions,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Convert a stopped bookie to another ledger storage; the entry logs stay.

    The new index is made from the old one, row by row, with fences, master keys, explicit LACs and limbo.
    Before anything that a bookie reads is changed, each row is compared with the record that it names, and
    all rows with those of the old index. With several ledger directories, db needs each entry in the
    directory of its ledger: entries in other directories are copied, and there must be space for the copies.
    For interleaved, logs with equal ids in different directories get new ids. After an unclean stop, entries
    that are only in the journals are replayed into the new index.

    Then all names are changed at once. During that time the cookies are moved away, so that no bookie starts.
    After a kill, the same command continues the conversion; with the old storage in --to it undoes it. The
    old index is kept in a folder bkctl-old-index-..., and --drop-old removes it. 'bkctl repair undo' undoes
    the conversion byte for byte, even if it was killed and continued, as long as no bookie or other command
    has changed the directories. After that, convert in the other direction.

    Afterwards ledgerStorageClass in the configuration has to name the new storage; the command says how. A
    Java bookie that is started with the old class finds none of its ledgers, and does not report this.

    Exit code 4: the command is refused, because the bookie runs, a cookie is missing, the index is damaged or
    lost, a disk has no space for the new files (--dry-run shows their size), a compaction or a rebuild was
    interrupted, or a log is in quarantine. Exit code 1: a row names no record; 7: a row names the record of
    another entry.

    Examples:

      bkctl bookie convert --conf bk_server.conf --to interleaved --dry-run

      bkctl bookie convert --conf bk_server.conf --to db --yes
    """
    if (to is None) != drop_old:
        raise UsageError("say either --to, or --drop-old without it")
    if jobs is not None and jobs < 1:
        raise UsageError("--jobs: at least 1")
    config = bookie_config(configuration)
    if to is None:
        _drop_old(config, dry_run=dry_run, yes=yes)
        write_rows([], CONVERT_SCHEMA, output)
        return
    kind, storage_class = _target(to)
    from bkctl.admin.conversion.bookie_places import places_of
    from bkctl.admin.conversion.conversion import convert_bookie
    from bkctl.vfs import PosixFileSystem

    places = places_of(config)
    if not dry_run:
        ask(f"convert {', '.join(places.every)} to {short_names([storage_class])}", yes=yes)
    found = convert_bookie(PosixFileSystem(), places, kind, _options(config, memory, jobs, dry_run=dry_run))
    write_rows(map(_row, found), CONVERT_SCHEMA, output)
    _say(found, config, storage_class, configuration.conf)


def _target(to: str) -> tuple[StorageKind, str]:
    if to not in TARGETS:
        raise UsageError(f"--to {to}: is none of {', '.join(TARGETS)}")
    return TARGETS[to]


def _options(config: BookieConfig, memory: int, jobs: int | None, *, dry_run: bool) -> ConversionOptions:
    from bkctl.admin.conversion.conversion import ConversionOptions
    from bkctl.admin.index.rebuild.options import RebuildOptions

    return ConversionOptions(
        config.entry_log.size_bytes_max, RebuildOptions(memory_bytes=memory, phase=_phase), jobs, dry_run
    )


def _phase(name: str, size_bytes: int) -> Any:
    return progress(name, size_bytes)


def _row(found: ConvertedDirectory) -> dict[str, object]:
    return {key.key: getattr(found, key.key) for key in CONVERT_SCHEMA}


def _say(found: list[ConvertedDirectory], config: BookieConfig, storage_class: str, conf: str | None) -> None:
    """Say what the configuration has to name, and what a Java bookie would not know."""
    states = {row.state for row in found}
    kinds = [kind for kind, each in TARGETS.values() if each == storage_class]
    if states == {"unchanged"}:
        typer.echo("bkctl: has the index of that storage already: nothing was changed", err=True)
    if states == {"empty"}:
        typer.echo(
            "bkctl: has no index yet: what its logs hold stands in the journals, and is replayed by the "
            "storage that starts; nothing was changed",
            err=True,
        )
    limbo = sum(row.limbo for row in found)
    if limbo and not kinds[0].has_databases:
        typer.echo(
            f"bkctl: {counted(limbo, 'ledger')} in limbo: a Java bookie over index files knows no limbo, "
            'and answers "no such entry" for what is missing; repair them first (bkctl ledger repair)',
            err=True,
        )
    if config.storage_kind not in kinds or "ledgerStorageClass" not in config.given:
        when = "once it is converted" if states == {"planned"} else "before the bookie starts"
        typer.echo(
            f"bkctl: {when}, say ledgerStorageClass={storage_class} in {conf or 'its configuration'}",
            err=True,
        )


def _drop_old(config: BookieConfig, *, dry_run: bool, yes: bool) -> None:
    from bkctl.admin.conversion.bookie_places import places_of
    from bkctl.admin.conversion.kept_indexes import drop_kept_indexes, kept_indexes
    from bkctl.vfs import PosixFileSystem

    places = places_of(config)
    paths = kept_indexes(PosixFileSystem(), places)
    for path in paths:
        typer.echo(f"bkctl: {path}", err=True)
    if not paths or dry_run:
        return
    ask(f"remove these {counted(len(paths), 'old index', 'old indexes')}", yes=yes)
    drop_kept_indexes(PosixFileSystem(), places)


def register(app: typer.Typer) -> None:
    """Add the command to its noun."""
    app.command("convert")(convert_command)
