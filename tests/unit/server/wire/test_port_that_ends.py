"""A port that is taken down answers first what it has begun, and closes its connections then."""

from __future__ import annotations

import asyncio
import threading

import pytest

from bkctl.engine.read_stage import ReadStage
from bkctl.protocol.messages import ReadRequest
from bkctl.types import ResultCode
from tests.support.engine_rig import entry_body
from tests.support.journal_rig import Gate
from tests.support.served_engine import ServedEngine
from tests.support.waiting import WAIT_S
from tests.support.wire_client import WireClient


@pytest.mark.parametrize("priority", [0, 100])
def test_a_read_that_has_begun_is_answered(monkeypatch: pytest.MonkeyPatch, priority: int) -> None:
    gate = Gate()
    read = ReadStage.read

    def slow(stage: ReadStage, ledger: int, entry: int) -> bytes:
        gate(1)
        return read(stage, ledger, entry)

    with ServedEngine() as served, WireClient(served.port) as client:
        assert client.add(1, 0) is ResultCode.OK
        monkeypatch.setattr(ReadStage, "read", slow)
        monkeypatch.setattr(ReadStage, "read_many", lambda stage, keys: [slow(stage, 1, 0) for _ in keys])
        monkeypatch.setattr(ReadStage, "cached", lambda *_: None)
        monkeypatch.setattr(ReadStage, "cached_records", lambda *_: None)
        monkeypatch.setattr(ReadStage, "read_records", lambda *_: None)
        client.send([(ReadRequest(1, 0, priority=priority), None)])
        gate.await_reached()
        stopping = threading.Thread(target=served.stop_server)
        stopping.start()
        served.until(lambda: all(each.is_paused for each in served.server._connections), "it does not stop")
        threading.Event().wait(0.05)
        gate.opened.set()
        (answer,) = client.receive_all()
        assert answer.response.body == entry_body(1, 0, b"payload")  # type: ignore[attr-defined]
        stopping.join()


def test_an_answer_that_is_posted_is_written_first() -> None:
    written: list[bool] = []

    async def drained() -> list[bool]:
        connections = list(served.server._connections)
        served.server.answers.post([(connections[0], lambda: b"", lambda: written.append(True))])
        await served.server._drained()
        return written.copy()

    with ServedEngine() as served, WireClient(served.port) as client:
        assert client.add(1, 0) is ResultCode.OK
        assert asyncio.run_coroutine_threadsafe(drained(), served.loop).result(WAIT_S) == [True]
