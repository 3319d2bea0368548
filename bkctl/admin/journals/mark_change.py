"""``lastmark set``: from where the next start replays a journal directory.

Backwards a start replays more, and nothing can be lost: an entry that is in a log already is put there a
second time. Only where the marked journal is gone, what it had behind the old mark is lost: the new mark
would hide that, so that all ledgers of the journal are put into limbo first, those without a row if the
metadata name them. Forwards it replays less: what stands between the two marks may be nowhere else. It is
listed, and its ledgers are put into limbo, before the mark moves.

The steps: the old state kept (``admin.repairs``), rows in limbo (one synced batch for each database), the new
marks (each file replaced as a whole). Of all marks the highest counts, so a run that is killed in
between leaves the old mark or the new one in force; forwards every row is in limbo before either.
"""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import join

from bkctl.admin.index.stopped_index import IndexDatabases, StoppedIndex
from bkctl.admin.journals.limbo_rows import known_ledgers, limbo_operations, put_rows, row_changes
from bkctl.admin.journals.lost_rows import refuse_lost_rows
from bkctl.admin.journals.skipped_records import (
    END,
    JournalRecords,
    LedgerRecords,
    boundaries,
    records_between,
)
from bkctl.admin.journals.stopped_bookie import JournalPlace, StoppedBookie, read_mark
from bkctl.admin.logs.digests import LedgersMetadata
from bkctl.admin.repairs.repair_journal import begin_repair, changes_file
from bkctl.clock import Clock
from bkctl.codec.journal import journal_name
from bkctl.codec.last_mark import ZERO_MARK, LastMark, encode_last_mark
from bkctl.codec.losses import Loss, Losses
from bkctl.errors import UsageError
from bkctl.scan.lost_marks import ALL_GONE, marks_are_lost
from bkctl.vfs.base import FileSystem, WritableFileSystem

MADE_BY = "lastmark set"
#: So far behind the newest journal a mark may name one that got lost.
_NEAR = 100
_CAUSE = "in a journal in front of the last mark that was set"


@dataclass(frozen=True, slots=True)
class MarkFile:
    """One file of a mark, and what it says now (None: nothing that counts)."""

    path: str
    before: LastMark | None


@dataclass(frozen=True, slots=True)
class MarkChange:
    """The effect of a change. ``replayed`` is what the next start would replay, ``skipped`` what it omits.

    ``losses`` has each ledger that is put into limbo.
    """

    place: JournalPlace
    before: LastMark
    after: LastMark
    files: tuple[MarkFile, ...]
    replayed: JournalRecords
    skipped: JournalRecords
    losses: Losses

    @property
    def may_lose(self) -> bool:
        """Whether less is replayed than before, or the new mark hides that all journals are gone."""
        is_forwards = self.after > self.before and (self.before != ZERO_MARK or self.skipped.records > 0)
        return is_forwards or not self.skipped.is_whole


def plan_mark(
    fs: FileSystem,
    bookie: StoppedBookie,
    mark: LastMark,
    databases: IndexDatabases,
    directory: str | None = None,
    metadata_of: LedgersMetadata | None = None,
) -> MarkChange:
    """Return what setting the mark does; nothing is written.

    ``directory`` is the journal directory whose mark it is, where the journal alone does not say that. Where
    a journal is gone, the ledgers that ``metadata_of`` places on the bookie are among those of the journal.

    Raises NotFoundError when there is no such journal, UsageError when no record begins or ends at the
    offset, RefusedError for a step forwards that cannot put ledgers into limbo, StorageError.
    """
    place = bookie.place_of(fs, mark.journal_id, directory)
    _check_offset(fs, place, mark)
    journals = place.directory.journals
    first = LastMark(journals[0].journal_id, 0) if journals else ZERO_MARK
    if mark.journal_id == 0:
        # As much is replayed. Journal 0 says that there were none: it would hide that some are lost.
        mark = first
    before = bookie.mark(fs, place)
    files = tuple(
        MarkFile(path, read_mark(fs, path))
        for path in (join(directory, place.mark_name) for directory in bookie.mark_dirs)
    )
    if mark > (first if before == ZERO_MARK else before):
        skipped = records_between(fs, place, before, mark)
    else:
        skipped = JournalRecords(missing=_gone(fs, bookie, place, before))
    losses = _losses(fs, bookie, place, skipped, databases, metadata_of)
    replayed = records_between(fs, place, mark, END)
    return MarkChange(
        place, before, mark, files, replayed, skipped, Losses(bookie.bookie, MADE_BY, tuple(losses))
    )


