"""The keys that stand in RocksDB's write-ahead logs, as stretches that hold all of them.

A database that is opened has the rows of its logs in memory, beside those of its tables. Where they are
decides which tables can be taken by themselves (``kvstore.key_spans``). More than there is may be named, less
never: what is not understood makes the answer "anywhere".

A record's payload, in pieces that do not cross blocks (``kvstore.synced_log``), is a batch::

    number:  u64
    rows:    u32
    each:    kind: u8, then key and, but for a deletion, value: length (seven bits a byte), bytes
             a range's deletion has the end of the range, which is not deleted, in place of the value

Source: ``db/write_batch.cc`` and ``db/log_reader.cc`` of RocksDB.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from bkctl.kvstore.base import Span
from bkctl.kvstore.synced_log import BLOCK_BYTES, HEAD, opened_log

_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_BATCH_HEAD_BYTES = 12
_DELETION, _PUT, _NOTE, _SINGLE_DELETION, _NOTHING, _RANGE_DELETION = 0, 1, 3, 7, 13, 15
#: Keys with equal first bytes are one stretch: a bookie's rows of a ledger.
_PREFIX_BYTES = 8
_REST_BYTES = 56


class _UnknownError(Exception):
    pass


def keys_in_logs(directory: str) -> list[Span] | None:
    """Return stretches that hold every key in the logs of a directory, None where they may be anywhere."""
    spans: set[Span] = set()
    try:
        for name in os.listdir(directory):
            if name.endswith(".log"):
                with opened_log(os.path.join(directory, name), follow=True) as file:
                    for batch in _batches(file):
                        _add_spans(batch, spans)
    except (OSError, _UnknownError, IndexError):
        return None
    return list(spans)


def _batches(file: BinaryIO) -> Iterator[bytes]:
    """Give the batches of a log; one that is cut short at its end is left out, as RocksDB leaves it out."""
    pieces: list[bytes] = []
    while block := file.read(BLOCK_BYTES):
        at = 0
        while len(block) - at >= HEAD.size:
            _, length, kind = HEAD.unpack_from(block, at)
            at += HEAD.size
            piece = block[at : at + length]
            if len(piece) < length and len(block) < BLOCK_BYTES:
                return
            if len(piece) < length or (kind in (_WHOLE, _FIRST)) == bool(pieces):
                raise _UnknownError
            if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST):
                raise _UnknownError
            pieces.append(piece)
            if kind in (_WHOLE, _LAST):
                yield b"".join(pieces)
                pieces = []
            at += length


def _add_spans(batch: bytes, spans: set[Span]) -> None:
    at = _BATCH_HEAD_BYTES
    if len(batch) < at:
        raise _UnknownError
    while at < len(batch):
        kind = batch[at]
        at += 1
        if kind == _NOTHING:
            continue
        key, at = _text(batch, at)
        if kind in (_DELETION, _SINGLE_DELETION):
            spans.add(_around(key, key))
        elif kind == _PUT:
            _, at = _text(batch, at)
            spans.add(_around(key, key))
        elif kind == _RANGE_DELETION:
            end, at = _text(batch, at)
            spans.add(_around(key, end))
        elif kind != _NOTE:
            raise _UnknownError


def _around(first: bytes, last: bytes) -> Span:
    return first[:_PREFIX_BYTES], last[:_PREFIX_BYTES] + b"\xff" * _REST_BYTES


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    length = shift = 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    if at + length > len(data):
        raise _UnknownError
    return data[at : at + length], at + length
