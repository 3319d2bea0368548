"""Index files of SortedLedgerStorage and InterleavedLedgerStorage: ``<hex>/<hex>/<hex ledger>.idx``.

====== ==== ==============================================================
offset size field
====== ==== ==============================================================
0      4    ``BKLE``
4      i32  version, 0 or 1
8      i32  K, length of the master key
12     K    master key
12+K   i32  state bits; bit 0 is "fenced"
16+K   i32  version 1: M, length of the explicit LAC; 0 is none, else >= 16
20+K   M    version 1: explicit LAC (``codec.explicit_lac``)
...    ..   zeros up to 1024
1024   8    slot of entry 0: i64 location (``codec.location``), 0 is absent
+8e    8    slot of entry e
====== ==== ==============================================================

All integers are big-endian and signed. Slots are written in whole pages, 8192 bytes (``pageSize``) unless
configured, so a file is 1024 bytes and a number of pages, and may be sparse. A file keeps the version it
was created with. Java leaves a file whose header it refused open and serves its next call from a default
state that is not fenced; here such a file stays refused.

The path has no padding: ledger 5 is ``0/5/5.idx``, 0x1234567 is ``45/67/1234567.idx``; the directories are
bits 8-15 and 0-7 of the id. ``.idx.rloc`` is a copy in progress when a file moves to another disk.

Source: ``org.apache.bookkeeper.bookie.FileInfo``, ``IndexPersistenceMgr`` and ``LedgerEntryPage``.
"""

from __future__ import annotations

import re
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bkctl.codec.location import ABSENT
from bkctl.errors import CorruptionError
from bkctl.reporting import counted

MAGIC = b"BKLE"
HEADER_BYTES = 1024
SLOT_BYTES = 8
PAGE_BYTES = 8192
VERSIONS = (0, 1)
FENCED = 1
#: Offset of the master key.
KEY_AT = 12
#: Bits of bkctl's in the state, which Java writes back as they are. A ledger in limbo may lack entries. A
#: file without a ledger has slots that nobody may read: they came without a row, or a deletion was cut off.
LIMBO = 1 << 30
NO_LEDGER = 1 << 29

