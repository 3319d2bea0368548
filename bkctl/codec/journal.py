"""Journal files: ``<hex id>.txn`` in a journal directory's ``current``.

======= ========================= ============ ===========================
version header                    first record adds
======= ========================= ============ ===========================
1       none                      0
2       ``"BKLG"`` + i32 2        8            header
3       ``"BKLG"`` + i32 3        8            master-key records
4       ``"BKLG"`` + i32 4        8            fence records
5       same, zeros to 512        512          padding records
6       same, zeros to 512        512          explicit-LAC records
======= ========================= ============ ===========================

A record is ``i32 length L, L bytes body``; the body starts ``i64 ledger id, i64 entry id``. No checksum, no
trailer. Entry id >= 0: a data entry, the body is that of ``codec.entry``. Others:

======== =================== ==========================================
entry id kind                body after the 16 bytes
======== =================== ==========================================
-0x1000  master key          i32 n, n bytes
-0x2000  fence               nothing
-0x4000  force ledger        never on disk
-0x8000  explicit LAC        i32 n, n bytes (``codec.explicit_lac``)
======== =================== ==========================================

Padding (v5+): ``i32 -256, i32 P, P bytes``, once per flush when the position is not a multiple of
``journalAlignmentSize``; with fewer than 8 bytes left it runs into the next block. Files are preallocated
with zeros: a length word of 0 is the end for Java, whatever follows.

Nothing in a file says where its records end: one that was cut between two of them looks whole. So in our
journals of version 5 and 6 the header, of which Java reads 8 bytes only, says where the records of the
journal before it end: ``8 bytes "bkctlend", i64 journal id, i64 offset, u32 CRC-32 of these 24``.

Source: ``org.apache.bookkeeper.bookie.Journal``, ``JournalChannel``, ``BookieImpl`` (the entry ids).
"""

from __future__ import annotations

import enum
import struct
import zlib
from dataclasses import dataclass, field
from functools import lru_cache

from bkctl.codec.last_mark import LastMark
from bkctl.errors import CorruptionError
from bkctl.reporting import counted

MAGIC = b"BKLG"
VERSION_MIN = 1
VERSION_MAX = 6
PADDED_FROM = 5
HEADER_BYTES = 512
SHORT_HEADER_BYTES = 8
PADDING_MARK = -256
RECORD_BYTES_MIN = 16
#: Offset of the content of a master-key or explicit-LAC record in its body: behind the ids and a length.
BLOB_AT = 20
#: Bytes of the longest master key or explicit LAC whose record a scan takes for one. Java has no bound.
BLOB_BYTES_MAX = (1 << 16) - BLOB_AT

_HEADER = struct.Struct(">4si")
_I32 = struct.Struct(">i")
_PADDING = struct.Struct(">ii")
_KEY = struct.Struct(">qq")
_END_MAGIC = b"bkctlend"
_END = struct.Struct(">8sqq")
_CRC = struct.Struct(">I")


class RecordKind(enum.Enum):
    """The kind of a journal record; the value is the ``kind`` in JSON."""

    ENTRY = "entry"
    MASTER_KEY = "master_key"
    FENCE = "fence"
    FORCE_LEDGER = "force_ledger"
    EXPLICIT_LAC = "explicit_lac"
    PADDING = "padding"
    UNKNOWN = "unknown"


ENTRY_IDS = {
    RecordKind.MASTER_KEY: -0x1000,
    RecordKind.FENCE: -0x2000,
    RecordKind.FORCE_LEDGER: -0x4000,
    RecordKind.EXPLICIT_LAC: -0x8000,
}
_KINDS = {entry: kind for kind, entry in ENTRY_IDS.items()}

#: First journal version that may hold a kind.
KIND_SINCE = {
    RecordKind.MASTER_KEY: 3,
    RecordKind.FENCE: 4,
    RecordKind.PADDING: 5,
    RecordKind.EXPLICIT_LAC: 6,
}


def kind_of(entry: int) -> RecordKind:
    """Return the kind that an entry id stands for."""
    return RecordKind.ENTRY if entry >= 0 else _KINDS.get(entry, RecordKind.UNKNOWN)


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """``first_record`` is where records start; version 1 has no header."""

    version: int

    @property
    def first_record(self) -> int:
        """Offset of the first record."""
        if self.version >= PADDED_FROM:
            return HEADER_BYTES
        return SHORT_HEADER_BYTES if self.version > 1 else 0


