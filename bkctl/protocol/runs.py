"""Runs: consecutive plain adds or reads of one connection as parallel lists, and the answers to them.

A run holds no object per entry, only bytes: what the engine takes (grants, keys, bodies) and a *token* each,
from which the answer is made. Tokens may be kept, split and mixed at will, as long as they are answered with
the run's ``wire``:

====== ===== ==================================================================
wire   run   token
====== ===== ==================================================================
v2     add   the key, 16 bytes: ledger id, entry id
v2     read  the same
v3     add   the whole frame of the answer "stored"
v3     read  the request's header, then ``10 <ledgerId> 18 <entryId>``
====== ===== ==================================================================

Answers to an add, v2 and v3 (``n`` counts what follows, ``s`` is a status, ``<>`` a varint)::

    00000018 02010000 i32 code, i64 ledger, i64 entry
    i32 n, 0a n 0803 1002 18 <txnId>, 10 s, aa06 n 08 s 10 <ledgerId> 18 <entryId>

and to a read::

    i32 n, 02020000 i32 code, i64 ledger, i64 entry, entry
    i32 n, 0a n 0803 1001 18 <txnId>, 10 s, a206 <n> 08 s 10 <ledgerId> 18 <entryId>
           22 <n> entry [28 <maxLAC>]

One call makes the answers of one batch in one piece. They are built by joins of slices, so a call over more
than some megabytes of entries keeps the interpreter busy for milliseconds: callers hand over less.
"""

from __future__ import annotations

import dataclasses
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, repeat
from operator import itemgetter

from bkctl import _kernels
from bkctl._kernels._api import GRANT_BYTES, AddColumns
from bkctl.codec import varint
from bkctl.protocol import v3
from bkctl.protocol.codes import V2_CODES, V3_CODES
from bkctl.protocol.framing import LENGTH, LENGTH_BYTES
from bkctl.protocol.messages import AddResponse, Wire
from bkctl.types import ResultCode

_ANSWER_BYTES = 24
_KEY_BYTES = 16
_HEAD = struct.Struct(">iIi")
_IDS = struct.Struct(">QQ")
_ADD_HEADER = 0x02010000
_READ_HEADER = 0x02020000
_OK = ResultCode.OK
_READ_OK = struct.pack(">Ii", _READ_HEADER, 0)
_NUMBER_BYTES = 8
#: The key of a body.
KEY_OF = itemgetter(slice(_KEY_BYTES))


@dataclass(slots=True)
class AddRun:
    """Plain adds in order of arrival: version 2 without flags, or version 3 without flags and priority.

    ``grants`` are master key (20 bytes) and ledger id (8 bytes), ``keys`` the first 16 bytes of the bodies:
    ids not negative, bodies of 24 bytes or more. ``size_bytes`` is the sum of the bodies, ``count`` their
    number, ``stored`` the frames that answer all adds with "stored", where these are made by now.
    """

    wire: Wire
    grants: list[bytes]
    keys: list[bytes]
    bodies: list[bytes]
    tokens: list[bytes]
    size_bytes: int
    stored: bytes | None = None
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = len(self.keys)

    def __len__(self) -> int:
        return self.count


