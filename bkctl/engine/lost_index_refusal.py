"""The refusal of a start over an index that is lost or damaged, with the way out."""

from __future__ import annotations

from collections.abc import Sequence

from bkctl.engine.accepted_losses import note_accepted
from bkctl.engine.checkpoint import LastMarks
from bkctl.engine.journaled_entries import JournalPlace
from bkctl.engine.ledger_storage import IndexPlace
from bkctl.engine.lost_index import LostIndex, find_lost_indexes
from bkctl.engine.settings import BookieSettings
from bkctl.engine.storage_parts import PlacedLedgers
from bkctl.errors import BkctlError, CorruptionError, RefusedError
from bkctl.reporting import counted
from bkctl.scan.directory import current, is_key_value_store
from bkctl.scan.index_databases import LEDGERS, LOCATIONS
from bkctl.vfs import FileSystem, WritableFileSystem


def index_places(settings: BookieSettings) -> list[IndexPlace]:
    """Return the ledger directories of a bookie, in their order."""
    pairs = zip(settings.ledger_directories, settings.indexes, strict=True)
    return [IndexPlace((current(ledgers),), current(index)) for ledgers, index in pairs]


def journal_places(settings: BookieSettings, marks: LastMarks) -> list[JournalPlace]:
    """Return the journal directories of a bookie, in their order. Raises StorageError."""
    return [
        JournalPlace(current(directory), marks.read(number))
        for number, directory in enumerate(settings.journal_directories)
    ]


def refuse_gone_indexes(
    filesystem: WritableFileSystem, settings: BookieSettings, cluster: PlacedLedgers, *, accept_loss: bool
) -> None:
    """Raise RefusedError where databases are gone, and logs, journals or other directories show a loss.

    To be asked before an engine opens the databases, which makes those that are missing. A loss that is to be
    accepted is noted instead.
    """
    places = index_places(settings)
    journals = len(settings.journal_directories)
    marks = LastMarks(filesystem, [current(path) for path in settings.ledger_directories], journals)

    def gone(number: int) -> dict[str, str]:
        databases = places[number].databases
        return {
            name: "gone"
            for name in (LOCATIONS, LEDGERS)
            if not is_key_value_store(filesystem, f"{databases}/{name}")
        }

    lost = find_lost_indexes(filesystem, places, lambda: journal_places(settings, marks), gone, cluster)
    if not accept_loss:
        refuse_lost_indexes(filesystem, lost)
    for each in lost:
        note_accepted(filesystem, each.place.databases, each.databases)


def refuse_lost_indexes(filesystem: FileSystem, lost: Sequence[LostIndex]) -> None:
    """Raise RefusedError with the way out when an index is lost."""
    if not lost:
        return
    first = lost[0]
    others = counted(len(lost) - 1, "more directory", "more directories")
    more = f" (and so in {others})" if len(lost) > 1 else ""
    rebuilt = "" if first.logs_lost else f", or rebuild it with 'bkctl {' '.join(first.rebuild(filesystem))}'"
    new = (
        ". If the directory was only added (allowStorageExpansion) and never had an entry, nothing is lost:"
        " start with --accept-loss, which puts only those ledgers into limbo that the metadata place there"
        if any(each.may_be_new for each in lost)
        else ""
    )
    raise RefusedError(
        f"{first.found}{more}. Bring it back{rebuilt}, or start with --accept-loss. Then every ledger of this"
        " directory is in limbo (a missing entry is answered as unknown) until 'bkctl index limbo --clear'"
        f"{new}"
    )


def damaged_index(settings: BookieSettings, error: CorruptionError) -> BkctlError:
    """Return the refusal of a start over a database that cannot be opened; ``error`` itself for all else."""
    for number, place in enumerate(index_places(settings)):
        for name in (LOCATIONS, LEDGERS):
            if f"{error.path}/".startswith(f"{place.databases}/{name}/"):
                return RefusedError(
                    f"{error}: the index is damaged. Bring it back from a copy, or rebuild it with 'bkctl"
                    f" index rebuild {settings.ledger_directories[number]} --{name}'"
                )
    return error
