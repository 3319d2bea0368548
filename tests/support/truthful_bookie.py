"""A bookie on disk and the truth about it: made once by the engine, copied, damaged, repaired, started, read.

Directories: ``j`` (journal), ``l0`` and perhaps ``l1`` (ledgers), each with ``current``. Some entries are in
entry logs and the index, the newest ones in the journals alone: the bookie was killed.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bkctl.clock import SystemClock
from bkctl.codec import file_info, location
from bkctl.codec.cookie import Cookie, encode_cookie, join_dirs
from bkctl.codec.journal import VERSION_MAX
from bkctl.codec.last_id import encode_last_id
from bkctl.codec.ledger_data import LedgerData
from bkctl.config.server_keys.disks import DiskSettings
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.config.server_keys.storage import EntryLogSettings, StorageSettings
from bkctl.engine.bookie import Bookie
from bkctl.engine.settings import BookieSettings
from bkctl.kvstore.base import KeyValueStore
from bkctl.kvstore.profile import StoreProfile
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.scan.directory import find_directories
from bkctl.scan.index import open_index
from bkctl.scan.index_rows import IndexDamage
from bkctl.storage_kinds import DB, IDX
from bkctl.vfs import PosixFileSystem
from tests.support.cluster_dump import write_dump
from tests.support.engine_rig import add_numbered_at_once, fence_ledger

HOST = "bookie:3181"
INSTANCE = "instance"
Entry = tuple[int, int]

#: Ledgers that exist. Those from ``NEWEST_OF_OLD_DUMP`` on are newer than the old dump.
LIVE = (1, 2, 4, 5, 6, 7)
#: Deleted before the bookie was killed; its entries are still in the logs.
DELETED = 3
NEXT_OF_OLD_DUMP = 6
NEXT_LEDGER = 9


@dataclass
class Truth:
    """What the bookie was given: the bodies of all entries of all ledgers, the deleted one's as well."""

    bodies: dict[Entry, bytes] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    #: Behind the last mark: in no log yet.
    journaled: set[Entry] = field(default_factory=set)


def settings_of(root: Path, directories: int, journal_version: int = VERSION_MAX) -> BookieSettings:
    """Files of some kilobytes, timers that never fire by themselves, and the storage of the files."""
    kind = IDX if any(root.glob("l*/current/*/*/*.idx")) else DB
    return BookieSettings(
        journal_directories=(str(root / "j"),),
        ledger_directories=tuple(str(root / f"l{number}") for number in range(directories)),
        journal=JournalSettings(
            format_version=journal_version, preallocation_bytes=4096, size_bytes_max=6_000, backups_max=2
        ),
        entry_log=EntryLogSettings(size_bytes_max=6_000, flush_interval_ms=3_600_000),
        storage=StorageSettings(
            storage_class=kind.classes[0], write_cache_bytes_max=1 << 20, read_cache_bytes_max=1 << 20
        ),
        disks=DiskSettings(check_interval_ms=3_600_000, free_bytes_min=0),
    )


def _open(path: str, profile: StoreProfile) -> KeyValueStore:
    return open_store(path, profile, create=True)


def bookie_on(root: Path, directories: int, journal_version: int = VERSION_MAX) -> Bookie:
    """The engine on these directories, not started."""
    settings = settings_of(root, directories, journal_version)
    return Bookie(settings, filesystem=PosixFileSystem(), clock=SystemClock(), open_store=_open)


@contextmanager
def started(root: Path, directories: int, *, accept_loss: bool = False) -> Iterator[Bookie]:
    """The engine, started; it is stopped in order. Raises what the start raises."""
    bookie = bookie_on(root, directories)
    try:
        bookie.start(accept_loss=accept_loss)
        yield bookie
    finally:
        bookie.stop()


