"""The loop that both compactors share: a log's records that still count, in pieces of a bounded size."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field

from bkctl.codec.entry import EntryBatch
from bkctl.config.server_keys.garbage import GcSettings
from bkctl.engine.gc.log_reading import corruption_of
from bkctl.engine.ledger_storage import EntryLocations, LogKeeper
from bkctl.errors import CorruptionError
from bkctl.scan.damage import Damage
from bkctl.scan.entrylog import EntryLogScan
from bkctl.vfs import FileSystem

_KEY_BYTES = 16
_SIZE_BYTES = 4


@dataclass(slots=True)
class Piece:
    """Live entries of one log: keys, bodies, and the locations at which the index has them."""

    keys: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    locations: list[int] = field(default_factory=list)
    size_bytes: int = 0

    def __len__(self) -> int:
        return len(self.keys)

    def select(self, chosen: Sequence[bool]) -> Piece:
        """Return the entries that are True in ``chosen``."""
        places = [place for place, each in enumerate(chosen) if each]
        bodies = [self.bodies[place] for place in places]
        return Piece(
            [self.keys[place] for place in places],
            bodies,
            [self.locations[place] for place in places],
            sum(map(len, bodies)),
        )

    def extend(self, other: Piece) -> None:
        """Append the entries of another piece behind these."""
        self.keys += other.keys
        self.bodies += other.bodies
        self.locations += other.locations
        self.size_bytes += other.size_bytes


@dataclass(slots=True)
class Copied:
    """The number of entries and bytes that were copied of a log."""

    entries: int = 0
    bytes: int = 0

    def add(self, piece: Piece) -> None:
        """Add one more piece."""
        self.entries += len(piece)
        self.bytes += piece.size_bytes


#: Waits for the rate limit before (entries, bytes) are copied; raises to end the compaction.
Pace = Callable[[int, int], None]


def live_pieces(
    storage: LogKeeper,
    filesystem: FileSystem,
    settings: GcSettings,
    log_id: int,
    dead: Container[int],
    holes: Sequence[tuple[int, int]] = (),
) -> Iterator[Piece]:
    """Return the entries of a log that the index has in it, except those of ``dead`` ledgers.

    An entry that the index has nowhere, of a ledger that is not dead, is damage too if it is lost
    (``LogKeeper.is_lost``): the log may then be the only place that has the entry.

    ``holes`` are (offset, end) of damage that no index row points into; they are stepped over.

    A piece ends with the ``piece_entries_max`` or ``piece_bytes_max`` of the settings, and one window of the
    scan later at most. What the index says may have changed when the piece is used. Raises CorruptionError at
    the first damage, StorageError, NotFoundError.
    """
    entries_max, bytes_max = settings.piece_entries_max, settings.piece_bytes_max
    path = storage.entry_logger.path(log_id)
    piece = Piece()
    with EntryLogScan(filesystem, path) as scan:
        for item in scan:
            if isinstance(item, Damage) and not _within(item, holes):
                raise corruption_of(item)
            if not isinstance(item, EntryBatch):
                continue
            for part in _parts(item, entries_max, bytes_max):
                piece.extend(_live(part, path, log_id, storage, dead))
                if len(piece) >= entries_max or piece.size_bytes >= bytes_max:
                    yield piece
                    piece = Piece()
    if len(piece):
        yield piece


def _within(damage: Damage, holes: Sequence[tuple[int, int]]) -> bool:
    return any(start <= damage.offset and damage.end <= end for start, end in holes)


def still_there(piece: Piece, locations: EntryLocations) -> Piece:
    """Return the entries that the index still has where they were found.

    Call it while no flush runs.
    """
    found = locations.get_many(piece.keys)
    same = [at == there for at, there in zip(piece.locations, found, strict=True)]
    return piece if all(same) else piece.select(same)


def located(batch: EntryBatch, log_id: int) -> tuple[list[bytes], list[int]]:
    """Return key and location of each record of a log."""
    buffer = batch.buffer
    keys = [buffer[at + _SIZE_BYTES : at + _SIZE_BYTES + _KEY_BYTES] for at in batch.starts]
    first = (log_id << 32) + batch.base + _SIZE_BYTES
    return keys, [first + at for at in batch.starts]


def _parts(batch: EntryBatch, entries_max: int, bytes_max: int) -> Iterator[EntryBatch]:
    """Split the batch into slices that do not exceed the bounds, except by one record."""
    while len(batch):
        count = size_bytes = 0
        for size in batch.sizes:
            count += 1
            size_bytes += size
            if count >= entries_max or size_bytes >= bytes_max:
                break
        part, batch = batch.split(count)
        yield part


def _live(batch: EntryBatch, path: str, log_id: int, storage: LogKeeper, dead: Container[int]) -> Piece:
    keys, places = located(batch, log_id)
    found = storage.locations.get_many(keys)
    for number, there in enumerate(found):
        ledger = batch.ledgers[number]
        if there is None and ledger not in dead and storage.is_lost(keys[number]):
            raise CorruptionError(
                "location index",
                offset=batch.offset(number),
                expected=f"a row for ledger {ledger}, entry {batch.entries[number]} (bkctl index rebuild)",
                found="none",
                path=path,
            )
    chosen = [
        number
        for number, (at, there) in enumerate(zip(places, found, strict=True))
        if at == there and batch.ledgers[number] not in dead
    ]
    bodies = [batch.body(number) for number in chosen]
    return Piece(
        [keys[number] for number in chosen],
        bodies,
        [places[number] for number in chosen],
        sum(map(len, bodies)),
    )
