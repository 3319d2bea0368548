"""The tight loops over plain v3 adds and reads in a receive buffer: the one layout that Java's client writes.

::

    i32 n, 0a n 0803 1002 18 <txnId>, aa06 <n> 08 <ledgerId> 10 <entryId> 1a14 master key 22 <n> entry
    i32 n, 0a n 0803 1001 18 <txnId>, a206 n 08 <ledgerId> 10 <entryId>

(hex; ``n`` counts what follows, ``<>`` is a varint.) Every length in it follows from the frame's, the width
of txnId and the place of the master key's tag ``1a14``, so these three name the *shape* of an add, and a
shape is worked out once. The tag is found by searching: it cannot stand before its place when what is in
front of it is two varints, for behind the last byte of a varint comes 10 or 1a.

A loop stops before the first frame that deviates (priority, flags, another order of fields, a master key of
another length, numbers over 63 bits or in a longer form than needed, a ledger id other than the entry's own);
the runtime takes it from there. Two things that the layout of a frame does not show are checked for all
frames at the end: the form of the varints, and the signs of the ids.

Where the kernels are compiled, they make of adds the columns that the journal and the write cache take as
they are, and the answers, and of reads their keys and transaction ids. They see all of a frame at once, so
they stop before the first that deviates.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

from bkctl import _kernels
from bkctl.codec import varint
from bkctl.protocol.framing import LENGTH
from bkctl.protocol.messages import Wire
from bkctl.protocol.refusal import BODY_BYTES_MIN
from bkctl.protocol.runs import KEY_OF, AddRun, PackedAddRun, PackedReadRun, ReadRun
from bkctl.protocol.scan_v2 import are_positive

#: ``0a n 0803 10 operation 18`` -> width of the txnId that follows.
ADD_WIDTHS = {
    bytes((0x0A, 5 + width)) + b"\x08\x03\x10\x02\x18": width for width in range(1, varint.BYTES_MAX + 1)
}
READ_WIDTHS = {
    bytes((0x0A, 5 + width)) + b"\x08\x03\x10\x01\x18": width for width in range(1, varint.BYTES_MAX + 1)
}

_HEAD = struct.Struct(">i7s")
_HEAD_BYTES = _HEAD.size
_ID = struct.Struct(">q")
_KEY_TAG = b"\x1a\x14"
_KEY_BYTES = 20
_CONTINUES = 0x80
#: From the header's end: ``aa06 <n> 08`` is 4 to 7 bytes, ``<ledgerId> 10 <entryId>`` 3 to 19.
_GAP_BYTES_MIN = 7
_GAP_BYTES_MAX = 26
_IDS_BYTES_MAX = 2 * varint.BYTES_MAX + 1
_READ_PART_BYTES_MAX = 4 + _IDS_BYTES_MAX
_SHAPES_MAX = 4096

# unpack the rest of a frame, `aa06 <n> 08`, `22 <n>`, answer up to txnId, answer from there to `<ledgerId>`
_Shape = tuple[
    Callable[[bytes, int], tuple[bytes, bytes, bytes, bytes, bytes, bytes]], bytes, bytes, bytes, bytes
]


@lru_cache(maxsize=_SHAPES_MAX)
def _add_shape(length: int, width: int, gap: int) -> _Shape | None:
    """Return the shape of adds of ``length`` bytes whose key's tag stands ``gap`` bytes behind the header."""
    part = length - (_HEAD_BYTES - LENGTH.size) - width - 2
    part_size = _size_in(part)
    rest = part + 2 - gap - len(_KEY_TAG) - _KEY_BYTES - 1
    body_size = _size_in(rest)
    ids = gap - 3 - len(part_size)
    body = rest - len(body_size)
    if not 3 <= ids <= _IDS_BYTES_MAX or body < BODY_BYTES_MIN:
        return None
    before, after = b"\xaa\x06" + part_size + b"\x08", b"\x22" + body_size
    layout = struct.Struct(f">{width}s{len(before)}s{ids}s2x{_KEY_BYTES}s{len(after)}s{body}s")
    # The answer's ids have the request's width: `<ledgerId> 10 <entryId>` becomes `<ledgerId> 18 <entryId>`.
    answer_part = 3 + ids
    answer = 7 + width + 2 + 3 + answer_part
    head = LENGTH.pack(answer) + bytes((0x0A, 5 + width)) + b"\x08\x03\x10\x02\x18"
    return (
        layout.unpack_from,
        before,
        after,
        head,
        b"\x10\x00\xaa\x06" + bytes((answer_part,)) + b"\x08\x00\x10",
    )


def _size_in(room: int) -> bytes:
    """Return the varint of a size that fills ``room`` bytes together with what it counts."""
    for width in range(1, 6):
        size = varint.encode(max(room - width, 0))
        if len(size) == width:
            return size
    return b""


@lru_cache(maxsize=_SHAPES_MAX)
def _ledger_marks(ledger: bytes) -> tuple[bytes, bytes, int]:
    """Return the bytes around a ledger id in a frame, for an id that is given as eight bytes.

    They are ``<ledgerId> 10`` of requests, ``<ledgerId> 18`` of answers, and the length of either.
    """
    number = varint.encode(int.from_bytes(ledger, "big"))
    return number + b"\x10", number + b"\x18", len(number) + 1


