"""``bkctl bookie rebuild``: a new, empty disk in the place of one that a bookie lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

import typer

from bkctl.commands.frame.bookie_options import ConfigurationOptions, bookie_config
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.reporting import counted

if TYPE_CHECKING:
    from bkctl.admin.repairs.repair_journal import Intent
    from bkctl.config.bookie import BookieConfig
    from bkctl.metadata.api import MetadataStore
    from bkctl.server.life.lost_disk import DiskRebuild, LostDisk, RebuiltRows
    from bkctl.vfs import PosixFileSystem

REBUILD_SCHEMA: Schema = (
    Key("dir", "string", "a directory that had no cookie and was empty, or one beside a lost journal"),
    Key("ledgers", "int", "ledgers that the metadata place there: with a row now, in limbo until repaired"),
    Key("bookie", "string", "id of the bookie"),
    Key("stamped", "bool", "whether it has the bookie's cookie now"),
)


@takes(REBUILD_SCHEMA)
def rebuild_command(
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    *,
    configuration: ConfigurationOptions,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Prepare a new, empty disk to replace one that was lost.

    A bookie that the metadata store knows does not start on a directory without its cookie: the bookie would
    answer "no such entry" for every entry that was on the disk. This command gives the new directory a row
    for every ledger that the metadata place there, fenced and in limbo ("unknown" instead of "no such
    entry"), and then the cookie of the metadata store.

    Afterwards start the bookie, and run 'bkctl ledger repair --bookie ID --yes': it copies the entries from
    the other replicas while the bookie serves. Both commands can be run again after an interruption. A Java
    bookie cannot leave limbo while it runs: let a bkctl bookie run on its configuration until the repair is
    done. 'bkctl repair undo' undoes the rebuild, as long as no bookie or other command has changed the
    directories.

    Directories that still have their cookie are not changed, with one exception: if a journal directory is
    lost, every ledger that writes to it is fenced and put into limbo in these directories, too, and their
    last marks for that journal are set to zero. If the storage uses .idx files, which may be in any
    directory, the command makes a file for each ledger that has lost its file. In .idx files, only bkctl
    bookies respect limbo: start no Java bookie before the entries are back.

    Exit code 4: the command is refused, because the bookie runs or is not known, or a directory is not empty.

    Examples:

      bkctl bookie rebuild --conf bk_server.conf --dry-run

      bkctl bookie rebuild --conf bk_server.conf --yes
    """
    from bkctl.metadata.uri import open_metadata_store
    from bkctl.server.life import own_directories
    from bkctl.server.life.engine_settings import metadata_settings
    from bkctl.server.life.lost_disk import find_lost_disk
    from bkctl.vfs import PosixFileSystem

    config, filesystem = bookie_config(configuration), PosixFileSystem()
    own_directories.refuse_planted_links(config.directories)
    if not dry_run:
        _settle(filesystem, config)
    # A store that has to be made knows of no bookie that could have lost a disk.
    with closing(open_metadata_store(config.metadata.uri, metadata_settings(config))) as store:
        lost = find_lost_disk(config, store, filesystem)
        if not lost.directories:
            typer.echo(
                f"bkctl: every directory of bookie {lost.bookie} has its cookie: none was lost", err=True
            )
            write_rows([], REBUILD_SCHEMA, output)
            return
        if dry_run:
            with progress("listing", counts="ledgers") as advance:
                rows = _rebuild(store, lost, advance).count()
        else:
            paths = ", ".join(one.path for one in lost.directories)
            ask(f"make {paths} directories of bookie {lost.bookie}, with every ledger in limbo", yes=yes)
            lost, rows = _run(filesystem, config, store)
    written = (
        {"dir": one.path, "ledgers": rows.ledgers[one.path], "bookie": lost.bookie, "stamped": not dry_run}
        for one in (*lost.directories, *lost.survivors)
    )
    write_rows(written, REBUILD_SCHEMA, output)
    _say(lost, rows.unreadable, dry_run=dry_run)


def _settle(filesystem: PosixFileSystem, config: BookieConfig) -> None:
    """Take back what a run that was killed has left. Raises RefusedError while a bookie uses a directory."""
    from bkctl.admin.repairs.repair_undo import settle_unfinished, unfinished_repairs
    from bkctl.scan.directory import current
    from bkctl.server.life import own_directories

    every = own_directories.every_directory(config.directories)
    places = [path for path in map(current, every) if filesystem.status(path) is not None]
    if any(unfinished_repairs(filesystem, places)):
        with own_directories.DirectoryLocks(every):
            settle_unfinished(filesystem, places)


