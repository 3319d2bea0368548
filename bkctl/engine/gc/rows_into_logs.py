"""The rows of the index that point into logs: a log is removed only when it has none.

The ids and sizes in a log's records, and its map of ledgers, have no checksum. One flipped bit there makes a
live ledger look like one that is gone, or hides records inside one that seems to be larger. The index has
checksums, and it alone decides which entries this bookie serves, so it is asked before a log goes.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from bkctl.codec.location import ABSENT
from bkctl.engine.ledger_storage import EntryLocations
from bkctl.errors import CorruptionError

_KEY = struct.Struct(">qq")
_SIZE_BYTES = 4
_OFFSET = 0xFFFF_FFFF

#: Rows read in a step of work. A batch counts as some rows at least: of an index file each page is a batch,
#: and each ledger has one.
_STEP_ROWS = 1024
_BATCH_ROWS_MIN = 64

#: Rows that are held against the entries of a copy at a time: some 50 MB. A log may have 20 million.
ROWS_MAX = 1 << 18


def rows_pointing(
    locations: EntryLocations, log_ids: Collection[int], going_on: Callable[[], None]
) -> Iterator[tuple[bytes, int]]:
    """Yield the key and the location of each row that points into one of the logs, in the order of the keys.

    Reads the whole index once and calls ``going_on`` between steps of some thousand rows, since it may wait.
    Raises StorageError, CorruptionError, and what ``going_on`` raises.
    """
    wanted = frozenset(log_ids)
    if not wanted:
        return
    rows = _STEP_ROWS
    for keys, places in locations.batches():
        if rows >= _STEP_ROWS:
            rows = 0
            going_on()
        rows += max(len(keys), _BATCH_ROWS_MIN)
        logs = [place >> 32 for place in places]
        if wanted.isdisjoint(logs):
            continue
        for key, place, log_id in zip(keys, places, logs, strict=True):
            if log_id in wanted and place != ABSENT:
                yield key, place


def rows_into(
    locations: EntryLocations,
    log_ids: Collection[int],
    dead: Container[int],
    going_on: Callable[[], None],
) -> dict[int, int]:
    """Count the rows that point into each of the logs, of ledgers that are not ``dead``.

    Logs without such a row are left out. Reads the index, and raises, as :func:`rows_pointing`.
    """
    rows = rows_pointing(locations, log_ids, going_on)
    return Counter(place >> 32 for key, place in rows if _ledger(key) not in dead)


class RowCounts:
    """The rows into each of the logs that a pass compacts, of ledgers that are not ``dead``.

    The index is read once, for all logs, when a count is asked for first; most passes need none. Flushes
    take rows away from the logs later, and bring none: as many entries as were counted before are all. Where
    fewer were met, :func:`refuse_rows` reads again.
    """

    def __init__(
        self,
        locations: EntryLocations,
        log_ids: Collection[int],
        dead: Container[int],
        going_on: Callable[[], None],
    ) -> None:
        self._locations = locations
        self._log_ids = log_ids
        self._dead = dead
        self._going_on = going_on
        self._counts: dict[int, int] | None = None

    def counted(self, log_id: int) -> int | None:
        """Return the rows into a log as they were counted for another one before; None if none was."""
        return None if self._counts is None else self._counts.get(log_id, 0)

    def count(self, log_id: int) -> int:
        """Return the rows into a log, as they are now where nothing was counted yet.

        Reads the index then, and raises, as :func:`rows_pointing`.
        """
        if self._counts is None:
            self._counts = rows_into(self._locations, self._log_ids, self._dead, self._going_on)
        return self._counts.get(log_id, 0)


def refuse_rows(
    locations: EntryLocations,
    log_id: int,
    path: str,
    dead: Container[int],
    going_on: Callable[[], None],
    *,
    copied: Callable[[], Iterable[Sequence[bytes]]] = tuple,
) -> None:
    """Raise CorruptionError where a row points into a log, but for those of entries that were ``copied``.

    ``copied`` gives the keys of these some at a time; it is called for each ``ROWS_MAX`` rows. Their number
    decides nothing: while a log is copied, flushes change rows of entries that were copied, and rows that
    nothing was found for stay.

    Raises as :func:`rows_pointing`, too, and what ``copied`` raises.
    """
    rows: dict[bytes, int] = {}
    pointing = rows_pointing(locations, [log_id], going_on)
    while True:
        alive = ((key, place) for key, place in pointing if _ledger(key) not in dead)
        rows.update(islice(alive, ROWS_MAX))
        if not rows:
            return
        for keys in copied():
            going_on()
            for key in keys:
                rows.pop(key, None)
        if rows:
            raise _refusal(rows, path)


def _refusal(rows: Mapping[bytes, int], path: str) -> CorruptionError:
    key, place = next(iter(rows.items()))
    ledger, entry = _KEY.unpack(key)
    return CorruptionError(
        "entry log",
        # The row of an entry names the byte behind its size.
        offset=(place & _OFFSET) - _SIZE_BYTES,
        expected="a record of the ledger and entry at each place that the index names",
        found=f"none at {len(rows)} of them, of ledger {ledger}, entry {entry} first"
        " (bkctl entrylog salvage)",
        path=path,
    )


def _ledger(key: bytes) -> int:
    ledger: int = _KEY.unpack(key)[0]
    return ledger
