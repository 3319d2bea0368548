"""Reading ahead: what follows an entry in its log, as far as it can be believed."""

from __future__ import annotations

import pytest

from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.log_builder import EntryLogBuilder
from tests.unit.engine.entrylog.entry_logging import (
    CURRENT,
    FIRST,
    append,
    bodies_of,
    body_of,
    empty_directory,
    key,
    location,
    opened,
    read_ahead,
)

ENTRIES_MAX = 100
BYTES_MAX = 1 << 20


def entries(found: list[tuple[bytes, bytes]]) -> list[int]:
    """The entry ids; the bodies are those that were written."""
    assert all(body[:16] == each for each, body in found)
    return [int.from_bytes(each[8:], "big") for each, _ in found]


@pytest.mark.parametrize("payload_bytes", [0, 40, 5000])
@pytest.mark.parametrize("forced", [False, True])
def test_the_records_behind_an_entry_of_the_same_ledger(payload_bytes: int, forced: bool) -> None:
    logger = opened(empty_directory())
    places = append(logger, bodies := bodies_of(5, 6, entries=30, payload_bytes=payload_bytes))
    if forced:
        logger.force()
    found = logger.read_ahead(places[key(5, 3)], key(5, 3), ENTRIES_MAX, BYTES_MAX)
    assert found == [(body[:16], body) for body in bodies[4:30]]
    assert logger.read_ahead(places[key(5, 29)], key(5, 29), ENTRIES_MAX, BYTES_MAX) == []
    assert entries(logger.read_ahead(places[key(6, 27)], key(6, 27), ENTRIES_MAX, BYTES_MAX)) == [28, 29]
    assert logger.read_ahead(places[key(6, 29)], key(6, 29), ENTRIES_MAX, BYTES_MAX) == []
    logger.close()


def test_bounds_by_entries_and_bytes() -> None:
    logger = opened(empty_directory())
    places = append(logger, bodies := bodies_of(5, entries=30))
    size = len(bodies[0])
    place = places[key(5, 0)]
    for entries_max, bytes_max, count in (
        (0, BYTES_MAX, 0),
        (-1, BYTES_MAX, 0),
        (1, BYTES_MAX, 1),
        (7, BYTES_MAX, 7),
        (ENTRIES_MAX, 0, 0),
        (ENTRIES_MAX, size - 1, 0),
        (ENTRIES_MAX, size, 1),
        (ENTRIES_MAX, 4 * size + size - 1, 4),
        (ENTRIES_MAX, 29 * size, 29),
    ):
        found = logger.read_ahead(place, key(5, 0), entries_max, bytes_max)
        assert entries(found) == list(range(1, count + 1)), (entries_max, bytes_max)
    logger.close()


def test_sizes_that_differ_wildly() -> None:
    logger = opened(empty_directory())
    bodies = [body_of(5, entry, size) for entry, size in enumerate((0, 20_000, 1, 70_000, 0, 3, 9000, 1))]
    places = append(logger, bodies)
    found = logger.read_ahead(places[key(5, 0)], key(5, 0), ENTRIES_MAX, BYTES_MAX)
    assert [body for _, body in found] == bodies[1:]
    logger.close()


def test_few_reads_bring_many_entries() -> None:
    filesystem = FaultyFileSystem(empty_directory())
    logger = opened(filesystem)
    places = append(logger, bodies_of(5, entries=200, payload_bytes=100))
    filesystem.inject(FaultRule("read", error_number=None))
    found = logger.read_ahead(places[key(5, 0)], key(5, 0), 100, BYTES_MAX)
    assert len(found) == 100
    assert filesystem._seen[0] <= 3
    logger.close()


def test_the_ledgers_map_ends_it() -> None:
    filesystem = empty_directory()
    logger = opened(filesystem, 2000)
    places = append(logger, bodies_of(5, entries=30))
    for forced in (False, True):
        for start in (0, 5):
            found = logger.read_ahead(places[key(5, start)], key(5, start), ENTRIES_MAX, BYTES_MAX)
            same_log = [each for each, place in places.items() if place >> 32 == 0]
            assert [each for each, _ in found] == same_log[start + 1 :]
        if not forced:
            logger.force()
    logger.close()
    again = opened(filesystem)
    found = again.read_ahead(places[key(5, 0)], key(5, 0), ENTRIES_MAX, BYTES_MAX)
    assert [each for each, _ in found] == same_log[1:]
    again.close()


def test_what_is_odd_ends_it() -> None:
    def odd_log(odd: bytes) -> MemoryFileSystem:
        log = EntryLogBuilder()
        for entry in range(3):
            log.add(body_of(5, entry))
        log.put(odd, "odd")
        log.add(body_of(5, 4))
        return MemoryFileSystem({f"{CURRENT}/0.log": log.roll().data})

    for odd in (
        b"\0",
        bytes(64),
        b"\xf0" * 64,
        (15).to_bytes(4, "big") + key(5, 3)[:15],
        b"\x7f" + bytes(63),
    ):
        logger = opened(odd_log(odd))
        assert entries(logger.read_ahead(location(0, FIRST), key(5, 0), ENTRIES_MAX, BYTES_MAX)) == [1, 2]
        logger.close()


def test_it_starts_only_at_the_entry_that_is_named() -> None:
    logger = opened(empty_directory())
    places = append(logger, bodies_of(5, entries=5))
    for place, wanted in (
        (places[key(5, 1)], key(5, 2)),
        (places[key(5, 1)] + 1, key(5, 1)),
        (location(3, FIRST), key(5, 1)),
        (0, key(5, 1)),
        (location(0, 10), key(5, 1)),
        (location(0, 1 << 31), key(5, 1)),
    ):
        assert logger.read_ahead(place, wanted, ENTRIES_MAX, BYTES_MAX) == []
    logger.close()


def test_a_log_whose_header_is_damaged_is_read_all_the_same() -> None:
    log = EntryLogBuilder()
    for entry in range(3):
        log.add(body_of(5, entry))
    logger = opened(MemoryFileSystem({f"{CURRENT}/0.log": b"X" * 1024 + log.roll().data[1024:]}))
    assert logger.read(location(0, FIRST), key(5, 0)) == body_of(5, 0)
    assert entries(logger.read_ahead(location(0, FIRST), key(5, 0), ENTRIES_MAX, BYTES_MAX)) == [1, 2]
    logger.close()


def test_the_index_tells_what_of_it_counts() -> None:
    """Behind the last forced record a power cut leaves ids without their bodies; and copies may be old."""
    bodies = bodies_of(5, entries=6, payload_bytes=2000)
    log = EntryLogBuilder()
    places = {body[:16]: location(0, log.add(body).offset + 4) for body in bodies}
    content = bytearray(log.build().data)
    for body in bodies[4:]:
        start = places.pop(body[:16])
        content[start + 600 : start + 1800] = bytes(1200)
    logger = opened(MemoryFileSystem({f"{CURRENT}/0.log": bytes(content)}))
    assert len(logger.read_ahead(location(0, FIRST), key(5, 0), ENTRIES_MAX, BYTES_MAX)) == 5
    places[key(5, 2)] = location(1, FIRST)
    kept = read_ahead(logger, key(5, 0), places, ENTRIES_MAX, BYTES_MAX)
    assert kept == [(key(5, entry), body_of(5, entry, 2000)) for entry in (1, 3)]
    logger.close()
