"""Appending, forcing and reading when nothing fails."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.codec.entry import BODY_BYTES_MAX
from bkctl.codec.entrylog import HEADER_BYTES, log_name
from bkctl.config.server_keys.storage import LOG_SIZE_BYTES_MAX, EntryLogSettings
from bkctl.engine.entrylog import log_writer
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.errors import CorruptionError, NotFoundError, RefusedError, StorageError, UsageError
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.memory import MemoryFileSystem, MemoryWritableFile
from tests.support.java_bookkeeper import sample_directory
from tests.unit.engine.entrylog.entry_logging import (
    CURRENT,
    FIRST,
    Model,
    append,
    bodies_of,
    body_of,
    empty_directory,
    key,
    keys_of,
    ledgers_map,
    location,
    opened,
    scanned,
)


def test_a_log_starts_with_its_first_entry_and_not_before() -> None:
    filesystem = empty_directory()
    logger = opened(filesystem)
    logger.force()
    assert filesystem.files == {f"{CURRENT}/VERSION": b"5\n"}
    assert logger.current_log_id is None
    assert logger.append([], []) == []
    assert logger.current_log_id is None
    bodies = bodies_of(5, entries=2)
    step = 4 + len(bodies[0])
    assert logger.append(keys_of(bodies), bodies) == [location(0, FIRST), location(0, FIRST + step)]
    assert logger.current_log_id == 0
    assert logger.log_ids() == [0]
    assert filesystem.files[f"{CURRENT}/lastId"] == b"0\n"
    logger.close()
    # A stop appends no map.
    assert scanned(filesystem, 0) == ({(5, 0): bodies[0], (5, 1): bodies[1]}, [], "end")
    assert ledgers_map(filesystem, 0) is None


def test_no_start_goes_on_in_a_log_of_the_one_before() -> None:
    filesystem = empty_directory()
    model = Model()
    for start in range(3):
        logger = opened(filesystem)
        model.flush(logger, bodies_of(start))
        assert logger.current_log_id == start
        logger.close()
    logger = opened(filesystem)
    model.check(logger)
    logger.close()


@pytest.mark.parametrize("taken", ["1.log", "1.log.compacting", "1.log.0.compacted", "01.log"])
def test_an_id_that_is_taken_while_running_is_skipped(taken: str) -> None:
    filesystem = empty_directory()
    logger = opened(filesystem, 1200)
    append(logger, bodies_of(5, entries=1))
    filesystem.create(f"{CURRENT}/{taken}").close()
    append(logger, bodies_of(5, first=1, entries=3))
    assert logger.current_log_id == 2
    assert filesystem.files[f"{CURRENT}/lastId"] == b"2\n"
    logger.close()


def test_a_last_id_that_cannot_be_read_leaves_it_to_the_names() -> None:
    for content in (b"", b"x\n", b"80000000\n"):
        filesystem = MemoryFileSystem({f"{CURRENT}/lastId": content, f"{CURRENT}/1c.log": b""})
        logger = opened(filesystem)
        append(logger, bodies_of(5))
        assert logger.current_log_id == 0x1D
        logger.close()


def test_strange_names_are_reported() -> None:
    logger = opened(MemoryFileSystem({f"{CURRENT}/0123456789.log": b"", f"{CURRENT}/5.log": b""}))
    assert logger.strange_names == ("0123456789.log",)
    append(logger, bodies_of(5))
    assert logger.current_log_id == 6
    logger.close()


def test_the_example_of_a_rolled_log(corpora: Callable[[str], Path]) -> None:
    """formats.md 11.3: the same entries, rolled, are the same bytes as Java's."""
    source = sample_directory("r/l", corpora) / "current" / "0.log"
    golden = source.read_bytes()
    assert len(golden) == 1330
    found, damage, _ = scanned(PosixFileSystem(), 0, str(source.parent))
    assert list(found) == [(5, 0), (5, 1), (5, 2), (6, 0), (6, 1)]
    assert not damage
    filesystem = empty_directory()
    logger = opened(filesystem, 1274)
    bodies = list(found.values())
    places = logger.append(keys_of(bodies), bodies)
    assert places == [0x404, 0x436, 0x468, 0x49A, 0x4CC]
    append(logger, [body_of(7, 0)])
    logger.force()
    assert filesystem.files[f"{CURRENT}/0.log"] == golden
    logger.close()


