"""Reference kernels in Python; ``_api`` says what each of them does."""

from __future__ import annotations

import errno
import os
import struct
import sys
import time
import zlib
from array import array
from collections.abc import Container
from hashlib import sha1
from itertools import accumulate, chain, compress, count, groupby, islice, pairwise
from operator import itemgetter, ne

from bkctl._kernels._api import AddColumns
from bkctl._kernels._counters import Histogram as Histogram
from bkctl._kernels._counters import LedgerCounter as LedgerCounter
from bkctl._kernels._counters import LedgerUse as LedgerUse
from bkctl._kernels._grants import GrantTable as GrantTable
from bkctl._kernels._tables import table_block as table_block
from bkctl._kernels._tables import table_rows as table_rows

_RECORD_HEAD = struct.Struct(">iqq")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")

_HEADER_BYTES = 32
_CRC32C_BYTES = 4
_CRC32_BYTES = 8
_MAC_BYTES = 20
_HMAC_BLOCK = 64

_ADD = struct.Struct(">i4s28s")
_ADD_HEAD = b"\x02\x01\x00\x00"
_ADD_LENGTH_MIN = 48
_BODY_AT = 28
_READ = struct.Struct(">i4s8s8s")
_READ_HEAD = b"\x02\x02\x00\x00"
_KEY_BYTES = 16
_LAC_AT = 16
_V3_BODY_BYTES_MIN = 24
_VARINT_BYTES_MAX = 9
_RECORD_BYTES_MAX = 1 << 20
_RECORDS_MAX = 1 << 14
_LOCATION_MAX = (1 << 63) - 1
_SWAP = sys.byteorder == "little"

#: See ``_native.pyx``.
API = 8
IMPL = "python"

#: The caches in Python are their twins.
EntryTable = None
SortedEntries = None
gather_entries = None
#: The pipeline has these over numpy.
run_columns = None
digest_words = None


def walk_entries(
    buffer: bytes, start: int, end: int, size_min: int, size_max: int
) -> tuple[list[int], list[int], list[int], list[int], int]:
    """Return the chain of records as lists."""
    starts: list[int] = []
    sizes: list[int] = []
    ledgers: list[int] = []
    entries: list[int] = []
    add_start, add_size = starts.append, sizes.append
    add_ledger, add_entry = ledgers.append, entries.append
    unpack = _RECORD_HEAD.unpack_from
    position = start
    last = end - _RECORD_HEAD.size
    while position <= last:
        size, ledger, entry = unpack(buffer, position)
        if not size_min <= size <= size_max or ledger < 0 or entry < 0:
            break
        add_start(position)
        add_size(size)
        add_ledger(ledger)
        add_entry(entry)
        position += size + 4
    if position > end and starts:  # the last one is not whole
        position = starts.pop()
        sizes.pop()
        ledgers.pop()
        entries.pop()
    return starts, sizes, ledgers, entries, position


def walk_columns(
    buffer: bytes, start: int, end: int, size_min: int, size_max: int
) -> tuple[bytes, bytes, bytes, bytes, int]:
    """Return the chain of records as columns."""
    starts, sizes, ledgers, entries, stop = walk_entries(buffer, start, end, size_min, size_max)
    return _column(starts), _column(sizes), _column(ledgers), _column(entries), stop


def _column(numbers: list[int]) -> bytes:
    return array("q", numbers).tobytes()


def _numbers(column: bytes) -> list[int]:
    return array("q", column).tolist()


def failing_crc32c(buffer: bytes, starts: list[int], sizes: list[int]) -> list[int]:
    """Return the indices of the records whose CRC-32C does not check; too short ones included."""
    from crc32c import crc32c  # its import costs 20 ms, which commands that digest nothing need not pay

    failing = []
    view = memoryview(buffer)
    unpack = _I32.unpack_from
    smallest = _HEADER_BYTES + _CRC32C_BYTES
    for index, start in enumerate(starts):
        size = sizes[index]
        if size < smallest:
            failing.append(index)
            continue
        digest = start + 4 + _HEADER_BYTES
        body = digest + _CRC32C_BYTES
        value = crc32c(view[body : start + 4 + size], crc32c(buffer[start + 4 : digest]))
        if value != unpack(buffer, digest)[0] & 0xFFFFFFFF:
            failing.append(index)
    return failing


