"""The rows of the index that point into logs: a log is removed only when it has none.

The ids and sizes in a log's records, and its map of ledgers, have no checksum. One flipped bit there makes a
live ledger look like one that is gone, or hides records inside one that seems to be larger. The index has
checksums, and it alone decides which entries this bookie serves, so it is asked before a log goes.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator
from collections.abc import Set as AbstractSet

from bkctl.codec.location import ABSENT
from bkctl.engine.ledger_storage import EntryLocations
from bkctl.errors import CorruptionError

_KEY = struct.Struct(">qq")
_SIZE_BYTES = 4
_OFFSET = 0xFFFF_FFFF


def rows_into(
    locations: EntryLocations,
    log_ids: Collection[int],
    dead: Container[int],
    going_on: Callable[[], None],
) -> dict[int, int]:
    """Count the rows that point into each of the logs, of ledgers that are not ``dead``.

    Logs without such a row are left out. Reads the whole index once, some thousand rows at a time, and calls
    ``going_on`` in between. Raises StorageError, CorruptionError, and what ``going_on`` raises.
    """
    return Counter(place >> 32 for _, place in _pointing(locations, frozenset(log_ids), dead, going_on))


def rows_of_logs(
    locations: EntryLocations, log_ids: Collection[int], going_on: Callable[[], None]
) -> dict[int, int]:
    """Count the rows that point into each of the logs, those of every ledger.

    A quarter of the time of :func:`rows_into`, which asks of each row whether its ledger is dead. Raises as
    that does.
    """
    rows = Counter[int]()
    if not log_ids:
        return rows
    for _, places in locations.batches():
        going_on()
        rows.update([place >> 32 for place in places])
        rows[ABSENT >> 32] -= places.count(ABSENT)
    return {log_id: rows[log_id] for log_id in log_ids if rows[log_id]}


def refuse_rows(
    locations: EntryLocations,
    log_id: int,
    path: str,
    dead: Container[int],
    going_on: Callable[[], None],
    *,
    copied: int = 0,
) -> None:
    """Raise CorruptionError where more rows point into a log than entries of it were ``copied``.

    Raises as :func:`rows_into`, too.
    """
    rows = list(_pointing(locations, {log_id}, dead, going_on))
    if len(rows) > copied:
        key, place = rows[0]
        ledger, entry = _KEY.unpack(key)
        raise CorruptionError(
            "entry log",
            # The row of an entry names the byte behind its size.
            offset=0 if copied else (place & _OFFSET) - _SIZE_BYTES,
            expected="a record of the ledger and entry at each place that the index names",
            found=f"none at {len(rows) - copied} of them"
            + ("" if copied else f", of ledger {ledger}, entry {entry} first")
            + " (bkctl entrylog salvage)",
            path=path,
        )


def _pointing(
    locations: EntryLocations, log_ids: AbstractSet[int], dead: Container[int], going_on: Callable[[], None]
) -> Iterator[tuple[bytes, int]]:
    """Yield the key and the location of each row of a live ledger that points into one of the logs."""
    if not log_ids:
        return
    for keys, places in locations.batches():
        going_on()
        logs = [place >> 32 for place in places]
        if log_ids.isdisjoint(logs):
            continue
        for key, place, log_id in zip(keys, places, logs, strict=True):
            if log_id in log_ids and place != ABSENT and _KEY.unpack(key)[0] not in dead:
                yield key, place
