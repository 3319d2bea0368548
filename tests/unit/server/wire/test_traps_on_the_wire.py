"""Traps of the protocol that show at the port (docs/traps.md), against a bookie on a real directory."""

from __future__ import annotations

import dataclasses
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.codec import digest
from bkctl.codec import journal as journal_codec
from bkctl.protocol.messages import (
    AddRequest,
    AuthRequest,
    ForceLedgerRequest,
    ListOfEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    Wire,
    WriteLacRequest,
)
from bkctl.protocol.wire import encode_request
from bkctl.server.life import bookie_service
from bkctl.server.life.embedded import EmbeddedBookie
from bkctl.types import ResultCode
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.faulty import FaultRule, FaultyFileSystem
from tests.demo_client import MASTER_KEY, body_of
from tests.support.wire_client import WireClient

SIZE = 100
OTHER_KEY = digest.master_key(b"other")
SYNC_S = 0.4


class Port(WireClient):
    """One connection; requests are answered one by one."""

    def raw(self, frame: bytes) -> bytes:
        """Send a frame as it is; the answer's bytes without the length word, empty after a close."""
        try:
            self.socket.sendall(frame)
            head = self.socket.recv(4)
        except ConnectionError:
            return b""
        if not head:
            return b""
        (size,) = struct.unpack(">I", head)
        body = b""
        while len(body) < size:
            body += self.socket.recv(size - len(body))
        return body


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBookie]:
    with EmbeddedBookie(tmp_path_factory.mktemp("wire")) as running:
        yield running


@pytest.fixture
def v3(bookie: EmbeddedBookie) -> Iterator[Port]:
    port = Port(bookie.port, Wire.V3)
    yield port
    port.close()


@pytest.fixture
def v2(bookie: EmbeddedBookie) -> Iterator[Port]:
    port = Port(bookie.port, Wire.V2)
    yield port
    port.close()


def add(ledger: int, number: int, **more: object) -> AddRequest:
    request = AddRequest(ledger, number, MASTER_KEY, body_of(ledger, number, SIZE))
    return dataclasses.replace(request, **more)  # type: ignore[arg-type]


def code(response: Any) -> ResultCode:
    found: ResultCode = response.code
    return found


# --- what would lose data -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", [Wire.V2, Wire.V3])
@pytest.mark.parametrize("entry", [0, 7, -1], ids=["found", "no such entry", "newest"])
def test_a_fencing_read_is_answered_only_behind_its_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wire: Wire, entry: int
) -> None:
    """Also when the entry is at hand, and also when the answer is an error: Java answers those early."""
    system = FaultyFileSystem(PosixFileSystem())
    monkeypatch.setattr(system, "close", lambda: None, raising=False)
    monkeypatch.setattr(bookie_service, "GradualRemoval", lambda clock, on_sync_error: system)
    with EmbeddedBookie(tmp_path) as slow:
        port = Port(slow.port, wire)
        assert code(port.ask(add(5, 0))) is ResultCode.OK
        system.inject(FaultRule("sync", path=".txn", latency_s=SYNC_S, error_number=None))
        began_s = time.monotonic()
        answer = port.ask(ReadRequest(5, entry, MASTER_KEY, fence=True))
        assert time.monotonic() - began_s >= SYNC_S
        assert code(answer) is (ResultCode.NO_ENTRY if entry == 7 else ResultCode.OK)
        fence = journal_codec.encode_record(journal_codec.fence_record(5))
        assert any(fence in path.read_bytes() for path in tmp_path.glob("journal/current/*.txn"))
        system.heal()
        assert code(port.ask(add(5, 1))) is ResultCode.FENCED
        port.close()


