"""A power cut at every point of a flush: what an earlier flush covered is there, and nothing unreadable."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from bkctl.codec.ledger_data import LedgerData
from bkctl.config.server_keys.storage import StorageSettings
from bkctl.errors import BkctlError
from tests.support.faulty_store import StoreFaultRule
from tests.support.grades import steps
from tests.support.interleaved_storage_rig import InterleavedStorageRig
from tests.support.storage_rig import StorageRig, entry_of, key_of

Rig = StorageRig | InterleavedStorageRig

SETTINGS = StorageSettings(write_cache_bytes_max=1 << 20, flush_batch_entries_max=4, read_ahead_entries_max=3)
ROUNDS = 4
ENTRIES = 6


class Workload:
    """Rounds of entries and rows, each ended by a flush.

    Ledger 1 is put anew in every round, ledger 9 deleted in the last but one.
    """

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        #: The last round whose flush has returned.
        self.covered = 0
        self.finished = False

    def run(self) -> None:
        try:
            self.rig.open()
            for number in range(1, ROUNDS + 1):
                self.round(number)
                self.rig.storage.flush()
                self.covered = number
            self.finished = True
        except BkctlError:
            pass

    def round(self, number: int) -> None:
        for entry in range(ENTRIES):
            self.rig.put(1, entry, number, 300)
            self.rig.put(1 + number, entry, number, 300)
        if number == 1:
            self.rig.put(9, 0)
            self.rig.storage.ledgers.set(9, LedgerData(fenced=False, master_key=b"nine"))
        if number == ROUNDS - 1:
            self.rig.delete(9)
        row = LedgerData(fenced=number % 2 == 0, master_key=str(number).encode())
        self.rig.storage.ledgers.set(1, row)

    def check(self, crashed: Rig) -> None:
        """What was covered is there, in its covered form or a later one."""
        storage = crashed.storage
        for number in range(1, self.covered + 1):
            for entry in range(ENTRIES):
                assert storage.read(1 + number, entry) == entry_of(1 + number, entry, number, 300)
        if self.covered:
            newest = [entry_of(1, 0, number, 300) for number in range(self.covered, ROUNDS + 1)]
            assert storage.read(1, 0) in newest
            row = storage.ledgers.get(1)
            assert row is not None
            assert int(row.master_key) >= self.covered
        if 1 <= self.covered < ROUNDS - 2:
            assert storage.read(9, 0) == entry_of(9, 0)
        if self.covered >= ROUNDS - 1:
            assert list(storage.entries(9)) == []
            assert storage.ledgers.get(9) is None
        self._check_readable(crashed)

    def _check_readable(self, crashed: Rig) -> None:
        """Every row of the index leads to its entry: rows come after what they point at."""
        keys = [key for batch, _ in crashed.storage.locations.batches() for key in batch]
        for key, answer in zip(keys, crashed.storage.read_many(keys), strict=True):
            assert isinstance(answer, bytes), answer
            assert answer[:16] == key


def crashed_at_every(point_of: Callable[[int], Rig]) -> int:
    """Run the workload with a crash at points until it finishes; how many there were."""
    for point in steps(1000):
        work = Workload(point_of(point))
        work.run()
        for chance in (None, random.Random(point), random.Random(1000 + point)):
            work.check(work.rig.after_crash(chance))
        if work.finished:
            return point
    raise AssertionError("the workload has no end")


@pytest.mark.parametrize("per_ledger", [False, True], ids=["single", "per-ledger"])
@pytest.mark.parametrize("log_bytes_max", [3000, 1 << 30])
def test_a_power_cut_at_every_point_of_the_file_system(log_bytes_max: int, per_ledger: bool) -> None:
    points = crashed_at_every(
        lambda point: StorageRig(
            SETTINGS, crash_after=point, log_bytes_max=log_bytes_max, per_ledger=per_ledger
        )
    )
    # At least one write and one sync of a log in every round.
    assert points >= 2 * ROUNDS


@pytest.mark.parametrize(("directories", "indexes", "per_ledger"), [(1, 1, False), (3, 2, True)])
def test_a_power_cut_at_every_point_of_index_files(directories: int, indexes: int, per_ledger: bool) -> None:
    points = crashed_at_every(
        lambda point: InterleavedStorageRig(
            SETTINGS,
            directories=directories,
            indexes=indexes,
            crash_after=point,
            log_bytes_max=3000,
            per_ledger=per_ledger,
        )
    )
    # Beside the logs at least a header and the pages of two ledgers in every round.
    assert points >= 5 * ROUNDS


@pytest.mark.parametrize("error", ["storage", "after"])
@pytest.mark.parametrize("store", ["location_store", "ledger_store"])
def test_a_power_cut_at_every_write_of_an_index(store: str, error: str) -> None:
    def rig_that_stops_at(point: int) -> StorageRig:
        rig = StorageRig(SETTINGS)
        getattr(rig, store).inject(StoreFaultRule("write", first=point + 1, error=error))  # type: ignore[arg-type]
        return rig

    assert crashed_at_every(rig_that_stops_at) >= ROUNDS


def db_rig() -> Rig:
    return StorageRig(SETTINGS, log_bytes_max=3000)


def spread_rig() -> Rig:
    return InterleavedStorageRig(SETTINGS, directories=2, indexes=2, log_bytes_max=3000)


@pytest.mark.parametrize("make", [db_rig, spread_rig], ids=["db", "interleaved"])
@pytest.mark.parametrize("seed", range(5))
def test_life_goes_on_after_a_crash(seed: int, make: Callable[[], Rig]) -> None:
    """Crash, reopen, write, crash again, at random points; a new start never harms what was there."""
    chance = random.Random(seed)
    rig = make()
    # The bodies that may be read of a key, and the keys that must be found.
    possible: dict[bytes, set[bytes]] = {}
    covered: set[bytes] = set()
    for generation in range(12):
        rig.faulty.crash_after = rig.faulty.points + chance.randrange(60)
        try:
            rig.open()
            for number in range(8):
                bodies = [entry_of(1, chance.randrange(30), f"{generation}.{number}", 200) for _ in range(5)]
                for body in bodies:
                    possible.setdefault(body[:16], set()).add(body)
                assert rig.try_put(bodies)
                rig.storage.flush()
                possible.update((body[:16], {body}) for body in bodies)
                covered.update(body[:16] for body in bodies)
        except BkctlError:
            pass
        rig = rig.after_crash(random.Random(chance.random()))
        found = {key_of(1, entry): rig.storage.read(1, entry) for entry in rig.storage.entries(1)}
        assert covered <= found.keys()
        assert all(body in possible[key] for key, body in found.items())
        covered = set(found)
        possible = {key: {body} for key, body in found.items()}
    assert covered