_HEAD = struct.Struct(">4sii")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_LAC_BYTES_MIN = 16
_PATH = re.compile(r"(?:.*/)?([0-9a-f]+)/([0-9a-f]+)/([0-9a-f]+)\.idx(\.rloc)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FileInfoHeader:
    """``state`` keeps bits that have no name yet. ``explicit_lac`` is the client's blob, opaque."""

    version: int
    master_key: bytes = field(repr=False)
    state: int = 0
    explicit_lac: bytes | None = None

    @property
    def fenced(self) -> bool:
        """Whether no client may add to the ledger any more."""
        return bool(self.state & FENCED)

    @property
    def limbo(self) -> bool:
        """Whether entries may have been lost, so that a missing one is unknown."""
        return bool(self.state & LIMBO)

    @property
    def has_ledger(self) -> bool:
        """Whether there is a ledger; otherwise nothing of the file may be read."""
        return not self.state & NO_LEDGER


@dataclass(frozen=True, slots=True)
class SlotColumns:
    """Slots in use: ``entries`` (i64) and ``locations`` (i64, packed), of one length."""

    entries: array[int]
    locations: array[int]

    def __len__(self) -> int:
        return len(self.entries)


@dataclass(frozen=True, slots=True)
class IndexFileName:
    """The facts in a path; ``relocating`` is a copy in progress."""

    ledger: int
    relocating: bool = False


def decode_header(data: bytes) -> FileInfoHeader:
    """Return the header in the first 1024 bytes of a file.

    Raises CorruptionError; the file is then unusable.
    """
    if data[:4] != MAGIC:
        raise CorruptionError("idx header", expected=MAGIC.hex(), found=data[:4].hex() or "nothing")
    if len(data) < HEADER_BYTES:
        raise CorruptionError(
            "idx header", offset=len(data), expected=f"{HEADER_BYTES} bytes", found=counted(len(data), "byte")
        )
    _, version, key_length = _HEAD.unpack_from(data)
    if version not in VERSIONS:
        raise CorruptionError("idx version", offset=4, expected="0 or 1", found=str(version))
    behind_key = 4 if version == 0 else 8
    key_end = _HEAD.size + key_length
    if key_length < 0 or key_end + behind_key > HEADER_BYTES:
        raise CorruptionError(
            "idx master key length",
            offset=8,
            expected=f"0 to {HEADER_BYTES - _HEAD.size - behind_key}",
            found=str(key_length),
        )
    key = bytes(data[_HEAD.size : key_end])
    state: int = _I32.unpack_from(data, key_end)[0]
    lac = _decode_lac(data, key_end + 4) if version >= 1 else None
    return FileInfoHeader(version, key, state, lac)


def _decode_lac(data: bytes, position: int) -> bytes | None:
    length: int = _I32.unpack_from(data, position)[0]
    if length == 0:
        return None
    start = position + 4
    if not _LAC_BYTES_MIN <= length <= HEADER_BYTES - start:
        raise CorruptionError(
            "idx explicit LAC length",
            offset=position,
            expected=f"0 or {_LAC_BYTES_MIN} to {HEADER_BYTES - start}",
            found=str(length),
        )
    return bytes(data[start : start + length])


def encode_header(header: FileInfoHeader) -> bytes:
    """Return the 1024 bytes of a header. Raises ValueError for a value that such a header cannot hold.

    Version 0 has no explicit LAC.
    """
    lac = header.explicit_lac
    parts = [_HEAD.pack(MAGIC, header.version, len(header.master_key)), header.master_key]
    parts.append(_I32.pack(header.state))
    bad_lac = lac is not None and (header.version < 1 or len(lac) < _LAC_BYTES_MIN)
    if header.version not in VERSIONS or bad_lac:
        raise ValueError(f"version {header.version}, explicit LAC {lac!r}: not an idx header")
    if header.version >= 1:
        parts += [_I32.pack(len(lac or b"")), lac or b""]
    data = b"".join(parts)
    if len(data) > HEADER_BYTES:
        raise ValueError(f"an idx header of {counted(len(data), 'byte')}, at most {HEADER_BYTES}")
    return data.ljust(HEADER_BYTES, b"\0")


def slot_offset(entry: int) -> int:
    """Return the offset of an entry's slot in the file."""
    return HEADER_BYTES + SLOT_BYTES * entry


def decode_slot(data: bytes) -> int:
    """Return the packed location in 8 bytes. Raises CorruptionError when there are not 8."""
    if len(data) != SLOT_BYTES:
        raise CorruptionError("idx slot", expected=f"{SLOT_BYTES} bytes", found=counted(len(data), "byte"))
    location: int = _I64.unpack(data)[0]
    return location


def decode_slots(data: bytes, first_entry: int = 0) -> SlotColumns:
    """Return the slots in use of a run of slots that starts with ``first_entry``'s.

    Locations are not judged. Raises CorruptionError when the length is no multiple of 8.
    """
    if len(data) % SLOT_BYTES:
        raise CorruptionError("idx slots", expected="whole slots", found=counted(len(data), "byte"))
    if not data.rstrip(b"\0"):
        return SlotColumns(array("q"), array("q"))
    slots: array[int] = array("q", data)
    if sys.byteorder == "little":
        slots.byteswap()
    if ABSENT not in slots:
        return SlotColumns(array("q", range(first_entry, first_entry + len(slots))), slots)
    used = [(entry, location) for entry, location in enumerate(slots, first_entry) if location != ABSENT]
    return SlotColumns(array("q", [entry for entry, _ in used]), array("q", [slot for _, slot in used]))


def encode_slots(
    slots: Iterable[tuple[int, int]], page_bytes: int = PAGE_BYTES
) -> Iterator[tuple[int, bytes]]:
    """Yield whole pages ``(offset in the file, page)`` for pairs (entry, packed location) in their order.

    Pages without a slot are left out: the file is sparse there. Raises ValueError when entries are negative
    or do not ascend.
    """
    per_page = page_bytes // SLOT_BYTES
    page: bytearray | None = None
    number = last = -1
    for entry, location in slots:
        if entry <= last:
            raise ValueError(f"entry {entry} behind {last}")
        last = entry
        if page is None or entry // per_page != number:
            if page is not None:
                yield HEADER_BYTES + number * page_bytes, bytes(page)
            number = entry // per_page
            page = bytearray(page_bytes)
        _I64.pack_into(page, entry % per_page * SLOT_BYTES, location)
    if page is not None:
        yield HEADER_BYTES + number * page_bytes, bytes(page)


def index_path(ledger: int) -> str:
    """Return the path of a ledger's file below ``current``, with ``/``."""
    return f"{ledger >> 8 & 0xFF:x}/{ledger & 0xFF:x}/{ledger:x}.idx"


def parse_index_path(path: str) -> IndexFileName:
    """Return what the last three parts of a path say.

    Raises CorruptionError when they are not those that the ledger's id makes, because no reader would find
    the file there.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        raise CorruptionError("idx path", expected="<hex>/<hex>/<hex>.idx", found=path)
    ledger = int(match[3], 16)
    if ledger >= 1 << 63 or index_path(ledger) != f"{match[1]}/{match[2]}/{match[3]}.idx":
        expected = index_path(ledger) if ledger < 1 << 63 else "an id below 2^63"
        raise CorruptionError("idx path", expected=expected, found=path)
    return IndexFileName(ledger, match[4] is not None)
