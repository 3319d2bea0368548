"""Runs of plain adds that the compiled kernels make columns of, through a whole bookie, by both protocols."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Iterator

import pytest

from bkctl import _kernels
from bkctl.codec import digest
from bkctl.engine.add_run import RecordRun
from bkctl.engine.held_adds import HeldAddsSettings
from bkctl.protocol import runs
from bkctl.protocol.messages import AddRequest, Wire
from bkctl.server.wire import add_runs
from bkctl.types import ResultCode
from bkctl.vfs.faulty import FaultRule
from tests.support.engine_rig import EngineRig, entry_body, small_settings
from tests.support.served_engine import ServedEngine
from tests.support.wire_client import KEY, WireClient, add_request

OTHER_KEY = digest.master_key(b"other")
COUNT = 200

pytestmark = pytest.mark.skipif(_kernels.IMPL != "native", reason="only compiled kernels make columns")


@pytest.fixture(params=[Wire.V2, Wire.V3], ids=lambda wire: wire.name)
def wire(request: pytest.FixtureRequest) -> Wire:
    return Wire(request.param)


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Entries of each run that the engine was given as columns; none: another test."""
    lengths: list[int] = []
    original = add_runs._for_engine

    def seen(*arguments: object) -> object:
        run = original(*arguments)  # type: ignore[arg-type]
        if isinstance(run, RecordRun):
            lengths.append(run.count)
        return run

    monkeypatch.setattr(add_runs, "_for_engine", seen)
    yield lengths
    assert max(lengths, default=0) >= 8


def answers(client: WireClient, wire: Wire, adds: list[AddRequest]) -> list[ResultCode]:
    """Send adds in one piece: the code that each of them is answered with."""
    version = 2 if wire is Wire.V2 else 3
    client.send(
        [(dataclasses.replace(add, wire=wire, version=version), number) for number, add in enumerate(adds)]
    )
    codes = {answer.context: answer.response.code for answer in client.receive_all()}  # type: ignore[attr-defined]
    return [ResultCode(codes[number]) for number in range(len(adds))]


def assert_held(served: ServedEngine, added: list[tuple[int, int]]) -> None:
    """Every entry is read as it was sent, by both protocols."""
    with WireClient(served.port, Wire.V2) as old, WireClient(served.port, Wire.V3) as new:
        for ledger, entry in added:
            for client in (old, new):
                answer = client.read(ledger, entry)
                assert (answer.code, answer.body) == (ResultCode.OK, entry_body(ledger, entry))


def test_each_entry_of_a_run_is_acknowledged_and_read_back(wire: Wire, packed: list[int]) -> None:
    with ServedEngine() as served, WireClient(served.port, wire) as client:
        served.rig.add(7, 0)
        served.rig.add(8, 0)
        ids = [(7 + number % 2, 1 + number) for number in range(COUNT)]
        assert set(answers(client, wire, [add_request(*each) for each in ids])) == {ResultCode.OK}
        assert_held(served, ids)
        # Each entry confirms the one before it.
        assert [served.rig.bookie.reads.last_add_confirmed(ledger) for ledger in (7, 8)] == [
            COUNT - 2,
            COUNT - 1,
        ]


def test_a_power_cut_behind_the_answers_loses_none(wire: Wire, packed: list[int]) -> None:
    ids = [(7, 1 + number) for number in range(COUNT)]
    with ServedEngine() as served, WireClient(served.port, wire) as client:
        served.rig.add(7, 0)
        assert set(answers(client, wire, [add_request(*each) for each in ids])) == {ResultCode.OK}
        after = served.rig.cut_off(random.Random(5))
    with ServedEngine(after) as served:
        assert_held(served, ids)


def test_a_fence_in_between_refuses_the_rest(wire: Wire, packed: list[int]) -> None:
    with ServedEngine() as served, WireClient(served.port, wire) as client:
        for ledger in (7, 8):
            served.rig.add(ledger, 0)
        assert served.rig.fence(8) is None
        ids = [(8 if 50 <= number < 70 else 7, 1 + number) for number in range(COUNT)]
        codes = answers(client, wire, [add_request(*each) for each in ids])
        expected = [ResultCode.FENCED if ledger == 8 else ResultCode.OK for ledger, _ in ids]
        assert codes == expected
        assert_held(served, [each for each in ids if each[0] == 7])
        assert client.read(8, 60).code is ResultCode.NO_ENTRY


