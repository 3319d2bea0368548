"""Plain adds and reads in a receive buffer, and the answers to them: the reference in Python."""

from __future__ import annotations

import struct
from itertools import chain, groupby
from operator import itemgetter

from bkctl._kernels._api import AddColumns
from bkctl._kernels._columns import column_of, numbers_of

_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_KEY_BYTES = 16
_LAC_AT = 16

_ADD = struct.Struct(">i4s28s")
_ADD_HEAD = b"\x02\x01\x00\x00"
_ADD_LENGTH_MIN = 48
_STORED_HEAD = b"\x00\x00\x00\x18\x02\x01" + bytes(6)
_BODY_AT = 28
_READ = struct.Struct(">i4s8s8s")
_READ_HEAD = b"\x02\x02\x00\x00"
_V3_BODY_BYTES_MIN = 24
_VARINT_BYTES_MAX = 9


def scan_adds(data: bytes, start: int, end: int) -> tuple[AddColumns | None, int]:
    """Return the plain adds of protocol v2 from ``start`` on, as columns, and where they stop."""
    if not 0 <= start <= end <= len(data):
        raise ValueError("outside of the buffer")
    bodies: list[bytes] = []
    grants: list[bytes] = []
    negative = False
    position = start
    while end - position >= 4 + _ADD_LENGTH_MIN:
        length, head, grant = _ADD.unpack_from(data, position)
        stop = position + 4 + length
        if head != _ADD_HEAD or length < _ADD_LENGTH_MIN or stop > end:
            break
        body = data[position + _BODY_AT : stop]
        negative = negative or body[0] > 127 or body[8] > 127
        grants.append(grant)
        bodies.append(body)
        position = stop
    if negative or not bodies:
        return None, position
    answers = [_STORED_HEAD + body[:_KEY_BYTES] for body in bodies]
    return _add_columns(answers, grants, bodies), position


def _add_columns(answers: list[bytes], grants: list[bytes], bodies: list[bytes]) -> AddColumns:
    """Return the columns of adds, with one row for those with the same grant that stand side by side."""
    records = b"".join(chain.from_iterable((_I32.pack(len(body)), body) for body in bodies))
    its_grants: list[bytes] = []
    lacs: list[int] = []
    counts: list[int] = []
    for grant, adds in groupby(zip(grants, bodies, strict=True), itemgetter(0)):
        its_lacs = [_I64.unpack_from(body, _LAC_AT)[0] for _, body in adds]
        its_grants.append(grant)
        lacs.append(max(its_lacs))
        counts.append(len(its_lacs))
    joined = b"".join(answers), records, b"".join(its_grants)
    return len(bodies), *joined, column_of(lacs), column_of(counts)


def scan_v3_adds(data: bytes, start: int, end: int) -> tuple[AddColumns | None, int]:
    """Return the plain adds of protocol v3 from ``start`` on, as columns, and where they stop."""
    if not 0 <= start <= end <= len(data):
        raise ValueError("outside of the buffer")
    bodies: list[bytes] = []
    grants: list[bytes] = []
    answers: list[bytes] = []
    position = start
    while (add := _v3_add(data, position, end)) is not None:
        grant, body, answer, position = add
        grants.append(grant)
        bodies.append(body)
        answers.append(_I32.pack(len(answer)) + answer)
    return (_add_columns(answers, grants, bodies) if bodies else None), position


def _v3_add(data: bytes, start: int, end: int) -> tuple[bytes, bytes, bytes, int] | None:
    """Return grant, body and answer of the plain add at ``start``, and where it ends; None for others."""
    if end - start < 4:
        return None
    stop = start + 4 + _I32.unpack_from(data, start)[0]
    if not start + 4 <= stop <= end:
        return None
    frame = data[start + 4 : stop]
    txn = _varint(frame, 7)
    header = frame[: 7 + len(txn)]
    if not txn or header != b"\x0a" + bytes((5 + len(txn),)) + b"\x08\x03\x10\x02\x18" + txn:
        return None
    part = frame[len(header) :]
    size = _varint(part, 2)
    if part[:2] != b"\xaa\x06" or _number(size) != len(part) - 2 - len(size):
        return None
    ids = part[2 + len(size) :]
    ledger = _varint(ids, 1)
    entry = _varint(ids, 2 + len(ledger))
    expected = b"\x08" + ledger + b"\x10" + entry
    key = ids[len(expected) :]
    if not ledger or not entry or not ids.startswith(expected) or key[:2] != b"\x1a\x14":
        return None
    size = _varint(key, 23)
    body = key[23 + len(size) :]
    if key[22:23] != b"\x22" or _number(size) != len(body) or len(body) < _V3_BODY_BYTES_MIN:
        return None
    if int.from_bytes(body[:8], "big") != _number(ledger) or body[8] > 127:
        return None
    answer_part = b"\x08\x00\x10" + ledger + b"\x18" + entry
    answer = header + b"\x10\x00\xaa\x06" + bytes((len(answer_part),)) + answer_part
    return key[2:22] + body[:8], body, answer, stop


