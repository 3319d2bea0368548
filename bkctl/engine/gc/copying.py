"""The loop that both compactors share: a log's records that still count, in pieces of a bounded size.

A window of the log is columns, and its live records are one block (``RecordBatch``): a key is an object for
the index alone, and no body is one. The index is not asked about ledgers that are gone.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Container, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress

from bkctl import _kernels
from bkctl.codec.entry import BODY_BYTES_MAX, RECORD_HEAD, EntryBatch
from bkctl.codec.entrylog import MAP_MARKER, NOT_AN_ENTRY, is_map_batch
from bkctl.codec.location import ABSENT, ID_MAX
from bkctl.config.server_keys.garbage import GcSettings
from bkctl.engine.cache.record_batch import RecordBatch, joined_batch, keys_of
from bkctl.engine.gc.log_reading import corruption_of
from bkctl.engine.gc.whole_log import WholeLog, prove_themselves
from bkctl.engine.ledger_storage import EntryLocations, LogKeeper
from bkctl.errors import CorruptionError, RefusedError
from bkctl.scan.damage import Damage
from bkctl.scan.entrylog import EntryLogScan
from bkctl.scan.lost_sectors import SECTOR_BYTES
from bkctl.scan.record_windows import RecordWindow, record_windows
from bkctl.vfs import FileSystem

_KEY = struct.Struct(">qq")
#: A record's size and ledger id.
_HEAD_WITH_LEDGER = struct.Struct(">iq")
_KEY_BYTES = 16
_SIZE_BYTES = 4
_NOWHERE = -1

#: Entries handled by one pass of C calls, of which some hold the GIL.
PASS_ENTRIES = 4096

#: Bytes of small parts that are joined, which holds the GIL.
_JOINED_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class LivePart:
    """Live records of one window, with the locations at which the index had them.

    ``changes`` is the index's count of changes before it was asked.
    """

    batch: RecordBatch
    locations: array[int]
    changes: int

    @property
    def body_bytes(self) -> int:
        """The bytes of the bodies."""
        return len(self.batch.records) - _SIZE_BYTES * self.batch.count


class Piece:
    """Live entries of one log, as many as are copied in one go."""

    __slots__ = ("_count", "parts", "size_bytes")

    def __init__(self, parts: Sequence[LivePart] = ()) -> None:
        self.parts: list[LivePart] = []
        #: Bytes of all bodies.
        self.size_bytes = 0
        self._count = 0
        for part in parts:
            self.add(part)

    def __len__(self) -> int:
        return self._count

    def add(self, part: LivePart) -> None:
        """Add the live records of one more window."""
        if part.batch.count:
            self.parts.append(part)
            self._count += part.batch.count
            self.size_bytes += part.body_bytes

    def portions(self) -> list[Piece]:
        """Return the records of each window by themselves."""
        return [Piece([part]) for part in self.parts]

    def batches(self) -> list[RecordBatch]:
        """Return the records in few batches: small batches are joined, so that none is a write of its own."""
        joined: list[RecordBatch] = []
        small: list[RecordBatch] = []
        size_bytes = 0
        for part in self.parts:
            if small and size_bytes + len(part.batch.records) > _JOINED_BYTES_MAX:
                joined.append(joined_batch(small))
                small, size_bytes = [], 0
            small.append(part.batch)
            size_bytes += len(part.batch.records)
        if small:
            joined.append(joined_batch(small))
        return joined


@dataclass(slots=True)
class Copied:
    """The number of entries and bytes that were copied of a log.

    ``is_all`` says that the log's records prove that no row of a live ledger points at another one,
    ``is_behind_count`` that the index was asked for them only when its rows into the log had been counted.
    """

    entries: int = 0
    bytes: int = 0
    is_all: bool = False
    is_behind_count: bool = False

    def add(self, piece: Piece) -> None:
        """Add one more piece."""
        self.entries += len(piece)
        self.bytes += piece.size_bytes


#: Waits for the rate limit before (entries, bytes) are copied; raises to end the compaction.
Pace = Callable[[int, int], None]


class LivePieces(Iterable[Piece]):
    """The entries of a log that the index has in it, except those of ``dead`` ledgers.

    An entry that the index has nowhere, of a ledger that is not dead, is damage too if it is lost
    (``LogKeeper.is_lost``): the log may then be the only place that has the entry.

    ``holes`` are (offset, end) of damage that no index row points into; they are stepped over. ``going_on``
    is called for each window, and raises to end the iteration.

    A piece ends with the ``piece_entries_max`` or ``piece_bytes_max`` of the settings, and one window of the
    scan later at most. The index may have changed when the piece is used. Iterating raises CorruptionError at
    the first damage, RefusedError at a record of a ledger that :class:`GoneLedgers` refuses, StorageError,
    NotFoundError.
    """

    def __init__(
        self,
        storage: LogKeeper,
        filesystem: FileSystem,
        settings: GcSettings,
        log_id: int,
        dead: Container[int],
        holes: Sequence[tuple[int, int]] = (),
        *,
        going_on: Callable[[], None] = lambda: None,
    ) -> None:
        #: Whether the pieces, when all are through, are what the index has in the log, as its records prove.
        self.is_all = False
        self._storage = storage
        self._filesystem = filesystem
        self._settings = settings
        self._log_id = log_id
        self._dead = dead
        self._holes = holes
        self._going_on = going_on

    def __iter__(self) -> Generator[Piece]:
        entries_max, bytes_max = self._settings.piece_entries_max, self._settings.piece_bytes_max
        path = self._storage.entry_logger.path(self._log_id)
        piece = Piece()
        with EntryLogScan(self._filesystem, path) as scan:
            whole = WholeLog(scan)
            last: RecordWindow | None = None
            for item in record_windows(scan):
                self._going_on()
                if isinstance(item, Damage) and not _within(item, self._holes):
                    raise corruption_of(item)
                whole.meet(item)
                if not isinstance(item, RecordWindow):
                    if last is not None:
                        self._check_end(scan, last, item.offset)
                    continue
                for window in item.parts(min(entries_max, PASS_ENTRIES), bytes_max):
                    # Only now: what follows a piece decides whether its last record is whole.
                    if len(piece) >= entries_max or piece.size_bytes >= bytes_max:
                        yield piece
                        piece = Piece()
                    part, is_each = _live(window, path, self._log_id, self._storage, self._dead)
                    if not is_each:
                        # Another copy of an entry, or an entry that the index has not: why is not known here.
                        whole.doubt()
                    piece.add(part)
                last = item.last() if len(item) else last
        self.is_all = whole.is_proved
        if len(piece):
            yield piece

    def _check_end(self, scan: EntryLogScan, record: RecordWindow, offset: int) -> None:
        """Refuse a live record in front of ``offset``, where no record follows, if nothing proves its size.

        A size that became smaller cuts the entry, and leaves bytes behind it that no row points into. A
        digest with a key, or none, proves nothing. The head of a record, or of a map, that was begun does,
        and so does a sector that a power cut has left without what was written last.
        """
        (start,) = memoryview(record.starts).cast("q")
        (size,) = memoryview(record.sizes).cast("q")
        if record.base + start + _SIZE_BYTES + size != offset or offset == scan.file.size_bytes:
            return
        # Up to the end of the sector in which the next size word would end, or of the file.
        rest_bytes = _SIZE_BYTES + -(offset + _SIZE_BYTES) % SECTOR_BYTES
        behind = scan.file.peek(offset, max(RECORD_HEAD.size, rest_bytes))
        is_unwritten = len(behind) >= _SIZE_BYTES and not any(behind[:rest_bytes])
        if is_unwritten or _begins_record(behind, self._storage):
            return
        key = record.buffer[start + _SIZE_BYTES : start + _SIZE_BYTES + _KEY_BYTES]
        is_live = self._storage.locations.places([key])[0] == first_location(record, self._log_id) + start
        if is_live and not prove_themselves(record):
            raise CorruptionError(
                "entry log",
                offset=record.base + start,
                expected="a record that is as long as its entry",
                found="one without proof of that, and no record behind it (bkctl entrylog salvage)",
                path=scan.file.path,
            )


def _begins_record(behind: bytes, storage: LogKeeper) -> bool:
    """Return whether bytes begin with the head of a record that belongs here, or of a map.

    At the end of the file the head's entry id may be cut.
    """
    if len(behind) < _HEAD_WITH_LEDGER.size:
        return False
    size, ledger = _HEAD_WITH_LEDGER.unpack_from(behind)
    if len(behind) >= RECORD_HEAD.size:
        entry = RECORD_HEAD.unpack_from(behind)[2]
    else:
        entry = MAP_MARKER if ledger == NOT_AN_ENTRY else 0
    belongs = _KEY_BYTES <= size <= BODY_BYTES_MAX and entry >= 0 and ledger in storage.ledgers
    return belongs or is_map_batch(size, ledger, entry)


def _within(damage: Damage, holes: Sequence[tuple[int, int]]) -> bool:
    return any(start <= damage.offset and damage.end <= end for start, end in holes)


def still_there(piece: Piece, locations: EntryLocations) -> Piece:
    """Return the entries that the index still has where they were found.

    Call it while no flush runs. The index is asked again only if it has changed since.
    """
    return Piece([_still_there(part, locations) for part in piece.parts])


def _still_there(part: LivePart, locations: EntryLocations) -> LivePart:
    if part.changes == locations.changes:
        return part
    batch = part.batch
    found = locations.places(batch.key_list())
    if found == part.locations:
        return part
    same = [there == at for there, at in zip(found, part.locations, strict=True)]
    starts = array("q", [0, *batch.ends[:-1]])
    sizes = array("q", [end - start - _SIZE_BYTES for start, end in zip(starts, batch.ends, strict=True)])
    wanted = array("q", [start if each else _NOWHERE for start, each in zip(starts, same, strict=True)])
    keys, records, ends, _ = _kernels.gather_at(
        batch.records, starts.tobytes(), sizes.tobytes(), wanted.tobytes(), 0
    )
    left = RecordBatch(keys, records, array("q", ends))
    return LivePart(left, array("q", compress(part.locations, same)), part.changes)


def located(batch: EntryBatch, log_id: int) -> tuple[list[bytes], list[int]]:
    """Return the key and the location of each record of a log."""
    buffer = batch.buffer
    keys = [buffer[at + _SIZE_BYTES : at + _SIZE_BYTES + _KEY_BYTES] for at in batch.starts]
    first = (log_id << 32) + batch.base + _SIZE_BYTES
    return keys, [first + at for at in batch.starts]


def first_location(window: RecordWindow, log_id: int) -> int:
    """Return the location that a record at the first byte of a window's buffer would have."""
    return (log_id << 32) + window.base + _SIZE_BYTES


