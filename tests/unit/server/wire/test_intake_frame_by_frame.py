"""Whatever a client sends, cut up in whatever way, gets the same bytes in answer by both ways in.

Plain adds at the front of what a socket brings are taken in by one call; the other way looks at each frame
by itself. Compiled kernels make columns, Python makes lists.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import socket
import time
from collections import Counter

import pytest

from bkctl import _kernels
from bkctl.codec import digest
from bkctl.config.server_keys.network import NetworkSettings
from bkctl.protocol import scan_v2, scan_v3
from bkctl.protocol.framing import LENGTH
from bkctl.protocol.messages import (
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    ForceLedgerRequest,
    ReadRequest,
    Request,
    StartTlsRequest,
    Wire,
    WriteLacRequest,
)
from bkctl.protocol.wire import encode_request
from tests.support.engine_rig import EngineRig, entry_body, lac_packet, small_settings
from tests.support.served_engine import ServedEngine
from tests.support.wire_client import KEY

OTHER_KEY = digest.master_key(b"other")
CLIENTS = 5
REQUESTS = 150
FRAME_BYTES_MAX = 1 << 16
#: Ledgers of a client: of one that was fenced and deleted, of a fenced one, and of those that are open.
BURIED, FENCED, KNOWN, LEDGERS = 1, 2, 4, 12
WAYS = ("front", "frame by frame", "lists")


class Script:
    """What one client sends: the answers are the same in whatever order its reads and adds are served."""

    def __init__(self, chance: random.Random, wire: Wire, base: int) -> None:
        self._chance = chance
        self._wire = wire
        #: Ledgers of this client alone; entries so far, which stand in line.
        self._base = base
        self._next: Counter[int] = Counter()
        self._fences: set[int] = set()
        self._txn = 0
        self.entries: dict[tuple[int, int], bytes] = {}
        self.frames = [encode_request(self._numbered(self._request())) for _ in range(REQUESTS)]

    def _numbered(self, request: Request) -> Request:
        self._txn += self._chance.choice((1, 1, 1, 200, 1 << 20))
        if self._wire is Wire.V2:
            return dataclasses.replace(request, wire=Wire.V2, version=2)
        return dataclasses.replace(request, txn_id=self._txn)

    def _request(self) -> Request:
        chance = self._chance
        kind = chance.random()
        if kind < 0.8:
            return self._add()
        ledger = self._base + chance.randrange(KNOWN, LEDGERS)
        count = self._next[ledger]
        if kind < 0.88:
            return ReadRequest(ledger, chance.randrange(count) if count else 1 << 40)
        if kind < 0.91 and count:
            self._fences.add(ledger)
            return ReadRequest(ledger, chance.randrange(count), KEY, fence=True)
        if kind < 0.94:
            return AuthRequest("plugin", b"data")
        if self._wire is Wire.V2:
            first = chance.randrange(count) if count else 1 << 40
            return BatchReadRequest(ledger, first, self._txn, max(1, count - first), 1 << 20)
        return chance.choice(
            [
                ForceLedgerRequest(ledger) if count else StartTlsRequest(),
                StartTlsRequest(),
                WriteLacRequest(ledger, -1, KEY, lac_packet(ledger, -1)),
            ]
        )

    def _add(self) -> AddRequest:
        chance = self._chance
        ledger = self._base + chance.choice((BURIED, FENCED, *(KNOWN,) * 9, *range(KNOWN, LEDGERS)))
        if ledger in self._fences:
            # An add behind a fence that waits for its turn may be taken, as long as that is not answered.
            ledger = self._base + FENCED
        key = OTHER_KEY if chance.random() < 0.03 else KEY
        entry = self._next[ledger]
        if entry and chance.random() < 0.05:
            # Once more, as a client does that has got no answer.
            entry = chance.randrange(entry)
        payload = bytes((0, 7, 11, 300, 17_000)[entry % 5])
        body = entry_body(ledger, entry, payload, lac=-1)
        if chance.random() < 0.02:
            return AddRequest(ledger, entry, key, body[: chance.randrange(16, 24)])
        is_open = key == KEY and ledger >= self._base + KNOWN
        recovery = is_open and chance.random() < 0.03
        if is_open:
            self._next[ledger] = max(self._next[ledger], entry + 1)
            self.entries[ledger, entry] = body
        return AddRequest(ledger, entry, key, body, recovery)


def cuts(chance: random.Random, data: bytes) -> list[bytes]:
    """Cut what is sent: mostly into large pieces, also into single bytes."""
    pieces, start = [], 0
    while start < len(data):
        size = chance.choice((1, 2, 3, 5, 27, 28, 29, 1 << 12, 1 << 15, 1 << 18))
        pieces.append(data[start : start + size])
        start += size
    return pieces


def answers_of(client: socket.socket, count: int) -> list[bytes]:
    """So many frames, and not one more."""
    got = b""
    frames: list[bytes] = []
    while len(frames) < count:
        got += client.recv(1 << 18)
        while len(got) >= LENGTH.size and len(got) >= LENGTH.size + LENGTH.unpack_from(got)[0]:
            stop = LENGTH.size + LENGTH.unpack_from(got)[0]
            frames.append(got[:stop])
            got = got[stop:]
    assert not got
    client.settimeout(0.02)
    with contextlib.suppress(TimeoutError):
        raise AssertionError(f"more than was asked for: {client.recv(1 << 18)!r}")
    return frames


def outcome(seed: int, way: str, patch: pytest.MonkeyPatch) -> object:
    """Send the same to a bookie, and return the answers that each client got, and what was counted."""
    if way == "lists":
        patch.setattr(_kernels, "IMPL", "python")
    elif way == "frame by frame":
        for scan in (scan_v2, scan_v3):
            patch.setattr(scan, "scan_adds", lambda _data, start, _end: (None, start))
    chance = random.Random(seed)
    # With room for all: reads and fences overtake adds that wait for some.
    rig = EngineRig(small_settings(write_cache_bytes=64 << 20))
    with ServedEngine(rig, NetworkSettings(frame_bytes_max=FRAME_BYTES_MAX)) as served:
        scripts = [
            Script(random.Random(seed * 100 + number), Wire.V3 if number % 2 else Wire.V2, 100 * (1 + number))
            for number in range(CLIENTS)
        ]
        for number in range(CLIENTS):
            base = 100 * (1 + number)
            # Reads may overtake what would make a ledger.
            for ledger in (FENCED, *range(KNOWN, LEDGERS)):
                rig.add(base + ledger, 1 << 30)
            assert rig.fence(base + FENCED) is None
            rig.bookie.writes._table.bury(base + BURIED, rig.clock.monotonic())
        with contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(socket.create_connection(("127.0.0.1", served.port), 20)) for _ in scripts
            ]
            left = [
                (client, cuts(chance, b"".join(script.frames)))
                for client, script in zip(clients, scripts, strict=True)
            ]
            while any(pieces for _, pieces in left):
                for client, pieces in left:
                    if pieces:
                        client.sendall(pieces.pop(0))
                if chance.random() < 0.1:
                    time.sleep(0.001)
            answers = [sorted(answers_of(client, REQUESTS)) for client in clients]
            server = served.server
            served.until(lambda: not server.adds.meter.length, "adds are in progress")
            counted = (
                server.adds.meter.done,
                sorted(server.adds.refused.items(), key=str),
                server.adds.latency.count,
                server.adds.sizes.count,
                server.adds.size_bytes,
            )
            for script in scripts:
                for (ledger, entry), body in script.entries.items():
                    assert rig.bookie.reads.read(ledger, entry)[:24] == body[:24]
        served.until_idle()
    return answers, counted


@pytest.mark.parametrize("seed", range(4))
def test_all_ways_in_give_the_same_bytes_in_answer(seed: int) -> None:
    outcomes = []
    for way in WAYS:
        with pytest.MonkeyPatch.context() as patch:
            outcomes.append(outcome(seed, way, patch))
    assert outcomes[0] == outcomes[1] == outcomes[2]
