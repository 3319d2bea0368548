"""Entry logs that our entry logger wrote, as DefaultEntryLogger of BookKeeper reads them."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkctl.codec.ledger_data import LedgerData
from bkctl.codec.location import encode_key
from bkctl.config.server_keys.storage import EntryLogSettings
from bkctl.engine.db_storage.entry_locations import EntryLocationIndex
from bkctl.engine.db_storage.ledgers import LedgerIndex
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.errors import StorageError
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.base import WritableFileSystem
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from tests.support.java_bookkeeper import JavaDriver, start_driver
from tests.support.log_builder import ALL_DIGESTERS, entry_body

pytestmark = pytest.mark.interop

#: (ledger, entry) -> body
Bodies = dict[tuple[int, int], bytes]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaDriver]:
    with start_driver() as driver:
        yield driver


def entries(ledgers: list[int], count: int, seed: int) -> Bodies:
    """In the order of a flush; every digest, many sizes."""
    chance = random.Random(seed)
    return {
        (ledger, entry): entry_body(
            ledger,
            entry,
            chance.randbytes(chance.choice((0, 1, 90, 4090, 9000))),
            chance.choice(ALL_DIGESTERS),
        )
        for ledger in sorted(ledgers)
        for entry in range(count)
    }


def opened(
    ledger_dir: Path, size_bytes_max: int, filesystem: WritableFileSystem | None = None
) -> EntryLogger:
    (ledger_dir / "current").mkdir(exist_ok=True)
    settings = EntryLogSettings(size_bytes_max=size_bytes_max)
    logger = EntryLogger(str(ledger_dir / "current"), filesystem or PosixFileSystem(), settings)
    logger.open()
    return logger


def append(logger: EntryLogger, bodies: Bodies) -> dict[tuple[int, int], int]:
    return dict(
        zip(bodies, logger.append([encode_key(*ids) for ids in bodies], list(bodies.values())), strict=True)
    )


def check(
    java: JavaDriver, ledger_dir: Path, bodies: Bodies, places: dict[tuple[int, int], int]
) -> list[int]:
    """Java scans the same entries at the same places, and reads each; the ids of logs with a map."""
    scanned: dict[tuple[int, int], int] = {}
    with_map = []
    for path in sorted((ledger_dir / "current").glob("*.log")):
        log_id = int(path.stem, 16)
        verdict = java.entry_log(ledger_dir, log_id)
        assert verdict.error is None
        totals: dict[int, int] = {}
        for record in verdict.records:
            if record.ledger < 0:
                continue  # the map
            assert record.entry is not None
            scanned[record.ledger, record.entry] = log_id << 32 | (record.offset + 4)
            totals[record.ledger] = totals.get(record.ledger, 0) + 4 + record.size
        assert verdict.metadata == totals
        if isinstance(verdict.ledgers_map, dict):
            assert verdict.ledgers_map == totals
            with_map.append(log_id)
    assert scanned == places
    for ids in random.Random(1).sample(sorted(places), 40):
        assert java.entry(ledger_dir, *ids, places[ids]) == bodies[ids]
    return with_map


def test_java_reads_logs_that_were_rolled_and_one_that_was_not(java: JavaDriver, tmp_path: Path) -> None:
    bodies = entries([0, 5, 2**31, 2**62], 60, 1)
    logger = opened(tmp_path, 150_000)
    places = append(logger, bodies)
    logger.force()
    logger.close()
    logs = sorted({place >> 32 for place in places.values()})
    assert len(logs) > 3
    assert check(java, tmp_path, bodies, places) == logs[:-1]


def test_java_reads_what_several_starts_leave(java: JavaDriver, tmp_path: Path) -> None:
    bodies: Bodies = {}
    places: dict[tuple[int, int], int] = {}
    for start in range(3):
        new = entries([10 + start, 20 + start], 40, start)
        bodies |= new
        logger = opened(tmp_path, 200_000)
        places |= append(logger, new)
        logger.force()
        logger.close()
    assert len({place >> 32 for place in places.values()}) > 3
    check(java, tmp_path, bodies, places)


def test_java_reads_a_map_of_several_batches(java: JavaDriver, tmp_path: Path) -> None:
    bodies = {(ledger, 0): entry_body(ledger, 0, b"") for ledger in range(10_001)}
    logger = opened(tmp_path, 1024 + sum(4 + len(body) for body in bodies.values()))
    append(logger, bodies)
    append(logger, entries([3], 1, 0))
    logger.force()
    logger.close()
    expected = {ledger: 4 + len(body) for (ledger, _), body in bodies.items()}
    assert java.entry_log(tmp_path, 0).ledgers_map == expected


def test_java_reads_around_a_record_that_a_full_disk_has_torn(java: JavaDriver, tmp_path: Path) -> None:
    filesystem = FaultyFileSystem(PosixFileSystem())
    logger = opened(tmp_path, 1 << 20, filesystem)
    bodies = entries([5], 45, 7)
    places = append(logger, bodies)
    logger.force()
    more = {(6, 0): entry_body(6, 0, bytes(50_000))}
    filesystem.inject(FaultRule("write", ".log", count=1, error_number=errno.ENOSPC))
    with pytest.raises(StorageError):
        append(logger, more)
    places |= append(logger, more)
    logger.force()
    logger.close()
    assert {place >> 32 for place in places.values()} == {0, 1}
    check(java, tmp_path, bodies | more, places)


def test_java_finds_our_rows_and_the_entries_they_point_at(java: JavaDriver, tmp_path: Path) -> None:
    bodies = entries([3, 4, 2**40], 50, 9)
    logger = opened(tmp_path, 100_000)
    places = append(logger, bodies)
    logger.force()
    logger.close()
    current = tmp_path / "current"
    ledgers = {
        3: LedgerData(False, b"key"),
        4: LedgerData(True, b"", b"explicit lac"),
        2**40: LedgerData(True, b"key", None, limbo=True),
    }
    with open_store(str(current / "locations"), LOCATIONS_PROFILE, create=True) as store:
        index = EntryLocationIndex(store)
        index.put_many([encode_key(*ids) for ids in places], list(places.values()))
        index.put_many([encode_key(9, 0)], [1028])
        index.delete_ledgers([9])
    with open_store(str(current / "ledgers"), LEDGERS_PROFILE, create=True) as store:
        rows = LedgerIndex(store)
        for ledger, data in ledgers.items():
            rows.set(ledger, data)
        rows.set(9, ledgers[3])
        rows.flush()
        rows.delete(9)
        rows.flush()
    found = java.db_locations(current, 3, 4, 9, 2**40)
    assert {ids: place[0] << 32 | place[1] for ids, place in found.items()} == places
    theirs = java.db_ledgers(current)
    assert set(theirs) == set(ledgers)
    for ledger, data in ledgers.items():
        row = theirs[ledger]
        lac = None if data.explicit_lac is None else data.explicit_lac.hex()
        assert (row["fenced"], row["master_key"], row["explicit_lac"], row["limbo"]) == (
            data.fenced,
            data.master_key.hex(),
            lac,
            bool(data.limbo),
        )