def failing_crc32(buffer: bytes, starts: list[int], sizes: list[int]) -> list[int]:
    """Return the indices of the records whose CRC-32 does not check; too short ones included."""
    failing = []
    view = memoryview(buffer)
    unpack = _I64.unpack_from
    crc32 = zlib.crc32
    smallest = _HEADER_BYTES + _CRC32_BYTES
    for index, start in enumerate(starts):
        size = sizes[index]
        if size < smallest:
            failing.append(index)
            continue
        digest = start + 4 + _HEADER_BYTES
        body = digest + _CRC32_BYTES
        value = crc32(view[body : start + 4 + size], crc32(buffer[start + 4 : digest]))
        if value != unpack(buffer, digest)[0]:
            failing.append(index)
    return failing


def failing_mac(buffer: bytes, starts: list[int], sizes: list[int], key: bytes) -> list[int]:
    """Return the indices of the records whose HMAC-SHA1 under ``key`` (at most 64 bytes) does not check."""
    failing = []
    view = memoryview(buffer)
    padded = key.ljust(_HMAC_BLOCK, b"\0")
    inner_start = sha1(bytes(octet ^ 0x36 for octet in padded), usedforsecurity=False)
    outer_start = sha1(bytes(octet ^ 0x5C for octet in padded), usedforsecurity=False)
    smallest = _HEADER_BYTES + _MAC_BYTES
    for index, start in enumerate(starts):
        size = sizes[index]
        if size < smallest:
            failing.append(index)
            continue
        digest = start + 4 + _HEADER_BYTES
        body = digest + _MAC_BYTES
        inner = inner_start.copy()
        inner.update(view[start + 4 : digest])
        inner.update(view[body : start + 4 + size])
        outer = outer_start.copy()
        outer.update(inner.digest())
        if outer.digest() != buffer[digest:body]:
            failing.append(index)
    return failing


def columns_failing_crc32c(buffer: bytes, starts: bytes, sizes: bytes) -> list[int]:
    """Return what :func:`failing_crc32c` does, for records given as columns."""
    return failing_crc32c(buffer, _numbers(starts), _numbers(sizes))


def columns_failing_crc32(buffer: bytes, starts: bytes, sizes: bytes) -> list[int]:
    """Return what :func:`failing_crc32` does, for records given as columns."""
    return failing_crc32(buffer, _numbers(starts), _numbers(sizes))


def join_rows(rows: list[tuple[bytes, bytes]], key_bytes: int, value_bytes: int) -> bytes:
    """Return the keys and values of rows one behind the other; every length is checked."""
    for index, (key, value) in enumerate(rows):
        if len(key) != key_bytes or len(value) != value_bytes:
            raise ValueError(f"row {index}: not of {key_bytes} and {value_bytes} bytes")
    return b"".join(chain.from_iterable(rows))


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
    if negative:
        return None, position
    return _add_columns(grants, bodies), position


def _add_columns(grants: list[bytes], bodies: list[bytes]) -> AddColumns:
    """Return keys, records, and what is known of adds with the same grant that stand side by side."""
    keys = b"".join([body[:_KEY_BYTES] for body in bodies])
    records = b"".join(chain.from_iterable((_I32.pack(len(body)), body) for body in bodies))
    its_grants: list[bytes] = []
    lacs: list[int] = []
    counts: list[int] = []
    for grant, adds in groupby(zip(grants, bodies, strict=True), itemgetter(0)):
        its_lacs = [_I64.unpack_from(body, _LAC_AT)[0] for _, body in adds]
        its_grants.append(grant)
        lacs.append(max(its_lacs))
        counts.append(len(its_lacs))
    return keys, records, b"".join(its_grants), _column(lacs), _column(counts)


