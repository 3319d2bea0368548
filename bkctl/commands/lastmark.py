"""``bkctl lastmark``: from where a bookie would replay its journals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from posixpath import basename
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.admin.cookies.in_directories import counting_mark, find_marks
from bkctl.admin.logs.mark_doubts import doubt, journals_near
from bkctl.codec.last_mark import LastMark
from bkctl.codec.losses import ranges_text
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.losses_file import LossesOption, write_losses
from bkctl.commands.frame.metadata_options import LedgerMetadataOptions
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import (
    JournalDirOption,
    OutputOption,
    PathsArgument,
    noun_app,
    parse_journal_id,
)
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.errors import RefusedError
from bkctl.reporting import counted
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.journals.mark_change import MarkChange
    from bkctl.admin.journals.stopped_bookie import StoppedBookie

app = noun_app("The last marks of a bookie: a start replays the journals from there on.")

SCHEMA: Schema = (
    Key("path", "string", "the lastMark file"),
    Key("journal_id", "int or null", "journal, null when the file cannot be read"),
    Key("journal", "string or null", "its file name"),
    Key("offset", "int or null", "offset in that journal"),
    Key("counts", "bool", "whether replay starts here: the highest mark of all ledger directories"),
    Key("error", "string or null", "why the file does not count"),
    Key("doubt", "string or null", "why the mark can hardly be right, by the journals that are there"),
)


SET_SCHEMA: Schema = (
    Key(
        "kind",
        "string",
        "mark (a file), replayed (what the next start replays), damage and missing (in that), kept (a copy "
        "of an old mark), lost (entries that are not replayed any more; the ledger is in limbo)",
    ),
    Key("path", "string or null", "the lastMark file, the copy, the journal, or the directory of journals"),
    Key("journal_id", "int or null", "of a mark: the journal that it names then"),
    Key("offset", "int or null", "of a mark: the offset in that journal; of damage: where it begins"),
    Key("ledger", "int or null", "of lost: the ledger"),
    Key("entries", "string or null", "of lost: ranges of entries"),
    Key("records", "int or null", "of replayed: how many records"),
    Key("detail", "string or null", "what else there is to say"),
)


@app.command("show")
@takes(SCHEMA)
def show_command(paths: PathsArgument, output: OutputOption = None) -> None:
    """[offline] [reads] Show every lastMark file, and which of them counts.

    A bookie writes its marks into all ledger directories, and replays from the highest mark. Any sixteen
    bytes can be read as a mark. So a mark that fits none of the journals is reported as doubtful.

    Exit code 1 when a mark cannot be read, or is doubtful.

    Examples:

      bkctl lastmark show /data/bookie
    """
    filesystem = PosixFileSystem()
    marks = find_marks(filesystem, paths)
    journals = journals_near(filesystem, paths, marks)
    best = counting_mark(marks)
    rows = [
        {
            "path": mark.path,
            "journal_id": mark.journal_id,
            "journal": mark.journal,
            "offset": mark.offset,
            "counts": mark.error is None and best[basename(mark.path)].place == mark.place,
            "error": mark.error,
            "doubt": doubt(mark, journals),
        }
        for mark in marks
    ]
    write_rows(rows, SCHEMA, output)
    if any(row["error"] or row["doubt"] for row in rows):
        raise typer.Exit(1)


_Journal = Annotated[
    int,
    typer.Option(
        "--journal",
        metavar="ID",
        parser=parse_journal_id,
        help="Journal from which the next start replays: 28, 0x1c or 1c.txn. 0, with --offset 0: replay all.",
    ),
]
_Offset = Annotated[
    int,
    typer.Option(
        "--offset",
        metavar="N",
        min=0,
        help="Offset in this journal, in bytes; a record must begin or end there.",
    ),
]
_AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss",
        help="Allow a mark that is set forwards, or whose old journal is gone; the command lists the losses.",
    ),
]


@app.command("set")
@takes(SET_SCHEMA)
def set_command(
    paths: PathsArgument,
    *,
    journal: _Journal,
    offset: _Offset,
    journal_dir: JournalDirOption = None,
    accept_loss: _AcceptLoss = False,
    losses: LossesOption = None,
    metadata: LedgerMetadataOptions,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Set the last mark of a journal, from which the next start replays.

    Name all directories of the bookie, or the folder that holds them. The mark is written into every ledger
    directory, because a bookie uses the highest one. 'bkctl repair undo' restores the old marks.

    A mark can be set backwards while the journal of the present mark is there: the next start then only
    replays more. If that journal is gone, --accept-loss is needed, and all ledgers of the journal are put
    into limbo first. To set a mark forwards, --accept-loss is needed, too: the records in between are never
    replayed. Their entries are listed, and their ledgers are put into limbo before the mark is changed.
    Master keys, fences and explicit LACs of these records are written to the ledger index. In .idx files,
    only bookies of bkctl respect limbo.

    If a journal is gone, a ledger that began in it has no row. Such a ledger is known only from --metadata;
    it is put into limbo if the metadata place it on this bookie.

    Exit code 1 when entries are lost; 3 when no ledger of a lost journal is known and no --metadata proves
    that there was none; 4 while a bookie uses a directory, or when a directory is missing.

    Examples:

      bkctl lastmark set /data/bookie --journal 1a1fe14808f.txn --offset 512 --dry-run

      bkctl lastmark set /data/bookie --journal 0 --offset 0 --yes
    """
    from bkctl.admin.journals.stopped_bookie import find_stopped_bookie
    from bkctl.admin.repairs.repair_undo import settle_before

    filesystem = PosixFileSystem()
    settle_before(filesystem, paths, dry_run=dry_run)
    plan = partial(_plan, filesystem, LastMark(journal, offset), journal_dir, metadata)
    if dry_run:
        change, kept = plan(find_stopped_bookie(filesystem, paths)), list[str]()
    else:
        change, kept = _set(filesystem, paths, plan, losses, accept_loss=accept_loss, yes=yes)
    write_rows(_set_rows(change, kept), SET_SCHEMA, output)
    is_unknown = not change.skipped.is_whole and not metadata.is_given
    if is_unknown:
        typer.echo(_UNKNOWN, err=True)
    raise typer.Exit(1 if change.losses.losses else 3 if is_unknown else 0)