def test_the_header_names_the_map_only_when_the_map_is_durable() -> None:
    filesystem = empty_directory()
    logger = opened(filesystem, 1200)
    append(logger, bodies_of(5, entries=5))
    name = f"{CURRENT}/0.log"
    assert logger.current_log_id is not None
    assert logger.current_log_id > 0
    assert filesystem.files[name][8:20] == bytes(12)
    logger.force()
    assert filesystem.files[name][8:20] != bytes(12)
    assert ledgers_map(filesystem, 0) is not None
    logger.close()


@pytest.mark.parametrize("payload_bytes", [0, 1, 40, 500])
def test_a_batch_spans_logs_and_every_limit_is_kept(payload_bytes: int) -> None:
    size_bytes_max = 2000
    filesystem = empty_directory()
    logger = opened(filesystem, size_bytes_max)
    model = Model()
    bodies = bodies_of(1, 2, 3, entries=40, payload_bytes=payload_bytes)
    model.flush(logger, bodies)
    step = 4 + len(bodies[0])
    per_log = (size_bytes_max - HEADER_BYTES) // step
    assert [place >> 32 for place in model.locations.values()] == [at // per_log for at in range(len(bodies))]
    model.check(logger)
    whole = logger.log_ids()
    assert whole == list(range(-(-len(bodies) // per_log)))
    assert logger.logs_begun == len(whole)
    assert logger.logs_rolled == len(whole) - 1
    for log_id in whole[:-1]:
        found, damage, tail = scanned(filesystem, log_id)
        totals: dict[int, int] = {}
        for (ledger, _), body in found.items():
            totals[ledger] = totals.get(ledger, 0) + 4 + len(body)
        assert ledgers_map(filesystem, log_id) == totals
        assert (len(found), damage, tail) == (per_log, [], "end")
    logger.close()


def test_a_record_may_end_exactly_at_the_limit() -> None:
    bodies = bodies_of(5, entries=3)
    step = 4 + len(bodies[0])
    for limit, logs in ((HEADER_BYTES + 3 * step, [0, 0, 0]), (HEADER_BYTES + 3 * step - 1, [0, 0, 1])):
        logger = opened(empty_directory(), limit)
        assert [place >> 32 for place in logger.append(keys_of(bodies), bodies)] == logs
        logger.close()


def test_a_record_that_is_larger_than_a_log_gets_one_for_itself() -> None:
    filesystem = empty_directory()
    logger = opened(filesystem, 1500)
    model = Model()
    bodies = [body_of(5, 0), body_of(5, 1, 9000), body_of(5, 2, 9000), body_of(5, 3)]
    model.flush(logger, bodies)
    assert [place >> 32 for place in model.locations.values()] == [0, 1, 2, 3]
    model.check(logger)
    assert all(scanned(filesystem, log_id)[1:] == ([], "end") for log_id in range(4))
    logger.close()


def test_more_than_one_write_and_more_than_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "WRITE_BYTES", 5000)
    monkeypatch.setattr("bkctl.engine.entrylog.entry_logger._PASS_ENTRIES", 50)
    chance = random.Random(5)
    bodies = [
        body_of(ledger, entry, chance.choice((0, 10, 700, 12_000)))
        for ledger in (1, 2)
        for entry in range(240)
    ]
    filesystem = empty_directory()
    logger = opened(filesystem, 300_000)
    model = Model()
    model.flush(logger, bodies)
    model.check(logger)
    found: dict[tuple[int, int], bytes] = {}
    for log_id in logger.log_ids():
        found |= scanned(filesystem, log_id)[0]
    assert list(found.values()) == bodies
    assert logger.entries_appended == 480
    assert logger.bytes_appended == sum(map(len, bodies)) + 4 * 480
    logger.close()


def test_the_map_counts_rightly_whatever_the_order_of_the_entries() -> None:
    filesystem = empty_directory()
    logger = opened(filesystem, 60_000)
    bodies = bodies_of(3, 9, 2**62, entries=60)
    random.Random(1).shuffle(bodies)
    append(logger, bodies)
    append(logger, bodies_of(1, entries=1, payload_bytes=60_000))
    logger.force()
    assert ledgers_map(filesystem, 0) == dict.fromkeys((3, 9, 2**62), 60 * (4 + len(bodies[0])))
    logger.close()


def test_a_map_of_several_batches() -> None:
    filesystem = empty_directory()
    bodies = [body_of(ledger, 0, 0) for ledger in range(10_001)]
    logger = opened(filesystem, HEADER_BYTES + sum(4 + len(body) for body in bodies))
    append(logger, bodies)
    append(logger, [body_of(1, 1)])
    logger.force()
    assert ledgers_map(filesystem, 0) == dict.fromkeys(range(10_001), 40)
    assert scanned(filesystem, 0)[1:] == ([], "end")
    logger.close()


def test_entries_are_read_before_they_are_forced_and_after_a_roll() -> None:
    logger = opened(empty_directory(), 3000, files_open_max=1)
    places = append(logger, bodies := bodies_of(5, 6, entries=60, payload_bytes=30))
    assert len({place >> 32 for place in places.values()}) > 3
    for forced in (False, True):
        for body in bodies:
            assert logger.read(places[body[:16]], body[:16]) == body
        if not forced:
            logger.force()
    logger.close()


@pytest.mark.parametrize("payload_bytes", [0, 4000, 4059, 4060, 4061, 4064, 5000, 300_000])
def test_sizes_around_the_first_read(payload_bytes: int) -> None:
    logger = opened(empty_directory())
    places = append(logger, bodies := bodies_of(5, entries=3, payload_bytes=payload_bytes))
    for body in bodies:
        assert logger.read(places[body[:16]], body[:16]) == body
    logger.close()


def test_what_is_not_there_is_corruption_and_never_absence() -> None:
    filesystem = empty_directory()
    logger = opened(filesystem)
    places = append(logger, bodies_of(5, entries=3))
    logger.force()
    place = places[key(5, 1)]
    for wrong, wanted, what in (
        (place, key(5, 2), "an entry"),
        (place, key(6, 1), "an entry"),
        (place + 1, key(5, 1), "an entry"),
        (location(0, 9_999_999), key(5, 1), "an entry"),
        (location(7, FIRST), key(5, 1), "a file"),
        (0, key(5, 1), "a log and an offset"),
        (-1, key(5, 1), "a log and an offset"),
        (location(0, FIRST - 1), key(5, 1), "a log and an offset"),
    ):
        with pytest.raises(CorruptionError) as caught:
            logger.read(wrong, wanted)
        assert what in caught.value.expected
    logger.close()


def test_a_record_that_is_cut_or_whose_size_is_absurd_is_corruption() -> None:
    filesystem = empty_directory()
    logger = opened(filesystem)
    append(logger, bodies := bodies_of(5, entries=1, payload_bytes=6000))
    logger.close()
    whole = filesystem.files[f"{CURRENT}/0.log"]
    cuts = [
        whole[:length]
        for length in (HEADER_BYTES, FIRST, FIRST + 10, FIRST + 16, FIRST + 4000, len(whole) - 1)
    ]
    sizes = [
        whole[:1024] + word.to_bytes(4, "big") + whole[1028:]
        for word in (0, 15, BODY_BYTES_MAX + 1, 2**32 - 1)
    ]
    for content in cuts + sizes:
        logger = opened(MemoryFileSystem({f"{CURRENT}/0.log": content}))
        with pytest.raises(CorruptionError) as caught:
            logger.read(FIRST, bodies[0][:16])
        assert caught.value.path == f"{CURRENT}/0.log"
        assert caught.value.offset == HEADER_BYTES
        logger.close()


def test_logs_are_removed_also_under_a_reader() -> None:
    filesystem = empty_directory()
    logger = opened(filesystem, 1500)
    places = append(logger, bodies_of(5, entries=20))
    with pytest.raises(RefusedError):
        logger.remove(0)  # rolled, but not durable yet
    logger.force()
    current = logger.current_log_id
    assert current is not None
    with pytest.raises(RefusedError):
        logger.remove(current)
    logger.read(places[key(5, 0)], key(5, 0))
    borrowed = logger._open_logs.borrow(0)
    logger.remove(0)
    assert borrowed.file.read_at(0, 4) == b"BKLO"
    logger._open_logs.give_back(borrowed)
    with pytest.raises(StorageError):
        borrowed.file.read_at(0, 4)
    assert 0 not in logger.log_ids()
    with pytest.raises(CorruptionError, match="entry log"):
        logger.read(places[key(5, 0)], key(5, 0))
    with pytest.raises(NotFoundError):
        logger.remove(0)
    logger.close()


def test_a_log_that_is_just_being_made_is_not_removed_as_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = empty_directory()
    logger = opened(filesystem)
    original = filesystem.create
    refused = []

    def create(path: str, *, mode_of: str | None = None) -> MemoryWritableFile:
        file = original(path, mode_of=mode_of)
        if path.endswith(".log"):
            with pytest.raises(RefusedError):
                logger.remove(logger.log_ids()[-1])
            refused.append(path)
        return file

    monkeypatch.setattr(filesystem, "create", create)
    model = Model()
    model.flush(logger, bodies_of(5))
    assert refused
    model.check(logger)
    logger.close()


def test_it_must_be_open() -> None:
    filesystem = empty_directory()
    logger = EntryLogger(CURRENT, filesystem, EntryLogSettings())
    with pytest.raises(StorageError, match="not opened"):
        logger.append([key(5, 0)], [body_of(5, 0)])
    logger.open()
    places = append(logger, bodies_of(5))
    logger.close()
    logger.close()
    for call in (
        lambda: append(logger, bodies_of(5)),
        logger.force,
        lambda: logger.read(places[key(5, 0)], key(5, 0)),
    ):
        with pytest.raises(StorageError, match="closed"):
            call()
    assert logger.read_ahead(places[key(5, 0)], key(5, 0), 10, 1000) == []
    with pytest.raises(NotFoundError):
        EntryLogger("/none", filesystem, EntryLogSettings()).open()


def test_entries_that_no_record_can_hold_are_refused() -> None:
    logger = opened(empty_directory())
    model = Model()
    model.flush(logger, bodies_of(5))
    for keys, bodies in (
        ([key(5, 0)], []),
        ([key(5, 0)], [b""]),
        ([key(5, 0), key(5, 1)], [body_of(5, 0), bytes(15)]),
    ):
        with pytest.raises(UsageError):
            logger.append(keys, bodies)
    model.flush(logger, bodies_of(6))
    model.check(logger)
    logger.close()


@pytest.mark.parametrize(
    "change", [{"size_bytes_max": 0}, {"size_bytes_max": LOG_SIZE_BYTES_MAX + 1}, {"files_open_max": 0}]
)
def test_settings_have_bounds(change: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        dataclasses.replace(EntryLogSettings(), **change)


def test_the_same_on_a_real_file_system(tmp_path: Path) -> None:
    directory = str(tmp_path)
    logger = opened(PosixFileSystem(), 5000, directory=directory, files_open_max=2)
    model = Model()
    for round_number in range(4):
        model.flush(logger, bodies_of(5, 6, first=round_number * 30, entries=30))
        model.check(logger)
    logger.close()
    assert (tmp_path / "lastId").read_bytes() == b"%x\n" % max(logger.log_ids())
    again = opened(PosixFileSystem(), directory=directory)
    model.check(again)
    names = {log_name(log_id) for log_id in again.log_ids()}
    assert {path.name for path in tmp_path.iterdir()} == names | {"lastId"}
    again.close()
