"""Starts that fail at any of their steps: nothing of the bookie is held afterwards, and the next one works.

A bookie may be one of several in a process, and a process may rebuild an index and start a bookie. What a
start that failed leaves open would keep all of them out: "in use by python", with the own process id.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.clock import SystemClock
from bkctl.config.server_keys.garbage import GcSettings
from bkctl.engine.bookie import Bookie
from bkctl.errors import BkctlError, CorruptionError, RefusedError
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LEDGERS_PROFILE, StoreProfile
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.vfs import PosixFileSystem
from tests.support.failing_steps import SteppedFileSystem, SteppedStore, Steps
from tests.support.own_handles import own_handles
from tests.support.truthful_bookie import TruthfulBookie, settings_of, started
from tests.unit.engine.gc.gc_rig import Cluster

DIRECTORIES = 2
#: Of all steps every so-manieth is one that fails.
STRIDE = 23


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> TruthfulBookie:
    """One with entries in logs, index and journals."""
    return TruthfulBookie.make(tmp_path_factory.mktemp("killed") / "bookie", "db", DIRECTORIES)


def stepped(root: Path, steps: Steps) -> Bookie:
    def opened(path: str, profile: StoreProfile) -> SteppedStore:
        steps.step(f"open {path}")
        return SteppedStore(open_store(path, profile, create=True), steps)

    settings = replace(settings_of(root, DIRECTORIES), gc=GcSettings(wait_ms=10**9, metadata_cache=True))
    return Bookie(
        settings,
        filesystem=SteppedFileSystem(PosixFileSystem(), steps),
        clock=SystemClock(),
        open_store=opened,  # type: ignore[arg-type]
        cluster=Cluster(),
    )


def start_and_stop(root: Path, steps: Steps) -> list[BkctlError]:
    """The errors of both, kept: what they refer to is not freed by chance."""
    errors: list[BkctlError] = []
    try:
        bookie = stepped(root, steps)
    except BkctlError as error:
        return [error]
    try:
        bookie.start()
    except BkctlError as error:
        errors.append(error)
    try:
        bookie.stop()
    except BkctlError as error:
        errors.append(error)
    return errors


@contextmanager
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("for_good", [False, True])
def test_a_start_or_stop_that_fails_at_any_step_holds_nothing(
    killed: TruthfulBookie, tmp_path: Path, for_good: bool
) -> None:
    counted = Steps()
    assert start_and_stop(killed.copy(tmp_path / "counted").root, counted) == []
    assert counted.taken > 100
    failures = 0
    for number in range(1 + (STRIDE // 2 if for_good else 0), counted.taken + 1, STRIDE):
        root = killed.copy(tmp_path / f"{number}").root
        steps = Steps(number, for_good=for_good)
        with no_thread_left():
            errors = start_and_stop(root, steps)
        assert own_handles(root) == [], (number, errors)
        failures += bool(errors)
        steps.heal()
        assert start_and_stop(root, steps) == [], number
        with started(root, DIRECTORIES) as bookie:
            for (ledger, entry), body in killed.truth.bodies.items():
                if ledger != 3:
                    assert bookie.reads.read(ledger, entry) == body, number
    assert failures > 2


@pytest.mark.parametrize("number", range(DIRECTORIES))
def test_a_damaged_ledger_row_leaves_no_database_open(
    killed: TruthfulBookie, tmp_path: Path, number: int
) -> None:
    root = killed.copy(tmp_path / "bookie").root
    place = str(root / f"l{number}/current/ledgers")
    key = (4 + number).to_bytes(8, "big")
    with open_store(place, LEDGERS_PROFILE, create=False) as store:
        sound = store.get(key)
        assert sound is not None
        store.write([Put(key, b"\xff\xff")], sync=True)
    with pytest.raises(CorruptionError, match="row of ledger") as kept, started(root, DIRECTORIES):
        pass
    assert kept is not None
    assert own_handles(root) == []
    with open_store(place, LEDGERS_PROFILE, create=False) as store:
        store.write([Put(key, sound)], sync=True)
    with started(root, DIRECTORIES):
        assert own_handles(root)
    assert own_handles(root) == []


def test_a_store_that_nobody_closed_is_not_in_use_for_ever(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "ledgers"), LEDGERS_PROFILE, create=True)
    with pytest.raises(RefusedError, match="in use by"):
        open_store(str(tmp_path / "ledgers"), LEDGERS_PROFILE, create=True)
    del store
    assert own_handles(tmp_path) == []
    open_store(str(tmp_path / "ledgers"), LEDGERS_PROFILE, create=True).close()
