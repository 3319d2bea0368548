"""Both sides of a connection: authentication, TLS, closing, correlation."""

from __future__ import annotations

import struct

import pytest

from bkctl.errors import UsageError
from bkctl.protocol import v2, v3
from bkctl.protocol.connection import ClientConnection, Completed, ServerConnection
from bkctl.protocol.events import Answer, Close, Refusal, StartTls
from bkctl.protocol.framing import CloseReason
from bkctl.protocol.messages import (
    AddRequest,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BatchReadResponse,
    ForceLedgerRequest,
    ReadRequest,
    ReadResponse,
    Request,
    StartTlsRequest,
    StartTlsResponse,
    Wire,
)
from bkctl.protocol.runs import AddRun, ReadRun, answer_adds, answer_reads
from bkctl.protocol.wire import encode_response
from bkctl.types import ResultCode

KEY = bytes(range(20))
BODY = struct.pack(">qqqq", 1, 0, -1, 4) + b"data"
ADD = v2.encode_add(KEY, BODY)
START_TLS = v3.encode_request(StartTlsRequest(txn_id=1))


class TestServer:
    @pytest.mark.parametrize("behind", [b"", START_TLS, ADD, v3.encode_request(ReadRequest(1, 1))])
    @pytest.mark.parametrize(
        "clear",
        [
            ADD,
            v2.encode_request(ReadRequest(1, 1, wire=Wire.V2)),
            v3.encode_request(AddRequest(1, 0, KEY, BODY, txn_id=1)),
            v3.encode_request(AddRequest(1, 0, KEY, BODY, recovery=True, txn_id=1)),
            v3.encode_request(ReadRequest(1, 1, txn_id=1)),
            v3.encode_request(ReadRequest(1, 1, KEY, fence=True, txn_id=1)),
            v3.encode_request(ForceLedgerRequest(1, txn_id=1)),
            v3.encode_request(AddRequest(1, 0, b"bad key", BODY, txn_id=1)),
        ],
    )
    def test_requests_in_clear_are_refused_where_tls_is_required(self, clear: bytes, behind: bytes) -> None:
        connection = ServerConnection(tls=True, tls_required=True)
        refusal, close = connection.feed(clear + behind)
        assert isinstance(refusal, Refusal)
        assert refusal.code is ResultCode.UNAUTHORIZED
        assert close == Close(CloseReason.TLS_REQUIRED)
        assert connection.closed
        assert connection.pending_bytes == 0
        assert connection.feed(START_TLS) == []

    def test_auth_comes_before_tls_also_where_it_is_required(self) -> None:
        connection = ServerConnection(tls=True, tls_required=True)
        (answer,) = connection.feed(v3.encode_request(AuthRequest("sasl", b"", txn_id=5)))
        assert isinstance(answer, Answer)
        (start,) = connection.feed(START_TLS)
        assert isinstance(start, StartTls)
        connection.tls_started()
        (run,) = connection.feed(ADD)
        assert isinstance(run, AddRun)

    def test_tls_cannot_be_required_and_not_offered(self) -> None:
        with pytest.raises(UsageError):
            ServerConnection(tls_required=True)

    def test_auth_is_answered_as_a_bookie_without_authentication_does(self) -> None:
        connection = ServerConnection()
        (answer,) = connection.feed(v3.encode_request(AuthRequest("sasl", b"", txn_id=5, priority=1)))
        assert isinstance(answer, Answer)
        assert answer.frame[4:] == bytes.fromhex(
            "0a08080310051805" + "2001" + "1000" + "b20616" + "0a12" + b"AuthDisabledPlugin".hex() + "1200"
        )
        (answer,) = connection.feed(v2.encode_request(AuthRequest("sasl", b"", wire=Wire.V2)))
        assert isinstance(answer, Answer)
        assert answer.frame[4:] == bytes.fromhex("02030000" + "0a124175746844697361626c6564506c7567696e1200")

    def test_auth_without_its_part_is_answered_too(self) -> None:
        (answer,) = ServerConnection().feed(bytes.fromhex("00000008" + "0a06080310051801"))
        assert isinstance(answer, Answer)
        assert answer.code is ResultCode.OK

    def test_without_tls_the_connection_stays_usable(self) -> None:
        connection = ServerConnection()
        events = connection.feed(START_TLS + ADD)
        assert isinstance(events[0], Answer)
        assert events[0].frame[4:] == bytes.fromhex("0a06080310091801" + "109403")
        assert isinstance(events[1], AddRun)
        assert not connection.closed

    def test_tls(self) -> None:
        connection = ServerConnection(tls=True)
        run, start = connection.feed(v3.encode_request(ReadRequest(1, 1)) + START_TLS)
        assert isinstance(run, ReadRun)
        assert isinstance(start, StartTls)
        assert start.frame[4:] == bytes.fromhex("0a06080310091801" + "1000" + "d20600")
        assert connection.feed(b"") == []
        connection.tls_started()
        assert isinstance(connection.feed(ADD)[0], AddRun)
        with pytest.raises(UsageError):
            connection.tls_started()

    def test_start_tls_inside_tls_is_refused(self) -> None:
        connection = ServerConnection(tls=True)
        connection.feed(START_TLS)
        connection.tls_started()
        (answer,) = connection.feed(START_TLS)
        assert isinstance(answer, Answer)
        assert answer.code is ResultCode.BAD_REQUEST

    @pytest.mark.parametrize("together", [True, False])
    def test_clear_bytes_behind_start_tls_close(self, together: bool) -> None:
        connection = ServerConnection(tls=True)
        events = (
            connection.feed(START_TLS + b"x")
            if together
            else connection.feed(START_TLS) + connection.feed(b"x")
        )
        assert isinstance(events[0], StartTls)
        assert events[1:] == [Close(CloseReason.CLEAR_AFTER_START_TLS)]
        assert connection.closed
        assert connection.feed(ADD) == []

    def test_after_a_close_nothing_comes(self) -> None:
        connection = ServerConnection()
        run, close = connection.feed(ADD + bytes(4) + ADD)
        assert isinstance(run, AddRun)
        assert close == Close(CloseReason.EMPTY_FRAME)
        assert connection.closed
        assert connection.feed(ADD) == []

    def test_frames_in_pieces(self) -> None:
        connection = ServerConnection()
        events = [event for n in range(len(ADD * 3)) for event in connection.feed((ADD * 3)[n : n + 1])]
        assert [len(event) for event in events if isinstance(event, AddRun)] == [1, 1, 1]
        assert connection.pending_bytes == 0
        assert connection.wire is Wire.V2

    def test_a_reused_receive_buffer(self) -> None:
        connection = ServerConnection()
        area = bytearray(ADD[:30])
        assert connection.feed(memoryview(area)) == []
        area[:] = bytes(30)
        (run,) = connection.feed(bytearray(ADD[30:]))
        assert isinstance(run, AddRun)
        assert run.bodies == [BODY]

    def test_an_oversized_frame_closes_at_its_length(self) -> None:
        connection = ServerConnection(frame_bytes_max=1000)
        assert connection.feed(b"\0\0\x03") == []
        (close,) = connection.feed(b"\xff")
        assert isinstance(close, Close)
        assert close.reason is CloseReason.FRAME_TOO_LARGE

    @pytest.mark.parametrize("wire", list(Wire))
    def test_an_add_over_the_limit_is_none_however_whole_it_comes(self, wire: Wire) -> None:
        """Adds at the front of what arrives are taken in before anything else is looked at."""

        def add(entry: int, size_bytes: int) -> bytes:
            body = struct.pack(">qqq", 1, entry, -1)
            if wire is Wire.V2:
                return v2.encode_add(KEY, body + bytes(size_bytes))
            return v3.encode_request(AddRequest(1, entry, KEY, body + bytes(size_bytes), txn_id=1))

        largest = 1000 - len(add(0, 900)) + 900
        assert len(add(0, largest)) == 1000
        connection = ServerConnection(frame_bytes_max=1000)
        for events in (connection.feed(add(0, 10)), connection.feed(add(1, largest) + add(2, 10))):
            assert all(isinstance(event, AddRun) for event in events)
            assert not connection.closed
        *runs, close = connection.feed(add(3, 10) + add(4, largest + 1) + add(5, 10))
        assert [body for run in runs if isinstance(run, AddRun) for body in run.bodies] == [
            struct.pack(">qqq", 1, 3, -1) + bytes(10)
        ]
        assert isinstance(close, Close)
        assert close.reason is CloseReason.FRAME_TOO_LARGE
        assert connection.feed(add(6, 10)) == []


