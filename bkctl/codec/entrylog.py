"""Entry logs: ``<hex id>.log`` in a ledger directory's ``current``.

File header, 1024 bytes (4096 with the DirectIO logger, see below):

====== ==== =====================================================================
offset size field
====== ==== =====================================================================
0      4    ``"BKLO"``
4      i32  version: 0 (no ledgers map) or 1
8      i64  offset of the ledgers map in this file, 0 = not written
16     i32  number of ledgers in the map
20     ..   zeros
====== ==== =====================================================================

Records start at 1024: ``i32 size, body`` with the body of ``codec.entry``. An index location is the offset
of the *body*. The DirectIO logger's header runs to 4096; at 1024 it has ``i32 3068, i64 -1`` so that it looks
like a record to be skipped, and at every flush it fills up to the next multiple of 4096 with 0xF0.

Ledgers map, appended when a log is rolled, as batches of at most 10000 ledgers:

====== ============= ============================================================
offset size          field
====== ============= ============================================================
0      i32           20 + 16 n
4      i64           -1, "not an entry"
12     i64           -2, "ledgers map"
20     i32           n
24     n x (i64,i64) ledger id, bytes = sum of (4 + size) of its records
====== ============= ============================================================

The header's offset and count are written after the map. A log without a map is normal: it was never rolled.

Source: ``org.apache.bookkeeper.bookie.DefaultEntryLogger``, ``EntryLogMetadata``,
``storage.directentrylogger.Header`` and ``LogMetadata``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from bkctl.errors import CorruptionError
from bkctl.ledger_set import LedgerTotals
from bkctl.reporting import counted

MAGIC = b"BKLO"
HEADER_BYTES = 1024
DIRECT_HEADER_BYTES = 4096
DIRECT_ALIGNMENT = 4096
DIRECT_FILLER = 0xF0
VERSIONS = (0, 1)

#: Ledger id that marks a record which is not an entry, and the entry id of a map batch.
NOT_AN_ENTRY = -1
MAP_MARKER = -2
MAP_BATCH_LEDGERS_MAX = 10_000

_HEADER = struct.Struct(">4siqi")
_DIRECT_MARK = struct.Struct(">iq")
_BATCH_HEAD = struct.Struct(">iqqi")
_PAIR = struct.Struct(">qq")
_COMPACTING = re.compile(r"([0-9a-f]+)\.log\.compacting")
_COMPACTED = re.compile(r"([0-9a-f]+)\.log\.([0-9a-f]+)\.compacted")

DIRECT_MARK_SIZE = DIRECT_HEADER_BYTES - HEADER_BYTES - 4


@dataclass(frozen=True, slots=True)
class EntryLogHeader:
    """``map_offset`` 0 means that no map was written; ``direct`` is the DirectIO layout."""

    version: int = 1
    map_offset: int = 0
    ledgers: int = 0
    direct: bool = False

    @property
    def has_map(self) -> bool:
        """Whether the log says that it has a ledgers map."""
        return self.version >= 1 and self.map_offset != 0


def decode_header(data: bytes) -> EntryLogHeader:
    """Return the header in the first bytes of a log; 1036 bytes are enough to recognise the DirectIO layout.

    Raises CorruptionError when the magic or the version is wrong or fewer than 1024 bytes are there.
    """
    if data[:4] != MAGIC[: len(data)] or len(data) < 4:
        raise CorruptionError("entry log header", expected=MAGIC.hex(), found=data[:4].hex() or "nothing")
    if len(data) < HEADER_BYTES:
        raise CorruptionError(
            "entry log header", offset=len(data), expected="1024 bytes", found=counted(len(data), "byte")
        )
    _, version, map_offset, ledgers = _HEADER.unpack_from(data)
    if version not in VERSIONS:
        raise CorruptionError("entry log version", offset=4, expected="0 or 1", found=str(version))
    return EntryLogHeader(version, map_offset, ledgers, is_direct(data))


def is_direct(data: bytes) -> bool:
    """Return whether the first bytes of a log show the DirectIO layout."""
    if len(data) < HEADER_BYTES + _DIRECT_MARK.size:
        return False
    size, ledger = _DIRECT_MARK.unpack_from(data, HEADER_BYTES)
    return bool(size == DIRECT_MARK_SIZE and ledger == NOT_AN_ENTRY)


def encode_header(header: EntryLogHeader) -> bytes:
    """Return 1024 bytes, or 4096 in the DirectIO layout."""
    head = _HEADER.pack(MAGIC, header.version, header.map_offset, header.ledgers).ljust(HEADER_BYTES, b"\0")
    if not header.direct:
        return head
    mark = _DIRECT_MARK.pack(DIRECT_MARK_SIZE, NOT_AN_ENTRY)
    return (head + mark).ljust(DIRECT_HEADER_BYTES, b"\0")


def encode_map_update(header: EntryLogHeader) -> tuple[int, bytes]:
    """Return the last bytes of a log that is rolled: a file offset, and the map offset and count for it."""
    return 8, struct.pack(">qi", header.map_offset, header.ledgers)


def is_map_batch(size: int, ledger: int, entry: int) -> bool:
    """Return whether a record's first three numbers are those of a ledgers-map batch."""
    return (
        ledger == NOT_AN_ENTRY
        and entry == MAP_MARKER
        and size >= 36
        and size <= 20 + 16 * MAP_BATCH_LEDGERS_MAX
        and size % 16 == 4
    )


