"""The load generator's frames: what a bookie would make of them, taken apart by the protocol's own parser."""

from __future__ import annotations

from collections import Counter

import pytest

from bkctl.admin.load.frames import FrameRing
from bkctl.admin.load.settings import FIRST_ID, LoadSettings
from bkctl.codec import entry
from bkctl.codec.digest import Digester
from bkctl.errors import UsageError
from bkctl.protocol.connection import ServerConnection
from bkctl.protocol.messages import AddRequest, ReadRequest, Request, Wire
from bkctl.protocol.runs import AddRun, ReadRun
from bkctl.protocol.v3 import decode_request
from bkctl.types import DigestType


def settings(**changes: object) -> LoadSettings:
    small = {"payload_bytes": 100, "window": 8, "seconds": 1.0, "warmup_s": 0.0}
    return LoadSettings("127.0.0.1", 1, **{**small, **changes})  # type: ignore[arg-type]


def frames_of(ring: FrameRing, count: int) -> bytes:
    """``count`` frames, taken in pieces as a connection does."""
    taken = b""
    while len(taken) < count * ring.frame_bytes:
        taken += bytes(ring.take(min(7, count - len(taken) // ring.frame_bytes)))
    return taken


def ids(keys: list[bytes]) -> list[tuple[int, int]]:
    return [(int.from_bytes(key[:8], "big"), int.from_bytes(key[8:16], "big")) for key in keys]


def v3_requests(data: bytes, size: int) -> list[Request]:
    return [decode_request(data[at + 4 : at + size]) for at in range(0, len(data), size)]


@pytest.mark.parametrize("wire", [2, 3])
@pytest.mark.parametrize("ledgers", [1, 3])
def test_adds_are_numbered_on_over_every_turn_of_the_ring(wire: int, ledgers: int) -> None:
    # Frames so large that the ring has few of them and turns often.
    ring = FrameRing(settings(wire=wire, ledgers=ledgers, payload_bytes=100_000), 2, reads=False)
    data = frames_of(ring, 60)
    connection = ServerConnection()
    runs = [
        event for at in range(0, len(data), 1 << 20) for event in connection.feed(data[at : at + (1 << 20)])
    ]
    assert all(isinstance(run, AddRun) for run in runs)
    found = [pair for run in runs if isinstance(run, AddRun) for pair in ids(run.keys)]
    first = FIRST_ID + 2 * ledgers
    assert found == [(first + number % ledgers, FIRST_ID + number // ledgers) for number in range(60)]
    assert connection.wire is (Wire.V2 if wire == 2 else Wire.V3)
    assert ring.taken == 60


def test_a_body_is_an_entry_of_its_size_with_the_masterkey_of_the_password() -> None:
    ring = FrameRing(settings(password=b"secret"), 0, reads=False)
    other = FrameRing(settings(password=b"other"), 0, reads=False)
    (run,) = ServerConnection().feed(frames_of(ring, 1))
    (run_of_other,) = ServerConnection().feed(frames_of(other, 1))
    assert isinstance(run, AddRun)
    assert isinstance(run_of_other, AddRun)
    header = entry.decode_header(run.bodies[0])
    assert (header.ledger, header.entry) == (FIRST_ID, FIRST_ID)
    assert len(run.bodies[0]) == 100 + 36
    assert run.grants[0][:20] != run_of_other.grants[0][:20]
    assert run.grants[0][20:] == FIRST_ID.to_bytes(8, "big")


@pytest.mark.parametrize("wire", [2, 3])
@pytest.mark.parametrize("size_bytes", [0, 1, 100_000])
def test_every_entry_has_its_digest(wire: int, size_bytes: int) -> None:
    ring = FrameRing(settings(wire=wire, ledgers=3, payload_bytes=size_bytes), 1, reads=False)
    # More than one turn of the ring, and entry ids that differ in several bytes.
    turns = 2 if size_bytes > 1000 else 1
    count = turns * (1 << 20) // ring.frame_bytes + 1
    connection = ServerConnection()
    data = frames_of(ring, min(count, 70_000))
    bodies = [
        body
        for at in range(0, len(data), 1 << 20)
        for run in connection.feed(data[at : at + (1 << 20)])
        if isinstance(run, AddRun)
        for body in run.bodies
    ]
    assert len(bodies) == min(count, 70_000)
    digester = Digester(DigestType.CRC32C)
    assert all(map(digester.checks, bodies))


def test_v3_frames_have_transactions_of_their_own() -> None:
    ring = FrameRing(settings(wire=3, payload_bytes=200_000), 0, reads=False)
    requests = v3_requests(frames_of(ring, 30), ring.frame_bytes)
    assert [request.txn_id for request in requests] == list(range(FIRST_ID, FIRST_ID + 30))
    for number, request in enumerate(requests):
        assert isinstance(request, AddRequest)
        assert (request.ledger, request.entry) == (FIRST_ID, FIRST_ID + number)
        assert request.body[:16] == request.ledger.to_bytes(8, "big") + request.entry.to_bytes(8, "big")


@pytest.mark.parametrize("wire", [2, 3])
def test_reads_in_order_begin_again_behind_the_last_entry(wire: int) -> None:
    ring = FrameRing(settings(wire=wire, entries=5), 0, reads=True)
    assert [entry_id - FIRST_ID for _, entry_id in read_ids(ring, wire, 12)] == [0, 1, 2, 3, 4] * 2 + [0, 1]


@pytest.mark.parametrize("wire", [2, 3])
def test_random_reads_are_of_entries_that_there_are(wire: int) -> None:
    ring = FrameRing(settings(wire=wire, entries=50, ledgers=2, random=True), 1, reads=True, seed=3)
    found = Counter(read_ids(ring, wire, 2000))
    assert {ledger for ledger, _ in found} == {FIRST_ID + 2, FIRST_ID + 3}
    assert {entry_id for _, entry_id in found} == set(range(FIRST_ID, FIRST_ID + 50))
    assert found.most_common(1)[0][1] < 100


def read_ids(ring: FrameRing, wire: int, count: int) -> list[tuple[int, int]]:
    data = frames_of(ring, count)
    if wire == 2:
        (run,) = ServerConnection().feed(data)
        assert isinstance(run, ReadRun)
        return ids(run.keys)
    requests = v3_requests(data, ring.frame_bytes)
    return [(each.ledger, each.entry) for each in requests if isinstance(each, ReadRequest)]


@pytest.mark.parametrize(
    "changes",
    [
        {"wire": 1},
        {"connections": 0},
        {"window": 0},
        {"entries": 0},
        {"payload_bytes": -1},
        {"seconds": 0},
        {"rate_per_s": 0},
        {"first_ledger": 1},
    ],
)
def test_settings_that_make_no_load_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        settings(**changes)
