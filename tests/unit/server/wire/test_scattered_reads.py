"""Reads in no order, of entries on real files: each is answered with its own entry, whatever else is read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkctl import _kernels
from bkctl.engine.cache.record_batch import bodies_of
from bkctl.errors import BookieIOError, NoEntryError
from bkctl.protocol.messages import ReadRequest, Wire
from bkctl.types import ResultCode
from tests.support.engine_on_disk import EngineOnDisk
from tests.support.engine_rig import entry_body
from tests.support.served_engine import ServedEngine
from tests.support.storage_rig import entry_of, key_of
from tests.support.wire_client import WireClient

LEDGERS = (4, 5, 6)
COUNT = 120
IDS = [(ledger, entry) for ledger in LEDGERS for entry in range(COUNT)]


def shuffled(seed: int = 1) -> list[tuple[int, int]]:
    """All entries, each far away from the one before it of its ledger."""
    chance = random.Random(seed)
    ids = IDS.copy()
    chance.shuffle(ids)
    return ids


def filled(path: Path, *, directories: int = 1, read_cache_bytes: int = 1 << 20) -> EngineOnDisk:
    """An engine with entries of which some are flushed, and some are in a write cache."""
    rig = EngineOnDisk(path, directories=directories, read_cache_bytes=read_cache_bytes)
    rig.start()
    for ledger, entry in IDS:
        rig.add(ledger, entry, payload=b"%d" % entry * (entry % 50))
        if (ledger, entry) == (6, 90):
            rig.bookie.checkpoint()
    return rig


def body(ledger: int, entry: int) -> bytes:
    return entry_body(ledger, entry, b"%d" % entry * (entry % 50))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[EngineOnDisk]:
    with filled(tmp_path) as rig:
        yield rig


native = pytest.mark.skipif(_kernels.IMPL != "native", reason="without compiled kernels entries are objects")


@native
def test_records_are_the_entries_in_the_order_of_the_keys(rig: EngineOnDisk) -> None:
    reads, ids = rig.bookie.reads, shuffled()
    meters = rig.bookie.storages[0].meters
    got = 0
    for first in range(0, len(ids), 24):
        asked = ids[first : first + 24]
        found = reads.read_records(b"".join([key_of(*each) for each in asked]), 1 << 20)
        assert found is not None
        records, count = found
        assert (count, bodies_of(records)) == (len(asked), [body(*each) for each in asked])
        got += count
    assert meters.write_cache_hits + meters.read_cache_hits + meters.disk_reads == got == len(ids)
    assert meters.write_cache_hits > 0 < meters.disk_reads


@native
@pytest.mark.parametrize("wanted", [(4, COUNT), (9, 0)], ids=["entry", "ledger"])
def test_what_is_not_there_is_left_to_the_reads_that_say_so(
    rig: EngineOnDisk, wanted: tuple[int, int]
) -> None:
    keys = [key_of(4, 70), key_of(*wanted), key_of(5, 3)]
    assert rig.bookie.reads.read_records(b"".join(keys), 1 << 20) is None
    first, absent, last = rig.bookie.reads.read_many(keys)
    assert (first, last) == (body(4, 70), body(5, 3))
    assert not isinstance(absent, bytes)


@native
def test_records_end_before_an_entry_that_cannot_be_read(rig: EngineOnDisk) -> None:
    keys = [key_of(4, 70), key_of(5, 3), key_of(6, 30), key_of(4, 9)]
    (place,) = rig.bookie.storages[0].locations.get_many([keys[2]])
    (log,) = Path(rig.settings.ledger_directories[0], "current").glob("0.log")
    with log.open("r+b") as file:
        file.seek((place or 0) & 0xFFFFFFFF)
        file.write(b"\xff" * 16)
    records, count = rig.bookie.reads.read_records(b"".join(keys), 1 << 20) or (b"", 0)
    assert (count, bodies_of(records)) == (2, [body(4, 70), body(5, 3)])
    answers = rig.bookie.reads.read_many(keys)
    assert [each for each in answers if isinstance(each, bytes)] == [body(4, 70), body(5, 3), body(4, 9)]
    assert isinstance(answers[2], BookieIOError)


@native
def test_entries_of_a_deleted_ledger_are_not_found(rig: EngineOnDisk) -> None:
    storage = rig.bookie.storages[0]
    keys = b"".join([key_of(4, 70), key_of(5, 3)])
    with rig.bookie.reads._lock:
        storage.delete_ledger(5)
    assert storage.read_records(keys, 1 << 20) is None
    answers = storage.read_many([key_of(4, 70), key_of(5, 3)])
    assert answers[0] == body(4, 70)
    assert isinstance(answers[1], NoEntryError)


@native
def test_a_reader_in_order_is_read_ahead_for(rig: EngineOnDisk) -> None:
    """Readers in no order beside it do not take its place."""
    reads, meters = rig.bookie.reads, rig.bookie.storages[0].meters
    calls = [[(4, 10)], [(4, 11), (5, 70)], [(5, 9), (4, 12), (4, 13)], [(6, 1), (5, 50), (6, 2), (6, 3)]]
    for asked in calls:
        found = reads.read_records(b"".join([key_of(*each) for each in asked]), 1 << 20)
        assert found is not None
        assert bodies_of(found[0]) == [body(*each) for each in asked]
    assert meters.read_ahead_calls == 2
    assert meters.disk_reads == len([(4, 10), (4, 11), (5, 70), (5, 9), (6, 1), (5, 50), (6, 2)])


@native
def test_a_run_in_order_reads_two_entries_by_themselves(rig: EngineOnDisk) -> None:
    """The first one, and the second one with what is behind it; the others are read ahead by then."""
    reads, meters = rig.bookie.reads, rig.bookie.storages[0].meters
    keys = b"".join([key_of(4, entry) for entry in range(60)])
    records, _ = reads.read_records(keys, 1 << 20) or (b"", 0)
    assert bodies_of(records) == [body(4, entry) for entry in range(60)]
    assert (meters.disk_reads, meters.read_ahead_calls, meters.read_cache_hits) == (2, 1, 58)


@native
def test_records_that_the_cache_is_too_small_for_are_given_all_the_same(tmp_path: Path) -> None:
    with filled(tmp_path, read_cache_bytes=4096) as rig:
        asked = [(4, 70), (5, 3), (6, 30), (4, 9)]
        keys = b"".join([key_of(*each) for each in asked])
        for _ in range(3):
            records, count = rig.bookie.reads.read_records(keys, 1 << 20) or (b"", 0)
            assert bodies_of(records) == [body(*each) for each in asked]
            assert count == 4


@pytest.mark.parametrize("directories", [1, 3])
@pytest.mark.parametrize("wire", [Wire.V2, Wire.V3], ids=lambda each: each.name)
def test_clients_that_read_at_once_get_their_entries(tmp_path: Path, wire: Wire, directories: int) -> None:
    version = 2 if wire is Wire.V2 else 3
    with ServedEngine(filled(tmp_path, directories=directories)) as served:
        clients = [WireClient(served.port, wire) for _ in range(4)]
        for seed, client in enumerate(clients):
            asked = [*shuffled(seed), (4, COUNT), (9, 0)]
            requests = [ReadRequest(*each, wire=wire, version=version) for each in asked]
            client.send(zip(requests, range(len(requests)), strict=True))
        for seed, client in enumerate(clients):
            with client:
                answers = {answer.context: answer.response for answer in client.receive_all()}
            for number, each in enumerate(shuffled(seed)):
                assert (answers[number].code, answers[number].body) == (ResultCode.OK, body(*each))
            assert answers[len(IDS)].code is ResultCode.NO_ENTRY
            assert answers[len(IDS) + 1].code is ResultCode.NO_LEDGER
        meter = served.server.read_stage.meter
        served.until(lambda: meter.length == 0, "reads are counted that have ended")
        assert meter.rejected == 0


@pytest.mark.parametrize("seed", range(4))
def test_records_are_the_newest_ones(tmp_path: Path, seed: int) -> None:
    """After entries were written again, ledgers deleted and made again, and caches flushed, in any order."""
    chance = random.Random(seed)
    with EngineOnDisk(tmp_path, read_cache_bytes=chance.choice([0, 8192, 1 << 20])) as rig:
        rig.start()
        storage, lock = rig.bookie.storages[0], rig.bookie.reads._lock
        now: dict[tuple[int, int], bytes] = {}
        asked = got = 0
        for step in range(400):
            ledger = chance.randrange(3)
            act = chance.random()
            if act < 0.4:
                first = chance.randrange(200)
                bodies = [
                    entry_of(ledger, entry, step, 40 + chance.randrange(200))
                    for entry in range(first, first + chance.randrange(1, 60))
                ]
                size_bytes = sum(map(len, bodies))
                with lock:
                    if not storage.has_room(size_bytes, len(bodies)):
                        continue
                    storage.put_many([each[:16] for each in bodies], bodies, size_bytes)
                now.update({(ledger, first + number): each for number, each in enumerate(bodies)})
            elif act < 0.45:
                with lock:
                    storage.delete_ledger(ledger)
                now = {each: found for each, found in now.items() if each[0] != ledger}
            elif act < 0.55:
                storage.flush()
            elif now:
                ids = chance.sample(sorted(now), min(len(now), chance.randrange(1, 50)))
                if chance.random() < 0.3:
                    ids.sort()
                found = storage.read_records(b"".join([key_of(*each) for each in ids]), 1 << 20)
                records, count = found or (b"", 0)
                assert bodies_of(records) == [now[each] for each in ids[:count]]
                assert storage.read_many([key_of(*each) for each in ids]) == [now[each] for each in ids]
                asked += len(ids)
                got += count
        assert got > asked // 2 or _kernels.IMPL != "native"
