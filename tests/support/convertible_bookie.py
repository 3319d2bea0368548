"""A bookie of any storage with any number of directories, filled by the engine and killed, and what it has.

Directories: ``j`` (journal), ``l0``, ``l1`` and so on (ledgers, indexes), each with ``current`` and a cookie.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bkctl.admin.conversion.bookie_places import BookiePlaces
from bkctl.clock import SystemClock
from bkctl.codec.cookie import Cookie, encode_cookie, join_dirs
from bkctl.config.server_keys.disks import DiskSettings
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.config.server_keys.storage import EntryLogSettings, StorageSettings
from bkctl.engine.add_run import SingleAdd
from bkctl.engine.bookie import Bookie
from bkctl.engine.settings import BookieSettings
from bkctl.errors import LedgerFencedError, LedgerLimboError, NoEntryError, NoLedgerError
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.storage_kinds import IDX, StorageKind
from bkctl.vfs import PosixFileSystem
from tests.support.engine_rig import KEY, Answers, Waiter, add_numbered, entry_body, fence_ledger, lac_packet

Entry = tuple[int, int]
DELETED = 3
LIMBO = 8
#: Fenced without an entry.
IDLE = 9
LOG_BYTES = 4_000


@dataclass
class ConvertibleBookie:
    """Below ``root``, with ``count`` ledger directories; ``bodies`` is what it was given and not deleted."""

    root: Path
    count: int
    bodies: dict[Entry, bytes] = field(default_factory=dict)
    lacs: dict[int, bytes] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    #: Index directories ``i0`` and so on, apart from the ledger directories.
    apart: bool = False

    @classmethod
    def make(cls, root: Path, kind: StorageKind, count: int, *, apart: bool = False) -> ConvertibleBookie:
        """Make it: three flushes, a deletion, and what only the journal has when it is killed."""
        made = cls(root, count, apart=apart)
        made._stamp()
        bookie = made.bookie(kind)
        bookie.start()
        try:
            made._fill(bookie)
        finally:
            bookie.abort()
        return made

    @classmethod
    def young(cls, root: Path, count: int) -> ConvertibleBookie:
        """Make one over index files that was killed within its first flush: logs, journals, no index."""
        made = cls(root, count)
        made._stamp()
        bookie = made.bookie(IDX)
        bookie.start()
        try:
            made.add(bookie, (1, 2, 5), range(8))
            bookie.checkpoint()
        finally:
            bookie.abort()
        for path in root.glob("l*/current/*"):
            if path.is_dir():
                shutil.rmtree(path)
        for path in root.glob("l*/current/lastMark"):
            path.unlink()
        return made

    def _stamp(self) -> None:
        homes, indexes = (join_dirs(list(map(str, paths))) for paths in (self.homes(), self.indexes()))
        cookie = encode_cookie(
            Cookie(5, "bookie:3181", str(self.root / "j"), homes, "one", indexes if self.apart else None)
        )
        for path in dict.fromkeys((self.root / "j", *self.homes(), *self.indexes())):
            (path / "current").mkdir(parents=True)
            (path / "current/VERSION").write_bytes(cookie)

    def homes(self) -> list[Path]:
        return [self.root / f"l{number}" for number in range(self.count)]

    def indexes(self) -> list[Path]:
        return [self.root / f"{'i' if self.apart else 'l'}{number}" for number in range(self.count)]

    def current(self, number: int = 0) -> Path:
        return self.root / f"l{number}" / "current"

    def places(self) -> BookiePlaces:
        homes, indexes = (tuple(map(str, paths)) for paths in (self.homes(), self.indexes()))
        ledgers, places = (tuple(f"{path}/current" for path in paths) for paths in (homes, indexes))
        return BookiePlaces(ledgers, places, (str(self.root / "j/current"),), (homes, indexes))

    def bookie(self, kind: StorageKind) -> Bookie:
        """The engine on these directories, not started."""
        settings = BookieSettings(
            journal_directories=(str(self.root / "j"),),
            ledger_directories=tuple(map(str, self.homes())),
            index_directories=tuple(map(str, self.indexes())) if self.apart else (),
            journal=JournalSettings(preallocation_bytes=4096, size_bytes_max=1 << 20),
            entry_log=EntryLogSettings(size_bytes_max=LOG_BYTES, flush_interval_ms=3_600_000),
            storage=StorageSettings(
                storage_class=kind.classes[-1], write_cache_bytes_max=1 << 20, read_cache_bytes_max=1 << 20
            ),
            disks=DiskSettings(check_interval_ms=3_600_000, free_bytes_min=0),
        )
        return Bookie(
            settings,
            filesystem=PosixFileSystem(),
            clock=SystemClock(),
            open_store=lambda path, profile: open_store(path, profile, create=True),
        )

    @contextmanager
    def started(self, kind: StorageKind) -> Iterator[Bookie]:
        """The engine, started, and stopped in order."""
        bookie = self.bookie(kind)
        try:
            bookie.start()
            yield bookie
        finally:
            bookie.stop()

    def _fill(self, bookie: Bookie) -> None:
        self.add(bookie, (1, 2, DELETED, 4), range(12))
        bookie.checkpoint()
        self.add(bookie, (1, DELETED, 4, 5), range(12, 24))
        self._fence(bookie, 2)
        self._write_lac(bookie, 4, 20)
        bookie.checkpoint()
        bookie.delete_ledger(DELETED)
        self.bodies = {key: body for key, body in self.bodies.items() if key[0] != DELETED}
        self.add(bookie, (1, 5, 6, LIMBO, IDLE), range(24, 30))
        self._fence(bookie, IDLE)
        for storage in bookie.storages:
            row = storage.ledgers.get(LIMBO)
            if row is not None:
                storage.ledgers.set(LIMBO, replace(row, limbo=True))
        bookie.checkpoint()
        self.add(bookie, (1, 6, 7), range(30, 36))
        self._fence(bookie, 5)
        self._write_lac(bookie, 6, 30)

    def add(self, bookie: Bookie, ledgers: tuple[int, ...], entries: range) -> None:
        self.bodies |= add_numbered(bookie, ledgers, entries)

    def _fence(self, bookie: Bookie, ledger: int) -> None:
        fence_ledger(bookie, ledger)
        self.fenced.add(ledger)

    def _write_lac(self, bookie: Bookie, ledger: int, lac: int) -> None:
        done = Waiter()
        bookie.explicit_lacs.write(lac_packet(ledger, lac), KEY, done)
        assert done.wait() is None
        self.lacs[ledger] = lac_packet(ledger, lac)

    def check(self, kind: StorageKind) -> None:
        """A bookie of this storage starts, and has exactly what there was."""
        with self.started(kind) as bookie:
            self.check_served(bookie)

    def check_served(self, bookie: Bookie) -> None:
        """Everything is served as before: entries, fences, explicit LACs, limbo, and what was deleted."""
        for (ledger, entry), body in self.bodies.items():
            assert bookie.reads.read(ledger, entry) == body, (ledger, entry)
        for ledger, lac in self.lacs.items():
            assert bookie.reads.explicit_lac(ledger) == lac
        for ledger in sorted({ledger for ledger, _ in self.bodies}):
            if ledger != LIMBO:
                assert _is_fenced(bookie, ledger) == (ledger in self.fenced), ledger
        assert not bookie.reads.is_known(DELETED)
        _raises(bookie, DELETED, 1, (NoLedgerError,))
        _raises(bookie, 1, 1_000, (NoEntryError,))
        _raises(bookie, LIMBO, 1_000, (LedgerLimboError,))


def _is_fenced(bookie: Bookie, ledger: int) -> bool:
    answers = Answers()
    try:
        bookie.writes.add(SingleAdd(entry_body(ledger, 100), KEY, answers, None))
    except LedgerFencedError:
        return True
    answers.wait(1)
    assert not answers.bad
    return False


def _raises(bookie: Bookie, ledger: int, entry: int, errors: tuple[type[Exception], ...]) -> None:
    try:
        bookie.reads.read(ledger, entry)
    except errors:
        return
    raise AssertionError(f"ledger {ledger} entry {entry} was served")
