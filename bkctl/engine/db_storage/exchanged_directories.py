"""Ledger directories in each other's place: a start that went on would deny every ledger that they hold.

The cookies of a bookie's directories are the same, and say nothing of which one a directory is. Its ledger
rows do (:mod:`bkctl.scan.ledger_places`); they were counted when they were read into memory.

An accepted loss changes nothing here: no entry is lost while the disks can be mounted in their order, and a
bookie that ran on them would put entries where nobody looks for them afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bkctl.engine.db_storage.ledgers import LedgerIndex
from bkctl.engine.settings import BookieSettings
from bkctl.errors import RefusedError
from bkctl.scan.ledger_places import exchanged_places

_log = logging.getLogger(__name__)


def refuse_exchanged_directories(settings: BookieSettings, indexes: Sequence[LedgerIndex]) -> None:
    """Raise RefusedError where directories hold each other's ledgers; warn of single ledgers out of place.

    ``indexes`` are those of the ledger directories, in the order of the configuration.
    """
    if len(indexes) < 2:
        return
    counts = [index.loaded for index in indexes]
    exchanged = exchanged_places(counts)
    if exchanged:
        raise RefusedError(_refusal(settings, indexes, exchanged))
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


def _refusal(settings: BookieSettings, indexes: Sequence[LedgerIndex], exchanged: dict[int, int]) -> str:
    found = "; ".join(
        f"{_named(settings, position)} holds the ledgers of {_named(settings, home)} (ledger "
        f"{indexes[position].one_of_place(home)} is one)"
        for position, home in exchanged.items()
    )
    return (
        f"{found}: the disks are mounted in each other's place. DbLedgerStorage looks for a ledger in the "
        f"directory at its id modulo {len(indexes)}, and would answer 'no such ledger' for all of these. "
        "Mount each disk where its ledgers belong; where the order or the number of ledgerDirectories was "
        "changed instead, give them, and the cookies, the old ones back. Nothing is lost, so --accept-loss "
        "does not start the bookie either"
    )


def _named(settings: BookieSettings, position: int) -> str:
    """Return the name of a ledger directory for people, with that of its index where that is elsewhere."""
    ledgers, index = settings.ledger_directories[position], settings.indexes[position]
    return ledgers if ledgers == index else f"{index} (the index of {ledgers})"
