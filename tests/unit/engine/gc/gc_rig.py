"""A ledger storage over twins, a cluster in memory, and the collector between them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from bkctl.codec.digest import Digester
from bkctl.codec.entrylog import HEADER_BYTES
from bkctl.codec.ledger_data import LedgerData
from bkctl.config.server_keys.garbage import CompactionSettings, GcSettings
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.engine.gc.collector import Collector
from bkctl.engine.gc.policy import LEDGER_MAX, Request
from bkctl.engine.gc.reports import PassReport
from bkctl.errors import BkctlError
from bkctl.kvstore.memory import MemoryStore
from bkctl.vfs.memory import MemoryFileSystem
from tests.support import storage_rig
from tests.support.storage_rig import DIRECTORY, StorageRig

MAJOR = Request(major=True)
MINOR = Request(minor=True)

TRANSACTIONAL = pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])

#: Nothing is limited, everything is compacted as soon as something of it is dead, on request.
QUICK = GcSettings(
    minor=CompactionSettings(0.2, 3_600_000),
    major=CompactionSettings(0.99, 86_400_000),
    entries_per_s=None,
    entries_unflushed_max=5,
    free_bytes_min=0,
    metadata_reads_per_s=1_000_000,
)

SMALL = StorageSettings(
    write_cache_bytes_max=1 << 20, flush_batch_entries_max=4, read_ahead_entries_max=3, retry_ms=1
)


@dataclass
class Range:
    first: int
    last: int
    ledgers: Sequence[int]


class Cluster:
    """The ledgers that exist; ``failing`` makes some calls raise."""

    def __init__(self, live: Sequence[int] = ()) -> None:
        self.live = set(live)
        self.elsewhere: set[int] = set()
        self.listing_error: BkctlError | None = None
        self.read_error: BkctlError | None = None
        self.hidden: set[int] = set()
        self.reads = 0
        self.upcoming = LEDGER_MAX

    def ranges(self) -> Iterator[Range]:
        """In three parts; an error comes behind the first one. ``hidden`` ledgers are not listed."""
        listed = sorted(self.live - self.hidden)
        yield Range(0, 9, [each for each in listed if each < 10])
        if self.listing_error is not None:
            raise self.listing_error
        yield Range(10, 99, [each for each in listed if 10 <= each < 100])
        yield Range(100, LEDGER_MAX, [each for each in listed if each >= 100])

    def exists(self, ledger: int) -> bool:
        self.reads += 1
        if self.read_error is not None:
            raise self.read_error
        return ledger in self.live

    def next_ledger(self) -> int:
        if self.read_error is not None:
            raise self.read_error
        return self.upcoming

    def is_kept_here(self, ledger: int) -> bool:
        self.reads += 1
        if self.read_error is not None:
            raise self.read_error
        return ledger in self.live and ledger not in self.elsewhere

    def kept_here(self) -> Iterator[int]:
        if self.read_error is not None:
            raise self.read_error
        yield from sorted(self.live - self.elsewhere)


def damaged(rig: GcRig, log: str) -> None:
    """Flip bits in the middle of a log's map and of some records."""
    file = rig.disk.open_to_write(f"{DIRECTORY}/{log}")
    file.write_at(8, bytes(12))
    file.write_at(HEADER_BYTES + 304, b"\xff" * 700)
    file.close()


class GcRig(StorageRig):
    """A :class:`StorageRig` whose ledgers have rows, with a collector that runs when it is told to."""

    def __init__(
        self,
        gc: GcSettings = QUICK,
        *,
        cluster: Cluster | None = None,
        disk: MemoryFileSystem | None = None,
        locations: MemoryStore | None = None,
        ledgers: MemoryStore | None = None,
        rows: MemoryStore | None = None,
        crash_after: int | None = None,
        log_bytes_max: int = 4000,
        per_ledger: bool = False,
    ) -> None:
        super().__init__(
            SMALL,
            disk=disk,
            locations=locations,
            ledgers=ledgers,
            crash_after=crash_after,
            log_bytes_max=log_bytes_max,
            per_ledger=per_ledger,
        )
        self.gc = gc
        self.cluster = cluster or Cluster()
        self.cache_rows = rows
        self.deleted: list[int] = []
        self.collector = Collector(
            self.storage,
            self.cluster,
            filesystem=self.faulty,
            clock=self.clock,
            settings=gc,
            delete_ledger=self.delete_unless_written,
            rows=rows,
        )

    def delete_unless_written(self, ledger: int) -> bool:
        with self.lock:
            if self.storage.has_unflushed(ledger):
                return False
            self.storage.delete_ledger(ledger)
        self.deleted.append(ledger)
        return True

    def write(
        self, ledger: int, entries: Sequence[int], tag: object = "", size_bytes: int = 300
    ) -> dict[int, bytes]:
        """Entries of a ledger that exists and has a row; not flushed."""
        self.cluster.live.add(ledger)
        if self.storage.ledgers.get(ledger) is None:
            self.storage.ledgers.set(ledger, LedgerData(fenced=False, master_key=b"key"))
        return {entry: self.put(ledger, entry, tag, size_bytes) for entry in entries}

    def fill(self, ledgers: Sequence[int], entries: int = 10, size_bytes: int = 300) -> None:
        """Interleaved entries, flushed one row at a time, so that each log has all ledgers."""
        for entry in range(entries):
            for ledger in ledgers:
                self.write(ledger, [entry], size_bytes=size_bytes)
            self.storage.flush()

    def collect(self, request: Request | None = None) -> PassReport:
        return self.collector.collect(request)

    def log_names(self) -> list[str]:
        return [name for name in self.disk.names(DIRECTORY) if ".log" in name]

    def check(self, ledger: int, entries: int = 10, size_bytes: int = 300) -> None:
        """Every entry of a ledger written by :meth:`fill` is there, from the disk."""
        self.forget_read_cache()
        for entry in range(entries):
            self.check_entry(ledger, entry, size_bytes)

    def check_entry(self, ledger: int, entry: int, size_bytes: int = 300) -> None:
        """One entry written by :meth:`fill` is there."""
        assert self.storage.read(ledger, entry) == storage_rig.entry_of(ledger, entry, "", size_bytes)

    def after_crash(self, chance: random.Random | None = None) -> GcRig:
        """What a power cut leaves, opened."""
        rig = GcRig(
            self.gc,
            cluster=self.cluster,
            disk=self.disk.crash(chance),
            locations=self.location_rows.crash(chance),
            ledgers=self.ledger_rows.crash(chance),
            rows=None if self.cache_rows is None else self.cache_rows.crash(chance),
            log_bytes_max=self.log_bytes_max,
            per_ledger=self.per_ledger,
        )
        rig.open()
        return rig


def digested_by(digester: Digester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the entries that rigs write end with a digest and the rest of their payload."""
    plain = storage_rig.entry_of

    def digested(ledger: int, entry: int, tag: object = "", size_bytes: int = 0) -> bytes:
        body = plain(ledger, entry, tag, size_bytes - digester.size_bytes)
        return body[:32] + digester.compute(body[:32], body[32:]) + body[32:]

    monkeypatch.setattr(storage_rig, "entry_of", digested)


def opened(gc: GcSettings = QUICK, **changes: object) -> GcRig:
    """A rig ready for use; ``changes`` are settings of the collector."""
    rig = GcRig(replace(gc, **changes))  # type: ignore[arg-type]
    rig.open()
    return rig
