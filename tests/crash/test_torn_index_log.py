"""A power cut that leaves a hole in the end of RocksDB's write-ahead log, and rot in front of it.

The image of a running bookie is what a kill leaves; a hole behind what was noted as synced is what a power
cut adds. Everything that was acknowledged must be served then: it comes again from the journal.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.clock import SystemClock
from bkctl.config.server_keys.journal import JournalSettings
from bkctl.config.server_keys.storage import EntryLogSettings, StorageSettings
from bkctl.engine.add_run import SingleAdd
from bkctl.engine.bookie import Bookie
from bkctl.engine.settings import BookieSettings
from bkctl.errors import CorruptionError, LedgerFencedError, RefusedError
from bkctl.kvstore.base import KeyValueStore
from bkctl.kvstore.profile import StoreProfile
from bkctl.kvstore.reopening import ReopeningStore
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.kvstore.synced_log import read_note
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.vfs import PosixFileSystem
from tests.demo_client import DemoClient, body_of
from tests.support.engine_rig import KEY, Answers, Waiter, entry_body
from tests.support.grades import times

Run = Callable[..., Any]
SEEDS = range(200 if "BKCTL_SOAK" in os.environ else times(2, 6))
SECTOR = 512


def opened(path: str, profile: StoreProfile) -> KeyValueStore:
    return ReopeningStore(lambda: open_store(path, profile, create=True))


def bookie_in(home: Path) -> Bookie:
    for name in ("journal", "ledgers"):
        (home / name / "current").mkdir(parents=True, exist_ok=True)
    settings = BookieSettings(
        (str(home / "journal"),),
        (str(home / "ledgers"),),
        journal=JournalSettings(preallocation_bytes=1 << 20),
        storage=StorageSettings(write_cache_bytes_max=1 << 20, read_cache_bytes_max=1 << 20),
        entry_log=EntryLogSettings(flush_interval_ms=3_600_000),
    )
    return Bookie(settings, filesystem=PosixFileSystem(), clock=SystemClock(), open_store=opened)


def add(bookie: Bookie, ledger: int, entries: range) -> None:
    answers = Answers()
    for entry in entries:
        bookie.writes.add(SingleAdd(entry_body(ledger, entry), KEY, answers, entry))
    answers.wait(len(entries))
    assert not answers.bad


def image_of(folder: Path) -> Path:
    """Ledger 5 with 200 acknowledged entries, fenced: half in front of the mark, half flushed behind it."""
    home, image = folder / "home", folder / "image"
    bookie = bookie_in(home)
    bookie.start()
    try:
        add(bookie, 5, range(100))
        bookie.checkpoint()
        for first in (100, 150):
            add(bookie, 5, range(first, first + 50))
            for storage in bookie.storages:
                storage.flush()
        fenced = Waiter()
        bookie.fencing.fence(5, KEY, fenced)
        assert fenced.wait() is None
        for storage in bookie.storages:
            storage.flush()
        shutil.copytree(home, image)
    finally:
        bookie.stop()
    return image


def log_and_note(image: Path, name: str) -> tuple[Path, int]:
    database = image / "ledgers/current" / name
    note = read_note(str(database))
    assert note is not None
    (log,) = (path for path in database.glob("*.log") if path.stat().st_size)
    return log, note.sizes[log.name]


def zeros(log: Path, first: int, stop: int) -> None:
    with log.open("r+b") as file:
        file.seek(first)
        file.write(bytes(stop - first))


def tear(log: Path, noted: int, chance: random.Random) -> None:
    """Holes of whole sectors behind ``noted``, and perhaps a cut, as pages that were not written back."""
    size = log.stat().st_size
    if chance.random() < 0.3:
        size = chance.randrange(noted, size)
        os.truncate(log, size)
    for sector in range(-(-noted // SECTOR), -(-size // SECTOR)):
        if chance.random() < 0.3:
            zeros(log, sector * SECTOR, min((sector + 1) * SECTOR, size))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_hole_in_the_unsynced_end_costs_nothing_that_was_acknowledged(tmp_path: Path, seed: int) -> None:
    image = image_of(tmp_path)
    chance = random.Random(seed)
    for name in ("locations", "ledgers"):
        log, noted = log_and_note(image, name)
        assert log.stat().st_size > noted
        tear(log, noted, chance)
    for _ in range(2):
        bookie = bookie_in(image)
        bookie.start()
        try:
            for entry in range(200):
                assert bookie.reads.read(5, entry) == entry_body(5, entry)
            with pytest.raises(LedgerFencedError):
                add(bookie, 5, range(300, 301))
        finally:
            bookie.stop()


def test_the_last_record_without_a_sector(tmp_path: Path) -> None:
    image = image_of(tmp_path)
    log, _ = log_and_note(image, "locations")
    size = log.stat().st_size
    zeros(log, size - 600, size - 88)
    bookie = bookie_in(image)
    bookie.start()
    try:
        assert bookie.reads.read(5, 199) == entry_body(5, 199)
    finally:
        bookie.stop()


@pytest.mark.parametrize("name", ["locations", "ledgers"])
def test_rot_in_front_of_the_last_mark_is_an_error(tmp_path: Path, name: str) -> None:
    """The journal no longer has what stood there."""
    image = image_of(tmp_path)
    log, noted = log_and_note(image, name)
    assert noted
    zeros(log, noted // 2, noted // 2 + 8)
    with pytest.raises(CorruptionError, match="write-ahead log"):
        bookie_in(image)


def test_a_bookie_over_rot_names_the_way_out(tmp_path: Path, run_cli: Run) -> None:
    with EmbeddedBookie(tmp_path / "b") as bookie, DemoClient(bookie.port) as client:
        client.add(3, range(50))
        assert bookie.service is not None
        assert bookie.service.bookie is not None
        bookie.service.bookie.checkpoint()
        shutil.copytree(tmp_path / "b/ledgers/current/locations", tmp_path / "kept")
    place = tmp_path / "b/ledgers/current/locations"
    shutil.rmtree(place)
    shutil.move(tmp_path / "kept", place)
    (log,) = (path for path in place.glob("*.log") if path.stat().st_size)
    zeros(log, 8, 16)
    again = EmbeddedBookie(tmp_path / "b")
    with pytest.raises(RefusedError, match=r"write-ahead log.*index rebuild .*b/ledgers --locations"):
        again.start()
    assert run_cli("index", "rebuild", str(tmp_path / "b/ledgers"), "--locations", "--yes").exit_code in (
        0,
        1,
    )
    with again, DemoClient(again.port) as client:
        assert client.read(3, range(50)).bodies[49] == body_of(3, 49, 1000)
