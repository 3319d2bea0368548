"""The progress of the readers of each ledger: for those that read in order, entries are read ahead.

Source of the idea: ``SingleDirectoryDbLedgerStorage.fillReadAheadCache``, which reads ahead at every miss.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Sequence

from bkctl.clock import Clock
from bkctl.codec.location import KEY_BYTES
from bkctl.engine.cache.entry_table import LEDGER_BYTES, ledger_of
from bkctl.engine.cache.record_batch import RecordBatch
from bkctl.engine.db_storage.part_size import PartSize

_KEY = struct.Struct(">8sq")

#: The entry behind one that was read may be this far away: with an ensemble larger than the write quorum a
#: bookie has only some of a ledger's entries.
SEQUENTIAL_GAP_MAX = 16

#: Seconds that a reader waits for a part that is being read ahead. Then it reads its entry by itself.
AHEAD_WAIT_MAX_S = 1.0


class Reading:
    """The progress of the reads of one ledger; changed by :class:`LedgerReadings` alone.

    ``last`` is the entry that was read last, or read ahead. ``next_location`` is the location of the record
    behind it, if more is to be read ahead from there. That happens when a reader gets to ``trigger``, the id
    of an entry as 8 bytes; it is None when no reader is to begin that, or one did. ``is_ahead`` says that the
    ledger is being read ahead. ``size`` is the size of the parts; it is None before the first one.
    """

    __slots__ = ("is_ahead", "last", "next_location", "size", "trigger")

    def __init__(self, last: int) -> None:
        self.last = last
        self.size: PartSize | None = None
        self.next_location = 0
        self.trigger: bytes | None = None
        self.is_ahead = False


class LedgerReadings:
    """The readings of the ledgers that were read most recently, at most ``ledgers_max``; thread-safe.

    The first part of a ledger that is read ahead has ``entries_max`` entries, and a larger one at most
    ``bytes_max`` bytes; see :class:`~bkctl.engine.db_storage.part_size.PartSize`. While a ledger is being
    read ahead, other readers that ask for its next entries get just their entry.
    """

    def __init__(self, entries_max: int, bytes_max: int, ledgers_max: int, clock: Clock) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._ledgers_max = ledgers_max
        self._clock = clock
        self._lock = threading.Lock()
        #: A condition with that lock, notified when a part that was read ahead is in the cache.
        self._ended = threading.Condition(self._lock)
        self._readings: OrderedDict[bytes, Reading] = OrderedDict()

    def wait_for_part(self, key: bytes) -> bool:
        """Wait while the part that the entry may be in is being read; return whether it is there now."""
        if not self._readings:
            return False
        ledger, entry = _KEY.unpack(key)
        with self._lock:
            reading = self._readings.get(ledger)
            if (
                reading is None
                or not reading.is_ahead
                or not 0 < entry - reading.last <= self._reach(reading)
            ):
                return False
            return self._ended.wait_for(lambda: not reading.is_ahead, AHEAD_WAIT_MAX_S)

    def claim_part(self, key: bytes) -> bool:
        """Return whether the entry may be in the next part, which the caller is to read then.

        A reader in order that asks this is faster than the parts that are read ahead for it.
        """
        if not self._readings:
            return False
        ledger, entry = _KEY.unpack(key)
        with self._lock:
            reading = self._readings.get(ledger)
            if reading is None or reading.is_ahead or not self._is_in_part(reading, entry):
                return False
            reading.trigger = None
            return True

    def claim_next(self, key: bytes) -> bool:
        """Return whether a reader that gets to this entry is to have the next part read. Takes no lock."""
        reading = self._readings.get(ledger_of(key))
        if reading is None or reading.trigger is None or key[LEDGER_BYTES:] < reading.trigger:
            return False
        # This thread has claimed it. Of two threads that get here at once the second finds nothing to do.
        reading.trigger = None
        return True

    def note_scattered(self, keys: Sequence[bytes]) -> list[int]:
        """Note that these entries are read; return the indices of those that stand a little behind others.

        These are not noted: they may be in a part that is read ahead, or begin one. All further entries of
        the same ledger are among them, because they come after these.
        """
        behind: list[int] = []
        in_order: set[bytes] = set()
        if not self._entries_max:
            return behind
        readings = self._readings
        with self._lock:
            for index, (ledger, entry) in enumerate(_KEY.iter_unpack(b"".join(keys))):
                reading = readings.get(ledger)
                if reading is None:
                    self._add(ledger, Reading(entry))
                elif ledger in in_order or self._continues(reading, entry):
                    behind.append(index)
                    in_order.add(ledger)
                else:
                    self._note(ledger, reading, entry)
        return behind

    def begin(self, key: bytes) -> Reading | None:
        """Note that the entry is read; return the reading to end if it begins a read-ahead, or None."""
        if not self._entries_max:
            return None
        ledger, entry = _KEY.unpack(key)
        with self._lock:
            reading = self._readings.get(ledger)
            if reading is None:
                self._add(ledger, Reading(entry))
                return None
            begins = 0 < entry - reading.last <= SEQUENTIAL_GAP_MAX and not reading.is_ahead
            reading = self._note(ledger, reading, entry)
            if not begins:
                return None
            if reading.size is None:
                reading.size = PartSize(self._entries_max, self._bytes_max)
            reading.is_ahead = True
            return reading

    def begin_next(self, ledger: bytes) -> tuple[Reading, int, int] | None:
        """Return a reading to end, and the location and the number of entries of the part to be read now.

        None when there is no next part, or somebody reads it.
        """
        with self._lock:
            reading = self._readings.get(ledger)
            if reading is None or reading.is_ahead or not reading.next_location or reading.size is None:
                return None
            reading.size.reached(self._clock.monotonic())
            reading.is_ahead = True
            location, reading.next_location = reading.next_location, 0
            return reading, location, reading.size.entries

    def note_part(self, reading: Reading, batch: RecordBatch, location: int) -> int:
        """Note the place behind a batch, where to go on; return the last entry of the batch."""
        with self._lock:
            size = reading.size
            assert size is not None, "a part is read ahead"
            goes_on = 2 * batch.count > size.entries
            size.ready(batch.count, batch.ends[-1], self._clock.monotonic())
            if goes_on:
                # Most likely the batch did not end because another ledger begins.
                middle = batch.count // 2
                reading.next_location = location + batch.ends[-1]
                reading.trigger = batch.keys[KEY_BYTES * middle + LEDGER_BYTES : KEY_BYTES * (middle + 1)]
        return int.from_bytes(batch.keys[-LEDGER_BYTES:], "big")

    def end(self, reading: Reading, last: int) -> None:
        """Note that a part is in the cache up to the entry ``last``, or that it could not be read."""
        with self._lock:
            reading.is_ahead = False
            reading.last = last
            self._ended.notify_all()

    def _continues(self, reading: Reading, entry: int) -> bool:
        return 0 < entry - reading.last <= SEQUENTIAL_GAP_MAX or self._is_in_part(reading, entry)

    def _is_in_part(self, reading: Reading, entry: int) -> bool:
        """Return whether the entry may be in the part that is being read, or that is read next."""
        is_due = reading.is_ahead or reading.next_location
        return bool(is_due) and 0 < entry - reading.last <= self._reach(reading)

    def _reach(self, reading: Reading) -> int:
        return self._entries_max if reading.size is None else reading.size.entries

    def _note(self, ledger: bytes, reading: Reading, entry: int) -> Reading:
        """Note an entry of a ledger that was read before, and return the ledger's reading."""
        # None of several readers of the part that was just read ahead sets the ledger back.
        straggler = 0 <= reading.last - entry <= self._reach(reading)
        if straggler or reading.is_ahead:
            self._readings.move_to_end(ledger)
        elif reading.size is None:
            reading.last = entry
            self._readings.move_to_end(ledger)
        else:
            reading = Reading(entry)
            self._add(ledger, reading)
        return reading

    def _add(self, ledger: bytes, reading: Reading) -> None:
        self._readings[ledger] = reading
        self._readings.move_to_end(ledger)
        if len(self._readings) > self._ledgers_max:
            self._readings.popitem(last=False)