class PackedAddRun(AddRun):
    """Plain adds as columns, made by the compiled kernels.

    ``records`` are the bodies, each behind its i32 length. After :meth:`join` they lie in one piece with
    those of other runs and are cut out when they are read.
    ``packed_grants`` has the grant of adds that stand side by side once, and ``lacs`` and ``counts``, columns
    of native i64, have for each of these the highest last add confirmed of its adds, and their number.
    The lists of :class:`AddRun` are made when they are read, which hardly ever happens.
    """

    __slots__ = ("_lists", "_piece", "_start", "_stop", "_tokens", "counts", "lacs", "packed_grants")

    def __init__(self, wire: Wire, columns: AddColumns) -> None:
        self.wire = wire
        self.count, self.stored, self._piece, self.packed_grants, self.lacs, self.counts = columns
        self._start = 0
        self._stop = len(self._piece)
        self.size_bytes = self._stop - LENGTH_BYTES * self.count
        self._lists: tuple[list[bytes], list[bytes], list[bytes]] | None = None
        self._tokens: list[bytes] | None = None

    @property
    def records(self) -> bytes:
        """The bodies, each behind its i32 length."""
        return self._piece[self._start : self._stop]

    @property
    def grants(self) -> list[bytes]:  # type: ignore[override]
        return self._listed()[0]

    @property
    def keys(self) -> list[bytes]:  # type: ignore[override]
        return self._listed()[1]

    @property
    def tokens(self) -> list[bytes]:  # type: ignore[override]
        if self.wire is Wire.V2:
            return self._listed()[1]
        if self._tokens is None:
            # Kept: who refuses a run add by add asks for each of them.
            assert self.stored is not None
            self._tokens = _frames(self.stored)
        return self._tokens

    @property
    def bodies(self) -> list[bytes]:  # type: ignore[override]
        return self._listed()[2]

    def _listed(self) -> tuple[list[bytes], list[bytes], list[bytes]]:
        if self._lists is None:
            distinct = _kernels.pieces_of(self.packed_grants, GRANT_BYTES)
            grants = list(chain.from_iterable(map(repeat, distinct, array("q", self.counts))))
            bodies = [record[LENGTH_BYTES:] for record in _frames(self.records)]
            self._lists = grants, [body[:_KEY_BYTES] for body in bodies], bodies
        return self._lists

    @classmethod
    def join(cls, runs: Sequence[PackedAddRun]) -> bytes:
        """Return the records of runs in one piece, in their order, which they have in common from now on."""
        piece = b"".join([run._piece[run._start : run._stop] for run in runs])
        position = 0
        for run in runs:
            stop = position + run._stop - run._start
            run._piece, run._start, run._stop = piece, position, stop
            position = stop
        return piece


@dataclass(slots=True)
class ReadRun:
    """Plain reads in order of arrival: no fence, no long poll, an entry id that is not negative."""

    wire: Wire
    keys: list[bytes]
    tokens: list[bytes]

    def __len__(self) -> int:
        return len(self.keys)

    def join(self, other: ReadRun) -> bool:
        """Append the reads of another run; False, and nothing is changed, when the two differ in kind."""
        if type(other) is not ReadRun or other.wire is not self.wire:
            return False
        # In version 2 the keys are the tokens: one list.
        tokens = self.tokens + other.tokens
        self.keys = tokens if self.wire is Wire.V2 else self.keys + other.keys
        self.tokens = tokens
        return True


class PackedReadRun(ReadRun):
    """Plain reads, made by the compiled kernels: ``packed_keys`` are joined.

    Reads of version 3 bring a column of their transaction ids. The lists are made when somebody asks for
    them.
    """

    __slots__ = ("_list", "_tokens", "packed_keys", "txns")

    def __init__(self, packed_keys: bytes, txns: bytes | None = None) -> None:
        self.packed_keys = packed_keys
        self.txns = txns
        self._list: list[bytes] | None = None
        self._tokens: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.packed_keys) // _KEY_BYTES

    @property
    def wire(self) -> Wire:  # type: ignore[override]
        return Wire.V2 if self.txns is None else Wire.V3

    @property
    def keys(self) -> list[bytes]:  # type: ignore[override]
        if self._list is None:
            self._list = _kernels.pieces_of(self.packed_keys, _KEY_BYTES)
        return self._list

    @property
    def tokens(self) -> list[bytes]:  # type: ignore[override]
        if self.txns is None:
            return self.keys
        if self._tokens is None:
            self._tokens = list(map(_read_token, array("q", self.txns), self.keys))
        return self._tokens

    def join(self, other: ReadRun) -> bool:
        if not isinstance(other, PackedReadRun) or other.wire is not self.wire:
            return False
        self.packed_keys += other.packed_keys
        if self.txns is not None and other.txns is not None:
            self.txns += other.txns
        self._list = self._tokens = None
        return True


def _read_token(txn: int, key: bytes) -> bytes:
    number = varint.encode(txn)
    ledger, entry = _IDS.unpack(key)
    header = bytes((0x0A, 5 + len(number))) + b"\x08\x03\x10\x01\x18" + number
    return header + b"\x10" + varint.encode(ledger) + b"\x18" + varint.encode(entry)


def answer_adds(wire: Wire, tokens: Sequence[bytes], code: ResultCode = ResultCode.OK) -> bytes:
    """Return the frames that answer the adds of ``tokens`` with ``code``, joined."""
    if not tokens:
        return b""
    if wire is Wire.V2:
        prefix = _HEAD.pack(_ANSWER_BYTES, _ADD_HEADER, V2_CODES[code])
        return prefix + prefix.join(tokens)
    if code is _OK:
        return b"".join(tokens)
    return b"".join([_refused(token, code) for token in tokens])