def scan_v3_adds(data: bytes, start: int, end: int) -> tuple[AddColumns, bytes, int]:
    """Return the plain adds of protocol v3 from ``start`` on, as columns, their answers, where they stop."""
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
    return _add_columns(grants, bodies), b"".join(answers), position


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


def answer_frames(head: bytes, keys: bytes) -> bytes:
    """Return ``head`` and a key for each of ``keys``, which have 16 bytes each."""
    if len(keys) % _KEY_BYTES:
        raise ValueError("keys have 16 bytes each")
    return b"".join([head + keys[at : at + _KEY_BYTES] for at in range(0, len(keys), _KEY_BYTES)])


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
    return b"".join(keys), _column(txns), start


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
    transactions, confirmed = _numbers(txns), _numbers(lacs)
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


def leading_records(
    data: bytes, size_min: int, size_max: int, others_max: int, bytes_max: int
) -> tuple[bytes, bytes]:
    """Return the keys, joined, of the records that ``data`` begins with, and a column of their ends."""
    if size_min < _KEY_BYTES or size_max < size_min or others_max < 0 or bytes_max < 0:
        raise ValueError("bounds of no records")
    keys: list[bytes] = []
    ends: list[int] = []
    position = 0
    while len(keys) <= others_max and len(data) - position >= _RECORD_HEAD.size:
        size, ledger, entry = _RECORD_HEAD.unpack_from(data, position)
        key = data[position + 4 : position + 4 + _KEY_BYTES]
        stop = position + 4 + size
        if not size_min <= size <= size_max or stop > len(data) or ledger < 0 or entry < 0:
            break
        if keys:
            bytes_max -= size
            if bytes_max < 0 or key[:8] != keys[0][:8]:
                break
        keys.append(key)
        ends.append(stop)
        position = stop
    return b"".join(keys), _column(ends)


def read_records(
    descriptor: int, starts: bytes, keys: bytes, first_bytes: int, size_max: int
) -> tuple[bytes, bytes]:
    """Return the records of a file that begin at ``starts`` with their keys, and the sizes of all."""
    if len(keys) % _KEY_BYTES or len(starts) != len(keys) // 2:
        raise ValueError("columns of different lengths")
    count = len(keys) // _KEY_BYTES
    if not 1 <= first_bytes <= 4 + size_max or size_max > _RECORD_BYTES_MAX or count > _RECORDS_MAX:
        raise ValueError("more than is read at once")
    records = [
        _read_record(descriptor, start, keys[_KEY_BYTES * number :][:_KEY_BYTES], first_bytes, size_max)
        for number, start in enumerate(_numbers(starts))
    ]
    return b"".join(records), _column([len(record) - 4 if record else -1 for record in records])


def _read_record(descriptor: int, start: int, key: bytes, first_bytes: int, size_max: int) -> bytes:
    """Return the record, or nothing."""
    try:
        data = os.pread(descriptor, first_bytes, start) if start >= 0 else b""
        if data[4:20] != key:
            return b""
        size = int.from_bytes(data[:4], "big")
        if not _KEY_BYTES <= size <= size_max:
            return b""
        stop = 4 + size
        if stop > len(data) == first_bytes:
            data += os.pread(descriptor, stop - len(data), start + len(data))
    except (OSError, OverflowError):
        return b""
    return data[:stop] if len(data) >= stop else b""


def write_and_sync(descriptor: int, data: bytes | memoryview, offset: int) -> tuple[int, int, int, int]:
    """Write data at an offset and sync the file; return bytes written, errors and the sync's time."""
    wrote = 0
    try:
        while wrote < len(data):
            more = os.pwrite(descriptor, data[wrote:] if wrote else data, offset + wrote)
            if not more:
                return wrote, 0, 0, -1
            wrote += more
    except OSError as error:
        return wrote, error.errno or errno.EIO, 0, -1
    began_ns = time.monotonic_ns()
    failed = 0
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        failed = error.errno or errno.EIO
    except ValueError:
        # A negative number is no descriptor.
        failed = errno.EBADF
    return wrote, 0, failed, time.monotonic_ns() - began_ns