class GoneLedgers(Container[int]):
    """The ledgers without a live entry in the settled logs: the dead, and those of earlier passes.

    The ledgers of earlier passes have no row, and the index has no entry of theirs; entries that it gets
    later are in other logs. So the index is asked once for each such ledger, and not entry by entry.

    The ``undecided`` are not dead although the index may have nothing of them: it may have lost that. Asking
    for one of which it has nothing raises RefusedError: its entries in a log may be all there is.
    """

    def __init__(
        self, storage: LogKeeper, dead: Container[int], undecided: Container[int] = frozenset()
    ) -> None:
        self._storage = storage
        self._dead = dead
        self._undecided = undecided
        self._known: dict[int, bool] = {}

    def __contains__(self, ledger: object) -> bool:
        assert isinstance(ledger, int)
        gone = self._known.get(ledger)
        if gone is None:
            gone = ledger in self._dead or self._is_nowhere(ledger)
            if gone and ledger in self._undecided:
                raise RefusedError(
                    f"it has entries of ledger {ledger}, which the index does not know, and which is not "
                    "proved to be deleted: run 'bkctl index rebuild'"
                )
            # Only now: the thread that reads the next log asks, too.
            self._known[ledger] = gone
        return gone

    def _is_nowhere(self, ledger: int) -> bool:
        locations = self._storage.locations
        if ledger in self._storage.ledgers or locations.last_entry(ledger) is not None:
            return False
        # The one id that is not seen as a last entry.
        return locations.places([_KEY.pack(ledger, ID_MAX)])[0] == ABSENT


