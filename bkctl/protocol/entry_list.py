"""The list of a ledger's entries on one bookie, as GET_LIST_OF_ENTRIES_OF_LEDGER returns it.

====== ==== ===================================================================
offset size field
====== ==== ===================================================================
0      i32  version, 0
4      i32  number of groups
8      56   zeros
64     24 g groups
====== ==== ===================================================================

Each group:

====== ==== ===================================================================
0      i64  first id of the first sequence
8      i64  first id of the last sequence
16     i32  ids per sequence
20     i32  distance of the sequences, 0 when there is only one
====== ==== ===================================================================

All integers are big-endian and signed. A group is runs of ``size`` consecutive ids that start at first,
first + period, ..., last. Java's encoder, and this one, writes a group per run and never a period; its
decoder takes them.

Source: ``org.apache.bookkeeper.util.AvailabilityOfEntriesOfLedger``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bkctl.errors import CorruptionError

VERSION = 0
HEADER_BYTES = 64

_HEADER = struct.Struct(">ii56x")
_GROUP = struct.Struct(">qqii")


@dataclass(frozen=True, slots=True)
class EntryGroup:
    """Sequences of ``size`` ids that start at ``first``, ``first + period``, ..., ``last``."""

    first: int
    last: int
    size: int
    period: int

    @property
    def sequences(self) -> int:
        """The number of sequences."""
        return 1 if self.period == 0 else (self.last - self.first) // self.period + 1

    @property
    def count(self) -> int:
        """The number of ids in all sequences."""
        return self.sequences * self.size

    def __contains__(self, entry: int) -> bool:
        if not self.first <= entry < self.last + self.size:
            return False
        return self.period == 0 or (entry - self.first) % self.period < self.size

    def __iter__(self) -> Iterator[int]:
        for sequence in range(self.sequences):
            start = self.first + sequence * self.period
            yield from range(start, start + self.size)


@dataclass(frozen=True, slots=True)
class EntryList:
    """The ids that a bookie has, as groups in their order on the wire. May stand for 2^31 ids in 24 bytes."""

    groups: tuple[EntryGroup, ...]

    @property
    def count(self) -> int:
        """Number of ids."""
        return sum(group.count for group in self.groups)

    def __contains__(self, entry: int) -> bool:
        return any(entry in group for group in self.groups)

    def __iter__(self) -> Iterator[int]:
        for group in self.groups:
            yield from group


def encode_entry_list(entries: Iterable[int]) -> bytes:
    """Return the bytes for ascending ids; an id that comes twice counts once.

    Needs 24 bytes of memory per run.
    """
    groups: list[bytes] = []
    first = following = -1
    for entry in entries:
        if entry == following and entry - first < 2**31 - 1:
            following += 1
        elif first < 0 or entry >= following:
            if first >= 0:
                groups.append(_group(first, following))
            first, following = entry, entry + 1
        elif entry != following - 1:
            raise ValueError(f"entry {entry} after {following - 1}")
    if first >= 0:
        groups.append(_group(first, following))
    return _HEADER.pack(VERSION, len(groups)) + b"".join(groups)


def _group(first: int, following: int) -> bytes:
    return _GROUP.pack(first, first, following - first, 0)


def decode_entry_list(data: bytes) -> EntryList:
    """Return the list.

    Raises CorruptionError for another version or length, or a group that means nothing.
    """
    if len(data) < HEADER_BYTES:
        raise CorruptionError(
            "list of entries", offset=len(data), expected="64 bytes or more", found=f"{len(data)} bytes"
        )
    version, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptionError("list of entries", expected="version 0", found=f"version {version}")
    if count < 0 or len(data) != HEADER_BYTES + count * _GROUP.size:
        raise CorruptionError(
            "list of entries", offset=4, expected=f"{count} groups", found=f"{len(data) - HEADER_BYTES} bytes"
        )
    groups = tuple(EntryGroup(*row) for row in _GROUP.iter_unpack(data[HEADER_BYTES:]))
    for index, group in enumerate(groups):
        if not _has_meaning(group):
            offset = HEADER_BYTES + index * _GROUP.size
            raise CorruptionError("list of entries", offset=offset, expected="a group", found=str(group))
    return EntryList(groups)


def _has_meaning(group: EntryGroup) -> bool:
    if group.first < 0 or group.size < 1 or group.last > 2**63 - group.size:
        return False
    if group.first == group.last:
        return group.period == 0
    distance = group.last - group.first
    return distance > 0 and group.period >= group.size and distance % group.period == 0