def send_pieces(descriptors: list[int], pieces: list[bytes]) -> list[int]:
    """Send each piece to its socket, and return how many bytes each took at once."""
    return [_sent(descriptor, piece) for descriptor, piece in zip(descriptors, pieces, strict=True)]


def _sent(descriptor: int, piece: bytes) -> int:
    try:
        return os.write(descriptor, piece) if descriptor >= 0 else 0
    except OSError:
        return 0


def records_but(
    starts: bytes, sizes: bytes, ledgers: bytes, entries: bytes, dead: Container[int]
) -> tuple[bytes, bytes, bytes]:
    """Return starts, sizes and joined keys of the records whose ledgers are not among ``dead``."""
    if len(starts) % _I64.size or not len(starts) == len(sizes) == len(ledgers) == len(entries):
        raise ValueError("columns of different lengths")
    ids = _numbers(ledgers)
    gone = {ledger for ledger in set(ids) if ledger in dead}
    alive = [ledger not in gone for ledger in ids]
    keys = chain.from_iterable(compress(zip(ids, _numbers(entries), strict=True), alive))
    return (
        _column(list(compress(_numbers(starts), alive))),
        _column(list(compress(_numbers(sizes), alive))),
        struct.pack(f">{2 * sum(alive)}q", *keys),
    )


def gather_at(
    buffer: bytes, starts: bytes, sizes: bytes, found: bytes, first: int
) -> tuple[bytes, bytes, bytes, bytes]:
    """Return keys, records, ends and places of the records that are where ``found`` says."""
    if len(starts) % _I64.size or not len(starts) == len(sizes) == len(found):
        raise ValueError("columns of different lengths")
    if not 0 <= first <= _LOCATION_MAX - len(buffer):
        raise ValueError("no location of a log")
    records: list[bytes] = []
    places: list[int] = []
    for start, size, place in zip(_numbers(starts), _numbers(sizes), _numbers(found), strict=True):
        if start < 0 or size < _KEY_BYTES or start + 4 + size > len(buffer):
            raise ValueError("a record outside of the buffer, or shorter than its key")
        if place == first + start:
            records.append(buffer[start : start + 4 + size])
            places.append(place)
    keys = b"".join([record[4 : 4 + _KEY_BYTES] for record in records])
    return keys, b"".join(records), _column(list(accumulate(map(len, records)))), _column(places)


def shifted(column: bytes, number: int) -> bytes:
    """Return the column with ``number`` added to each of its numbers."""
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError("the number has no place in a column")
    try:
        return _column([each + number for each in _numbers(column)])
    except OverflowError:
        raise ValueError("a sum has no place in a column") from None


def pieces_of(joined: bytes, size_bytes: int) -> list[bytes]:
    """Return the pieces of so many bytes each that are joined."""
    if size_bytes < 1 or len(joined) % size_bytes:
        raise ValueError("not a whole number of pieces")
    return list(chain.from_iterable(struct.Struct(f"{size_bytes}s").iter_unpack(joined)))


def size_bounds(ends: bytes) -> tuple[int, int]:
    """Return the smallest and the largest size of pieces that end at ``ends``."""
    sizes = [end - start for start, end in pairwise([0, *_numbers(ends)])]
    if min(sizes, default=0) < 0:
        raise ValueError("ends do not ascend")
    return min(sizes, default=0), max(sizes, default=0)


def ledger_sums(keys: bytes, bounds: bytes) -> tuple[bytes, bytes]:
    """Return ledgers and the bytes of their records, for each run of records of one ledger."""
    places = array("q", bounds)
    if len(keys) % _KEY_BYTES or len(places) != len(keys) // _KEY_BYTES + 1:
        raise ValueError("columns of different lengths")
    ledgers = array("q", keys)[::2]
    if _SWAP:
        ledgers.byteswap()
    starts = [0, *compress(count(1), map(ne, ledgers, islice(ledgers, 1, None)))] if ledgers else []
    sums = [places[stop] - places[start] for start, stop in pairwise([*starts, len(ledgers)])]
    try:
        return _column([ledgers[start] for start in starts]), _column(sums)
    except OverflowError:
        raise ValueError("a sum has no place in a column") from None
