"""Reading entry logs: header, ledgers map, entries, damage.

The differences from Java are listed in ``docs/differences.md``: Java resynchronises byte by byte on any
positive number, ends a scan silently at a size that is too large, and never compares the map with the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bkctl.codec import entrylog as codec
from bkctl.codec.entry import BODY_BYTES_MAX, RECORD_HEAD, EntryBatch
from bkctl.errors import CorruptionError
from bkctl.reporting import counted
from bkctl.scan.damage import Damage, Tail
from bkctl.scan.dialect import MarkedRecord
from bkctl.scan.proof import Evidence
from bkctl.scan.records import Item, RecordScan
from bkctl.scan.steady_file import SteadyFile
from bkctl.vfs import FileSystem

_MAP_BYTES_MAX = 1 << 30


class EntryLogDialect:
    """Ledgers-map batches, the DirectIO header record and its filler."""

    def __init__(self, direct: bool) -> None:
        self._direct = direct

    def marked(self, file: SteadyFile, offset: int) -> MarkedRecord | Damage | None:
        """Return a map batch, the DirectIO header mark or DirectIO filler at ``offset``."""
        head = file.peek(offset, RECORD_HEAD.size)
        if self._direct:
            if offset == codec.HEADER_BYTES and codec.is_direct(file.peek(0, codec.HEADER_BYTES + 12)):
                return self._skip(offset, min(codec.DIRECT_HEADER_BYTES, file.size_bytes) - offset)
            filler = -offset % codec.DIRECT_ALIGNMENT
            if filler and head[:1] == b"\xf0" and file.peek(offset, filler) == codec.direct_filler(offset):
                return self._skip(offset, filler)
        if len(head) < RECORD_HEAD.size:
            return None
        size, ledger, entry = RECORD_HEAD.unpack(head)
        if not codec.is_map_batch(size, ledger, entry) or offset + 4 + size > file.size_bytes:
            return None
        record = file.read_at(offset, 4 + size)
        if file.refused(offset, offset + 4 + size):
            return Damage(file.path, offset, 4 + size, "unreadable", "bytes", "a read error of the disk")
        try:
            codec.decode_map_batch(record, offset)
        except CorruptionError:
            return None
        return MarkedRecord(offset, 4 + size, None, ledger, entry, record)

    @staticmethod
    def _skip(offset: int, framed_bytes: int) -> MarkedRecord:
        return MarkedRecord(offset, framed_bytes, None, codec.NOT_AN_ENTRY, codec.NOT_AN_ENTRY, b"")

    def reserved(self, file: SteadyFile, size: int, ledger: int, entry: int, offset: int) -> int | None:
        """Return the end of a whole map batch, which proves itself by its two reserved ids and its count."""
        if not codec.is_map_batch(size, ledger, entry):
            return None
        end = offset + 4 + size
        if end > file.size_bytes or file.refused(offset, end):
            return None
        count = int.from_bytes(file.read_at(offset + RECORD_HEAD.size, 4), "big")
        return end if size == 20 + 16 * count else None

    def filler_before(self, file: SteadyFile, start: int, end: int) -> int:
        """Find the start of DirectIO filler that ends at ``end``, or of a part of it; ``end`` without any."""
        if not self._direct:
            return end
        block = file.read_at(
            max(start, end - codec.DIRECT_ALIGNMENT), min(end - start, codec.DIRECT_ALIGNMENT)
        )
        return end - (len(block) - len(block.rstrip(b"\xf0")))

    def torn(self, head: bytes, room: int) -> bool:
        """Return a header that is cut, or a plausible one with less than its size behind it."""
        if len(head) < RECORD_HEAD.size:
            return True
        size, ledger, entry = RECORD_HEAD.unpack(head)
        plausible = ledger >= 0 and entry >= 0 and 16 <= size <= BODY_BYTES_MAX
        return (plausible or codec.is_map_batch(size, ledger, entry)) and 4 + size > room


@dataclass(slots=True)
class EntryLogHead:
    """The header and the map of a log.

    ``damage`` are problems of the header or the map; ``header`` is the best reading all the same.
    ``short`` is a log that ends inside its header (0 bytes: normal, just allocated).
    """

    path: str
    size_bytes: int
    header: codec.EntryLogHeader
    ledgers_map: Mapping[int, int] | None = None
    damage: list[Damage] = field(default_factory=list)
    short: bool = False


def read_head(file: SteadyFile) -> EntryLogHead:
    """Return the header and ledgers map of a log; never fails on what it reads."""
    data = file.read_at(0, codec.HEADER_BYTES + 12)
    head = EntryLogHead(file.path, file.size_bytes, codec.EntryLogHeader())
    if file.refused(0, codec.HEADER_BYTES):
        head.damage.append(
            Damage(file.path, 0, codec.HEADER_BYTES, "unreadable", "the header", "a read error of the disk")
        )
    elif len(data) < codec.HEADER_BYTES and data[:4] == codec.MAGIC[: len(data)]:
        head.short = True
        return head
    else:
        try:
            head.header = codec.decode_header(data)
        except CorruptionError as error:
            head.damage.append(Damage(file.path, error.offset, 4, error.what, error.expected, error.found))
            head.header = codec.EntryLogHeader(direct=codec.is_direct(data))
            return head
    if head.header.has_map:
        _read_map(file, head)
    return head


def _read_map(file: SteadyFile, head: EntryLogHead) -> None:
    offset = head.header.map_offset
    room = file.size_bytes - offset
    if offset < codec.HEADER_BYTES or room < 24:
        head.damage.append(
            Damage(
                file.path,
                8,
                8,
                "ledgers map offset",
                f"an offset inside the log of {counted(file.size_bytes, 'byte')}, as its map was written "
                "last",
                str(offset),
            )
        )
        return
    data = file.read_at(offset, min(room, _MAP_BYTES_MAX))
    if file.refused(offset, offset + len(data)):
        # The zeros in the place of what was refused may be as many ledgers as the header says.
        head.damage.append(
            Damage(file.path, offset, room, "unreadable", "the ledgers map", "a read error of the disk")
        )
        return
    try:
        head.ledgers_map = codec.decode_map(data, head.header, offset)
    except CorruptionError as error:
        head.damage.append(Damage(file.path, error.offset, 4, error.what, error.expected, error.found))


class EntryLogScan:
    """One entry log, opened for reading.

    Iterating yields entry batches, map batches and filler, damage of the records, and a ``Tail`` at the end;
    damage of header and map is in ``head.damage`` beforehand. Closes the file at the end of a ``with``.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        path: str,
        evidence: Evidence | None = None,
        size_max: int = BODY_BYTES_MAX,
    ) -> None:
        self.file = SteadyFile(filesystem.open(path))
        self.head = read_head(self.file)
        self.evidence = evidence or Evidence()
        self.size_max = size_max
        if self.head.ledgers_map is not None:
            self.evidence.ledgers.update(self.head.ledgers_map)
        self.records = RecordScan(
            self.file,
            EntryLogDialect(self.head.header.direct),
            codec.HEADER_BYTES,
            self.evidence,
            size_max,
        )

    def __iter__(self) -> Iterator[Item]:
        if self.head.short:
            kind = "torn" if self.file.size_bytes else "end"
            yield Tail(
                0, kind, f"{counted(self.file.size_bytes, 'byte')} of a header" if kind == "torn" else ""
            )
            return
        yield from self.records

    def batches(self) -> Iterator[EntryBatch]:
        """Yield the entries alone."""
        for item in self:
            if isinstance(item, EntryBatch):
                yield item

    def __enter__(self) -> EntryLogScan:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