def _run(
    filesystem: PosixFileSystem, config: BookieConfig, store: MetadataStore
) -> tuple[LostDisk, RebuiltRows]:
    """Rebuild the lost directories, with all of the bookie's directories locked, as a repair to be undone."""
    from bkctl.admin.repairs.repair_journal import begin_repair
    from bkctl.clock import SystemClock
    from bkctl.directories.ownership import give_new_directories
    from bkctl.scan.directory import current
    from bkctl.server.life import own_directories
    from bkctl.server.life.lost_disk import find_lost_disk

    every = own_directories.every_directory(config.directories)
    there = [path for path in map(current, every) if filesystem.status(path) is not None]
    own_directories.make_current(filesystem, config.directories)
    give_new_directories([path for path in map(current, every) if path not in there], there)
    with own_directories.DirectoryLocks(every):
        lost = find_lost_disk(config, store, filesystem)
        places = list(map(current, every))
        repair = begin_repair(
            filesystem, SystemClock(), places, "bookie rebuild", lost.bookie, _intents(lost, store)
        )
        with progress("listing", counts="ledgers") as advance:
            rows = _rebuild(store, lost, advance).run()
        repair.finish()
    return lost, rows


def _intents(lost: LostDisk, store: MetadataStore) -> list[Intent]:
    """Return what a rebuild may change, for its undo."""
    from bkctl.admin.repairs.repair_journal import changes_database, changes_file
    from bkctl.directories.half_rebuilt import MARKER_NAME
    from bkctl.scan.directory import COOKIE_NAME, current
    from bkctl.scan.index_databases import LEDGERS
    from bkctl.server.life.lost_disk import mark_files

    folders = [current(one.path) for one in lost.directories]
    places = [one for one in (*lost.directories, *lost.survivors) if one.number >= 0]
    databases = [f"{current(one.index)}/{LEDGERS}" for one in places]
    files = [f"{folder}/{name}" for folder in folders for name in (MARKER_NAME, COOKIE_NAME)]
    return [
        *map(changes_database, databases),
        *_file_intents(lost, store),
        *map(changes_file, (*files, *mark_files(lost))),
    ]


def _file_intents(lost: LostDisk, store: MetadataStore) -> list[Intent]:
    """Return what a rebuild may change of index files: whole folders where there was nothing."""
    from bkctl.admin.index.stopped_idx_files import header_intents
    from bkctl.admin.repairs.repair_journal import changes_database, changes_file
    from bkctl.codec.last_id import LAST_ID_NAME
    from bkctl.server.life.lost_index_files import LimboFiles
    from bkctl.vfs import PosixFileSystem

    files = lost.index_files
    if files is None:
        return []
    filesystem = PosixFileSystem()
    known = LimboFiles(filesystem, files)
    made = [changes_database(f"{path}/{number:x}") for path in known.made_first for number in range(256)]
    made += [changes_file(f"{path}/{LAST_ID_NAME}") for path in files.new_logs]
    if not files.there or not (lost.lost_journals or known.were_lost):
        return made
    ledgers = _rebuild(store, lost, lambda count: None).ledgers()
    there = [ledger for ledger in ledgers if not known.made_first or known.has(ledger)]
    return made + header_intents(filesystem, files.there, there)


def _rebuild(store: MetadataStore, lost: LostDisk, advance: Callable[[int], None]) -> DiskRebuild:
    from bkctl.kvstore import rocksdb, rocksdb_store
    from bkctl.kvstore.profile import LEDGERS_PROFILE
    from bkctl.server.life.lost_disk import DiskRebuild
    from bkctl.vfs import PosixFileSystem

    return DiskRebuild(
        PosixFileSystem(),
        store,
        lost,
        lambda path: rocksdb_store.open_store(path, LEDGERS_PROFILE, create=True),
        rocksdb.open_read_only,
        advance,
    )


def _say(lost: LostDisk, unreadable: int, *, dry_run: bool) -> None:
    if unreadable:
        typer.echo(
            f"bkctl: the metadata of {counted(unreadable, 'ledger')} do not decode: in limbo here as well, "
            "wherever that belongs",
            err=True,
        )
    if lost.index_files is not None and not dry_run:
        typer.echo(
            "bkctl: in .idx files Java's bookies do not know limbo: let only a bookie of bkctl run here "
            "until the entries are back",
            err=True,
        )
    if not dry_run:
        typer.echo(
            f"bkctl: next: start the bookie, then 'bkctl ledger repair --bookie {lost.bookie} --yes'",
            err=True,
        )


def register(app: typer.Typer) -> None:
    """Add the command to its noun."""
    app.command("rebuild")(rebuild_command)
