"""What a bookie image must hold, by its manifest and the ledgers' metadata, and what is found in it.

An image is a folder of bookies (``bookie1/{journal,ledgers}/current``). ``manifest.json`` lists every ledger
with the length and SHA-256 of every entry's payload, a metadata dump says on which bookies an entry was
written: entry e of a segment is on the slots (e + i) mod E for i < Qw.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bkctl.admin.logs.digests import digest_book
from bkctl.codec.cookie import decode_cookie
from bkctl.codec.entry import payload
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.codec.location import LocationColumns
from bkctl.scan.checked import CheckedBatch
from bkctl.scan.damage import Damage
from bkctl.scan.digest_book import DigestBook
from bkctl.scan.directory import LogFile
from bkctl.scan.files.entrylogs import LogEntries, scan_logs, verify_logs
from bkctl.scan.files.journals import JournalEntries, scan_journals, verify_journals
from bkctl.scan.files.paths import entry_logs, journals
from bkctl.scan.files.verdicts import FileVerdict
from bkctl.scan.index import open_index
from bkctl.scan.metadata_dump import load_metadata_dump
from bkctl.vfs import PosixFileSystem

FILES = PosixFileSystem()

EntryKey = tuple[int, int]

_HEAD = struct.Struct(">iqq")


@dataclass
class Manifest:
    """The ledgers of a corpus: ``entries`` maps (ledger, entry) to payload length and SHA-256."""

    path: Path
    entries: dict[EntryKey, tuple[int, str]]
    digests: dict[int, str]
    passwords: dict[int, bytes]
    deleted: frozenset[int]

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Read a ``manifest.json``."""
        content = json.loads(path.read_text())
        ledgers = {int(ledger): facts for ledger, facts in content["ledgers"].items()}
        return cls(
            path,
            {
                (ledger, int(entry)): (size, sha256)
                for ledger, facts in ledgers.items()
                for entry, (size, sha256) in facts["entries"].items()
            },
            {ledger: facts["digest"].lower() for ledger, facts in ledgers.items()},
            {ledger: bytes.fromhex(facts["password_hex"]) for ledger, facts in ledgers.items()},
            frozenset(content["deleted_between_crash_and_clean"]),
        )


@dataclass
class Found:
    """What the files of one bookie gave: how often each entry was there, and everything that was wrong."""

    entries: Counter[EntryKey] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


#: The full directories of real bookies, and each as it was after a crash and after a clean stop.
CORPORA = ("db", "sorted", "perledger", "interleaved")
IMAGES = [(corpus, state) for corpus in CORPORA for state in ("crash", "clean")]


