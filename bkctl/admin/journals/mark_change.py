"""``lastmark set``: from where the next start replays a journal directory.

Backwards a start replays more, and nothing can be lost: an entry that is in a log already is put there a
second time. Forwards it replays less: what stands between the two marks may be nowhere else. It is listed,
and its ledgers are put into limbo, before the mark moves.

The steps: rows in limbo (one synced batch for each database), the old marks kept beside under another name,
the new marks (each file replaced as a whole). Of all marks the highest counts, so a run that is killed in
between leaves the old mark or the new one in force; forwards every row is in limbo before either.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from posixpath import join

from bkctl.admin.journals.limbo_rows import LedgerDatabases, database_of, known_ledgers, limbo_operations
from bkctl.admin.journals.skipped_records import (
    END,
    JournalRecords,
    LedgerRecords,
    boundaries,
    records_between,
)
from bkctl.admin.journals.stopped_bookie import JournalPlace, StoppedBookie, read_mark
from bkctl.clock import Clock
from bkctl.codec.journal import journal_name
from bkctl.codec.last_mark import LastMark, encode_last_mark
from bkctl.codec.losses import Loss, Losses
from bkctl.errors import NotFoundError, RefusedError, UsageError
from bkctl.scan.directory import read_small
from bkctl.vfs.base import FileSystem, WritableFileSystem

MADE_BY = "lastmark set"
_CAUSE = "in a journal in front of the last mark that was set"


@dataclass(frozen=True, slots=True)
class MarkFile:
    """One file of a mark: what it says now (None: nothing that counts), and whether it is there to keep."""

    path: str
    before: LastMark | None
    is_there: bool


@dataclass(frozen=True, slots=True)
class MarkChange:
    """What a change does. ``replayed`` is what the next start would replay, ``skipped`` what it leaves out.

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
    def is_forward(self) -> bool:
        """Whether less is replayed than before."""
        return self.after > self.before


def plan_mark(
    fs: FileSystem, bookie: StoppedBookie, mark: LastMark, databases: LedgerDatabases
) -> MarkChange:
    """Return what setting the mark does; nothing is written.

    Raises NotFoundError when there is no such journal, UsageError when no record begins or ends at the
    offset, RefusedError for a step forwards that cannot put ledgers into limbo, StorageError.
    """
    place = bookie.place_of(mark.journal_id)
    _check_offset(fs, place, mark)
    before = bookie.mark(fs, place)
    files = tuple(_mark_file(fs, join(path, place.mark_name)) for path in bookie.mark_dirs)
    skipped = records_between(fs, place, before, mark) if mark > before else JournalRecords()
    losses = _losses(fs, bookie, place, skipped, databases)
    replayed = records_between(fs, place, mark, END)
    return MarkChange(
        place, before, mark, files, replayed, skipped, Losses(bookie.bookie, MADE_BY, tuple(losses))
    )


def set_mark(
    fs: WritableFileSystem,
    bookie: StoppedBookie,
    change: MarkChange,
    databases: LedgerDatabases,
    clock: Clock,
) -> list[str]:
    """Do what was planned, in directories that a ``DirectoryLock`` holds; the files that keep the old marks.

    Raises StorageError; a second run goes on from whatever was reached.
    """
    limbo = {loss.ledger for loss in change.losses.losses}
    rows = dict.fromkeys(limbo, LedgerRecords()) | change.skipped.ledgers
    for space in bookie.spaces if rows else ():
        here = {ledger: records for ledger, records in rows.items() if not space.is_elsewhere(ledger)}
        store = databases.write(database_of(fs, space))
        try:
            operations = limbo_operations(store, here, limbo)
            if operations:
                store.write(operations, sync=True)
        finally:
            store.close()
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(clock.time_ms() / 1000))
    kept = [_keep(fs, file.path, stamp) for file in change.files if file.is_there]
    for file in change.files:
        fs.replace(file.path, encode_last_mark(change.after))
    return kept


def _check_offset(fs: FileSystem, place: JournalPlace, mark: LastMark) -> None:
    """Raises UsageError for an offset within a record: a replay would begin in the middle of it."""
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


def _mark_file(fs: FileSystem, path: str) -> MarkFile:
    # A link is replaced, and what it leads to is not this bookie's to copy.
    is_there = fs.status(path) is not None and fs.link_target(path) is None
    return MarkFile(path, read_mark(fs, path), is_there)


def _losses(
    fs: FileSystem,
    bookie: StoppedBookie,
    place: JournalPlace,
    skipped: JournalRecords,
    databases: LedgerDatabases,
) -> list[Loss]:
    """The ledgers with skipped entries; all of the journal's where it is not known what is skipped."""
    if not skipped.ledgers and skipped.is_whole:
        return []
    ledgers = {ledger: records.entries for ledger, records in skipped.ledgers.items()}
    for space in bookie.spaces:
        store = databases.read(database_of(fs, space))
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


def _keep(fs: WritableFileSystem, path: str, stamp: str) -> str:
    """Copy a mark to a name that no bookie reads; a copy of the same content is kept once."""
    content = read_small(fs, path)
    for number in range(1, 1000):
        copy = f"{path}.{stamp}{f'-{number}' if number > 1 else ''}.bak"
        try:
            if read_small(fs, copy) == content:
                fs.sync_directory(os.path.dirname(path))
                return copy
        except NotFoundError:
            fs.replace(copy, content)
            return copy
    raise RefusedError(f"{path}: too many copies of old marks beside it")
