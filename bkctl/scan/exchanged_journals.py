"""Journal directories in each other's place, or a copy of one in the place of another.

The last mark of one names a journal that is in another one. Journals are numbered by the clock, and those of
two directories may have the same ids; then their records show it: a ledger's are in the journal directory at
its id modulo the number of directories.

The cookies of a bookie's directories are the same, and say nothing of which one a directory is. A start that
went on would replay nothing of what is behind the marks, and the journals would be removed; a repair would
take what is there for lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import join

from bkctl.codec.entry import EntryBatch
from bkctl.codec.journal import journal_name
from bkctl.codec.last_mark import LastMark
from bkctl.errors import CorruptionError, NotFoundError, RefusedError, StorageError
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.directory import journal_ids
from bkctl.scan.journal import JournalScan
from bkctl.scan.ledger_places import copied_places, count_places, exchanged_places, one_of_place
from bkctl.vfs import FileSystem

#: Journals that are asked of one directory: enough to know whose disk it is.
_JOURNALS_MAX = 16


def refuse_exchanged_journals(filesystem: FileSystem, places: Sequence[tuple[str, LastMark]]) -> None:
    """Raise RefusedError where journal directories, given with their last marks, are exchanged.

    A directory that has the journal of its own mark is in its place: a journal there with the id of another
    mark is its own, too, and that mark's is gone.
    """
    held = [journal_ids(filesystem, directory) for directory, _ in places]
    at_home = [mark.journal_id in ids for (_, mark), ids in zip(places, held, strict=True)]
    found = [
        f"{other} holds {journal_name(mark.journal_id)}, which the last mark of {directory} names"
        for (directory, mark), is_home in zip(places, at_home, strict=True)
        for (other, _), ids, is_others_home in zip(places, held, at_home, strict=True)
        if mark.journal_id > 0 and mark.journal_id in ids and not is_home and not is_others_home
    ]
    if found:
        raise RefusedError(
            f"{'; '.join(found)}: the journal disks are mounted in each other's place. Mount each disk "
            "where its journals belong. If the order of journalDirectories was changed instead, restore "
            "the old order there and in the cookies. Nothing is lost, so --accept-loss does not help"
        )
    if len(places) > 1:
        _refuse_strange_records(filesystem, [directory for directory, _ in places])


def _refuse_strange_records(filesystem: FileSystem, directories: Sequence[str]) -> None:
    held = [_ledgers(filesystem, directory) for directory in directories]
    counts = [count_places(ledgers, len(directories)) for ledgers in held]
    strange = {position: home for position, home in exchanged_places(counts).items() if held[home]}
    what = "in each other's place"
    if not strange:
        strange = copied_places(counts, lambda position, other: len(held[position] & held[other]))
        what = "as copies in the place of others"
    if strange:
        found = "; ".join(
            f"{directories[position]} holds records of ledgers whose journal is {directories[home]} (ledger"
            f" {one_of_place(held[position], home, len(directories))} is one)"
            for position, home in strange.items()
        )
        raise RefusedError(
            f"{found}: the journal disks are mounted {what}. Mount each disk where its journals belong. A "
            "start would not replay the records after the marks, not even with --accept-loss"
        )


def _ledgers(filesystem: FileSystem, directory: str) -> set[int]:
    """Return ledgers of the first records of the newest journals; one that cannot be read says nothing."""
    found: set[int] = set()
    for journal in journal_ids(filesystem, directory)[-_JOURNALS_MAX:]:
        try:
            with JournalScan(filesystem, join(directory, journal_name(journal))) as scan:
                for item in scan:
                    if isinstance(item, EntryBatch):
                        found.update(item.ledgers)
                        break
                    if isinstance(item, MarkedRecord):
                        found.add(item.ledger)
        except (CorruptionError, NotFoundError, StorageError):
            continue
    return found