@dataclass
class Image:
    """A folder of bookies with the manifest and the metadata that go with it."""

    path: Path
    manifest: Manifest
    metadata_file: Path
    metadata: dict[int, LedgerMetadata]

    @classmethod
    def load(cls, path: Path, manifest: Path, *dumps: Path) -> Image:
        """``dumps`` from the oldest to the newest: ledgers deleted since are known from the older ones."""
        metadata: dict[int, LedgerMetadata] = {}
        for dump in dumps:
            metadata |= load_metadata_dump(FILES, str(dump)).ledgers
        return cls(path, Manifest.load(manifest), dumps[0], metadata)

    def bookies(self) -> dict[str, Path]:
        """Bookie id to its folder."""
        folders = sorted(folder for folder in self.path.iterdir() if (folder / "journal").is_dir())
        return {
            decode_cookie((folder / "ledgers/current/VERSION").read_bytes()).bookie_host: folder
            for folder in folders
        }

    def holders(self, ledger: int, entry: int) -> list[str]:
        """The bookies that an entry was written to."""
        metadata = self.metadata[ledger]
        segment = max((s for s in metadata.segments if s.first_entry <= entry), key=lambda s: s.first_entry)
        slots = ((entry + replica) % metadata.ensemble_size for replica in range(metadata.write_quorum))
        return [segment.bookies[slot] for slot in slots]

    def held_by(self, bookie: str) -> set[EntryKey]:
        """The manifest's entries that a bookie was given."""
        return {key for key in self.manifest.entries if bookie in self.holders(*key)}

    def short_of_quorum(self, found: dict[str, Found]) -> set[EntryKey]:
        """Entries that fewer than Qa of their bookies have among what was found."""
        return {
            key
            for key in self.manifest.entries
            if sum(key in found[bookie].entries for bookie in self.holders(*key) if bookie in found)
            < self.metadata[key[0]].ack_quorum
        }

    def book(self) -> DigestBook:
        """Digests of all ledgers, with their passwords, from the metadata."""
        return digest_book(FILES, metadata_file=str(self.metadata_file))

    def in_journals(self) -> dict[str, Found]:
        """Entries of every bookie's journals."""
        found = {}
        for bookie, folder in self.bookies().items():
            items = scan_journals(FILES, journals(FILES, [str(folder)]), self.book())
            found[bookie] = self._judged(
                item.entries if isinstance(item, JournalEntries) else item for item in items
            )
        return found

    def in_logs(self) -> dict[str, Found]:
        """Entries of every bookie's entry logs."""
        found = {}
        for bookie, folder in self.bookies().items():
            items = scan_logs(FILES, logs_of(folder), self.book())
            found[bookie] = self._judged(
                item.entries if isinstance(item, LogEntries) else item for item in items
            )
        return found

    def _judged(self, items: Iterable[object]) -> Found:
        found = Found()
        for item in items:
            if isinstance(item, Damage):
                found.wrong.append(str(item))
            elif isinstance(item, CheckedBatch):
                self._judge(item, found)
        return found

    def _judge(self, item: CheckedBatch, found: Found) -> None:
        batch = item.batch
        for index, key in enumerate(zip(batch.ledgers, batch.entries, strict=True)):
            found.entries[key] += 1
            known = self.manifest.entries.get(key)
            digester = item.check.digesters.get(key[0])
            if known is None or digester is None:
                found.wrong.append(f"{key}: unknown")
                continue
            if digester.type.value != self.manifest.digests[key[0]]:
                found.wrong.append(f"{key}: checked as {digester.type.value}")
            if item.check.ok(index, key[0]) is not True:
                found.wrong.append(f"{key}: digest {item.check.ok(index, key[0])}")
            data = payload(batch.body(index), digester.type)
            if (len(data), hashlib.sha256(data).hexdigest()) != known:
                found.wrong.append(f"{key}: payload")

    def verdicts(self) -> list[FileVerdict]:
        """What verify says of every entry log and every journal."""
        logs = [log for folder in self.bookies().values() for log in logs_of(folder)]
        files = journals(FILES, [str(self.path)])
        return [*verify_logs(FILES, logs, self.book()), *verify_journals(FILES, files, self.book())]

    def indexed(self) -> dict[str, Found]:
        """Entries of every bookie's index; wrong is a row whose place in its log holds something else."""
        found = {}
        for bookie, folder in self.bookies().items():
            current = folder / "ledgers/current"
            found[bookie] = one = Found()
            logs: dict[int, bytes] = {}
            for ledger, entry, log_id, offset in index_rows(current):
                one.entries[ledger, entry] += 1
                if log_id not in logs:
                    logs[log_id] = (current / f"{log_id:x}.log").read_bytes()
                log = logs[log_id]
                size, *ids = _HEAD.unpack_from(log, offset - 4)
                if ids != [ledger, entry] or not 16 <= size <= len(log) - offset:
                    one.wrong.append(f"({ledger}, {entry}) -> log {log_id}, {offset}: {ids}, {size} bytes")
        return found


#: An archive and a state to its image.
ImageOf = Callable[[str, str], Image]


def logs_of(folder: Path) -> list[LogFile]:
    """The entry logs of one bookie; none when it never flushed."""
    paths = sorted(str(path) for path in folder.glob("ledgers/current/*.log"))
    return entry_logs(FILES, paths) if paths else []


def index_rows(current: Path) -> Iterator[tuple[int, int, int, int]]:
    """(ledger, entry, log id, offset) of every row of the index in a ``current`` directory."""
    index = open_index(FILES, str(current))
    assert index is not None, f"{current}: no index"
    with index:
        for batch in index.locations.rows():
            assert isinstance(batch, LocationColumns), batch
            yield from zip(batch.ledgers, batch.entries, batch.log_ids, batch.offsets, strict=True)
