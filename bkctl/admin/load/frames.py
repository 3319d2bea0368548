"""Request frames of one length in a ring of memory, re-numbered in bulk between two turns.

A ring holds a multiple of the connection's ledgers; frame ``i`` is for ledger ``i mod ledgers``. The entry
ids, and over v3 the transaction ids, are columns of the ring: adding to a whole column costs about as much as
building one frame. So are the digests: a bookie does not look at them when it takes an entry, but what reads
its files does, and a replay after a kill puts ledgers into limbo whose entries fail theirs.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from bkctl.admin.load.settings import FIRST_ID, LoadSettings
from bkctl.codec import digest, entry, varint
from bkctl.codec.entry import HEADER_BYTES
from bkctl.protocol import v2, v3
from bkctl.protocol.messages import AddRequest, ReadRequest, Wire
from bkctl.types import DigestType

Bytes2D = npt.NDArray[np.uint8]
Ids = npt.NDArray[np.int64]
Shares = npt.NDArray[np.uint32]

_VARINT_BYTES = 5
_ID_BYTES = 8
_IDS_BYTES = 2 * _ID_BYTES
_RING_BYTES = 1 << 20
#: A transaction id that no other bytes of a template look like; its varint has five bytes.
_TXN_MARK = 0x0D2B4A697
_DIGESTER = digest.Digester(DigestType.CRC32C)


class FrameRing:
    """A ring of add or read frames of one connection.

    ``entries`` 0 numbers entries on without end (adds); otherwise ids are taken from that many entries a
    ledger, in order or from ``random``.
    """

    def __init__(self, settings: LoadSettings, connection: int, *, reads: bool, seed: int = 0) -> None:
        self._ledgers = settings.ledgers
        first_ledger = settings.first_ledger + connection * settings.ledgers
        template = _Template(settings, reads=reads)
        self.frame_bytes = len(template.frame)
        per_ledger = max(1, max(settings.window, _RING_BYTES // self.frame_bytes) // settings.ledgers)
        self._count = per_ledger * settings.ledgers
        self._per_ledger = per_ledger
        self._template = template
        self._buffer = bytearray(template.frame * self._count)
        self._frames: Bytes2D = np.frombuffer(self._buffer, dtype=np.uint8).reshape(self._count, -1)
        self._entries_max = settings.entries if reads else 0
        self._random = np.random.default_rng(seed) if reads and settings.random else None
        self._turn = 0
        self._next = 0
        self.taken = 0
        numbers = np.arange(self._count, dtype=np.int64)
        template.put_ledgers(self._frames, first_ledger + numbers % settings.ledgers)
        self._number()

    def take(self, count: int) -> memoryview:
        """Take the bytes of 1 to ``count`` next frames; they are valid until the following call."""
        if self._next == self._count:
            self._turn += 1
            self._next = 0
            self._number()
        first, stop = self._next, min(self._next + count, self._count)
        self._next = stop
        self.taken += stop - first
        return memoryview(self._buffer)[first * self.frame_bytes : stop * self.frame_bytes]

    def _number(self) -> None:
        """Give the frames their ids for the coming turn."""
        if self._random is not None:
            entries = self._random.integers(0, self._entries_max, self._count, dtype=np.int64)
        else:
            entries = np.arange(self._count, dtype=np.int64) // self._ledgers + self._turn * self._per_ledger
            if self._entries_max:
                entries %= self._entries_max
        self._template.put_entries(self._frames, entries + FIRST_ID)
        numbers = np.arange(self._count, dtype=np.int64) + self._turn * self._count + FIRST_ID
        self._template.put_transactions(self._frames, numbers)


class _Digests:
    """The CRC-32C digests of entries that differ in their ids alone, for many entries at once.

    The CRC of bytes of one length is linear: each bit that differs changes the same bits of the result,
    whatever the others are. So a table for each byte of the ids says what the byte adds to the digest.
    """

    def __init__(self, body: bytes) -> None:
        ids = bytes(_IDS_BYTES)
        rest, data = body[_IDS_BYTES:HEADER_BYTES], body[HEADER_BYTES + _DIGESTER.size_bytes :]

        def digest_of(ids: bytes) -> int:
            return int.from_bytes(_DIGESTER.compute(ids + rest, data), "big")

        self._without_ids = digest_of(ids)
        self._shares = np.zeros((_IDS_BYTES, 256), dtype=np.uint32)
        for place, table in enumerate(self._shares):
            for bit in range(8):
                value = 1 << bit
                share = digest_of(ids[:place] + bytes([value]) + ids[place + 1 :]) ^ self._without_ids
                table[value : 2 * value] = table[:value] ^ share

    def share(self, first_place: int, numbers: Ids) -> Shares:
        """Return what ids that stand at ``first_place`` of an entry add to its digest."""
        low, high = int(numbers.min()), int(numbers.max())
        # Numbers between these two differ in their lowest bytes alone.
        varying = -(-(low ^ high).bit_length() // 8)
        share = np.zeros(len(numbers), dtype=np.uint32)
        for number in range(_ID_BYTES):
            table = self._shares[first_place + _ID_BYTES - 1 - number]
            shift = 8 * number
            share ^= table[(numbers >> shift) & 0xFF] if number < varying else table[(low >> shift) & 0xFF]
        return share

    def of(self, share: Shares) -> Shares:
        """Return the digests of entries whose ids add these shares."""
        return share ^ np.uint32(self._without_ids)


@lru_cache(maxsize=1)
def _digests_of(body: bytes) -> _Digests:
    """Return the digests of entries like ``body``; all connections of a run share them."""
    return _Digests(body)


class _Template:
    """One frame, and where its ids stand."""

    def __init__(self, settings: LoadSettings, *, reads: bool) -> None:
        ledger, number = settings.first_ledger, FIRST_ID + 1
        key = digest.master_key(settings.password)
        payload = _payload(settings.payload_bytes)
        header = entry.EntryHeader(ledger, number, FIRST_ID, len(payload))
        body = entry.encode(header, payload, _DIGESTER)
        self._digests = None if reads else _digests_of(body)
        self._ledger_shares: Shares = np.zeros(0, dtype=np.uint32)
        self.ledger_at: list[int] = []
        self.entry_at: list[int] = []
        self.ledger_varint_at: int | None = None
        self.entry_varint_at: int | None = None
        self.transaction_at: int | None = None
        if settings.wire == 2:
            self.frame = v2.encode_read(ledger, number) if reads else v2.encode_add(key, body)
        else:
            txn = _TXN_MARK
            request = (
                ReadRequest(ledger, number, wire=Wire.V3, txn_id=txn)
                if reads
                else AddRequest(ledger, number, key, body, wire=Wire.V3, txn_id=txn)
            )
            self.frame = v3.encode_request(request)
            self.transaction_at = _only(self.frame, varint.encode(txn))
            # Field 1 and 2 of the request: tag, varint.
            self.ledger_varint_at = _only(self.frame, b"\x08" + varint.encode(ledger) + b"\x10") + 1
            self.entry_varint_at = self.ledger_varint_at + _VARINT_BYTES + 1
        raw = ledger.to_bytes(8, "big") + number.to_bytes(8, "big")
        if settings.wire == 2 or not reads:
            self.ledger_at.append(_only(self.frame, raw))
            self.entry_at.append(self.ledger_at[0] + _ID_BYTES)

    def put_ledgers(self, frames: Bytes2D, ledgers: Ids) -> None:
        for offset in self.ledger_at:
            _put_numbers(frames, offset, ledgers, ">i8")
        if self._digests is not None:
            self._ledger_shares = self._digests.share(0, ledgers)
        if self.ledger_varint_at is not None:
            _put_varints(frames, self.ledger_varint_at, ledgers)

    def put_entries(self, frames: Bytes2D, entries: Ids) -> None:
        for offset in self.entry_at:
            _put_numbers(frames, offset, entries, ">i8")
        if self._digests is not None:
            digests = self._digests.of(self._ledger_shares ^ self._digests.share(_ID_BYTES, entries))
            _put_numbers(frames, self.ledger_at[0] + HEADER_BYTES, digests, ">u4")
        if self.entry_varint_at is not None:
            _put_varints(frames, self.entry_varint_at, entries)

    def put_transactions(self, frames: Bytes2D, numbers: Ids) -> None:
        if self.transaction_at is not None:
            _put_varints(frames, self.transaction_at, numbers)


def _payload(size_bytes: int) -> bytes:
    """Make bytes that neither compress nor look like an id."""
    return hashlib.shake_128(b"bkctl bench").digest(size_bytes)


def _put_numbers(frames: Bytes2D, offset: int, numbers: Ids | Shares, form: str) -> None:
    """Write a number into each frame, in a form of numpy's."""
    size_bytes = np.dtype(form).itemsize
    frames[:, offset : offset + size_bytes].view(form)[:, 0] = numbers


def _put_varints(frames: Bytes2D, offset: int, numbers: Ids) -> None:
    """Write five-byte varints, for numbers from 2^28 up to 2^35."""
    for index in range(_VARINT_BYTES):
        more = 0x80 if index < _VARINT_BYTES - 1 else 0
        frames[:, offset + index] = ((numbers >> (7 * index)) & 0x7F) | more


def _only(frame: bytes, wanted: bytes) -> int:
    """Find where ``wanted`` stands in the frame, exactly once."""
    at = frame.find(wanted)
    assert at >= 0, "an id is not where it should be in a frame"
    assert frame.find(wanted, at + 1) < 0, "an id stands twice in a frame"
    return at
