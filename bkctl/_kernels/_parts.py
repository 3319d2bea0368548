"""Records of adds, taken apart by where their ledgers go: the reference in Python."""

from __future__ import annotations

from bkctl._kernels._api import GRANT_BYTES, PARTS_MAX, RecordPart
from bkctl._kernels._columns import numbers_of

_SIZE_BYTES = 4
_LEDGER_BYTES = 8
_KEY_BYTES = 16


def split_records(grants: bytes, counts: bytes, records: bytes, parts_max: int) -> list[RecordPart]:
    """Take adds apart by their ledgers; see ``_api``."""
    numbers = numbers_of(counts) if len(counts) % 8 == 0 else []
    if len(counts) % 8 or len(grants) != GRANT_BYTES * len(numbers):
        raise ValueError("columns of different lengths")
    if not 1 <= parts_max <= PARTS_MAX:
        raise ValueError(f"1 to {PARTS_MAX} parts")
    parts: dict[int, list[tuple[bytes, bytes, int]]] = {}
    at = 0
    for run, count in enumerate(numbers):
        grant = grants[GRANT_BYTES * run : GRANT_BYTES * (run + 1)]
        ledger = grant[-_LEDGER_BYTES:]
        end = _end_of(records, at, count, ledger)
        number = int.from_bytes(ledger, "big") % parts_max
        parts.setdefault(number, []).append((grant, records[at:end], count))
        at = end
    if at != len(records):
        raise _others()
    return [
        (number, b"".join([grant for grant, _, _ in its]), b"".join([body for _, body, _ in its]), entries)
        for number, its in sorted(parts.items())
        for entries in [sum([count for _, _, count in its])]
    ]


def _end_of(records: bytes, at: int, count: int, ledger: bytes) -> int:
    """Return the end of ``count`` records of a ledger; ValueError where they are not there."""
    if count < 1 or ledger[0] & 0x80:
        raise _others()
    for _ in range(count):
        size = int.from_bytes(records[at : at + _SIZE_BYTES], "big")
        body = records[at + _SIZE_BYTES : at + _SIZE_BYTES + size]
        if len(body) < size or size < _KEY_BYTES or not body.startswith(ledger):
            raise _others()
        at += _SIZE_BYTES + size
    return at


def _others() -> ValueError:
    return ValueError("records that are not those of the grants")