def decode_map_batch(record: bytes, offset: int = 0) -> list[tuple[int, int]]:
    """Return (ledger, bytes) pairs of one batch, in their order; ``record`` starts with the size word.

    Raises CorruptionError, with ``offset`` added, when the markers or the count are wrong.
    """
    if len(record) < _BATCH_HEAD.size:
        raise CorruptionError(
            "ledgers map batch",
            offset=offset,
            expected="24 bytes or more",
            found=counted(len(record), "byte"),
        )
    size, ledger, entry, count = _BATCH_HEAD.unpack_from(record)
    if ledger != NOT_AN_ENTRY or entry != MAP_MARKER:
        raise CorruptionError(
            "ledgers map batch", offset=offset + 4, expected="ids -1, -2", found=f"ids {ledger}, {entry}"
        )
    if not 1 <= count <= MAP_BATCH_LEDGERS_MAX or size != 20 + 16 * count:
        raise CorruptionError(
            "ledgers map batch",
            offset=offset,
            expected="size 20 + 16 n for 1 to 10000 ledgers",
            found=f"size {size}, {counted(count, 'ledger')}",
        )
    if len(record) < 4 + size:
        raise CorruptionError(
            "ledgers map batch",
            offset=offset,
            expected=counted(4 + size, "byte"),
            found=counted(len(record), "byte"),
        )
    return list(_PAIR.iter_unpack(record[24 : 24 + 16 * count]))


def decode_map(data: bytes, header: EntryLogHeader, base: int = 0) -> LedgerTotals:
    """Return the ledgers map in ``data``, which starts at the header's map offset; ledger -> bytes.

    Batches follow each other until a size <= 0, filler of the DirectIO logger or the end. Raises
    CorruptionError with offsets from ``base`` when a batch is wrong or the ledgers are not as many as the
    header says.
    """
    totals = LedgerTotals()
    position = 0
    while position + 4 <= len(data):
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        if size <= 0:
            break
        batch = data[position : position + 4 + size]
        totals.add_all(decode_map_batch(batch, base + position))
        position += 4 + size
    if len(totals) != header.ledgers:
        raise CorruptionError(
            "ledgers map",
            offset=base,
            expected=f"{counted(header.ledgers, 'ledger')} as the header says",
            found=counted(len(totals), "ledger"),
        )
    return totals


def encode_map(totals: Mapping[int, int]) -> bytes:
    """Return the batches of a ledgers map, in the order of ``totals``."""
    pairs = list(totals.items())
    parts = []
    for first in range(0, len(pairs), MAP_BATCH_LEDGERS_MAX):
        batch = pairs[first : first + MAP_BATCH_LEDGERS_MAX]
        parts.append(_BATCH_HEAD.pack(20 + 16 * len(batch), NOT_AN_ENTRY, MAP_MARKER, len(batch)))
        parts.extend(_PAIR.pack(*pair) for pair in batch)
    return b"".join(parts)


def direct_filler(position: int) -> bytes:
    """Return the 0xF0 bytes that the DirectIO logger puts at ``position`` to reach a multiple of 4096."""
    return bytes([DIRECT_FILLER]) * (-position % DIRECT_ALIGNMENT)


def log_name(log_id: int) -> str:
    """Return the file name of a log."""
    return f"{log_id:x}.log"


def parse_log_name(name: str) -> int | None:
    """Return the id in ``<hex>.log``, or None when ``name`` is not a log's."""
    stem, dot, suffix = name.partition(".")
    if not dot or suffix != "log" or not stem or not set(stem) <= set("0123456789abcdef"):
        return None
    return int(stem, 16)


def compacting_name(log_id: int) -> str:
    """Return the file name of a compaction's target while it is being written."""
    return f"{log_name(log_id)}.compacting"


def parse_compacting_name(name: str) -> int | None:
    """Return the id in ``<hex>.log.compacting``, or None when ``name`` is none."""
    found = _COMPACTING.fullmatch(name)
    return None if found is None else int(found[1], 16)


def compacted_name(target: int, source: int) -> str:
    """Return the file name of a compaction's target that is whole, with the log that it was made from."""
    return f"{log_name(target)}.{source:x}.compacted"


def parse_compacted_name(name: str) -> tuple[int, int] | None:
    """Return the target and source in ``<hex>.log.<hex>.compacted``, or None when ``name`` is none."""
    found = _COMPACTED.fullmatch(name)
    return None if found is None else (int(found[1], 16), int(found[2], 16))