def _varint(data: bytes, start: int) -> bytes:
    """Return the canonical varint of a number below 2^63 at ``start``; nothing when there is none."""
    for stop in range(start, min(start + _VARINT_BYTES_MAX, len(data))):
        if data[stop] < 0x80:
            return b"" if stop > start and not data[stop] else data[start : stop + 1]
    return b""


def _number(varint: bytes) -> int:
    """Return the number of a varint; -1 of nothing."""
    if not varint:
        return -1
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(varint))


def scan_reads(data: bytes, start: int, end: int) -> tuple[bytes | None, int]:
    """Return the keys of the plain reads of protocol v2 from ``start`` on, joined, and where they stop."""
    if not 0 <= start <= end <= len(data):
        raise ValueError("outside of the buffer")
    keys: list[bytes] = []
    negative = False
    while end - start >= _READ.size:
        length, head, ledger, entry = _READ.unpack_from(data, start)
        if head != _READ_HEAD or length != _READ.size - 4 or entry[0] > 127:
            break
        negative = negative or ledger[0] > 127
        keys += (ledger, entry)
        start += _READ.size
    return None if negative else b"".join(keys), start


def read_answers(head: bytes, records: bytes) -> bytes:
    """Return a frame for each record: its length, ``head``, the key, the body."""
    frames: list[bytes] = []
    position = 0
    while position < len(records):
        size = int.from_bytes(records[position : position + 4], "big")
        body = records[position + 4 : position + 4 + size]
        if size < _KEY_BYTES or len(body) < size or (body[0] | body[8]) > 127:
            raise ValueError("not a chain of records")
        frames += ((len(head) + _KEY_BYTES + size).to_bytes(4, "big"), head, body[:_KEY_BYTES], body)
        position += 4 + size
    return b"".join(frames)


def scan_v3_reads(data: bytes, start: int, end: int) -> tuple[bytes, bytes, int]:
    """Return the keys of the plain reads of protocol v3, their transaction ids, and where they stop."""
    if not 0 <= start <= end <= len(data):
        raise ValueError("outside of the buffer")
    keys: list[bytes] = []
    txns: list[int] = []
    while end - start >= _I32.size:
        (length,) = _I32.unpack_from(data, start)
        stop = start + _I32.size + length
        if length < 0 or stop > end:
            break
        found = _v3_read(data[start + _I32.size : stop])
        if found is None:
            break
        txns.append(found[0])
        keys += (_I64.pack(found[1]), _I64.pack(found[2]))
        start = stop
    return b"".join(keys), column_of(txns), start


def _v3_read(frame: bytes) -> tuple[int, int, int] | None:
    """Return the transaction, ledger and entry id of a plain read."""
    txn = _varint(frame, 7)
    header = bytes((0x0A, 5 + len(txn))) + b"\x08\x03\x10\x01\x18" + txn
    part = frame[len(header) :]
    if (
        not txn
        or not frame.startswith(header)
        or part[:2] != b"\xa2\x06"
        or part[2:3] != bytes((max(len(part) - 3, 0) & 0xFF,))
    ):
        return None
    ledger = _varint(part, 4)
    entry = _varint(part, 5 + len(ledger))
    if not ledger or not entry or part[3:] != b"\x08" + ledger + b"\x10" + entry:
        return None
    return _number(txn), _number(ledger), _number(entry)


def v3_read_answers(txns: bytes, lacs: bytes, records: bytes) -> bytes:
    """Return the frames of protocol v3 that answer reads with these entries."""
    frames: list[bytes] = []
    position = number = 0
    transactions, confirmed = numbers_of(txns), numbers_of(lacs)
    while position < len(records):
        size = int.from_bytes(records[position : position + 4], "big")
        body = records[position + 4 : position + 4 + size]
        if size < _KEY_BYTES or len(body) < size or (body[0] | body[8]) > 127:
            raise ValueError("not a chain of records")
        if number >= len(transactions) or number >= len(confirmed) or transactions[number] < 0:
            raise ValueError("columns of different lengths, or a negative transaction id")
        ledger, entry = int.from_bytes(body[:8], "big"), int.from_bytes(body[8:16], "big")
        txn = _varint_of(transactions[number])
        part = b"\x08\x00\x10" + _varint_of(ledger) + b"\x18" + _varint_of(entry) + b"\x22" + _varint_of(size)
        part += body + b"\x28" + _varint_of(confirmed[number] & (1 << 64) - 1)
        frame = bytes((0x0A, 5 + len(txn))) + b"\x08\x03\x10\x01\x18" + txn
        frame += b"\x10\x00\xa2\x06" + _varint_of(len(part)) + part
        frames += (len(frame).to_bytes(4, "big"), frame)
        position += 4 + size
        number += 1
    if not number == len(transactions) == len(confirmed):
        raise ValueError("columns of different lengths")
    return b"".join(frames)


def _varint_of(number: int) -> bytes:
    """Return the varint of a number that is not negative."""
    found = bytearray()
    while number > 127:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