def decode_header(data: bytes) -> JournalHeader:
    """Return the header in a journal's first bytes. Without the magic the file is version 1.

    Raises CorruptionError on an unknown version and on a file that ends inside its header.
    """
    if not data.startswith(MAGIC):
        if data and MAGIC.startswith(data):
            raise CorruptionError(
                "journal header", offset=len(data), expected="8 bytes", found=counted(len(data), "byte")
            )
        return JournalHeader(1)
    if len(data) < SHORT_HEADER_BYTES:
        raise CorruptionError(
            "journal header", offset=len(data), expected="8 bytes", found=counted(len(data), "byte")
        )
    version: int = _HEADER.unpack_from(data)[1]
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise CorruptionError("journal version", offset=4, expected="1 to 6", found=str(version))
    header = JournalHeader(version)
    if len(data) < header.first_record:
        raise CorruptionError(
            "journal header",
            offset=len(data),
            expected=counted(header.first_record, "byte"),
            found=counted(len(data), "byte"),
        )
    return header


def encode_header(version: int, previous_end: LastMark | None = None) -> bytes:
    """Return the header of a new journal; empty for version 1.

    ``previous_end`` is where the records of the journal before it end; headers without room leave it out.
    """
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise ValueError(f"journal version {version}")
    if version == 1:
        return b""
    header = _HEADER.pack(MAGIC, version)
    if previous_end is not None and version >= PADDED_FROM:
        stated = _END.pack(_END_MAGIC, previous_end.journal_id, previous_end.offset)
        header += stated + _CRC.pack(zlib.crc32(stated))
    return header.ljust(JournalHeader(version).first_record, b"\0")


def decode_previous_end(data: bytes) -> LastMark | None:
    """Return where the journal before this one ends, as a header says; None where it does not say so.

    A statement with a wrong checksum is none.
    """
    if not data.startswith(MAGIC) or len(data) < HEADER_BYTES or _HEADER.unpack_from(data)[1] < PADDED_FROM:
        return None
    at = SHORT_HEADER_BYTES
    stated = data[at : at + _END.size]
    magic, journal_id, offset = _END.unpack(stated)
    if magic != _END_MAGIC or _CRC.unpack_from(data, at + _END.size)[0] != zlib.crc32(stated):
        return None
    return LastMark(journal_id, offset)


