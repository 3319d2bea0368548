"""An entry as it stands in journals, in entry logs and on the wire.

====== ==== ===================================================================
offset size field
====== ==== ===================================================================
0      i64  ledger id
8      i64  entry id
16     i64  last add confirmed known to the writer, -1 at first
24     i64  ledger length in payload bytes, this entry included
32     d    digest, d bytes (``codec.digest``)
32+d   rest payload
====== ==== ===================================================================

All integers are big-endian and signed. The same bytes stand in the journal body, in the entry-log body and
in what the client sent. A bookie takes 24 bytes and more (it reads the LAC), a client 32 + d.

Source: ``org.apache.bookkeeper.proto.checksum.DigestManager.computeDigestAndPackageForSending``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from bkctl import _kernels
from bkctl.codec.digest import DIGEST_BYTES, Digester
from bkctl.errors import CorruptionError
from bkctl.reporting import counted
from bkctl.types import DigestType

HEADER = struct.Struct(">qqqq")
HEADER_BYTES = HEADER.size

#: The start of a record of a journal or an entry log: size, ledger id, entry id.
RECORD_HEAD = struct.Struct(">iqq")

#: Shortest body that has a ledger and an entry id.
BODY_BYTES_MIN = 16

#: Shortest body that a bookie takes: it reads the last add confirmed as well.
ACCEPTED_BYTES_MIN = 24

#: Bound on one record's body. Java bounds entries by ``nettyMaxFrameSizeBytes`` (5 MiB unless configured);
#: sites raise it, so the bound of a reader is larger. A size above it is damage, and never allocated.
BODY_BYTES_MAX = 128 << 20

_SIZE = struct.Struct(">i")
_LAC_LENGTH = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """The first 32 bytes of an entry."""

    ledger: int
    entry: int
    lac: int
    length: int


def decode_header(body: bytes) -> EntryHeader:
    """Return the header of an entry's body. Raises CorruptionError when there are fewer than 32 bytes."""
    if len(body) < HEADER_BYTES:
        raise CorruptionError(
            "entry header",
            expected=f"{HEADER_BYTES} bytes",
            found=counted(len(body), "byte"),
            offset=len(body),
        )
    return EntryHeader(*HEADER.unpack_from(body))


def encode(header: EntryHeader, payload: bytes, digester: Digester) -> bytes:
    """Return the body of an entry: header, digest, payload."""
    head = HEADER.pack(header.ledger, header.entry, header.lac, header.length)
    return head + digester.compute(head, payload) + payload


def payload(body: bytes, digest_type: DigestType) -> bytes:
    """Return the client's bytes in an entry's body. Raises CorruptionError when the digest does not fit."""
    start = HEADER_BYTES + DIGEST_BYTES[digest_type]
    if len(body) < start:
        raise CorruptionError(
            f"entry with a {digest_type.value} digest",
            expected=f"{counted(start, 'byte')} or more",
            found=counted(len(body), "byte"),
            offset=len(body),
        )
    return body[start:]


def frame(body: bytes) -> bytes:
    """Return ``body`` as a record of a journal or an entry log: i32 length, body."""
    return _SIZE.pack(len(body)) + body


@dataclass(slots=True)
class EntryBatch:
    """Consecutive entry records of one file as lists over one buffer.

    This is the form for readers that look at each record, of files that may be damaged. Readers of clean logs
    by the million take ``scan.columns.RecordColumns``, which has the same fields and needs numpy.

    ``base`` is the file offset of ``buffer[0]``; ``starts`` are positions of size words in ``buffer``.
    The four lists have the same length.
    """

    buffer: bytes
    base: int
    starts: list[int]
    sizes: list[int]
    ledgers: list[int]
    entries: list[int]

    def __len__(self) -> int:
        return len(self.starts)

    def offset(self, index: int) -> int:
        """Return the file offset of the record's size word; an index location is 4 more."""
        return self.base + self.starts[index]

    def body(self, index: int) -> bytes:
        """Return the record's body."""
        start = self.starts[index] + 4
        return self.buffer[start : start + self.sizes[index]]

    def headers(self) -> Iterator[tuple[int | None, int | None]]:
        """Yield (lac, ledger length) of every record, (None, None) where the body is too short for them."""
        unpack = _LAC_LENGTH.unpack_from
        buffer = self.buffer
        for start, size in zip(self.starts, self.sizes, strict=True):
            yield unpack(buffer, start + 20) if size >= HEADER_BYTES else (None, None)

    def select(self, indices: list[int]) -> EntryBatch:
        """Return the records at ``indices`` over the same buffer."""
        return EntryBatch(
            self.buffer,
            self.base,
            [self.starts[i] for i in indices],
            [self.sizes[i] for i in indices],
            [self.ledgers[i] for i in indices],
            [self.entries[i] for i in indices],
        )

    def split(self, count: int) -> tuple[EntryBatch, EntryBatch]:
        """Return the first ``count`` records, and the others."""
        return self._slice(0, count), self._slice(count, len(self.starts))

    def split_last(self) -> tuple[EntryBatch, EntryBatch]:
        """Return all but the last record, and the last."""
        return self.split(len(self.starts) - 1)

    def _slice(self, first: int, stop: int) -> EntryBatch:
        return EntryBatch(
            self.buffer,
            self.base,
            self.starts[first:stop],
            self.sizes[first:stop],
            self.ledgers[first:stop],
            self.entries[first:stop],
        )


def walk(
    buffer: bytes,
    start: int = 0,
    end: int | None = None,
    *,
    base: int = 0,
    size_max: int = BODY_BYTES_MAX,
) -> tuple[EntryBatch, int]:
    """Follow entry records in ``buffer[start:end]``; the batch and the position where it stopped.

    The stop is the end, a record that is not whole, or one that cannot be an entry (size outside
    16..``size_max``, a negative ledger or entry id); the caller distinguishes these.
    """
    stop_at = len(buffer) if end is None else end
    starts, sizes, ledgers, entries, stop = _kernels.walk_entries(
        buffer, start, stop_at, BODY_BYTES_MIN, size_max
    )
    return EntryBatch(buffer, base, starts, sizes, ledgers, entries), stop


def walk_columns(
    buffer: bytes, size_max: int = BODY_BYTES_MAX
) -> tuple[tuple[bytes, bytes, bytes, bytes], int]:
    """Follow the records of the whole of ``buffer`` as :func:`walk` does, for millions of entries.

    Returns the lists of an :class:`EntryBatch` (starts, sizes, ledgers, entries) as columns of native i64,
    which ``array("q")`` and numpy take as they are, and the position where it stopped.
    """
    *columns, stop = _kernels.walk_columns(buffer, 0, len(buffer), BODY_BYTES_MIN, size_max)
    starts, sizes, ledgers, entries = columns
    return (starts, sizes, ledgers, entries), stop
