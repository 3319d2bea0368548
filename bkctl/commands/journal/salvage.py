"""``bkctl journal salvage``: the records of damaged journals in a fresh directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.codec.journal import journal_name
from bkctl.codec.losses import ranges_text
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.entry_options import Digest, DigestOption
from bkctl.commands.frame.losses_file import LossesOption, write_losses
from bkctl.commands.frame.metadata_options import LedgerMetadataOptions
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import (
    JournalDirOption,
    JournalOption,
    OutputOption,
    PasswordOptions,
    PathsArgument,
)
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.errors import UsageError
from bkctl.reporting import counted
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.journals.salvage import Salvage
    from bkctl.admin.journals.stopped_bookie import StoppedBookie
    from bkctl.scan.damage import Damage

SCHEMA: Schema = (
    Key(
        "kind",
        "string",
        "journal (a file), damage (in it), kept (with --in-place: a damaged file as it was), missing (a "
        "file that is gone), empty (one without records in its place), mark (a last mark that is set back), "
        "key (a master key that was damaged, in whose place the copy has that of the metadata), lost (of a "
        "ledger)",
    ),
    Key("path", "string or null", "the journal, or the directory of journals"),
    Key("records", "int or null", "of a journal: how many records are copied"),
    Key("offset", "int or null", "of damage: where it begins; of key: where its record does"),
    Key("bytes", "int or null", "of damage: how many bytes become padding"),
    Key("ledger", "int or null", "of lost: the ledger, which is in limbo; of key: whose it is"),
    Key("entries", "string or null", "of lost: ranges of entries that are known to be lost"),
    Key("detail", "string or null", "what else there is to say"),
)

_UNKNOWN = (
    "bkctl: a ledger that began in the damaged bytes is not known here, and not put into limbo; with "
    "--metadata FILE|URI it is"
)


@takes(SCHEMA)
def salvage_command(
    paths: PathsArgument,
    *,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="The fresh journal directory, in an existing directory."),
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Replace each damaged journal by its copy instead.")
    ] = False,
    journal: JournalOption = None,
    journal_dir: JournalDirOption = None,
    losses: LossesOption = None,
    digest: DigestOption = Digest.AUTO,
    metadata: LedgerMetadataOptions,
    password: PasswordOptions,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Copy the readable records of damaged journals, so that a start replays them.

    Name all directories of the bookie, or the folder that holds them. Records after the damage are found by
    their digests. They keep their offsets, so that the last marks stay valid, and padding replaces the bytes
    in between. Without room for padding, as before version 5, the records are moved up.

    With --out, the damaged journals are only read: replace their directory by the fresh one afterwards. With
    --in-place, each damaged journal is replaced by its copy and kept. 'bkctl repair undo' undoes both, until
    something else changes the directories. --journal-dir or --journal chooses one of several directories.

    Lost entries after the last mark are listed, and their ledgers are put into limbo before anything is
    copied. If it is not certain which entries were lost, all ledgers of the journal are put into limbo, and
    so are those that --metadata places on the bookie. In .idx files, only bookies of bkctl respect limbo; the
    command then says so. A damaged id in a record is corrected if the digest proves the right id, and a
    damaged master key is corrected if --metadata proves the right key.

    If a journal between others is missing, it is replaced by an empty one. A last mark that points into a
    record or into padding is set to the beginning of its journal. A mark that names a missing journal, or an
    offset after the end of its journal, is set to the first journal: the next start replays all of them.

    Exit code 1 when something is lost; 3 when no loss is known, but not everything could be checked (digests,
    or missing journals without --metadata); 4 while a bookie uses a directory, or when one is missing.

    Examples:

      bkctl journal salvage /data/bookie --out /data/bookie/journal.new --dry-run

      bkctl journal salvage /data/bookie --in-place --losses losses.json --yes
    """
    from bkctl.admin.journals.salvage import refuse_home
    from bkctl.admin.journals.stopped_bookie import find_stopped_bookie
    from bkctl.admin.repairs.repair_undo import settle_before

    if (out is None) != in_place:
        raise UsageError("say where the copies go: --out DIR, or --in-place")
    filesystem = PosixFileSystem()
    settle_before(filesystem, paths, also=[] if out is None else [out], dry_run=dry_run)
    secret = password.read()
    if out is not None:
        refuse_home(filesystem, out)

    plan = partial(_plan, filesystem, (journal or 0, journal_dir), digest, metadata, secret)
    if dry_run:
        salvage, kept = plan(find_stopped_bookie(filesystem, paths)), list[str]()
    else:
        salvage, kept = _salvage(filesystem, paths, plan, out, losses, yes=yes)
    write_rows(_rows(salvage, kept), SCHEMA, output)
    if not salvage.is_certain and not metadata.is_given:
        typer.echo(_UNKNOWN, err=True)
    raise typer.Exit(_exit_code(salvage, is_known=salvage.is_certain or metadata.is_given))


