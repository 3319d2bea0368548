"""Ledger directories in each other's place: a start that went on would deny every ledger that they hold.

The cookies of a bookie's directories are the same, and say nothing of which one a directory is. Its ledger
rows do (:mod:`bkctl.scan.ledger_places`); they were counted when they were read into memory. Where the
indexes are on disks of their own, the entry logs may be in each other's place while the indexes are not, and
where an index was lost there are no rows: then the ledgers maps of the logs show it.

An accepted loss changes nothing here: no entry is lost while the disks can be mounted in their order, and a
bookie that ran on them would put entries where nobody looks for them afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from bkctl.engine.db_storage.ledgers import LedgerIndex
from bkctl.engine.settings import BookieSettings
from bkctl.errors import RefusedError
from bkctl.scan.directory import current, inspect_directory
from bkctl.scan.ledger_places import (
    copied_places,
    count_places,
    describe_copy,
    describe_exchange,
    exchanged_places,
    one_of_place,
)
from bkctl.scan.ledgers_of_logs import ledgers_of_logs
from bkctl.vfs import FileSystem

_log = logging.getLogger(__name__)


def refuse_exchanged_directories(
    settings: BookieSettings, indexes: Sequence[LedgerIndex], filesystem: FileSystem
) -> None:
    """Raise RefusedError where directories hold each other's ledgers; warn of single ledgers out of place.

    ``indexes`` are those of the ledger directories, in the order of the configuration.
    """
    if len(indexes) < 2:
        return
    counts = [index.loaded for index in indexes]
    names = [_named(settings, position) for position in range(len(indexes))]
    exchanged = exchanged_places(counts)
    if exchanged:
        examples = [indexes[position].one_of_place(home) for position, home in exchanged.items()]
        raise RefusedError(_refusal(names, exchanged, examples))
    copied = copied_places(counts, lambda position, other: _shared(indexes[position], indexes[other]))
    if copied:
        examples = [indexes[position].one_of_place(home) for position, home in copied.items()]
        raise RefusedError(_refusal_of_copy(names, copied, examples))
    if settings.indexes != settings.ledger_directories or not all(map(sum, counts)):
        _refuse_exchanged_logs(settings, filesystem)
    for position, count in enumerate(counts):
        strange = sum(count) - count[position]
        if strange:
            home = next(place for place, number in enumerate(count) if number and place != position)
            _log.warning(
                "%s: %d of %d ledger rows are of ledgers that belong to other ledger directories (ledger %d"
                " is one): no read finds what is here of them; bkctl doctor names them",
                settings.indexes[position],
                strange,
                sum(count),
                indexes[position].one_of_place(home),
            )


def _refuse_exchanged_logs(settings: BookieSettings, filesystem: FileSystem) -> None:
    names = settings.ledger_directories
    held = [ledgers_of_logs(filesystem, inspect_directory(filesystem, current(name)).logs) for name in names]
    exchanged = exchanged_places([count_places(ledgers, len(names)) for ledgers in held])
    if exchanged:
        examples = [one_of_place(held[place], home, len(names)) for place, home in exchanged.items()]
        raise RefusedError(_refusal([f"{name} (its logs)" for name in names], exchanged, examples))


def _shared(index: LedgerIndex, other: LedgerIndex) -> int:
    return sum(ledger in other for ledger in index.ledgers())


def _refusal_of_copy(names: Sequence[str], copied: Mapping[int, int], examples: Sequence[int]) -> str:
    return (
        f"{describe_copy(names, copied, examples)}, and the ledgers of that one would be denied. Mount the "
        "disk that belongs there; if it is lost for good, give the bookie an empty one in its place and run "
        "'bkctl bookie rebuild'. --accept-loss does not start the bookie either"
    )


def _refusal(names: Sequence[str], exchanged: Mapping[int, int], examples: Sequence[int]) -> str:
    return (
        f"{describe_exchange(names, exchanged, examples)}, and would not find any of these. "
        "Mount each disk where its ledgers belong; where the order or the number of ledgerDirectories was "
        "changed instead, give them, and the cookies, the old ones back. Nothing is lost, so --accept-loss "
        "does not start the bookie either"
    )


def _named(settings: BookieSettings, position: int) -> str:
    """Return the name of a ledger directory for people, with that of its index where that is elsewhere."""
    ledgers, index = settings.ledger_directories[position], settings.indexes[position]
    return ledgers if ledgers == index else f"{index} (the index of {ledgers})"