def answer_run(run: AddRun, code: ResultCode = ResultCode.OK) -> bytes:
    """Return the frames that answer all adds of a run with ``code``, joined."""
    if code is _OK and run.stored is not None:
        return run.stored
    return answer_adds(run.wire, run.tokens, code)


def _frames(joined: bytes) -> list[bytes]:
    """Return frames, or records, that stand one behind the other, each behind its i32 length."""
    frames: list[bytes] = []
    position = 0
    while position < len(joined):
        stop = position + LENGTH_BYTES + LENGTH.unpack_from(joined, position)[0]
        frames.append(joined[position:stop])
        position = stop
    return frames


def _refused(stored: bytes, code: ResultCode) -> bytes:
    """Return the v3 answer with another code."""
    answer = v3.decode_response(stored[LENGTH_BYTES:])
    assert isinstance(answer, AddResponse)
    return v3.encode_response(dataclasses.replace(answer, code=code))


def answer_reads(
    wire: Wire,
    tokens: Sequence[bytes],
    results: Sequence[bytes | ResultCode],
    max_lacs: Sequence[int | None] | None = None,
) -> bytes:
    """Return the frames that answer the reads of ``tokens``, joined.

    ``results`` has the entry's body or the code of the failure for each of them. ``max_lacs`` are the highest
    LACs that the bookie knows of the entries' ledgers; v2 has no place for them.
    """
    pieces: list[bytes] = []
    if wire is Wire.V2:
        if _kernels.IMPL == "native":
            bodies = [result for result in results if isinstance(result, bytes)]
            # Of an entry that was found, the key is the front of its body.
            if len(bodies) == len(results) and list(map(KEY_OF, bodies)) == tokens:
                sizes = map(LENGTH.pack, map(len, bodies))
                records = b"".join(chain.from_iterable(zip(sizes, bodies, strict=True)))
                return _kernels.read_answers(_READ_OK, records)
        for token, result in zip(tokens, results, strict=True):
            if isinstance(result, bytes):
                pieces += (_HEAD.pack(_ANSWER_BYTES + len(result), _READ_HEADER, 0), token, result)
            else:
                pieces += (_HEAD.pack(_ANSWER_BYTES, _READ_HEADER, V2_CODES[result]), token)
        return b"".join(pieces)
    lacs = max_lacs if max_lacs is not None else [None] * len(tokens)
    for token, result, lac in zip(tokens, results, lacs, strict=True):
        split = 2 + token[1]
        if isinstance(result, bytes):
            _add_read_answer(pieces, token[:split], token[split:], result, lac)
        else:
            _add_read_failure(pieces, token[:split], token[split:], result)
    return b"".join(pieces)


def answer_read_records(run: PackedReadRun, first: int, records: bytes, lacs: Sequence[int]) -> bytes:
    """Return the frames that answer reads of a run, from the ``first`` on, with the entries of records.

    ``lacs`` are the last adds confirmed that go with them; version 2 has no place for them.
    """
    if run.txns is None:
        return _kernels.read_answers(_READ_OK, records)
    txns = run.txns[_NUMBER_BYTES * first : _NUMBER_BYTES * (first + len(lacs))]
    return _kernels.v3_read_answers(txns, array("q", lacs).tobytes(), records)


def _add_read_answer(pieces: list[bytes], header: bytes, ids: bytes, body: bytes, lac: int | None) -> None:
    size = _varint(len(body))
    tail = b"" if lac is None else b"\x28" + _varint(lac)
    part = 3 + len(ids) + len(size) + len(body) + len(tail)  # 08 00, ids, 22, size, body, tail
    part_size = _varint(part)
    whole = len(header) + 4 + len(part_size) + part  # header, 10 00 a2 06
    pieces += (
        LENGTH.pack(whole) + header + b"\x10\x00\xa2\x06" + part_size + b"\x08\x00" + ids + b"\x22" + size,
        body,
        tail,
    )


def _add_read_failure(pieces: list[bytes], header: bytes, ids: bytes, code: ResultCode) -> None:
    status = varint.encode(V3_CODES[code])
    part = b"\x08" + status + ids
    message = header + b"\x10" + status + b"\xa2\x06" + varint.encode(len(part)) + part
    pieces += (LENGTH.pack(len(message)), message)


@lru_cache(maxsize=4096)
def _varint(number: int) -> bytes:
    """Encode a number as protobuf writes an int64: a negative one as its two's complement in 64 bits."""
    return varint.encode(number & (1 << 64) - 1)