@pytest.mark.parametrize("wire", [Wire.V2, Wire.V3])
def test_a_fencing_read_of_a_ledger_that_was_fenced_and_deleted_finds_no_ledger(
    tmp_path: Path, wire: Wire
) -> None:
    with EmbeddedBookie(tmp_path) as bookie:
        assert bookie.service is not None
        assert bookie.service.bookie is not None
        port = Port(bookie.port, wire)
        assert code(port.ask(add(5, 0))) is ResultCode.OK
        assert code(port.ask(ReadRequest(5, 0, MASTER_KEY, fence=True))) is ResultCode.OK
        bookie.service.bookie.delete_ledger(5)
        for entry in (0, -1):
            assert code(port.ask(ReadRequest(5, entry, MASTER_KEY, fence=True))) is ResultCode.NO_LEDGER
        assert code(port.ask(ReadRequest(5, 0))) is ResultCode.NO_LEDGER
        assert code(port.ask(add(5, 1))) is ResultCode.FENCED
        port.close()


def test_the_ids_in_the_entry_count_and_the_answer_repeats_the_requests(v3: Port) -> None:
    answer = v3.ask(AddRequest(11, 99, MASTER_KEY, body_of(11, 5, SIZE)))
    assert (code(answer), answer.entry) == (ResultCode.OK, 99)
    assert code(v3.ask(ReadRequest(11, 99))) is ResultCode.NO_ENTRY
    assert v3.ask(ReadRequest(11, 5)).body == body_of(11, 5, SIZE)


def test_recovery_adds_pass_the_fence_and_others_do_not(v3: Port, v2: Port) -> None:
    for ledger, port in ((21, v3), (22, v2)):
        assert code(port.ask(add(ledger, 0))) is ResultCode.OK
        assert code(port.ask(ReadRequest(ledger, 0, MASTER_KEY, fence=True))) is ResultCode.OK
        assert code(port.ask(add(ledger, 1))) is ResultCode.FENCED
        assert code(port.ask(add(ledger, 1, recovery=True))) is ResultCode.OK


def test_the_list_of_entries_is_answered_on_this_storage(v3: Port) -> None:
    """A Java bookie with DbLedgerStorage never answers it."""
    for number in (0, 1, 5):
        v3.ask(add(31, number))
    answer = v3.ask(ListOfEntriesRequest(31))
    assert code(answer) is ResultCode.OK
    assert answer.entries
    assert code(v3.ask(ListOfEntriesRequest(32))) is not ResultCode.OK


# --- what would break real clients --------------------------------------------------------------------------


def test_a_read_of_the_newest_entry_over_v2_is_answered_for_minus_one(v2: Port) -> None:
    v2.ask(add(41, 0))
    v2.ask(add(41, 1))
    answer = v2.raw(encode_request(ReadRequest(41, -1, wire=Wire.V2, version=2)))
    _, _, _, code_number, ledger, entry = struct.unpack(">BBhiqq", answer[:24])
    assert (code_number, ledger, entry) == (0, 41, -1)
    assert answer[24:] == body_of(41, 1, SIZE)


def test_an_auth_message_over_v2_is_answered_with_neither_code_nor_ids(v2: Port) -> None:
    frame = encode_request(AuthRequest("any", b"token", wire=Wire.V2, version=2))
    answer = v2.raw(frame)
    # The packet header, then the message: nothing of rc, ledger and entry between them.
    assert answer[:4] == frame[4:8]
    assert answer[4:].startswith(b"\n\x12AuthDisabledPlugin")
    # A SASL client sends one message more behind the last one; that is answered, too.
    assert v2.raw(frame) == answer


def test_a_long_poll_names_the_entry_it_brings(v3: Port) -> None:
    v3.ask(add(51, 0))
    v3.ask(add(51, 1))
    poll = ReadRequest(51, -1, previous_lac=-1, timeout_ms=5_000, piggyback=True)
    answer = v3.ask(poll)
    assert (code(answer), answer.entry, answer.max_lac) == (ResultCode.OK, 0, 0)
    assert answer.body == body_of(51, 0, SIZE)
    began_s = time.monotonic()
    answer = v3.ask(dataclasses.replace(poll, previous_lac=0, timeout_ms=200))
    assert (code(answer), answer.entry, answer.body) == (ResultCode.OK, -1, None)
    assert 0.2 <= time.monotonic() - began_s < 10


