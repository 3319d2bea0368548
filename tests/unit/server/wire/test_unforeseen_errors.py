"""An error that nobody foresaw, as that there is no memory, is an answer, and costs no place."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from bkctl.engine.read_stage import ReadStage
from bkctl.engine.write_stage import WriteStage
from bkctl.protocol.messages import ReadLacRequest, ReadRequest, Request
from bkctl.server.wire.read_turns import ACTIVE_MAX
from bkctl.types import ResultCode
from tests.support.served_engine import ServedEngine
from tests.support.wire_client import WireClient, add_request


def no_memory(*_: Any) -> Any:
    raise MemoryError


@pytest.mark.parametrize("run", [False, True], ids=["one by one", "a run"])
@pytest.mark.parametrize(
    ("name", "request_of"),
    [
        ("read_many", lambda entry: ReadRequest(1, entry)),
        ("read", lambda entry: ReadRequest(1, entry, priority=1)),
        ("last_add_confirmed", lambda _: ReadRequest(1, 0, previous_lac=-1, timeout_ms=10)),
        ("explicit_lac", lambda _: ReadLacRequest(1)),
    ],
    ids=["read", "high priority", "long poll", "lac"],
)
def test_reads_are_answered(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    request_of: Any,
    *,
    run: bool,
) -> None:
    caplog.set_level(logging.CRITICAL)
    count = 3 * ACTIVE_MAX
    requests: list[Request] = [request_of(entry) for entry in range(count)]
    with ServedEngine() as served, WireClient(served.port, timeout_s=5) as client:
        assert client.add(1, 0) is ResultCode.OK
        with monkeypatch.context() as patch:
            patch.setattr(ReadStage, name, no_memory)
            patch.setattr(ReadStage, "cached", lambda *_: None)
            patch.setattr(ReadStage, "cached_records", lambda *_: None)
            if run:
                client.send([(request, None) for request in requests])
                codes = [answer.response.code for answer in client.receive_all()]  # type: ignore[attr-defined]
            else:
                codes = [client.ask(request).code for request in requests]
            assert codes == [ResultCode.IO_ERROR] * count
        assert client.read(1, 0).code is ResultCode.OK


@pytest.mark.parametrize("recovery", [False, True])
def test_an_add_is_answered_and_no_longer_in_progress(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, recovery: bool
) -> None:
    caplog.set_level(logging.CRITICAL)
    with ServedEngine() as served, WireClient(served.port, timeout_s=5) as client:
        assert client.add(1, 0) is ResultCode.OK
        with monkeypatch.context() as patch:
            patch.setattr(WriteStage, "_append_single", no_memory)
            patch.setattr(WriteStage, "_append_run", no_memory)
            answer = client.ask(add_request(1, 1, recovery=recovery))
            assert answer.code is ResultCode.IO_ERROR
        served.until(lambda: served.server.adds.meter.length == 0, "an add is in progress")
        assert client.add(1, 1) is ResultCode.OK


@pytest.mark.parametrize("name", ["cached_records", "count_cached"])
def test_runs_of_reads_from_the_caches_give_their_turns_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """They are answered, by an error too, where it comes in front of the answers."""
    caplog.set_level(logging.CRITICAL)
    with ServedEngine() as served, WireClient(served.port, timeout_s=5) as client:
        assert client.add(1, 0) is ResultCode.OK
        with monkeypatch.context() as patch:
            patch.setattr(ReadStage, name, no_memory)
            for _ in range(3 * ACTIVE_MAX):
                client.send([(ReadRequest(1, 0), None)] * 2)
                codes = [answer.response.code for answer in client.receive_all()]  # type: ignore[attr-defined]
                assert codes == [ResultCode.IO_ERROR] * 2
        assert client.read(1, 0).code is ResultCode.OK
