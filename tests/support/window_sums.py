"""Runs and words of a window's entries, worked out entry by entry: what both twins are compared with."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

from bkctl.codec.entry import HEADER_BYTES

_WORD, _SUM = (1 << 64) - 1, (1 << 44) - 1
_HIGHEST, _LOWEST = (1 << 63) - 1, -(1 << 63)


def _column(numbers: Sequence[int]) -> bytes:
    return array("q", numbers).tobytes()


def _inside(buffer: bytes, starts: Sequence[int], sizes: Sequence[int]) -> bool:
    places = zip(starts, sizes, strict=True)
    return all(start >= 0 and size >= 0 and start + 4 + size <= len(buffer) for start, size in places)


def run_columns(
    buffer: bytes,
    starts: Sequence[int],
    sizes: Sequence[int],
    ledgers: Sequence[int],
    entries: Sequence[int],
    failing: bytes,
    first: int,
) -> tuple[bytes, ...]:
    """Return what the kernel of this name does. Raises ValueError for a record outside of the buffer."""
    if not _inside(buffer, starts, sizes):
        raise ValueError("outside of the buffer")
    runs: list[list[int]] = []
    for start, size, ledger, entry, fails in zip(starts, sizes, ledgers, entries, failing, strict=True):
        if not runs or runs[-1][0] != ledger or runs[-1][2] + 1 != entry:
            runs.append([ledger, entry, entry, 0, 0, _HIGHEST, _LOWEST, 0, 0])
        run = runs[-1]
        run[2] = entry
        run[3] += 1
        run[4] += size + 4
        if size >= HEADER_BYTES:
            (lac,) = struct.unpack_from(">q", buffer, start + 20)
            run[5], run[6] = min(run[5], lac), max(run[6], lac)
        run[7] += fails != 0
        run[8] = (run[8] + place_word(ledger, entry, first + start)) & _SUM
    return tuple(_column([run[number] for run in runs]) for number in range(9))


def place_word(ledger: int, entry: int, location: int) -> int:
    """Return the word of an entry at a packed location."""
    value = location * 0x9E3779B97F4A7C15 & _WORD
    value ^= entry * 0xC2B2AE3D27D4EB4F & _WORD
    value ^= ledger * 0x165667B19E3779F9 & _WORD
    value ^= value >> 31
    value = value * 0xBF58476D1CE4E5B9 & _WORD
    return (value ^ value >> 27) & _SUM


def _mixed(value: int, more: int, factor: int) -> int:
    value ^= more * factor & _WORD
    value ^= value >> 29
    value = value * 0xBF58476D1CE4E5B9 & _WORD
    return value ^ value >> 32


def digest_words(
    buffer: bytes,
    starts: Sequence[int],
    sizes: Sequence[int],
    ledgers: Sequence[int],
    entries: Sequence[int],
    digest_bytes: bytes,
) -> bytes:
    """Return what the kernel of this name does. Raises ValueError as it does."""
    words = []
    if not _inside(buffer, starts, sizes):
        raise ValueError("outside of the buffer")
    for start, size, ledger, entry, wanted in zip(starts, sizes, ledgers, entries, digest_bytes, strict=True):
        if wanted not in (0, 4, 8) or (wanted and size < HEADER_BYTES + wanted):
            raise ValueError("no such digest")
        at = start + 4 + HEADER_BYTES
        digest = int.from_bytes(buffer[at : at + wanted], "big")
        value = _mixed(ledger * 0x165667B19E3779F9 & _WORD, entry, 0xC2B2AE3D27D4EB4F)
        value = _mixed(value, size, 0x9E3779B97F4A7C15)
        words.append(_mixed(value, digest, 0x27D4EB2F165667C5) & _SUM)
    return _column(words)
