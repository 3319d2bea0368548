"""``bkctl entrylog salvage``: the records of a damaged log that prove themselves, in a fresh log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bkctl.codec.entrylog import log_name
from bkctl.codec.losses import ranges_text
from bkctl.commands.entrylog.log_target import log_target
from bkctl.commands.frame.confirmation import DryRunOption, YesOption, ask
from bkctl.commands.frame.entry_options import Digest, DigestOption
from bkctl.commands.frame.losses_file import LossesOption, write_losses
from bkctl.commands.frame.metadata_options import LedgerMetadataOptions
from bkctl.commands.frame.option_groups import takes
from bkctl.commands.frame.options import OutputOption, PasswordOptions
from bkctl.commands.frame.output import Key, Schema, write_rows
from bkctl.commands.frame.progress import progress
from bkctl.reporting import counted
from bkctl.vfs import PosixFileSystem

if TYPE_CHECKING:
    from bkctl.admin.entrylogs.log_place import LogPlace
    from bkctl.admin.entrylogs.open_ends import OpenEnd
    from bkctl.admin.entrylogs.salvage import LogSalvage
    from bkctl.admin.entrylogs.salvaged_records import Counts, SecondCopy
    from bkctl.admin.index.stopped_index import IndexDatabases
    from bkctl.scan.digest_book import DigestBook
    from bkctl.scan.proved_ids import EntryIds

SALVAGE_SCHEMA: Schema = (
    Key(
        "kind",
        "string",
        "log (the source), copy (the fresh log), kept (the source in quarantine), damage, lost (of a "
        "ledger), unproved (an entry that is copied, and that may be cut), "
        "journaled (a lost entry that a journal still has); of a log without damage only log",
    ),
    Key("path", "string or null", "the file"),
    Key("log_id", "int or null", "of a log: its id"),
    Key("records", "int or null", "of copy: how many records are copied"),
    Key("by_digest", "int or null", "of copy: those that their digest proves"),
    Key("by_structure", "int or null", "of copy: those proved by their place among sizes and ids alone"),
    Key("superseded", "int or null", "of log: records of which the index has another place; not copied"),
    Key(
        "unknown",
        "int or null",
        "of log: records of ledgers that nobody knows, or where the index has another entry; not copied",
    ),
    Key("offset", "int or null", "of damage, unproved and journaled: where it begins"),
    Key("bytes", "int or null", "of log, damage and unproved: how many bytes"),
    Key(
        "ledger",
        "int or null",
        "of lost: the ledger, which is in limbo; of unproved and journaled: its ledger",
    ),
    Key("entries", "string or null", "of lost: ranges of entries; of unproved and journaled: the entry"),
    Key("detail", "string or null", "what else there is to say"),
)


@takes(SALVAGE_SCHEMA)
def salvage_command(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="[ID] [PATH...]", help="A log id (28, 0x1c, 1c.log) and where it is."),
    ],
    *,
    losses: LossesOption = None,
    digest: DigestOption = Digest.AUTO,
    metadata: LedgerMetadataOptions,
    password: PasswordOptions,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    output: OutputOption = None,
) -> None:
    """[offline] [writes] Copy the provably good records of a damaged log to a fresh log, and point the
    index at it.

    A record is copied when its digest is known and matches ('by_digest'), or when its digest is not known and
    the chain of sizes and ids around it is complete ('by_structure'). Give --metadata, and the password for
    the MAC digest, so that more records are proved by digest. A record whose digest does not match is lost,
    unless the digest proves which of its ids is damaged: then the copy gets the right id. With --metadata, a
    record is also left out if neither the metadata nor the index know its ledger, because then the ledger was
    deleted, or the id is damaged. If an interrupted replay or compaction left a good copy of a damaged
    record, in any log of the bookie or in quarantine, that copy is used. Directly before damage, the end of a
    record is proved only by its digest, or by an entry that the index places at this end. Without such a
    proof, the record is copied unchanged, and listed ('unproved').

    The fresh log is durable and has been read back before the index points at it. Entries that the index
    names but no record proves are listed (--losses), and their ledgers are put into limbo. The list also has
    the ids between them that may never have been on this bookie ('perhaps never here'). 'bkctl ledger repair
    --from' reads that list. At the end, the damaged log is moved into quarantine and stays there: it is never
    written to or deleted. A log that is already in quarantine can be salvaged there. 'bkctl repair undo'
    undoes a salvage.

    A log without damage is not changed (exit code 3 when digests of its records are not known). Exit code 1
    when entries are lost, 3 when the length of a copied entry is not proved, even if entries are lost, 4
    while a bookie uses the directory.

    Examples:

      bkctl entrylog salvage 1c.log /data/bookie/ledgers --dry-run

      bkctl entrylog salvage /data/bookie/ledgers/current/1c.log --losses losses.json --yes
    """
    from bkctl.admin.entrylogs.log_place import find_log
    from bkctl.admin.index.stopped_index import rocks_databases
    from bkctl.admin.repairs.repair_undo import settle_before
    from bkctl.directories.holders import DirectoryLock

    filesystem, databases, secret = PosixFileSystem(), rocks_databases(), password.read()
    paths, log_id = log_target(targets)
    place = find_log(filesystem, paths, log_id)
    settle_before(filesystem, place.every_dir, dry_run=dry_run)
    place = find_log(filesystem, paths, log_id)
    with metadata.book(digest, secret, [place.current_dir]) as book:
        if dry_run:
            salvage = _planned(filesystem, place, book, databases)
        else:
            with DirectoryLock(*place.every_dir) as lock:
                place = find_log(filesystem, paths, log_id)
                salvage = _planned(filesystem, place, book, databases)
                if salvage.is_needed:
                    ask(_question(salvage), yes=yes)
                    write_losses(losses, salvage.losses)
                    lock.recheck()
                    _carry_out(filesystem, salvage, book, databases)
    write_rows(_rows(salvage), SALVAGE_SCHEMA, output)
    raise typer.Exit(_exit_code(salvage))


def _exit_code(salvage: LogSalvage) -> int:
    """Return 3 where not all that is kept is proved, else 1 where something is lost."""
    counts = salvage.counts
    if counts.open_ends if salvage.is_needed else counts.digests_unknown:
        return 3
    return int(bool(salvage.losses.losses))


def _planned(
    filesystem: PosixFileSystem, place: LogPlace, book: DigestBook, databases: IndexDatabases
) -> LogSalvage:
    from bkctl.admin.entrylogs.salvage import plan_salvage

    # Where entries are lost other logs are read, too, so that the bytes are not known beforehand.
    with progress(f"read {place.log.path}") as advance:
        return plan_salvage(filesystem, place, book, databases, advance)


def _carry_out(
    filesystem: PosixFileSystem, salvage: LogSalvage, book: DigestBook, databases: IndexDatabases
) -> None:
    from bkctl.admin.entrylogs.salvage import salvage_log
    from bkctl.clock import SystemClock

    log = salvage.place.log
    with progress(f"copy {log.path}", log.size_bytes) as advance:
        salvage_log(filesystem, SystemClock(), salvage, book, databases, advance)


def _question(salvage: LogSalvage) -> str:
    limbo = len(salvage.losses.losses)
    return (
        f"copy {counted(salvage.counts.copied, 'record')} of {salvage.place.log.path} to a fresh log, give up"
        f" {salvage.lost} of {counted(limbo, 'ledger')}, put into limbo what has"
        " lost some, and put the log into quarantine"
    )


def _why_nothing(salvage: LogSalvage) -> str:
    unchecked = salvage.counts.digests_unknown
    if not unchecked:
        return "no damage: nothing is done"
    return (
        "no damage is found, and nothing is done; but the digest type of"
        f" {counted(unchecked, 'record')} is not known: --metadata tells it"
    )


def _what_is_special(counts: Counts) -> str | None:
    """Return which of the copied records are not what a salvage copies usually, None where all are."""
    kinds = {
        "had no row in the index": counts.unnamed,
        "got the ids that their digests prove": counts.renamed,
        "are second copies, of records that are damaged": counts.second_copies,
        "may be cut, for nothing proves where they end": counts.open_ends,
    }
    return "; ".join(f"{count} of them {what}" for what, count in kinds.items() if count) or None


def _rows(salvage: LogSalvage) -> Iterator[dict[str, Any]]:
    from bkctl.admin.entrylogs.salvage import kept_path, target_path

    nothing = dict.fromkeys(key.key for key in SALVAGE_SCHEMA)
    place, counts = salvage.place, salvage.counts
    yield nothing | {
        "kind": "log",
        "path": place.log.path,
        "log_id": place.log.log_id,
        "bytes": place.log.size_bytes,
        "superseded": counts.superseded,
        "unknown": counts.unknown,
        "detail": None if salvage.is_needed else _why_nothing(salvage),
    }
    for damage in salvage.damage:
        yield nothing | {
            "kind": "damage",
            "path": place.log.path,
            "offset": damage.offset,
            "bytes": damage.size_bytes,
            "detail": damage.reason,
        }
    if not salvage.is_needed:
        return
    if salvage.target is not None:
        yield nothing | {
            "kind": "copy",
            "path": target_path(salvage),
            "log_id": salvage.target,
            "records": counts.copied,
            "by_digest": counts.by_digest,
            "by_structure": counts.by_structure,
            "detail": _what_is_special(counts),
        }
    yield nothing | {
        "kind": "kept",
        "path": kept_path(salvage),
        "log_id": place.log.log_id,
        "detail": f"{log_name(place.log.log_id)}, out of every bookie's sight",
    }
    for loss in salvage.losses.losses:
        more = "perhaps others, too; " if loss.maybe_more else ""
        if never := salvage.perhaps_never_here(loss.ledger):
            more += f"perhaps never here: {ranges_text(never)}; "
        yield nothing | {
            "kind": "lost",
            "ledger": loss.ledger,
            "entries": ranges_text(loss.entries),
            "detail": f"{more}{loss.cause}",
        }
    yield from map(_unproved_row, salvage.open_ends)
    yield from (_journaled_row(ids, copy) for ids, copy in sorted(salvage.journaled.items()))


def _journaled_row(ids: EntryIds, copy: SecondCopy) -> dict[str, Any]:
    return dict.fromkeys(key.key for key in SALVAGE_SCHEMA) | {
        "kind": "journaled",
        "path": copy.path,
        "offset": copy.offset,
        "ledger": ids.ledger,
        "entries": str(ids.entry),
        "detail": "this journal still has the lost entry: 'bkctl lastmark set' in front of it, before the"
        " next start, lets that bring it back",
    }


def _unproved_row(end: OpenEnd) -> dict[str, Any]:
    return dict.fromkeys(key.key for key in SALVAGE_SCHEMA) | {
        "kind": "unproved",
        "path": end.path,
        "offset": end.offset,
        "bytes": end.size_bytes,
        "ledger": end.ids.ledger,
        "entries": str(end.ids.entry),
        "detail": f"nothing proves that it has {counted(end.size_bytes, 'byte')}, it may be cut: {end.why}",
    }