def _exit_code(salvage: Salvage, *, is_known: bool) -> int:
    """Return the exit code; say on stderr which entries no digest proves: losses may hide behind them."""
    if salvage.unchecked:
        typer.echo(f"bkctl: unchecked: {salvage.unchecked}", err=True)
    return 1 if salvage.losses.losses else 3 if salvage.unchecked or not is_known else 0


def _plan(
    filesystem: PosixFileSystem,
    chosen: tuple[int, str | None],
    digest: Digest,
    metadata: LedgerMetadataOptions,
    secret: bytes | None,
    bookie: StoppedBookie,
) -> Salvage:
    from bkctl.admin.index.stopped_index import rocks_databases
    from bkctl.admin.journals.salvage import plan_salvage
    from bkctl.admin.logs.digests import digest_book, metadata_finder

    with metadata.opened() as (dump, find):
        place = bookie.place_of(filesystem, *chosen)
        book = digest_book(
            filesystem,
            mode=digest.value,
            metadata_file=dump,
            find=find,
            password=secret,
            beside=[place.directory.path],
        )
        told = metadata_finder(filesystem, metadata_file=dump, find=find)
        return plan_salvage(filesystem, bookie, place, book, rocks_databases(), told)


def _salvage(
    filesystem: PosixFileSystem,
    paths: list[str],
    plan: Callable[[StoppedBookie], Salvage],
    out: str | None,
    losses: str | None,
    *,
    yes: bool,
) -> tuple[Salvage, list[str]]:
    """Make the plan and do it, with the directories locked; the damaged files that are kept as well."""
    from bkctl.admin.index.stopped_index import rocks_databases
    from bkctl.admin.journals.salvage import salvage_in_place, salvage_journals
    from bkctl.admin.journals.stopped_bookie import find_stopped_bookie
    from bkctl.clock import SystemClock
    from bkctl.directories.holders import DirectoryLock

    with DirectoryLock(*find_stopped_bookie(filesystem, paths).every_dir) as lock:
        # The process that held the directories a moment ago may have changed them.
        bookie = find_stopped_bookie(filesystem, paths)
        salvage = plan(bookie)
        ask(_question(salvage, out), yes=yes)
        write_losses(losses, salvage.losses, bookie.spaces)
        lock.recheck()
        if out is None:
            return salvage, salvage_in_place(filesystem, bookie, salvage, rocks_databases(), SystemClock())
        salvage_journals(filesystem, bookie, salvage, rocks_databases(), out, SystemClock())
        return salvage, []


def _question(salvage: Salvage, out: str | None) -> str:
    limbo = f"put {counted(len(salvage.losses.losses), 'ledger')} into limbo"
    if out is not None:
        return f"copy {counted(len(salvage.journals), 'journal')} to {out}, and {limbo}"
    damaged = sum(each.is_damaged for each in salvage.journals)
    replaced = counted(damaged, "journal by a copy", "journals by copies")
    return f"replace {replaced} without the damage, and {limbo}"


def _copied(damage: Damage) -> str:
    """Return what is said of damage whose record the copy has all the same."""
    from bkctl.admin.journals.journal_losses import owner_of

    owner = owner_of(damage)
    if owner is not None:
        ids = f"entry {owner.entry} of ledger {owner.ledger}"
        return f"; its digest proves that it is {ids}, and it is copied as that"
    return "; the record in it is copied" if damage.readable else ""


def _rows(salvage: Salvage, kept: list[str]) -> Iterator[dict[str, Any]]:
    nothing = dict.fromkeys(key.key for key in SCHEMA)
    for each in salvage.journals:
        yield nothing | {"kind": "journal", "path": each.journal.path, "records": each.records}
        for damage in each.damage:
            yield nothing | {
                "kind": "damage",
                "path": damage.path,
                "offset": damage.offset,
                "bytes": damage.size_bytes,
                "detail": f"{damage.reason}{_copied(damage)}",
            }
        for wrong in each.keys:
            yield nothing | {
                "kind": "key",
                "path": wrong.found.path,
                "offset": wrong.found.offset,
                "ledger": wrong.found.ledger,
                "detail": "some bytes of its master key were changed; the copy has that of the metadata",
            }
    for path in kept:
        yield nothing | {"kind": "kept", "path": path}
    for gone in salvage.missing:
        yield nothing | {"kind": "missing", "path": salvage.place.directory.path, "detail": gone}
    for journal_id in salvage.empty:
        yield nothing | {
            "kind": "empty",
            "path": f"{salvage.place.directory.path}/{journal_name(journal_id)}",
        }
    for path in salvage.wrong_marks:
        yield nothing | {"kind": "mark", "path": path, "offset": salvage.mark.offset}
    for loss in salvage.losses.losses:
        more = "perhaps others, too; " if loss.maybe_more else ""
        yield nothing | {
            "kind": "lost",
            "ledger": loss.ledger,
            "entries": ranges_text(loss.entries),
            "detail": f"{more}{loss.cause}",
        }
