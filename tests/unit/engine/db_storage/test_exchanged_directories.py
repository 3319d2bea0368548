"""A start over ledger directories in each other's place, and over what only looks like it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec.ledger_data import LedgerData, encode_ledger_data, encode_ledger_key
from bkctl.directories.exchanged_disks import refuse_exchanged_disks
from bkctl.directories.placement import LedgerDirectory
from bkctl.engine.db_storage.exchanged_directories import refuse_exchanged_directories
from bkctl.engine.db_storage.ledgers import LedgerIndex
from bkctl.engine.settings import BookieSettings
from bkctl.errors import RefusedError
from bkctl.kvstore.base import Put, note_written
from bkctl.kvstore.memory import MemoryStore
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.storage_kinds import DB, IDX, StorageKind
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.memory import MemoryFileSystem
from tests.support.convertible_bookie import ConvertibleBookie


def exchange(bookie: ConvertibleBookie, *order: int) -> None:
    """Mount at each place the disk that was at the place of ``order``."""
    for number in range(len(order)):
        (bookie.root / f"l{number}").rename(bookie.root / f"aside{number}")
    for number, other in enumerate(order):
        (bookie.root / f"aside{other}").rename(bookie.root / f"l{number}")


@pytest.mark.parametrize("order", [(1, 0), (1, 2, 0)])
def test_a_start_over_exchanged_directories_is_refused(tmp_path: Path, order: tuple[int, ...]) -> None:
    bookie = ConvertibleBookie.make(tmp_path / "bookie", DB, len(order))
    exchange(bookie, *order)
    with pytest.raises(RefusedError, match="mounted in each other's place") as refused, bookie.started(DB):
        pass
    message = str(refused.value)
    for number, other in enumerate(order):
        assert f"{bookie.root}/l{number} holds the ledgers of {bookie.root}/l{other} (ledger " in message
    assert "--accept-loss does not start the bookie either" in message
    exchange(bookie, *(order.index(number) for number in range(len(order))))
    bookie.check(DB)


def test_a_copy_of_one_disk_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    """The ledgers of the disk that is not there would be denied."""
    bookie = ConvertibleBookie.make(tmp_path / "bookie", DB, 2)
    (bookie.root / "l1").rename(bookie.root / "aside")
    shutil.copytree(bookie.root / "l0", bookie.root / "l1")
    words = rf"{bookie.root}/l1 has the same ledgers as {bookie.root}/l0 .*'bkctl bookie rebuild'"
    with pytest.raises(RefusedError, match=words), bookie.started(DB):
        pass
    with pytest.raises(RefusedError, match="a copy of one disk is mounted in the place of another"):
        refuse_exchanged_disks(
            PosixFileSystem(),
            [LedgerDirectory(number, 2, *2 * [str(bookie.current(number))]) for number in range(2)],
        )
    shutil.rmtree(bookie.root / "l1")
    (bookie.root / "aside").rename(bookie.root / "l1")
    bookie.check(DB)


def test_index_directories_that_are_exchanged_are_named(tmp_path: Path) -> None:
    bookie = ConvertibleBookie.make(tmp_path / "bookie", DB, 2, apart=True)
    (bookie.root / "i0").rename(bookie.root / "aside")
    (bookie.root / "i1").rename(bookie.root / "i0")
    (bookie.root / "aside").rename(bookie.root / "i1")
    named = f"{bookie.root}/i0 \\(the index of {bookie.root}/l0\\) holds the ledgers of {bookie.root}/i1 "
    with pytest.raises(RefusedError, match=named), bookie.started(DB):
        pass


@pytest.mark.parametrize("cleanly", [False, True])
def test_log_disks_that_are_exchanged_beside_their_indexes_are_found_by_their_logs(
    run_cli: Callable[..., Any], tmp_path: Path, cleanly: bool
) -> None:
    bookie = ConvertibleBookie.make(tmp_path / "bookie", DB, 2, apart=True)
    if cleanly:
        with bookie.started(DB):
            pass
    exchange(bookie, 1, 0)
    named = f"{bookie.root}/l0 \\(its logs\\) holds the ledgers of {bookie.root}/l1 \\(its logs\\)"
    with pytest.raises(RefusedError, match=named), bookie.started(DB):
        pass
    collected = run_cli("gc", "run", bookie.root, "--yes")
    assert collected.exit_code == 4
    if cleanly:
        assert "its logs hold ledgers of directory" in collected.stderr
    exchange(bookie, 1, 0)
    bookie.check(DB)


def test_index_files_may_be_in_any_directory(tmp_path: Path) -> None:
    bookie = ConvertibleBookie.make(tmp_path / "bookie", IDX, 2)
    exchange(bookie, 1, 0)
    bookie.check(IDX)


@pytest.mark.parametrize("kind", [DB, IDX])
def test_a_directory_that_became_two_is_started_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: StorageKind
) -> None:
    """Java takes another number of directories, and finds half of the ledgers: no disk is out of place."""
    one = ConvertibleBookie.make(tmp_path / "bookie", kind, 1)
    two = ConvertibleBookie(one.root, 2)
    (two.root / "l1" / "current").mkdir(parents=True)
    if kind is DB:
        # Java has run on it, and has had a ledger there that was deleted since.
        for name, profile in (("ledgers", LEDGERS_PROFILE), ("locations", LOCATIONS_PROFILE)):
            with open_store(str(two.current(1) / name), profile, create=True) as store:
                note_written(store)
    with caplog.at_level(logging.WARNING), two.started(kind) as bookie:
        assert bookie.reads.read(4, 3) == one.bodies[4, 3]
    warned = [record.getMessage() for record in caplog.records if "belong to other" in record.getMessage()]
    assert [f"{two.root}/l0: 3 of 7 ledger rows" in message for message in warned] == [True] * (kind is DB)


def index_of(ledgers: Iterable[int]) -> LedgerIndex:
    store = MemoryStore()
    row = encode_ledger_data(LedgerData(fenced=False, master_key=b"key"))
    store.write([Put(encode_ledger_key(ledger), row) for ledger in ledgers], sync=True)
    return LedgerIndex(store, 2)


def test_single_ledgers_out_of_place_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    settings = BookieSettings(journal_directories=("/j",), ledger_directories=("/l0", "/l1"))
    indexes = [index_of([*range(0, 40, 2), 7, 9]), index_of(range(1, 40, 2))]
    assert [index.loaded for index in indexes] == [[20, 2], [0, 20]]
    refuse_exchanged_directories(settings, indexes, MemoryFileSystem())
    (warned,) = [record.getMessage() for record in caplog.records]
    assert warned.startswith("/l0: 2 of 22 ledger rows")
    assert "ledger 7 is one" in warned
    filesystem = MemoryFileSystem()
    for name in settings.ledger_directories:
        filesystem.make_directories(f"{name}/current")
    refuse_exchanged_directories(settings, [index_of(range(0, 40, 2)), index_of([])], filesystem)
    assert len(caplog.records) == 1
