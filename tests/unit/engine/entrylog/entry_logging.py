"""What the tests of the entry logger share: entries, a logger in memory, and what a scan finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bkctl.clock import Clock
from bkctl.codec.entry import EntryBatch
from bkctl.codec.entrylog import HEADER_BYTES, log_name
from bkctl.codec.location import encode_key
from bkctl.config.server_keys.storage import EntryLogSettings
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.scan.damage import Damage, Tail
from bkctl.scan.entrylog import EntryLogScan
from bkctl.vfs.base import FileSystem, WritableFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.log_builder import entry_body, plain_payload

CURRENT = "/bookie/current"
Entry = tuple[int, int]
Rows = list[tuple[bytes, bytes]]

#: Entries of a log as the scan sees them.
Found = dict[Entry, bytes]


def empty_directory(*, capacity_bytes: int | None = None) -> MemoryFileSystem:
    """A file system with an empty ``current``."""
    return MemoryFileSystem({f"{CURRENT}/VERSION": b"5\n"}, capacity_bytes=capacity_bytes)


def opened(
    filesystem: WritableFileSystem,
    size_bytes_max: int = 1 << 30,
    *,
    files_open_max: int = 4,
    directory: str = CURRENT,
    clock: Clock | None = None,
    **changes: object,
) -> EntryLogger:
    """A logger that is ready; ``changes`` are other settings."""
    settings = EntryLogSettings(size_bytes_max=size_bytes_max, files_open_max=files_open_max, **changes)  # type: ignore[arg-type]
    logger = EntryLogger(directory, filesystem, settings, clock)
    logger.open()
    return logger


def body_of(ledger: int, entry: int, payload_bytes: int = 40) -> bytes:
    """An entry that names itself."""
    return entry_body(ledger, entry, plain_payload(ledger, entry, payload_bytes))


def bodies_of(*ledgers: int, entries: int = 5, payload_bytes: int = 40, first: int = 0) -> list[bytes]:
    """``entries`` of each ledger in the order of a flush."""
    return [
        body_of(ledger, entry, payload_bytes) for ledger in ledgers for entry in range(first, first + entries)
    ]


def keys_of(bodies: Sequence[bytes]) -> list[bytes]:
    """The keys of entries."""
    return [body[:16] for body in bodies]


def append(logger: EntryLogger, bodies: Sequence[bytes]) -> dict[bytes, int]:
    """Append them; key -> location."""
    keys = keys_of(bodies)
    return dict(zip(keys, logger.append(keys, bodies), strict=True))


@dataclass
class Model:
    """What a bookie knows of its entries: bodies, and locations of what was forced."""

    bodies: dict[bytes, bytes] = field(default_factory=dict)
    locations: dict[bytes, int] = field(default_factory=dict)

    def flush(self, logger: EntryLogger, *batches: Sequence[bytes]) -> None:
        """Append the batches and force them; what raises leaves the model as it was."""
        locations: dict[bytes, int] = {}
        for bodies in batches:
            locations.update(append(logger, bodies))
        logger.force()
        self.locations.update(locations)
        self.bodies.update({body[:16]: body for bodies in batches for body in bodies})

    def check(self, logger: EntryLogger) -> None:
        """Every entry is where it should be."""
        for key, location in self.locations.items():
            assert logger.read(location, key) == self.bodies[key]


def scanned(filesystem: FileSystem, log_id: int, directory: str = CURRENT) -> tuple[Found, list[Damage], str]:
    """Entries, damage and kind of tail of a log, by the project's scanner."""
    found: Found = {}
    with EntryLogScan(filesystem, f"{directory}/{log_name(log_id)}") as scan:
        damage = list(scan.head.damage)
        tail = ""
        for item in scan:
            if isinstance(item, Damage):
                damage.append(item)
            elif isinstance(item, EntryBatch):
                for index, ids in enumerate(zip(item.ledgers, item.entries, strict=True)):
                    found[ids] = item.body(index)
            elif isinstance(item, Tail):
                tail = item.kind
    return found, damage, tail


def ledgers_map(filesystem: FileSystem, log_id: int, directory: str = CURRENT) -> dict[int, int] | None:
    """The ledgers map that a log's header points at."""
    with EntryLogScan(filesystem, f"{directory}/{log_name(log_id)}") as scan:
        return scan.head.ledgers_map


def read_ahead(
    logger: EntryLogger, start: bytes, locations: dict[bytes, int], entries_max: int, bytes_max: int
) -> Rows:
    """What a storage keeps of it: records that stand where the index has them."""
    place = locations[start] + len(logger.read(locations[start], start)) + 4
    kept = []
    for each, body in logger.read_ahead(locations[start], start, entries_max, bytes_max):
        if locations.get(each) == place:
            kept.append((each, body))
        place += len(body) + 4
    return kept


def location(log_id: int, offset: int) -> int:
    return log_id << 32 | offset


FIRST = HEADER_BYTES + 4


def key(ledger: int, entry: int) -> bytes:
    return encode_key(ledger, entry)