def _live(
    window: RecordWindow, path: str, log_id: int, storage: LogKeeper, dead: Container[int]
) -> tuple[LivePart, bool]:
    """Return the records that the index has here, and whether those are all but the gone ledgers'."""
    locations = storage.locations
    # The count is taken before the index is asked, so that a change during the call counts as a change since.
    changes = locations.changes
    starts, sizes, joined = _kernels.records_but(
        window.starts, window.sizes, window.ledgers, window.entries, dead
    )
    keys = keys_of(joined)
    found = locations.places(keys) if keys else array("q")
    if ABSENT in found:
        _refuse_lost(keys, found, array("q", starts), window.base, path, storage)
    first = first_location(window, log_id)
    joined, records, ends, places = _kernels.gather_at(window.buffer, starts, sizes, found.tobytes(), first)
    part = LivePart(RecordBatch(joined, records, array("q", ends)), array("q", places), changes)
    return part, part.batch.count == len(keys)


def _refuse_lost(
    keys: Sequence[bytes],
    found: Sequence[int],
    starts: Sequence[int],
    base: int,
    path: str,
    storage: LogKeeper,
) -> None:
    """Raise CorruptionError for the first entry that the index ought to have and has nowhere."""
    for key, there, start in zip(keys, found, starts, strict=True):
        if there == ABSENT and storage.is_lost(key):
            ledger, entry = _KEY.unpack(key)
            raise CorruptionError(
                "location index",
                offset=base + start,
                expected=f"a row for ledger {ledger}, entry {entry} (bkctl index rebuild)",
                found="none",
                path=path,
            )
