"""Reading many entries by one call, and an entry with what follows it: the same as one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bkctl.engine.cache.record_batch import RecordBatch
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.entrylog.record_reader import FIRST_READ_BYTES, TOGETHER_BYTES_MAX
from bkctl.engine.entrylog.scattered_records import bodies_found
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
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
)

BYTES_MAX = 1 << 20


@pytest.fixture(params=["memory", "posix"])
def logger_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., EntryLogger]:
    """Opens a logger in memory or on the disk."""
    if request.param == "memory":
        return lambda **more: opened(empty_directory(), **more)
    return lambda **more: opened(PosixFileSystem(), directory=str(tmp_path), **more)


def bodies_at(logger: EntryLogger, locations: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
    return bodies_found(len(keys), logger.read_scattered(locations, keys))


def on_disk(path: Path, **more: int) -> EntryLogger:
    return opened(PosixFileSystem(), directory=str(path), **more)


def test_entries_of_several_logs_are_read_together(tmp_path: Path) -> None:
    logger = on_disk(tmp_path, size_bytes_max=4000)
    bodies = [body_of(ledger, entry, 17 * entry) for entry in range(60) for ledger in (5, 6)]
    places = append(logger, bodies)
    logger.force()
    assert len({place >> 32 for place in places.values()}) > 5
    wanted = [body[:16] for body in bodies[::-3]]
    for _ in range(2):  # the second one knows how large they are
        assert bodies_at(logger, [places[each] for each in wanted], wanted) == bodies[::-3]
    many = wanted * 20  # more than one call takes
    assert bodies_at(logger, [places[each] for each in many], many) == bodies[::-3] * 20


def test_what_cannot_be_read_together_is_left_to_be_read_alone(tmp_path: Path) -> None:
    logger = on_disk(tmp_path)
    bodies = [body_of(5, 0), body_of(5, 1, TOGETHER_BYTES_MAX + 1), body_of(5, 2, 5000), body_of(5, 3)]
    places = append(logger, bodies)
    keys = [body[:16] for body in bodies]
    at = [places[each] for each in keys]
    assert bodies_at(logger, at, keys) == [bodies[0], None, bodies[2], bodies[3]]
    assert logger.read(at[1], keys[1]) == bodies[1]
    swapped = [at[3], at[1], at[2], at[0]]
    assert bodies_at(logger, swapped, keys) == [None, None, bodies[2], None]
    nowhere = [location(77, FIRST), location(0, 5), at[3] + 3, location(at[3] >> 32, 1 << 31)]
    assert bodies_at(logger, nowhere, keys) == [None] * 4


def test_a_record_that_the_end_of_the_log_cuts_is_no_answer(tmp_path: Path) -> None:
    logger = on_disk(tmp_path)
    places = append(logger, bodies := bodies_of(5, entries=3, payload_bytes=300))
    logger.force()
    keys = [body[:16] for body in bodies]
    at = [places[each] for each in keys]
    (log,) = tmp_path.glob("*.log")
    with log.open("r+b") as file:
        file.truncate((at[2] & 0xFFFFFFFF) + len(bodies[2]) - 1)
    for _ in range(2):
        assert bodies_at(logger, at, keys) == [bodies[0], bodies[1], None]


def test_where_files_are_no_descriptors_each_is_read_alone() -> None:
    logger = opened(empty_directory())
    places = append(logger, bodies_of(5, entries=3))
    assert bodies_at(logger, list(places.values()), list(places)) == [None] * 3


def rows(batch: RecordBatch | None) -> list[tuple[bytes, bytes]]:
    """Keys and bodies."""
    return [] if batch is None else list(zip(batch.key_list(), batch.bodies(), strict=True))


@pytest.mark.parametrize("sizes", [(40,), (0, 3000), (5, 9000, 40, 40, 40)])
def test_a_span_is_an_entry_and_what_is_read_ahead(
    logger_of: Callable[..., EntryLogger], sizes: tuple[int, ...]
) -> None:
    logger = logger_of()
    bodies = [body_of(ledger, entry, sizes[entry % len(sizes)]) for ledger in (5, 6) for entry in range(40)]
    places = append(logger, bodies)
    for entries_max, bytes_max in ((100, BYTES_MAX), (7, BYTES_MAX), (100, 10_000), (100, 0), (1, 50)):
        for body in bodies:
            at = (places[body[:16]], body[:16], entries_max, bytes_max)
            span = rows(logger.read_span(*at))
            whole = [(body[:16], body), *logger.read_ahead(*at)]
            # There may be fewer where sizes vary, for one read brings what the ones before it needed.
            assert span == whole[: len(span)]
            assert len(span) in (0, len(whole)) or len(sizes) > 1
            assert span or len(body) > FIRST_READ_BYTES
    span = rows(logger.read_span(places[key(5, 0)], key(5, 0), 100, BYTES_MAX))
    assert len(span) == 40 or len(sizes) > 1


def test_what_follows_is_of_the_ledger_and_begins_where_it_is_said(
    logger_of: Callable[..., EntryLogger],
) -> None:
    logger = logger_of()
    places = append(logger, bodies := bodies_of(5, 6, entries=3))
    ledger = key(5, 0)[:8]
    following = logger.read_following(places[key(5, 1)], ledger, 10, BYTES_MAX)
    assert rows(following) == [(body[:16], body) for body in bodies[1:3]]
    assert rows(logger.read_following(places[key(5, 0)], ledger, 2, BYTES_MAX)) == [
        (body[:16], body) for body in bodies[:2]
    ]
    for place in (places[key(6, 0)], places[key(5, 0)] + 1, places[key(6, 2)] + 4096, location(99, FIRST), 0):
        assert logger.read_following(place, ledger, 10, BYTES_MAX) is None
    assert logger.read_following(places[key(5, 0)], ledger, 0, BYTES_MAX) is None


def test_large_entries_are_brought_by_a_second_read() -> None:
    filesystem = FaultyFileSystem(empty_directory())
    logger = opened(filesystem)
    places = append(logger, bodies_of(5, entries=60, payload_bytes=3 * FIRST_READ_BYTES))
    filesystem.inject(FaultRule("read", error_number=None))
    assert len(rows(logger.read_span(places[key(5, 0)], key(5, 0), 50, BYTES_MAX))) == 51
    assert filesystem._seen[0] == 2


def test_a_span_begins_with_the_entry_that_is_wanted(logger_of: Callable[..., EntryLogger]) -> None:
    logger = logger_of()
    places = append(logger, bodies_of(5, entries=3))
    assert logger.read_span(places[key(5, 1)], key(5, 2), 10, BYTES_MAX) is None
    assert logger.read_span(location(99, FIRST), key(5, 2), 10, BYTES_MAX) is None
    assert logger.read_span(0, key(5, 2), 10, BYTES_MAX) is None
    assert logger.read_span(places[key(5, 2)] + (1 << 20), key(5, 2), 10, BYTES_MAX) is None


def test_a_span_that_cannot_be_read_is_none() -> None:
    memory = empty_directory()
    writer = opened(memory)
    places = append(writer, bodies_of(5, entries=3))
    writer.force()
    faulty = FaultyFileSystem(memory)
    logger = opened(faulty, directory=CURRENT)
    assert len(rows(logger.read_span(places[key(5, 0)], key(5, 0), 10, BYTES_MAX))) == 3
    faulty.inject(FaultRule("read", ".log"))
    assert logger.read_span(places[key(5, 0)], key(5, 0), 10, BYTES_MAX) is None