def set_mark(
    fs: WritableFileSystem,
    bookie: StoppedBookie,
    change: MarkChange,
    databases: IndexDatabases,
    clock: Clock,
) -> list[str]:
    """Do what was planned, in directories that a ``DirectoryLock`` holds; the files that keep the old marks.

    Raises StorageError; ``settle_unfinished`` takes back what was reached.
    """
    limbo = {loss.ledger for loss in change.losses.losses}
    rows = dict.fromkeys(limbo, LedgerRecords()) | change.skipped.ledgers
    repair = begin_repair(
        fs,
        clock,
        (*bookie.mark_dirs, *bookie.every_dir),
        MADE_BY,
        f"journal {change.after.journal_id}, offset {change.after.offset}",
        [
            *row_changes(fs, bookie.spaces, rows, databases),
            *(changes_file(file.path) for file in change.files),
        ],
    )
    put_rows(fs, bookie.spaces, rows, limbo, databases)
    for file in change.files:
        fs.replace(file.path, encode_last_mark(change.after))
    repair.finish()
    kept = (repair.kept(file.path) for file in change.files)
    return [path for path in kept if path is not None]


def _gone(fs: FileSystem, bookie: StoppedBookie, place: JournalPlace, before: LastMark) -> list[str]:
    """Say that the journal which a mark names, or named, is gone.

    Where others are there, a mark far behind them is one that was damaged, which is what this repair is for.
    """
    ids = [each.journal_id for each in place.directory.journals]
    if before.journal_id > 0 and before.journal_id not in ids:
        if ids and before.journal_id > ids[-1] + _NEAR:
            return []
        return [f"{journal_name(before.journal_id)}, which the last mark names, is gone"]
    return [ALL_GONE] if not ids and marks_are_lost(fs, bookie.mark_dirs) else []


def _check_offset(fs: FileSystem, place: JournalPlace, mark: LastMark) -> None:
    """Raise UsageError for an offset within a record: a replay would begin in the middle of it."""
    if mark.journal_id == 0:
        if mark.offset:
            raise UsageError("journal 0 means all journals, from offset 0")
        return
    path = join(place.directory.path, journal_name(mark.journal_id))
    below, above = 0, None
    for at in boundaries(fs, path):
        if at == mark.offset:
            return
        if at < mark.offset:
            below = max(below, at)
        elif above is None or at < above:
            above = at
    where = f"the next ones are {below} and {above}" if above is not None else f"the file ends at {below}"
    raise UsageError(f"{path}: no record begins or ends at offset {mark.offset}; {where}")


def _losses(
    fs: FileSystem,
    bookie: StoppedBookie,
    place: JournalPlace,
    skipped: JournalRecords,
    databases: IndexDatabases,
    metadata_of: LedgersMetadata | None,
) -> list[Loss]:
    """List the ledgers with skipped entries; all of the journal's where it is not known what is skipped."""
    if not skipped.ledgers and skipped.is_whole:
        return []
    refuse_lost_rows(fs, bookie, databases)
    ledgers = {ledger: records.entries for ledger, records in skipped.ledgers.items()}
    if metadata_of is not None and not skipped.is_whole:
        # A ledger that began in a journal which is gone has no row: only the metadata know it.
        for ledger in filter(place.has, metadata_of.naming(bookie.bookie)):
            ledgers.setdefault(ledger, ())
    for space in bookie.spaces:
        store = StoppedIndex(fs, space, databases).ledgers()
        try:
            if not skipped.is_whole:
                for ledger in known_ledgers(store, place.has):
                    ledgers.setdefault(ledger, ())
            # Whether the rows can be read is known before anything is written.
            limbo_operations(store, skipped.ledgers, ())
        finally:
            store.close()
    more = not skipped.is_whole
    return [
        Loss(ledger, entries, more, _CAUSE) for ledger, entries in sorted(ledgers.items()) if entries or more
    ]