def fills_header(data: bytes) -> bool:
    """Return whether bytes are those behind magic and version in the header of a version with padding."""
    if len(data) != HEADER_BYTES - SHORT_HEADER_BYTES:
        return False
    return not any(data) or decode_previous_end(_HEADER.pack(MAGIC, VERSION_MAX) + data) is not None


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One record. ``size`` is L of its length word (P of a padding record); ``body`` the L bytes.

    A padding record has ``ledger`` and ``entry`` -1 and keeps its bytes in ``body``.
    """

    kind: RecordKind
    size: int
    ledger: int
    entry: int
    body: bytes = field(repr=False)

    @property
    def framed_bytes(self) -> int:
        """Bytes it takes in the file."""
        return (8 if self.kind is RecordKind.PADDING else 4) + self.size

    @property
    def blob(self) -> bytes:
        """The content of a master-key record (the key) or of an explicit-LAC record (the LAC's bytes)."""
        return self.body[BLOB_AT:]


def decode_record(data: bytes, version: int, position: int = 0, *, size_max: int) -> JournalRecord:
    """Return the record whose length word stands at ``position``.

    Raises CorruptionError, its offset counted in ``data``: a length that is zero, negative or above
    ``size_max``, padding before version 5, a record that is not whole, a special record whose inner
    length does not fit.
    """
    if len(data) - position < 4:
        raise CorruptionError(
            "journal record", offset=position, expected="4 bytes", found=counted(len(data) - position, "byte")
        )
    size = _I32.unpack_from(data, position)[0]
    if size == PADDING_MARK and version >= PADDED_FROM:
        return _decode_padding(data, position)
    if size < RECORD_BYTES_MIN or size > size_max:
        raise CorruptionError(
            "journal record length", offset=position, expected=f"16 to {size_max}", found=str(size)
        )
    if len(data) - position - 4 < size:
        raise CorruptionError(
            "journal record",
            offset=position,
            expected=counted(size, "byte"),
            found=counted(len(data) - position - 4, "byte"),
        )
    body = data[position + 4 : position + 4 + size]
    ledger, entry = _KEY.unpack_from(body)
    kind = kind_of(entry)
    _check_special(kind, body, position)
    return JournalRecord(kind, size, ledger, entry, body)


def _decode_padding(data: bytes, position: int) -> JournalRecord:
    """Return a padding record, the mark of which was seen."""
    if len(data) - position < 8:
        raise CorruptionError(
            "journal padding",
            offset=position,
            expected="8 bytes",
            found=counted(len(data) - position, "byte"),
        )
    size = _PADDING.unpack_from(data, position)[1]
    if size < 0:
        raise CorruptionError(
            "journal padding length", offset=position + 4, expected="0 or more", found=str(size)
        )
    if len(data) - position - 8 < size:
        raise CorruptionError(
            "journal padding",
            offset=position,
            expected=counted(size, "byte"),
            found=counted(len(data) - position - 8, "byte"),
        )
    return JournalRecord(RecordKind.PADDING, size, -1, -1, data[position + 8 : position + 8 + size])


def _check_special(kind: RecordKind, body: bytes, position: int) -> None:
    """Check the inner lengths of master-key, fence and explicit-LAC records."""
    if kind is RecordKind.FENCE and len(body) != RECORD_BYTES_MIN:
        raise CorruptionError(
            "journal fence record", offset=position, expected="length 16", found=f"length {len(body)}"
        )
    if kind in (RecordKind.MASTER_KEY, RecordKind.EXPLICIT_LAC):
        inner = _I32.unpack_from(body, 16)[0] if len(body) >= BLOB_AT else -1
        if inner != len(body) - BLOB_AT:
            raise CorruptionError(
                f"journal {kind.value.replace('_', '-')} record",
                offset=position,
                expected=f"{counted(len(body) - BLOB_AT, 'byte')} inside",
                found=counted(inner, "byte"),
            )


def encode_record(record: JournalRecord) -> bytes:
    """Return the bytes of a record in a file."""
    if record.kind is RecordKind.PADDING:
        return _PADDING.pack(PADDING_MARK, record.size) + record.body
    return _I32.pack(record.size) + record.body


def master_key_record(ledger: int, key: bytes) -> JournalRecord:
    """Return the record that makes a ledger known before its first data."""
    return _special(RecordKind.MASTER_KEY, ledger, _I32.pack(len(key)) + key)


def fence_record(ledger: int) -> JournalRecord:
    """Return the record that fences a ledger."""
    return _special(RecordKind.FENCE, ledger, b"")


def explicit_lac_record(ledger: int, blob: bytes) -> JournalRecord:
    """Return the record that keeps an explicit LAC."""
    return _special(RecordKind.EXPLICIT_LAC, ledger, _I32.pack(len(blob)) + blob)


def _special(kind: RecordKind, ledger: int, rest: bytes) -> JournalRecord:
    entry = ENTRY_IDS[kind]
    body = _KEY.pack(ledger, entry) + rest
    return JournalRecord(kind, len(body), ledger, entry, body)


def padding_record(position: int, alignment: int) -> JournalRecord | None:
    """Return the padding up to a multiple of ``alignment`` (>= 16); None where ``position`` is one.

    With fewer than 8 bytes left in the block the padding runs to the end of the next one.
    """
    left = -position % alignment
    if left == 0:
        return None
    size = left - 8 if left >= 8 else alignment - (8 - left)
    return JournalRecord(RecordKind.PADDING, size, -1, -1, bytes(size))


def padding_bytes(position: int, alignment: int) -> bytes:
    """Return the bytes of the padding record at a position, none where it needs none."""
    return _padding_bytes(position % alignment, alignment)


@lru_cache(maxsize=512)
def _padding_bytes(position: int, alignment: int) -> bytes:
    record = padding_record(position, alignment)
    return b"" if record is None else encode_record(record)


def journal_name(journal_id: int) -> str:
    """Return the file name of a journal."""
    return f"{journal_id:x}.txn"


def parse_journal_name(name: str) -> int | None:
    """Return the id in ``<hex>.txn``, or None when ``name`` is not a journal's."""
    stem, dot, suffix = name.partition(".")
    if not dot or suffix != "txn" or not stem or not set(stem) <= set("0123456789abcdef"):
        return None
    return int(stem, 16)