def completed(events: list[Completed | Close]) -> list[tuple[object, object]]:
    return [(event.context, event.response) for event in events if isinstance(event, Completed)]


class TestClient:
    def test_v3_answers_find_their_requests_in_any_order(self) -> None:
        client = ClientConnection(Wire.V3)
        first = ForceLedgerRequest(1)
        frames = [client.send(first, "a"), client.send(ReadRequest(1, 1), "b"), client.send(first, "c")]
        requests = [v3.decode_request(frame[4:]) for frame in frames]
        assert [request.txn_id for request in requests] == [1, 2, 3]
        answers = [encode_response(request.refuse(ResultCode.OK)) for request in requests]
        assert [context for context, _ in completed(client.feed(b"".join(reversed(answers))))] == [
            "c",
            "b",
            "a",
        ]
        assert client.outstanding == 0

    def test_v3_answers_that_nobody_asked_for_are_dropped(self) -> None:
        client = ClientConnection(Wire.V3)
        client.send(ForceLedgerRequest(1))
        wrong = [ForceLedgerRequest(1, txn_id=2), ReadRequest(1, 1, txn_id=1)]
        assert client.feed(b"".join(encode_response(r.refuse(ResultCode.OK)) for r in wrong)) == []
        assert (client.outstanding, client.unmatched) == (1, 2)

    def test_v2_answers_find_their_requests(self) -> None:
        client = ClientConnection(Wire.V2)
        for context in "ab":
            client.send(ReadRequest(1, -1, wire=Wire.V2, version=2), context)
        client.send(AddRequest(1, 0, KEY, BODY, priority=100), "c")
        client.send(BatchReadRequest(1, 0, 7, 1, 1), "d")
        client.send(BatchReadRequest(1, 0, 8, 1, 1), "e")
        client.send(AuthRequest("p", b""), "f")
        v2_fields = {"wire": Wire.V2, "version": 2}
        answers = [
            AuthResponse(ResultCode.OK, "p", **v2_fields),
            BatchReadResponse(ResultCode.OK, 1, 0, 8, (BODY,), **v2_fields),
            BatchReadResponse(ResultCode.OK, 1, 0, 7, (BODY,), **v2_fields),
            AddRequest(1, 0, KEY, BODY, **v2_fields).answer(ResultCode.FENCED),
            ReadResponse(ResultCode.OK, 1, -1, BODY, **v2_fields),
            ReadResponse(ResultCode.NO_ENTRY, 1, 3, **v2_fields),
            ReadResponse(ResultCode.OK, 1, -1, BODY, **v2_fields),
        ]
        events = client.feed(b"".join(map(encode_response, answers)))
        assert "".join(str(context) for context, _ in completed(events)) == "fedcab"
        assert (client.outstanding, client.unmatched) == (0, 1)

    def test_a_client_and_a_server(self) -> None:
        for wire in Wire:
            client, server = ClientConnection(wire), ServerConnection()
            sent = client.send(AddRequest(1, 0, KEY, BODY), 1) + client.send(ReadRequest(1, 0), 2)
            adds, reads = server.feed(sent)
            assert isinstance(adds, AddRun)
            assert isinstance(reads, ReadRun)
            answers = answer_adds(adds.wire, adds.tokens) + answer_reads(reads.wire, reads.tokens, [BODY])
            (first, one), (second, two) = completed(client.feed(answers))
            assert (first, second) == (1, 2)
            assert getattr(one, "code", None) is ResultCode.OK
            assert isinstance(two, ReadResponse)
            assert two.body == BODY

    def test_start_tls_is_v3_on_a_v2_connection(self) -> None:
        client, server = ClientConnection(Wire.V2), ServerConnection(tls=True)
        (start,) = server.feed(client.send(StartTlsRequest()))
        assert isinstance(start, StartTls)
        ((_, response),) = completed(client.feed(start.frame))
        assert response == StartTlsResponse(ResultCode.OK, txn_id=1)
        server.tls_started()
        (run,) = server.feed(client.send(AddRequest(1, 0, KEY, BODY)))
        assert isinstance(run, AddRun)
        assert run.wire is Wire.V2
        assert len(client.feed(answer_adds(run.wire, run.tokens))) == 1

    @pytest.mark.parametrize("wire", Wire)
    def test_bytes_that_are_no_answer_close(self, wire: Wire) -> None:
        client = ClientConnection(wire)
        client.send(ReadRequest(1, 1), "x")
        (close,) = client.feed(b"\0\0\0\4\xff\xff\xff\xff")
        assert isinstance(close, Close)
        assert [context for _, context in client.drain()] == ["x"]
        assert client.outstanding == 0
        assert client.feed(b"more") == []
        with pytest.raises(UsageError):
            client.send(ReadRequest(1, 1))

    def test_an_abandoned_request_is_not_completed(self) -> None:
        client = ClientConnection(Wire.V2)
        mark, other = object(), object()
        request: Request = ReadRequest(1, 1)
        client.send(request, mark)
        client.send(request, other)
        assert client.abandon(mark)
        assert not client.abandon(mark)
        answer = encode_response(ReadResponse(ResultCode.NO_ENTRY, 1, 1, wire=Wire.V2, version=2))
        assert completed(client.feed(answer))[0][0] is other
        assert client.feed(answer) == []
        assert (client.outstanding, client.unmatched) == (0, 1)

    def test_what_cannot_be_said_leaves_no_trace(self) -> None:
        client = ClientConnection(Wire.V2)
        with pytest.raises(UsageError):
            client.send(ForceLedgerRequest(1))
        assert client.outstanding == 0
        assert client.drain() == []
