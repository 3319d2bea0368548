"""A small bookie on disk, its index and its logs made apart from each other so that they can disagree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bkctl.admin.index.check.check import CheckOptions, check_spaces
from bkctl.admin.index.check.finding import Finding, Severity
from bkctl.admin.logs.digests import digest_book
from bkctl.codec import file_info, ledger_data, location
from bkctl.codec.cookie import Cookie, encode_cookie, join_dirs
from bkctl.codec.entrylog import log_name
from bkctl.codec.journal import fence_record, journal_name, master_key_record
from bkctl.codec.last_mark import LastMark, encode_last_mark
from bkctl.codec.ledger_data import LedgerData
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.codec.location import Location
from bkctl.directories.index_spaces import index_spaces
from bkctl.engine.interleaved_storage.index_places import FIRST_DIRECTORY
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE
from bkctl.scan.files.paths import directories
from bkctl.vfs import FileSystem, PosixFileSystem
from tests.support.database_copies import write_database
from tests.support.log_builder import EntryLogBuilder, JournalBuilder, entry_body, plain_payload

FILES = PosixFileSystem()
KEY = bytes(range(20))
HOST = "bookie:3181"
JOURNAL_ID = 0x1000


@dataclass
class CheckedBookie:
    """``storage`` is ``db`` or ``idx``. Directory i is ``l<i>``; of ``idx`` only the logs are spread."""

    root: Path
    storage: str = "db"
    count: int = 1
    logs: dict[tuple[int, int], EntryLogBuilder] = field(default_factory=dict)
    locations: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    ledgers: dict[tuple[int, int], LedgerData] = field(default_factory=dict)
    raw_rows: list[tuple[int, str, bytes, bytes]] = field(default_factory=list)
    journal: JournalBuilder = field(default_factory=JournalBuilder)
    mark: LastMark = field(default_factory=lambda: LastMark(JOURNAL_ID, 1 << 40))
    with_cookie: bool = True

    def current(self, place: int = 0) -> Path:
        """A ledger and index directory."""
        return self.root / f"l{place}" / "current"

    def home(self, ledger: int) -> int:
        """The place of the directory that serves a ledger."""
        return ledger % self.count if self.storage == "db" else 0

    def ledger(self, ledger: int, *, place: int | None = None, limbo: bool | None = None) -> None:
        """A ledger row."""
        where = self.home(ledger) if place is None else place
        self.ledgers[where, ledger] = LedgerData(False, KEY, None, limbo)

    def body(self, ledger: int, entry: int, payload_bytes: int = 60) -> bytes:
        """The bytes of an entry."""
        return entry_body(ledger, entry, plain_payload(ledger, entry, payload_bytes))

    def store(self, ledger: int, entry: int, log_id: int = 0, *, place: int | None = None) -> tuple[int, int]:
        """An entry in a log; its location."""
        where = self.home(ledger) if place is None else place
        log = self.logs.setdefault((where, log_id), EntryLogBuilder())
        return log_id, log.add(self.body(ledger, entry)).offset + 4

    def add(self, ledger: int, entry: int, log_id: int = 0, *, place: int | None = None) -> None:
        """An entry in a log and in the index."""
        where = self.home(ledger) if place is None else place
        self.locations[where, ledger, entry] = self.store(ledger, entry, log_id, place=where)

    def fill(self, ledgers: Iterable[int], entries: int = 20, log_id: int = 0) -> None:
        """Entries of several ledgers, interleaved, with their ledger rows."""
        chosen = list(ledgers)
        for entry in range(entries):
            for ledger in chosen:
                self.add(ledger, entry, log_id)
        for ledger in chosen:
            self.ledger(ledger)

    def journaled(self, ledger: int, entries: Iterable[int], *, master_key: bool = True) -> None:
        """Records past the last mark."""
        self.mark = LastMark(JOURNAL_ID, 512)
        if master_key:
            self.journal.special(master_key_record(ledger, KEY))
        for entry in entries:
            self.journal.add(self.body(ledger, entry))
        self.journal.special(fence_record(ledger))

    def write(self) -> CheckedBookie:
        """Put everything on disk."""
        named = [f"/data/somewhere/l{place}" for place in range(self.count)]
        cookie = encode_cookie(Cookie(5, HOST, "/data/somewhere/j", join_dirs(named), "instance"))
        for folder in [self.root / "j" / "current", *map(self.current, range(self.count))]:
            folder.mkdir(parents=True)
            if self.with_cookie:
                (folder / "VERSION").write_bytes(cookie)
        journal = self.journal.build().data
        # A mark behind the end of its journal would be damage.
        mark = LastMark(self.mark.journal_id, min(self.mark.offset, len(journal)))
        for place in range(self.count):
            (self.current(place) / "lastMark").write_bytes(encode_last_mark(mark))
            if self.storage == "db":
                self._write_databases(place)
        if self.storage == "idx":
            self._write_idx()
        for (place, log_id), log in self.logs.items():
            (self.current(place) / log_name(log_id)).write_bytes(log.build().data)
        (self.root / "j" / "current" / journal_name(JOURNAL_ID)).write_bytes(journal)
        return self

    def _write_databases(self, place: int) -> None:
        locations = [
            Put(location.encode_key(ledger, entry), location.encode_value(Location(*at)))
            for (where, ledger, entry), at in self.locations.items()
            if where == place
        ]
        ledgers = [
            Put(ledger_data.encode_ledger_key(ledger), ledger_data.encode_ledger_data(data))
            for (where, ledger), data in self.ledgers.items()
            if where == place
        ]
        for where, name, key, value in self.raw_rows:
            if where == place:
                (locations if name == "locations" else ledgers).append(Put(key, value))
        current = self.current(place)
        write_database(current / "locations", LOCATIONS_PROFILE, locations)
        write_database(current / "ledgers", LEDGERS_PROFILE, ledgers)

    def idx_path(self, ledger: int) -> Path:
        """Where the ``.idx`` file of a ledger is."""
        return self.current(0) / file_info.index_path(ledger)

    def _write_idx(self) -> None:
        for place in range(self.count if self.ledgers else 0):
            # What a bookie that has flushed leaves in each index directory, with or without files.
            (self.current(place) / FIRST_DIRECTORY).mkdir(parents=True)
        for (_, ledger), row in self.ledgers.items():
            slots = sorted(
                (entry, location.pack_location(*at))
                for (_, owner, entry), at in self.locations.items()
                if owner == ledger
            )
            path = self.idx_path(ledger)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.write(file_info.encode_header(file_info.FileInfoHeader(1, row.master_key)))
                for offset, page in file_info.encode_slots(slots):
                    file.seek(offset)
                    file.write(page)

    def check(self, **options: object) -> list[Finding]:
        """What ``index check`` finds in the whole bookie."""
        return check([self.root], **options)  # type: ignore[arg-type]


def check(
    paths: Iterable[Path],
    *,
    metadata: dict[int, LedgerMetadata] | None = None,
    memory_bytes: int = 64 << 20,
    digest: str = "auto",
    metadata_file: Path | None = None,
    filesystem: FileSystem = FILES,
) -> list[Finding]:
    """Findings of ``index check`` on some paths; ``filesystem`` reads the spaces once they are found."""
    from bkctl.scan.metadata_dump import load_metadata_dump

    dump = str(metadata_file) if metadata_file is not None else None
    if dump is not None:
        metadata = load_metadata_dump(FILES, dump).ledgers
    book = digest_book(FILES, mode=digest, metadata_file=dump)
    spaces = index_spaces(FILES, directories(FILES, [str(path) for path in paths]), emptied=True)
    options = CheckOptions(book, metadata, memory_bytes)
    return list(check_spaces(filesystem, spaces, options, lambda _: None))


def damage(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that are not notes."""
    return [finding for finding in findings if finding.severity is Severity.DAMAGE]


def kinds(findings: Iterable[Finding]) -> list[str]:
    """The kinds of findings, each once."""
    return sorted({finding.kind.value for finding in findings})
