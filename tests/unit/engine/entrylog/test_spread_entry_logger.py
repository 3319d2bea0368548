"""A logger over several directories answers every question for all of them, not for its own empty place."""

from __future__ import annotations

import pytest

from bkctl.config.server_keys.storage import EntryLogSettings
from bkctl.engine.entrylog import spread_entry_logger
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.entrylog.spread_entry_logger import SpreadEntryLogger
from bkctl.errors import BookieIOError, StorageError
from bkctl.vfs.faulty import FaultRule
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.interleaved_storage_rig import InterleavedStorageRig
from tests.support.manual_clock import ManualClock
from tests.support.storage_rig import entry_of, key_of

#: Members whose inherited code is right for several directories, each with the reason.
INHERITED = {
    "directory": "the first directory, as the place of the storage",
    "strange_names": "the log ids, which all parts share, know the names of every directory",
    "current_log_id": "made of `current_log_ids`, which is the parts'",
}

DIRECTORIES = ["/l0/current", "/l1/current", "/l2/current"]


def members(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_every_public_member_is_the_parts_or_is_right_as_it_is() -> None:
    """A method that the other logger does not have would work on a directory without logs."""
    assert members(EntryLogger) - members(SpreadEntryLogger) == INHERITED.keys()
    assert members(SpreadEntryLogger) <= members(EntryLogger)


def test_what_both_loggers_count_and_list_is_the_same() -> None:
    one, several = opened(1), opened(3)
    for logger in (one, several):
        for flush in range(6):
            keys = [key_of(ledger, flush) for ledger in range(4)]
            bodies = [entry_of(ledger, flush, "", 300) for ledger in range(4)]
            locations = logger.append(keys, bodies)
            logger.force()
            for key, body, location in zip(keys, bodies, locations, strict=True):
                assert logger.read(location, key) == body
    assert several.bytes_appended == one.bytes_appended
    assert several.entries_appended == one.entries_appended
    assert several.forces == one.forces
    assert several.logs_begun == len(several.log_ids())
    assert {*several.settled_log_ids(), *several.unflushed_log_ids} == set(several.log_ids())
    assert several.least_unflushed_log_id == min(several.unflushed_log_ids)
    assert several.current_log_id in several.current_log_ids


def test_names_that_are_strange_are_seen_in_every_directory() -> None:
    disk = prepared(3)
    disk.create("/l2/current/80000000.log").close()
    logger = SpreadEntryLogger(DIRECTORIES, disk, EntryLogSettings(), ManualClock())
    logger.open()
    assert [name.rsplit("/", 1)[-1] for name in logger.strange_names] == ["80000000.log"]
    logger.close()


@pytest.mark.parametrize("directories", [1, 3])
def test_a_log_that_was_removed_is_listed_nowhere(directories: int) -> None:
    logger = opened(directories)
    logger.append([key_of(1, 1)], [entry_of(1, 1)])
    logger.force()
    logger.begin_new_logs()
    logger.append([key_of(1, 2)], [entry_of(1, 2)])
    logger.force()
    logger.retire()
    (first, *_) = logger.settled_log_ids()
    logger.remove(first)
    logger.sync_names()
    assert first not in logger.log_ids()


def test_logs_that_collectors_remove_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread_entry_logger, "HOMES_MAX", 5)
    logger = opened(3)
    assert isinstance(logger, SpreadEntryLogger)
    for entry in range(40):
        key, body = key_of(1, entry), entry_of(1, entry)
        (location,) = logger.append([key], [body])
        logger.force()
        logger.begin_new_logs()
        assert logger.read(location, key) == body
        for part in logger.parts:
            for log_id in part.settled_log_ids()[:-1]:
                part.remove(log_id)
        assert len(logger._homes) <= 5
    assert logger.read(location, key) == body


def prepared(directories: int) -> MemoryFileSystem:
    disk = MemoryFileSystem()
    for path in DIRECTORIES[:directories]:
        disk.make_directories(path)
    return disk


def opened(directories: int) -> EntryLogger:
    settings = EntryLogSettings(size_bytes_max=1 << 20, force_threads=1)
    disk = prepared(directories)
    logger = (
        EntryLogger(DIRECTORIES[0], disk, settings, ManualClock())
        if directories == 1
        else SpreadEntryLogger(DIRECTORIES[:directories], disk, settings, ManualClock())
    )
    logger.open()
    return logger


def stored_in_three() -> tuple[InterleavedStorageRig, list[bytes]]:
    """An entry in a log of each of three directories, none of which has been read yet; their keys."""
    rig = InterleavedStorageRig(directories=3).open()
    keys = [key_of(1, entry) for entry in range(3)]
    for entry in range(3):
        rig.put(1, entry)
        rig.storage.flush()
    assert [len(part.log_ids()) for part in rig.storage.entry_logger.parts] == [1, 1, 1]  # type: ignore[attr-defined]
    return rig, keys


def test_a_directory_that_cannot_be_looked_into_costs_no_entry_of_another_one() -> None:
    rig, keys = stored_in_three()
    logger = rig.storage.entry_logger
    # The logs are settled, so that their names are asked for.
    logger.begin_new_logs()
    logger.retire()
    rig.faulty.inject(FaultRule("list", path=lambda path: path.startswith(DIRECTORIES[1])))
    assert rig.storage.read(1, 2) == entry_of(1, 2)
    found = rig.storage.read_many(keys)
    assert (found[0], found[2]) == (entry_of(1, 0), entry_of(1, 2))
    assert isinstance(found[1], BookieIOError)


def test_reading_together_and_ahead_never_raises() -> None:
    rig, keys = stored_in_three()
    logger = rig.storage.entry_logger
    logger.begin_new_logs()
    logger.retire()
    locations = list(rig.storage.locations.places(keys))
    rig.faulty.inject(FaultRule("list"))
    assert logger.read_scattered(locations, keys) == []
    assert logger.read_ahead(locations[0], keys[0], 10, 1 << 20) == []
    assert logger.read_span(locations[0], keys[0], 10, 1 << 20) is None
    assert logger.read_following(locations[0], keys[0][:8], 10, 1 << 20) is None
    with pytest.raises(StorageError):
        logger.read(locations[0], keys[0])