class TruthfulBookie:
    """Below ``root``; ``storage`` is ``db`` or ``idx``."""

    def __init__(self, root: Path, storage: str, directories: int, truth: Truth) -> None:
        self.root = root
        self.storage = storage
        self.directories = directories
        self.truth = truth

    @classmethod
    def make(
        cls, root: Path, storage: str, directories: int, *, journal_version: int = VERSION_MAX
    ) -> TruthfulBookie:
        """Make it: three flushes, a deletion, and adds that only the journal has when it is killed."""
        for name in ("j", *(f"l{number}" for number in range(directories))):
            (root / name / "current").mkdir(parents=True)
        made = cls(root, storage, directories, Truth())
        made._stamp()
        bookie = bookie_on(root, 1 if storage == "idx" else directories, journal_version)
        bookie.start()
        try:
            made._fill(bookie)
        finally:
            bookie.abort()
        if storage == "idx":
            made._make_idx()
        return made

    def _stamp(self) -> None:
        named = [f"/data/somewhere/l{number}" for number in range(self.directories)]
        cookie = encode_cookie(Cookie(5, HOST, "/data/somewhere/j", join_dirs(named), INSTANCE))
        for path in self.root.glob("*/current"):
            (path / "VERSION").write_bytes(cookie)

    def _fill(self, bookie: Bookie) -> None:
        self._add(bookie, (1, 2, DELETED, 4), range(12))
        bookie.checkpoint()
        self._add(bookie, (1, DELETED, 4, 5), range(12, 24))
        self._fence(bookie, 2)
        bookie.checkpoint()
        bookie.delete_ledger(DELETED)
        self._add(bookie, (1, 5, 6), range(24, 36))
        bookie.checkpoint()
        flushed = set(self.truth.bodies)
        self._add(bookie, (1, 6, 7), range(36, 44))
        self.truth.journaled = self.truth.bodies.keys() - flushed
        self._fence(bookie, 5)

    def _add(self, bookie: Bookie, ledgers: tuple[int, ...], entries: range) -> None:
        # At once: where a journal ends must not depend on what a busy machine takes together.
        self.truth.bodies |= add_numbered_at_once(bookie, ledgers, entries)

    def _fence(self, bookie: Bookie, ledger: int) -> None:
        fence_ledger(bookie, ledger)
        self.truth.fenced.add(ledger)

    def _make_idx(self) -> None:
        """Replace the databases by ``.idx`` files, as Java's older storages keep them.

        All are in the first directory; the logs, which share one space of ids, are in both.
        """
        rows, places = self._rows()
        for name in ("locations", "ledgers"):
            shutil.rmtree(self.current() / name)
        if self.directories > 1:
            log = self.logs()[1]
            log.rename(self.current(1) / log.name)
            # A bookie writes its mark into all of them, and the id of a log into the log's own.
            shutil.copy(self.current() / "lastMark", self.current(1))
            (self.current(1) / "lastId").write_bytes(encode_last_id(int(log.stem, 16)))
        for ledger, row in rows.items():
            slots = sorted((entry, packed) for (owner, entry), packed in places.items() if owner == ledger)
            path = self.current() / file_info.index_path(ledger)
            path.parent.mkdir(parents=True, exist_ok=True)
            state = file_info.FENCED if row.fenced else 0
            header = file_info.FileInfoHeader(1, row.master_key, state)
            with path.open("wb") as file:
                file.write(file_info.encode_header(header))
                for offset, page in file_info.encode_slots(slots):
                    file.seek(offset)
                    file.write(page)

    def _rows(self) -> tuple[dict[int, LedgerData], dict[Entry, int]]:
        rows: dict[int, LedgerData] = {}
        places: dict[Entry, int] = {}
        for number in range(self.directories):
            index = open_index(PosixFileSystem(), str(self.current(number)))
            if index is None or not (self.current(number) / "ledgers").is_dir():
                continue
            with index:
                for row in index.ledgers.merged():
                    assert not isinstance(row, IndexDamage)
                    rows[row.ledger] = row.data
                for item in index.locations.rows():
                    assert not isinstance(item, IndexDamage)
                    for ledger, entry, log_id, offset in zip(
                        item.ledgers, item.entries, item.log_ids, item.offsets, strict=True
                    ):
                        places[ledger, entry] = location.pack_location(log_id, offset)
        return rows, places

    def current(self, number: int = 0) -> Path:
        """The directory of logs and index number ``number``."""
        return self.root / f"l{number}" / "current"

    @property
    def journal(self) -> Path:
        return self.root / "j" / "current"

    def copy(self, root: Path) -> TruthfulBookie:
        """The same elsewhere."""
        shutil.copytree(self.root, root)
        return TruthfulBookie(root, self.storage, self.directories, self.truth)

    def logs(self) -> list[Path]:
        """Entry logs of all directories."""
        return sorted(self.root.glob("l*/current/*.log"))

    def journals(self) -> list[Path]:
        return sorted(self.journal.glob("*.txn"))

    def proved_by_logs(self) -> set[Entry]:
        """Entries of which the record, as it was written, stands in some log."""
        return self._proved_in(self.logs())

    def proved_by_journals(self) -> set[Entry]:
        return self._proved_in(self.journals())

    def _proved_in(self, files: list[Path]) -> set[Entry]:
        contents = [path.read_bytes() for path in files]
        return {
            entry
            for entry, body in self.truth.bodies.items()
            if any(struct.pack(">i", len(body)) + body in content for content in contents)
        }

    def known_ledgers(self) -> set[int] | None:
        """Ledgers that the index still knows, by a row or by a location. None where it cannot be read."""
        found: set[int] = set()
        for directory in find_directories(PosixFileSystem(), str(self.root)):
            if not directory.logs and not directory.indexes:
                continue
            index = open_index(PosixFileSystem(), directory.path) if directory.indexes else None
            if index is None:
                if self.storage == "db" or directory.path == str(self.current()):
                    return None
                continue
            try:
                with index:
                    for row in index.ledgers.merged():
                        if isinstance(row, IndexDamage):
                            return None
                        found.add(row.ledger)
                    for item in index.locations.rows():
                        if isinstance(item, IndexDamage):
                            return None
                        found |= set(item.ledgers)
            except Exception:  # noqa: BLE001 - whatever keeps it from being read
                return None
        return found


def dumps(folder: Path) -> Mapping[str, Path]:
    """Dumps of the cluster: whole and new; old; a part of it; another cluster's."""
    made = {name: folder / f"{name}.json" for name in ("whole", "old", "partial", "foreign")}
    whole: dict[str, object] = {"bookie": HOST, "instance_id": INSTANCE, "next_ledger": NEXT_LEDGER}
    write_dump(made["whole"], LIVE, **whole)  # type: ignore[arg-type]
    old = {**whole, "next_ledger": NEXT_OF_OLD_DUMP}
    write_dump(made["old"], (1, 2, DELETED, 4, 5), **old)  # type: ignore[arg-type]
    write_dump(made["partial"], (1, 5, 7), **whole, is_whole=False)  # type: ignore[arg-type]
    foreign = {**whole, "instance_id": "another", "next_ledger": 1000}
    write_dump(made["foreign"], (100, 101), **foreign)  # type: ignore[arg-type]
    return made
