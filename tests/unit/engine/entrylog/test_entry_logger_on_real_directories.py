"""Directories that Java bookies wrote: every indexed entry is read, and new logs go beside theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkctl.codec.entrylog import parse_log_name
from bkctl.config.server_keys.storage import EntryLogSettings
from bkctl.engine.db_storage.entry_locations import EntryLocationIndex
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.vfs import PosixFileSystem
from tests.support.java_bookkeeper import copy_directory, sample_directory
from tests.unit.engine.entrylog.entry_logging import Model, bodies_of, keys_of, scanned

DEMO = Path(__file__).parents[3] / "data/demo/bookie1/ledgers"
SAMPLES = ["a/l", "a18/l", "d/l", "g/l", "r/l", "pd/l", "pd4/l", "s/l"]


def scans(current: Path) -> dict[int, dict[tuple[int, int], bytes]]:
    """The entries of every log."""
    logs = [log_id for path in current.glob("*.log") if (log_id := parse_log_name(path.name)) is not None]
    return {log_id: scanned(PosixFileSystem(), log_id, str(current))[0] for log_id in logs}


def indexed(index: EntryLocationIndex, ledgers: set[int]) -> Iterator[tuple[int, int, int]]:
    """(ledger, entry, location) of all rows of these ledgers."""
    for ledger in sorted(ledgers):
        entries = list(index.entries(ledger))
        keys = [ledger.to_bytes(8, "big") + entry.to_bytes(8, "big") for entry in entries]
        locations = index.get_many(keys)
        assert locations == [index.get(key) for key in keys]
        assert index.last_entry(ledger) == max(entries, default=None)
        for entry, location in zip(entries, locations, strict=True):
            assert location is not None
            yield ledger, entry, location


def check(current: Path) -> int:
    """Read everything by the index, compare with the scan, append a log; the number of entries."""
    logs = scans(current)
    before = {path.name: path.read_bytes() for path in current.glob("*.log") if path.is_file()}
    with open_store(str(current / "locations"), LOCATIONS_PROFILE, create=False) as store:
        index = EntryLocationIndex(store)
        logger = EntryLogger(str(current), PosixFileSystem(), EntryLogSettings())
        logger.open()
        assert logger.log_ids() == sorted(logs)
        count = ahead = 0
        for ledger, entry, location in indexed(index, {ids[0] for log in logs.values() for ids in log}):
            body = logger.read(location, key := ledger.to_bytes(8, "big") + entry.to_bytes(8, "big"))
            assert body == logs[location >> 32][ledger, entry]
            for found, following in logger.read_ahead(location, key, 100, 1 << 18):
                assert following == logger.read(index.get(found) or 0, found)
                ahead += 1
            count += 1
        model = Model()
        model.flush(logger, bodies := bodies_of(1 << 40, entries=20))
        index.put_many(keys_of(bodies), [model.locations[key] for key in keys_of(bodies)])
        assert [logger.read(index.get(key) or 0, key) for key in keys_of(bodies)] == bodies
        new = logger.current_log_id
        assert new is not None
        assert new > max(logs, default=-1)
        logger.close()
    assert before == {name: (current / name).read_bytes() for name in before}
    assert ahead or count < 20
    return count


def test_the_demo(tmp_path: Path) -> None:
    assert check(copy_directory(DEMO, tmp_path / "l") / "current") > 100


@pytest.mark.parametrize("sample", SAMPLES)
def test_samples(corpora: Callable[[str], Path], tmp_path: Path, sample: str) -> None:
    check(copy_directory(sample_directory(sample, corpora), tmp_path / "l") / "current")


@pytest.mark.corpora
@pytest.mark.parametrize("state", ["clean", "crash"])
def test_real_bookies(corpora: Callable[[str], Path], tmp_path: Path, state: str) -> None:
    for bookie in sorted(path for path in (corpora("db") / state).iterdir() if (path / "ledgers").is_dir()):
        check(copy_directory(bookie / "ledgers", tmp_path / bookie.name) / "current")
