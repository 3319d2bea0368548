"""Runs of adds that the engine does not take as a whole."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from bkctl.protocol.runs import AddRun
from bkctl.server.wire import add_runs
from bkctl.server.wire.add_answers import PendingAdds
from bkctl.server.wire.port import Port
from bkctl.types import ResultCode
from tests.support.engine_rig import entry_body
from tests.support.served_engine import ServedEngine
from tests.support.wire_client import WireClient, add_request

COUNT = 300


@pytest.fixture
def sliced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Entries of each slice that was made of a run."""
    lengths: list[int] = []
    original = add_runs._slice

    def counted(run: AddRun, start: int, stop: int) -> AddRun:
        lengths.append(stop - start)
        return original(run, start, stop)

    monkeypatch.setattr(add_runs, "_slice", counted)
    return lengths


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Entries of each run that the engine was asked to take."""
    lengths: list[int] = []
    original = add_runs._add_whole

    def counted(port: Port, pending: Sequence[PendingAdds]) -> bool:
        lengths.append(sum([len(each.run) for each in pending]))
        return original(port, pending)

    monkeypatch.setattr(add_runs, "_add_whole", counted)
    return lengths


def codes_of(client: WireClient, adds: list[tuple[int, int]]) -> list[ResultCode]:
    """The answers to adds of (ledger, entry) that come in one go."""
    client.send([(add_request(ledger, entry), number) for number, (ledger, entry) in enumerate(adds)])
    answers = {answer.context: answer.response.code for answer in client.receive_all()}  # type: ignore[attr-defined]
    return [answers[number] for number in range(len(adds))]


@pytest.mark.parametrize("before", [0, COUNT])
def test_the_first_adds_of_many_ledgers_are_sliced_once(sliced: list[int], before: int) -> None:
    """Thousands fit into one packet, and all of it is the event loop's time."""
    with ServedEngine() as served, WireClient(served.port) as client:
        served.rig.add(7, 0)
        adds = [(7, 1 + entry) for entry in range(before)] + [(100 + ledger, 0) for ledger in range(COUNT)]
        assert set(codes_of(client, adds)) == {ResultCode.OK}
        assert sum(sliced) <= 2 * len(adds)
        for ledger in range(COUNT):
            assert served.rig.bookie.reads.read(100 + ledger, 0) == entry_body(100 + ledger, 0)


def test_new_ledgers_between_known_ones_are_tried_once(sliced: list[int], tried: list[int]) -> None:
    with ServedEngine() as served, WireClient(served.port) as client:
        served.rig.add(7, 0)
        adds = [(7, 1 + number // 2) if number % 2 else (100 + number, 0) for number in range(COUNT)]
        assert set(codes_of(client, adds)) == {ResultCode.OK}
        assert sum(sliced) <= 2 * COUNT
        # As runs of whatever length the packets were cut into, once each, and not again in parts.
        assert sum(tried) <= 2 * COUNT


def test_a_refused_run_is_not_tried_again_and_again(tried: list[int]) -> None:
    with ServedEngine() as served, WireClient(served.port) as client:
        served.rig.add(7, 0)
        served.rig.bookie.writes.set_read_only(True)
        assert set(codes_of(client, [(7, 1 + entry) for entry in range(COUNT)])) == {ResultCode.READ_ONLY}
        assert sum(tried) <= 2 * COUNT


@pytest.mark.parametrize("seed", range(5))
def test_every_entry_gets_its_own_answer_in_whatever_mixture(seed: int) -> None:
    chance = random.Random(seed)
    with ServedEngine() as served, WireClient(served.port) as client:
        for ledger in range(10):
            served.rig.add(ledger, 0)
        for ledger in (3, 4):
            assert served.rig.fence(ledger) is None
        adds = [(chance.randrange(20), 1 + entry) for entry in range(COUNT)]
        codes = codes_of(client, adds)
        for (ledger, entry), code in zip(adds, codes, strict=True):
            assert code is (ResultCode.FENCED if ledger in (3, 4) else ResultCode.OK)
            if code is ResultCode.OK:
                assert served.rig.bookie.reads.read(ledger, entry)