def scan_adds(data: bytes, start: int, end: int) -> tuple[AddRun | None, int]:
    """Return the adds from ``start`` on, and where they stop.

    None without any, or when one is not what it seemed to be.
    No frame between ``start`` and ``end`` may be over the frame limit.
    """
    if _kernels.IMPL == "native":
        columns, position = _kernels.scan_v3_adds(data, start, end)
        return (None if columns is None else PackedAddRun(Wire.V3, columns)), position
    return list_adds(data, start, end)


def list_adds(data: bytes, start: int, end: int) -> tuple[AddRun | None, int]:
    """Do what :func:`scan_adds` does, with an object for each entry, where the kernels are not compiled."""
    grants: list[bytes] = []
    bodies: list[bytes] = []
    tokens: list[bytes] = []
    txns: list[bytes] = []
    entries: list[bytes] = []
    find, unpack, width_of = data.find, _HEAD.unpack_from, ADD_WIDTHS.get
    add_grant, add_body = grants.append, bodies.append
    add_token, add_txn, add_entry = tokens.append, txns.append, entries.append
    position = start
    last = end - _HEAD_BYTES
    while position <= last:
        length, header = unpack(data, position)
        width = width_of(header)
        stop = position + length + 4
        if width is None or stop > end:
            break
        middle = position + 11 + width
        if stop <= middle:  # no room for what an add is
            break
        if width > 1 and data[middle - 2] < _CONTINUES:  # txnId and then a priority, most likely
            break
        gap = find(_KEY_TAG, middle + _GAP_BYTES_MIN, middle + _GAP_BYTES_MAX + 2) - middle
        shape = _add_shape(length, width, gap) if gap > 0 else None
        if shape is None:
            break
        unpack_rest, before, after, head, between = shape
        txn, in_front, ids, master_key, behind, body = unpack_rest(data, position + 11)
        ledger = body[:8]
        mark, answer_mark, mark_bytes = _ledger_marks(ledger)
        if in_front != before or behind != after or ids[:mark_bytes] != mark:
            break
        entry = ids[mark_bytes:]
        add_token(head + txn + between + answer_mark + entry)
        add_grant(master_key + ledger)
        add_body(body)
        add_txn(txn)
        add_entry(entry)
        position = stop
    keys = list(map(KEY_OF, bodies))
    if not (keys and varint.are_canonical(txns) and varint.are_canonical(entries) and are_positive(keys)):
        return None, position
    return AddRun(Wire.V3, grants, keys, bodies, tokens, sum(map(len, bodies))), position


def scan_reads(data: bytes, start: int, end: int) -> tuple[ReadRun | None, int]:
    """Return the reads from ``start`` on, and where they stop.

    None when one of them is not what it seemed to be.
    """
    if _kernels.IMPL == "native":
        keys, txns, position = _kernels.scan_v3_reads(data, start, end)
        return (PackedReadRun(keys, txns) if position > start else None), position
    return list_reads(data, start, end)


def list_reads(data: bytes, start: int, end: int) -> tuple[ReadRun | None, int]:
    """Do what :func:`scan_reads` does, with an object for each entry, where the kernels are not compiled."""
    keys: list[bytes] = []
    tokens: list[bytes] = []
    txns: list[bytes] = []
    entries: list[bytes] = []
    unpack, pack_id, width_of = _HEAD.unpack_from, _ID.pack, READ_WIDTHS.get
    add_key, add_token, add_txn, add_entry = keys.append, tokens.append, txns.append, entries.append
    position = start
    last = end - _HEAD_BYTES
    while position <= last:
        length, header = unpack(data, position)
        width = width_of(header)
        stop = position + length + 4
        if width is None or stop > end:
            break
        middle = position + 11 + width
        if not 0 < stop - middle <= _READ_PART_BYTES_MAX:  # also bounds what the cache of marks keeps
            break
        if width > 1 and data[middle - 2] < _CONTINUES:
            break
        if data[middle : middle + 4] != b"\xa2\x06%c\x08" % (stop - middle - 3 & 0xFF):
            break
        ids = data[middle + 4 : stop]
        found = _read_marks(ids[: ids.find(b"\x10", 1) + 1]) or _late_mark(ids)
        if found is None:
            break
        ledger, answer_mark, mark_bytes = found
        entry = ids[mark_bytes:]
        if not 0 < len(entry) <= varint.BYTES_MAX:
            break
        if len(entry) > 1 and entry[-2] < _CONTINUES:  # entryId and then a previousLAC, most likely
            break
        number = 0
        for byte in reversed(entry):
            number = number << 7 | byte & 0x7F
        add_key(ledger + pack_id(number))
        add_token(data[position + 4 : middle] + answer_mark + entry)
        add_txn(data[position + 11 : middle])
        add_entry(entry)
        position = stop
    if not (varint.are_canonical(txns) and varint.are_canonical(entries)):
        return None, position
    return ReadRun(Wire.V3, keys, tokens), position


@lru_cache(maxsize=_SHAPES_MAX)
def _read_marks(mark: bytes) -> tuple[bytes, bytes, int] | None:
    """Return for ``<ledgerId> 10`` (or nothing): the id in eight bytes, ``10 <ledgerId> 18``, the length."""
    number = mark[:-1]
    if not varint.are_canonical([number]):
        return None
    return _ID.pack(varint.decode(number)), b"\x10" + number + b"\x18", len(mark)


def _late_mark(ids: bytes) -> tuple[bytes, bytes, int] | None:
    """Return the marks where the first 10 was the last byte of the ledger id, or there is none."""
    first = ids.find(b"\x10", 1)
    second = ids.find(b"\x10", first + 1)
    return _read_marks(ids[: second + 1]) if 0 < first < second else None
