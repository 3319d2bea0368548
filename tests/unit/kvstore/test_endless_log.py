"""Damaged logs at which RocksDB would read for ever are refused, by readers and by stores."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import rocksdict

from bkctl.errors import CorruptionError
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb import open_read_only
from bkctl.kvstore.rocksdb_store import open_store

ROWS = 200
_HEAD = struct.Struct("<IHB")
Open = Callable[[str], object]


def read_only(path: str) -> object:
    return open_read_only(path)


def alone(path: str) -> object:
    return open_store(path, LEDGERS_PROFILE, create=False)


def make_database(path: Path, *, recycled: bool = False) -> None:
    """Make a database with rows in its write-ahead log alone, which a flush in front has rolled."""
    options = rocksdict.Options(raw_mode=True)
    if recycled:
        options.set_recycle_log_file_num(2)
        options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.point_in_time())
    database = rocksdict.Rdict(str(path), options)
    for number in range(ROWS):
        database[b"%016d" % number] = b"x" * 50
        if recycled and number in (60, 120, 180):
            database.flush()
    database.flush_wal(True)
    # A close would move the rows into tables.
    copy = path.with_name("copy")
    copy.mkdir()
    for file in path.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    database.close()
    (copy / "rocksdict-config.json").unlink(missing_ok=True)


def second_record(path: Path) -> int:
    """Return the offset of the second record of a log."""
    _, length, _ = _HEAD.unpack_from(path.read_bytes())
    return int(_HEAD.size + length)


def log_of(database: Path, pattern: str) -> Path:
    return max(database.glob(pattern), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("open_database", [read_only, alone])
@pytest.mark.parametrize("pattern", ["MANIFEST-*", "*.log"])
@pytest.mark.parametrize("kind", [5, 6, 7, 8])
@pytest.mark.timeout(120)
def test_a_record_of_a_recycled_log_in_one_that_is_not(
    tmp_path: Path, open_database: Open, pattern: str, kind: int
) -> None:
    make_database(tmp_path / "database")
    log = log_of(tmp_path / "copy", pattern)
    data, at = bytearray(log.read_bytes()), second_record(log)
    data[at + 6] = kind
    log.write_bytes(data)
    with pytest.raises(CorruptionError, match=f"{log.name}: RocksDB log at offset {at}.*for ever"):
        open_database(str(tmp_path / "copy"))
    assert log.read_bytes() == data


@pytest.mark.timeout(120)
def test_behind_a_damaged_record_the_rest_of_the_block_is_not_read(tmp_path: Path) -> None:
    """RocksDB leaves it out as well, so that such a record there does no harm."""
    make_database(tmp_path / "database")
    log = log_of(tmp_path / "copy", "*.log")
    data, at = bytearray(log.read_bytes()), second_record(log)
    data[at + 20] ^= 0x55
    data[at + 6 + second_record(log)] = 7
    log.write_bytes(data)
    database = open_read_only(str(tmp_path / "copy"))
    assert database.damage is not None
    database.close()


def test_recycled_logs_are_read(tmp_path: Path) -> None:
    make_database(tmp_path / "database", recycled=True)
    copy = tmp_path / "copy"
    assert any(
        _HEAD.unpack_from(log.read_bytes())[2] >= 5 for log in copy.glob("*.log") if log.stat().st_size
    )
    database = open_read_only(str(copy))
    rows = [row for batch in database.batches(rows_max=1000) for row in batch]
    assert len(rows) == ROWS
    database.close()
