"""A live server and bytes that no client sends: connections may end, nothing else may.

Whatever came: the bookie serves others, holds nothing of the client that is gone, logs no traceback, and has
taken no entry that hurts a start.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bkctl.config.server_keys.network import NetworkSettings
from bkctl.errors import BkctlError
from bkctl.protocol.messages import (
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    BookieInfoRequest,
    ForceLedgerRequest,
    ListOfEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
    StartTlsRequest,
    Wire,
    WriteLacRequest,
)
from bkctl.protocol.wire import encode_request
from bkctl.types import ResultCode
from tests.support.engine_rig import KEY, EngineRig, entry_body, lac_packet, small_settings
from tests.support.served_engine import ServedEngine
from tests.support.wire_client import WireClient

HEALTHY = 1 << 40
FRAME_BYTES_MAX = 1 << 16

pytestmark = pytest.mark.timeout(3600)


class Bugs(logging.Handler):
    """Keeps records that carry a traceback, or are worse than warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.ERROR:
            self.found.append(record.getMessage())


@pytest.fixture(scope="module")
def bugs() -> Iterator[Bugs]:
    handler = Bugs()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


@pytest.fixture(scope="module")
def served(bugs: Bugs) -> Iterator[ServedEngine]:
    rig = EngineRig(small_settings(write_cache_bytes=8 << 20))
    options = NetworkSettings(frame_bytes_max=FRAME_BYTES_MAX, close_timeout_ms=1000)
    with ServedEngine(rig, options) as running:
        for number in range(20):
            rig.add(5, number)
        yield running
    assert rig.bookie.failure is None
    with rig.cut_off() as after:
        # What was let into the journal does not keep the bookie from starting.
        after.start()
        assert after.bookie.reads.read(5, 19) == entry_body(5, 19)


ids = st.one_of(
    st.integers(0, 20),
    st.sampled_from([-1, -0x1000, -0x2000, -0x4000, -0x8000, (1 << 63) - 1, -(1 << 63), 1 << 32]),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
small = st.integers(-(1 << 31), (1 << 31) - 1)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Entries with any ids, and bytes that are none."""
    if draw(st.booleans()):
        return struct.pack(">qqqq", draw(ids), draw(ids), draw(ids), draw(ids)) + draw(st.binary(max_size=60))
    return draw(st.binary(max_size=60))


keys = st.one_of(st.just(KEY), st.binary(min_size=20, max_size=20), st.just(bytes(20)))
#: No long poll of these outlives the test by much.
timeouts = st.one_of(st.none(), st.integers(-10, 5))
v3_requests: st.SearchStrategy[Request] = st.one_of(
    st.builds(
        AddRequest, ids, ids, st.one_of(keys, st.binary(max_size=30)), bodies(), st.booleans(), st.booleans()
    ),
    st.builds(
        ReadRequest, ids, ids, st.none() | keys, st.booleans(), st.booleans(), st.none() | ids, timeouts
    ),
    st.builds(ReadLacRequest, ids),
    st.builds(
        WriteLacRequest, ids, ids, keys, st.one_of(st.binary(max_size=40), st.builds(lac_packet, ids, ids))
    ),
    st.builds(ForceLedgerRequest, ids),
    st.builds(BookieInfoRequest, total=st.booleans(), free=st.booleans()),
    st.builds(ListOfEntriesRequest, ids),
    st.builds(AuthRequest, st.text(max_size=20), st.binary(max_size=30)),
    st.builds(StartTlsRequest),
).flatmap(
    lambda request: st.builds(
        lambda txn, priority: replace(request, txn_id=txn, priority=priority),
        st.integers(0, (1 << 64) - 1),
        st.integers(0, (1 << 32) - 1),
    )
)
v2_requests: st.SearchStrategy[Request] = st.one_of(
    st.builds(AddRequest, ids, ids, keys, bodies(), st.booleans()),
    st.builds(ReadRequest, ids, ids, st.just(KEY), st.booleans()),
    st.builds(BatchReadRequest, ids, ids, st.integers(0, 1 << 31), small, small, st.just(KEY), st.booleans()),
).map(lambda request: replace(request, wire=Wire.V2, version=2))


def frames(requests: st.SearchStrategy[Request]) -> st.SearchStrategy[bytes]:
    return requests.map(encoded).filter(bool)


def encoded(request: Request) -> bytes:
    """The frame, or nothing for what the protocol cannot say."""
    try:
        return encode_request(request)
    except (BkctlError, ValueError, struct.error):
        return b""


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Frames in a row with some bytes changed, cut, doubled or put in."""
    wire = draw(st.sampled_from([v2_requests, v3_requests]))
    data = bytearray(b"".join(draw(st.lists(frames(wire), min_size=1, max_size=6))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 4)):
            case 0:
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                del data[at:]
            case 2:
                data[at:at] = data[at : at + 40]
            case 3:
                data[at:at] = draw(st.binary(max_size=8))
            case _:
                del data[at : at + draw(st.integers(1, 8))]
    return bytes(data)


hostile = st.one_of(
    mutated(),
    st.binary(max_size=300),
    st.lists(frames(v2_requests) | frames(v3_requests), max_size=8).map(b"".join),
    st.builds(lambda length, data: struct.pack(">i", length) + data, small, st.binary(max_size=100)),
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=hostile, pieces=st.integers(1, 5), reads=st.booleans())
def test_no_bytes_hurt_the_bookie(
    served: ServedEngine, bugs: Bugs, data: bytes, pieces: int, reads: bool
) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as sender:
        step = max(1, -(-len(data) // pieces))
        try:
            for at in range(0, len(data), step):
                sender.sendall(data[at : at + step])
            if reads:
                sender.shutdown(socket.SHUT_WR)
                while sender.recv(1 << 16):
                    pass
        except OSError:
            # The server has closed the connection, as it may.
            pass
    served.until_idle()
    assert not bugs.found, bugs.found
    assert not served.loop_errors, served.loop_errors
    assert served.rig.bookie.failure is None


def test_the_bookie_serves_after_all_that(served: ServedEngine) -> None:
    for wire in Wire:
        with WireClient(served.port, wire) as client:
            assert client.add(HEALTHY + wire, 0) is ResultCode.OK
            assert client.read(HEALTHY + wire, 0).code is ResultCode.OK
            assert client.read(5, 3).code is ResultCode.OK