def test_the_lac_of_an_unknown_ledger_is_no_entry(v3: Port) -> None:
    assert code(v3.ask(ReadLacRequest(61))) is ResultCode.NO_ENTRY


def test_an_explicit_lac_may_be_ahead_of_every_entry_and_without_any(v3: Port) -> None:
    packet = struct.pack(">qqI", 62, 10, 0)
    assert code(v3.ask(WriteLacRequest(62, 10, MASTER_KEY, packet))) is ResultCode.OK
    # As Java: there is a LAC, but no entry that belongs to it.
    assert code(v3.ask(ReadLacRequest(62))) is ResultCode.IO_ERROR
    v3.ask(add(62, 3))
    answer = v3.ask(ReadLacRequest(62))
    assert (code(answer), answer.lac_body) == (ResultCode.OK, packet)


def test_both_versions_share_the_port(v3: Port, v2: Port) -> None:
    v2.ask(add(71, 0))
    assert v3.ask(ReadRequest(71, 0)).body == body_of(71, 0, SIZE)
    v3.ask(add(71, 1))
    assert v2.ask(ReadRequest(71, 1)).body == body_of(71, 1, SIZE)


def test_an_entry_that_comes_again_is_a_success_and_the_last_one_counts(v3: Port, v2: Port) -> None:
    other = body_of(81, 0, SIZE + 1)
    for port in (v3, v2):
        assert code(port.ask(add(81, 0))) is ResultCode.OK
        assert code(port.ask(add(81, 0, body=other))) is ResultCode.OK
        assert port.ask(ReadRequest(81, 0)).body == other


def test_the_largest_frame_counts_its_length_word(tmp_path: Path) -> None:
    with EmbeddedBookie(tmp_path, overrides={"nettyMaxFrameSizeBytes": "100000"}) as small:
        port = Port(small.port, Wire.V2)
        overhead = len(encode_request(add(5, 0, body=b"", wire=Wire.V2, version=2)))
        fits = struct.pack(">qqq", 5, 0, -1) + bytes(100_000 - overhead - 24)
        assert code(port.ask(add(5, 0, body=fits))) is ResultCode.OK
        assert port.raw(encode_request(add(5, 1, body=fits + b"x", wire=Wire.V2, version=2))) == b""
        port.close()


# --- hostile or broken input --------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", [Wire.V2, Wire.V3])
@pytest.mark.parametrize("entry", [-1, -0x1000, -0x2000, -0x4000, -0x8000, -(2**63)])
def test_an_add_with_a_negative_entry_id_is_refused(bookie: EmbeddedBookie, wire: Wire, entry: int) -> None:
    port = Port(bookie.port, wire)
    body = struct.pack(">qqqq", 91, entry, -1, 0)
    assert code(port.ask(AddRequest(91, entry, MASTER_KEY, body))) is ResultCode.BAD_REQUEST
    port.close()


def test_reads_and_force_need_no_key(v3: Port) -> None:
    """As in Java: the master key protects adds, fences and explicit LACs only."""
    v3.ask(add(101, 0))
    assert code(v3.ask(ReadRequest(101, 0))) is ResultCode.OK
    assert code(v3.ask(ForceLedgerRequest(101))) is ResultCode.OK
    assert code(v3.ask(add(101, 1, master_key=OTHER_KEY))) is ResultCode.UNAUTHORIZED
    assert code(v3.ask(ReadRequest(101, 0, OTHER_KEY, fence=True))) is ResultCode.UNAUTHORIZED
    assert code(v3.ask(WriteLacRequest(101, 0, OTHER_KEY, struct.pack(">qq", 101, 0)))) is (
        ResultCode.UNAUTHORIZED
    )
    assert code(v3.ask(add(101, 1))) is ResultCode.OK