def test_a_wrong_master_key_in_a_run_is_refused_alone(wire: Wire, packed: list[int]) -> None:
    with ServedEngine() as served, WireClient(served.port, wire) as client:
        served.rig.add(7, 0)
        wrong = {0, 11, 12, COUNT - 1}
        adds = [add_request(7, 1 + n, key=OTHER_KEY if n in wrong else KEY) for n in range(COUNT)]
        codes = answers(client, wire, adds)
        assert {number for number, code in enumerate(codes) if code is not ResultCode.OK} == wrong
        assert {codes[number] for number in wrong} == {ResultCode.UNAUTHORIZED}
        assert_held(served, [(7, 1 + number) for number in range(COUNT) if number not in wrong])
        assert {client.read(7, 1 + number).code for number in wrong} == {ResultCode.NO_ENTRY}


def test_a_run_that_is_refused_add_by_add_is_taken_apart_once(
    wire: Wire, packed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each add, a quarter of a megabyte of them kept all other clients waiting for seconds."""
    cut: list[int] = []

    def frames(joined: bytes) -> list[bytes]:
        cut.append(len(joined))
        return original(joined)

    original = runs._frames
    monkeypatch.setattr(runs, "_frames", frames)
    with ServedEngine() as served, WireClient(served.port, wire) as client:
        served.rig.add(7, 0)
        assert served.rig.fence(7) is None
        codes = answers(client, wire, [add_request(7, 1 + number) for number in range(COUNT)])
        assert codes == [ResultCode.FENCED] * COUNT
    # Bodies and answers of each run.
    assert len(cut) <= 2 * len(packed)


def test_what_is_no_plain_add_parts_a_run_and_is_done_all_the_same(wire: Wire, packed: list[int]) -> None:
    with ServedEngine() as served, WireClient(served.port, wire) as client:
        for ledger in (7, 8):
            served.rig.add(ledger, 0)
        assert served.rig.fence(8) is None
        adds = [add_request(8 if n == 40 else 7, 1 + n, recovery=n in {40, 90}) for n in range(COUNT)]
        assert set(answers(client, wire, adds)) == {ResultCode.OK}
        assert_held(served, [(add.ledger, add.entry) for add in adds])


def test_a_journal_that_fails_acknowledges_nothing_of_a_run(wire: Wire, packed: list[int]) -> None:
    with ServedEngine() as served, WireClient(served.port, wire) as client:
        served.rig.add(7, 0)
        served.rig.system.inject(FaultRule("sync", ".txn"))
        codes = answers(client, wire, [add_request(7, 1 + number) for number in range(COUNT)])
        assert ResultCode.OK not in codes
        served.rig.wait_failure()


def test_a_run_that_waits_for_the_write_cache_is_answered_when_there_is_room(
    wire: Wire, packed: list[int]
) -> None:
    rig = EngineRig(
        small_settings(
            write_cache_bytes=64 << 10,
            writes=HeldAddsSettings(held_entries_max=10_000),
            throttle_ms_max=60_000,
        )
    )
    with ServedEngine(rig) as served, WireClient(served.port, wire) as client:
        rig.add(7, 0)
        rig.system.inject(FaultRule("sync", ".log", latency_s=0.3, error_number=None, count=1))
        started_s = time.monotonic()
        ids = [(7, 1 + number) for number in range(1000)]
        adds = [add_request(ledger, entry, bytes(300)) for ledger, entry in ids]
        assert set(answers(client, wire, adds)) == {ResultCode.OK}
        assert time.monotonic() - started_s >= 0.3, "nothing was held: the test is about something else"
        for ledger, entry in ids[::37]:
            assert client.read(ledger, entry).body == entry_body(ledger, entry, bytes(300))


@pytest.mark.parametrize("seed", range(4))
def test_lists_and_columns_give_the_same_answers(
    wire: Wire, packed: list[int], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The same adds to two bookies, of which one has no kernels: answers and entries are the same."""
    chance = random.Random(seed)
    ids = [(chance.randrange(12), 1 + number) for number in range(COUNT)]
    adds = [
        add_request(
            *each,
            bytes(chance.randrange(50)),
            key=OTHER_KEY if chance.random() < 0.02 else KEY,
            recovery=chance.random() < 0.02,
        )
        for each in ids
    ]
    outcomes = []
    for native in (True, False):
        if not native:
            monkeypatch.setattr(_kernels, "IMPL", "python")
        with ServedEngine() as served, WireClient(served.port, wire) as client:
            for ledger in range(10):
                served.rig.add(ledger, 0)
            assert served.rig.fence(3) is None
            codes = answers(client, wire, adds)
            entries = [client.read(*each) for each in ids]
            lacs = [served.rig.bookie.reads.last_add_confirmed(ledger) for ledger in range(10)]
            outcomes.append((codes, [(answer.code, answer.body) for answer in entries], lacs))
    assert outcomes[0] == outcomes[1]
    assert {ResultCode.OK, ResultCode.FENCED} <= set(outcomes[0][0])
