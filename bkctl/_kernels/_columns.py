"""Columns: ``bytes`` that hold one native i64 after the other."""

from __future__ import annotations

from array import array


def column_of(numbers: list[int]) -> bytes:
    """Return numbers as a column; OverflowError for one that has no place in 64 bits."""
    return array("q", numbers).tobytes()


def numbers_of(column: bytes) -> list[int]:
    """Return the numbers of a column; ValueError for bytes that are none."""
    return array("q", column).tolist()
