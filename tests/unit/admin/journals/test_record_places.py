"""The places of records in a copy: a mark that is kept lies between two of them, whatever is gone."""

from __future__ import annotations

import random
from typing import cast

import pytest

from bkctl.admin.journals.closing_padding import padding_heads, write_padding
from bkctl.admin.journals.record_places import RecordPlaces
from bkctl.codec.journal import PADDED_FROM, JournalHeader
from bkctl.vfs.base import WritableFile

LAYOUTS = 3000


class Closed:
    """A file that remembers where padding was written at its end."""

    size_bytes = 0

    def __init__(self) -> None:
        self.heads: list[int] = []

    def write_at(self, offset: int, data: bytes) -> None:
        if any(data):
            self.heads.append(offset)
        self.size_bytes = max(self.size_bytes, offset + len(data))


def layout(chance: random.Random, first: int, *, has_padding: bool) -> list[tuple[int, int]]:
    """Offsets and sizes as a scan finds them: gaps, one within another, ends of padding without a size."""
    found, at = [], first
    for _ in range(chance.randint(1, 6)):
        at = max(first, at + chance.choice((0, 0, 0, chance.randint(-6, 12), chance.randint(0, 40))))
        size = chance.choice((0, chance.randint(20, 40)))
        if size or has_padding:
            found.append((at, size))
        at += size
    return found


@pytest.mark.parametrize("version", [PADDED_FROM - 1, PADDED_FROM])
def test_a_replay_begins_at_a_mark_that_is_kept_and_misses_nothing(version: int) -> None:
    first = JournalHeader(version).first_record
    kept = 0
    for seed in range(LAYOUTS):
        chance = random.Random(seed)
        found = layout(chance, first, has_padding=version >= PADDED_FROM)
        last = max((offset + size for offset, size in found), default=first)
        stop, marked = last + chance.randint(0, 30), chance.randint(first + 1, last + 30)
        places = RecordPlaces(version, marked)
        starts: list[int] = []
        end = first
        for offset, size in found:
            *ends, place = places.put(offset, size)
            for padded in (*ends, place):
                starts += [start for start, _, _ in padding_heads(end, padded)]
                end = padded
            if size:
                starts.append(place)
                end = place + size
                assert not (places.keeps_mark and offset >= marked > place), seed
        places.close(stop)
        if end < stop and places.has_padding:
            closed = Closed()
            write_padding(cast("WritableFile", closed), end, stop, marked if places.keeps_mark else 0)
            starts += closed.heads
            end = closed.size_bytes
        if places.keeps_mark:
            kept += 1
            assert marked in starts or marked >= end, seed
    assert kept > LAYOUTS // 20