_UNKNOWN = (
    "bkctl: a ledger that began in the journal which is gone is not known here, and not put into limbo; with "
    "--metadata FILE|URI it is"
)


def _plan(
    filesystem: PosixFileSystem,
    mark: LastMark,
    journal_dir: str | None,
    metadata: LedgerMetadataOptions,
    bookie: StoppedBookie,
) -> MarkChange:
    from bkctl.admin.index.stopped_index import rocks_databases
    from bkctl.admin.journals.mark_change import plan_mark
    from bkctl.admin.logs.digests import metadata_finder

    with metadata.opened() as (dump, find):
        told = metadata_finder(filesystem, metadata_file=dump, find=find, beside=bookie.every_dir)
        return plan_mark(filesystem, bookie, mark, rocks_databases(), journal_dir, told)


def _set(
    filesystem: PosixFileSystem,
    paths: list[str],
    plan: Callable[[StoppedBookie], MarkChange],
    losses: str | None,
    *,
    accept_loss: bool,
    yes: bool,
) -> tuple[MarkChange, list[str]]:
    """Make the plan and do it, with the directories locked; the files that keep the old marks as well."""
    from bkctl.admin.index.stopped_index import rocks_databases
    from bkctl.admin.journals.mark_change import set_mark
    from bkctl.admin.journals.stopped_bookie import find_stopped_bookie
    from bkctl.clock import SystemClock
    from bkctl.directories.holders import DirectoryLock

    with DirectoryLock(*find_stopped_bookie(filesystem, paths).every_dir) as lock:
        # The process that held the directories a moment ago may have changed them.
        bookie = find_stopped_bookie(filesystem, paths)
        change = plan(bookie)
        _check_loss(change, accept_loss=accept_loss)
        directories = counted(len(change.files), "directory", "directories")
        ask(f"set the last mark in {directories} to {_named(change.after)}", yes=yes)
        write_losses(losses, change.losses, bookie.spaces)
        lock.recheck()
        return change, set_mark(filesystem, bookie, change, rocks_databases(), SystemClock())


def _named(mark: LastMark) -> str:
    return f"journal {mark.journal_id}, offset {mark.offset}"


def _check_loss(change: MarkChange, *, accept_loss: bool) -> None:
    if accept_loss or not change.may_lose:
        return
    if change.after <= change.before:
        raise RefusedError(
            f"{change.skipped.missing[0]}: its records after the mark would never be replayed. Bring the "
            "journal back. Or look at the losses with --dry-run, then add --accept-loss: this puts the "
            "ledgers into limbo"
        )
    raise RefusedError(
        f"the mark is {_named(change.before)} now: {counted(change.skipped.records, 'record')} of "
        f"{counted(len(change.skipped.ledgers), 'ledger')} would never be replayed. Look at the losses with "
        "--dry-run, then add --accept-loss: this puts the ledgers into limbo"
    )


def _set_rows(change: MarkChange, kept: list[str]) -> Iterator[dict[str, Any]]:
    nothing = dict.fromkeys(key.key for key in SET_SCHEMA)
    for file in change.files:
        before = "none that counts" if file.before is None else _named(file.before)
        yield nothing | {
            "kind": "mark",
            "path": file.path,
            "journal_id": change.after.journal_id,
            "offset": change.after.offset,
            "detail": f"before: {before}",
        }
    for path in kept:
        yield nothing | {"kind": "kept", "path": path}
    replayed, directory = change.replayed, change.place.directory.path
    yield nothing | {
        "kind": "replayed",
        "path": directory,
        "records": replayed.records,
        "detail": f"of {counted(len(replayed.ledgers), 'ledger')}",
    }
    for damage in replayed.damage:
        then = "what a power cut leaves" if damage.unsynced else "a start is refused without --accept-loss"
        reason = f"{counted(damage.size_bytes, 'byte')}: {damage.reason}; {then}"
        yield nothing | {"kind": "damage", "path": damage.path, "offset": damage.offset, "detail": reason}
    for gone in replayed.missing:
        yield nothing | {"kind": "missing", "path": directory, "detail": gone}
    for loss in change.losses.losses:
        more = "perhaps others, too; " if loss.maybe_more else ""
        yield nothing | {
            "kind": "lost",
            "ledger": loss.ledger,
            "entries": ranges_text(loss.entries),
            "detail": f"{more}{loss.cause}",
        }
