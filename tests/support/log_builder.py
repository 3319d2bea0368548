"""Entry logs and journals in memory, and the list of what is in them.

Bytes come from the codecs alone, so a test that reads them back tests the scan, not the builder::

    log = EntryLogBuilder()
    log.add(entry_body(5, 0, b"payload"))
    built = log.roll()
    built.data, built.entries, built.spans
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from bkctl.codec import entrylog
from bkctl.codec import journal as journals
from bkctl.codec.digest import Digester
from bkctl.codec.entry import EntryHeader, encode, frame
from bkctl.codec.journal import JournalRecord
from bkctl.types import DigestType

PASSWORD = b"secret"

CRC32C = Digester(DigestType.CRC32C)
CRC32 = Digester(DigestType.CRC32)
MAC = Digester.of(DigestType.MAC, PASSWORD)
DUMMY = Digester(DigestType.DUMMY)
ALL_DIGESTERS = (CRC32C, CRC32, MAC, DUMMY)


class BuiltEntry(NamedTuple):
    """An entry at ``offset`` (of its size word)."""

    offset: int
    ledger: int
    entry: int
    body: bytes

    @property
    def end(self) -> int:
        return self.offset + 4 + len(self.body)


class Span(NamedTuple):
    """A range; ``kind``: header, entry, special, padding, filler, map or zeros."""

    start: int
    stop: int
    kind: str


class Built:
    """A file; ``spans`` cover it from 0 to its end in order. No dataclass: hypothesis prints all of one."""

    def __init__(self, data: bytes, entries: tuple[BuiltEntry, ...], spans: tuple[Span, ...]) -> None:
        self.data = data
        self.entries = entries
        self.spans = spans

    def __repr__(self) -> str:
        return f"<{len(self.data)} bytes {[(e.offset, e.ledger, len(e.body)) for e in self.entries]}>"

    @property
    def data_end(self) -> int:
        """Where preallocated zeros begin, else the end."""
        return self.spans[-1].start if self.spans and self.spans[-1].kind == "zeros" else len(self.data)


def entry_body(
    ledger: int,
    entry: int,
    payload: bytes = b"payload",
    digester: Digester = CRC32C,
    *,
    lac: int | None = None,
    length: int | None = None,
) -> bytes:
    """The body of an entry with a plausible LAC and ledger length."""
    header = EntryHeader(
        ledger,
        entry,
        entry - 1 if lac is None else lac,
        (entry + 1) * max(1, len(payload)) if length is None else length,
    )
    return encode(header, payload, digester)


@dataclass
class _Builder:
    _data: bytearray = field(default_factory=bytearray)
    _entries: list[BuiltEntry] = field(default_factory=list)
    _spans: list[Span] = field(default_factory=list)

    @property
    def position(self) -> int:
        """Where the next record goes."""
        return len(self._data)

    def put(self, data: bytes, kind: str) -> int:
        """Append bytes of any kind; their offset."""
        start = len(self._data)
        self._data += data
        if data:
            self._spans.append(Span(start, len(self._data), kind))
        return start

    def add(self, body: bytes) -> BuiltEntry:
        """Append an entry."""
        offset = self.put(frame(body), "entry")
        ledger = int.from_bytes(body[:8], "big", signed=True)
        entry = int.from_bytes(body[8:16], "big", signed=True)
        built = BuiltEntry(offset, ledger, entry, body)
        self._entries.append(built)
        return built

    def zeros(self, count: int) -> None:
        """Preallocated space, last of all."""
        self.put(bytes(count), "zeros")

    def build(self) -> Built:
        """The file as it is now."""
        return Built(bytes(self._data), tuple(self._entries), tuple(self._spans))


class EntryLogBuilder(_Builder):
    """An entry log; ``direct`` is the layout of the DirectIO logger."""

    def __init__(self, *, version: int = 1, direct: bool = False) -> None:
        super().__init__()
        self.version = version
        self.direct = direct
        self.put(entrylog.encode_header(entrylog.EntryLogHeader(version, direct=direct)), "header")

    def flush(self) -> None:
        """What the DirectIO logger does at a flush; nothing in the default layout."""
        if self.direct:
            self.put(entrylog.direct_filler(self.position), "filler")

    def totals(self) -> dict[int, int]:
        """The ledgers map of what is in the log."""
        totals: dict[int, int] = {}
        for built in self._entries:
            totals[built.ledger] = totals.get(built.ledger, 0) + 4 + len(built.body)
        return totals

    def roll(self, totals: dict[int, int] | None = None) -> Built:
        """Append the map (``totals`` when given) and point the header at it."""
        self.flush()
        chosen = self.totals() if totals is None else totals
        offset = self.put(entrylog.encode_map(chosen), "map")
        self.flush()
        header = entrylog.EntryLogHeader(self.version, offset, len(chosen), self.direct)
        at, update = entrylog.encode_map_update(header)
        self._data[at : at + len(update)] = update
        return self.build()


class JournalBuilder(_Builder):
    """A journal of any version."""

    def __init__(self, version: int = 6, *, alignment: int = 512) -> None:
        super().__init__()
        self.version = version
        self.alignment = alignment
        self.put(journals.encode_header(version), "header")

    def special(self, record: JournalRecord) -> int:
        """Append a master-key, fence or explicit-LAC record; its offset."""
        return self.put(journals.encode_record(record), "special")

    def flush(self) -> None:
        """End of a flush batch: padding, from version 5 on."""
        if self.version < journals.PADDED_FROM:
            return
        padding = journals.padding_record(self.position, self.alignment)
        if padding is not None:
            self.put(journals.encode_record(padding), "padding")

    def preallocate(self, step: int = 16384) -> None:
        """Zeros to the next multiple of ``step``."""
        self.zeros(-self.position % step)


def simple_log(
    ledgers: int = 3,
    entries: int = 8,
    payload_bytes: int = 40,
    digester: Digester = CRC32C,
    *,
    rolled: bool = False,
    direct: bool = False,
) -> Built:
    """``entries`` of each of ledgers 11, 12, .., interleaved; payloads differ and never hold a zero byte."""
    log = EntryLogBuilder(direct=direct)
    for entry in range(entries):
        for ledger in range(11, 11 + ledgers):
            log.add(entry_body(ledger, entry, plain_payload(ledger, entry, payload_bytes), digester))
        if entry % 3 == 2:
            log.flush()
    if rolled:
        return log.roll()
    log.flush()
    return log.build()


def simple_journal(
    version: int = 6,
    ledgers: int = 2,
    entries: int = 8,
    payload_bytes: int = 40,
    digester: Digester = CRC32C,
    *,
    preallocated: bool = True,
    padded: bool = True,
) -> Built:
    """Master keys, ``entries`` of each ledger in batches, padding, zeros."""
    journal = JournalBuilder(version)
    for ledger in range(11, 11 + ledgers):
        if version >= 3:
            journal.special(journals.master_key_record(ledger, bytes(range(20))))
    for entry in range(entries):
        for ledger in range(11, 11 + ledgers):
            journal.add(entry_body(ledger, entry, plain_payload(ledger, entry, payload_bytes), digester))
        if padded and entry % 2 == 1:
            journal.flush()
    if preallocated:
        journal.preallocate()
    return journal.build()


def plain_payload(ledger: int, entry: int, size: int) -> bytes:
    """Text without zeros that names its entry."""
    text = f"<{ledger}:{entry}>".encode()
    return (text * (size // len(text) + 1))[:size]
