"""Clients that ask for more than they take or send more than is taken: memory is bounded, others served."""

from __future__ import annotations

import struct
import threading
import time

import pytest

from bkctl.config.server_keys.network import NetworkSettings
from bkctl.engine.held_adds import HeldAddsSettings
from bkctl.protocol.messages import BatchReadRequest, ReadRequest, Request, Wire
from bkctl.protocol.runs import ReadRun
from bkctl.server.wire.read_turns import ACTIVE_MAX, REQUESTS_MAX, RUN_PLACES, WAITING_MAX, ReadTurns
from bkctl.types import ResultCode
from bkctl.vfs.faulty import FaultRule
from tests.support.engine_rig import EngineRig, entry_body, small_settings
from tests.support.served_engine import ServedEngine
from tests.support.wire_client import DisconnectedError, WireClient, add_request

MIB = 1 << 20
ENTRY_BYTES = 200_000
ENTRIES = 20


def buffered_bytes(served: ServedEngine) -> int:
    """What stands in the write buffers of all connections."""
    transports = [connection._transport for connection in list(served.server._connections)]
    return sum(transport.get_write_buffer_size() for transport in transports if transport is not None)


def with_entries(*, flushed: bool) -> EngineRig:
    rig = EngineRig(small_settings(write_cache_bytes=32 * MIB))
    rig.start()
    for number in range(ENTRIES):
        rig.add(5, number, payload=bytes(ENTRY_BYTES))
    if flushed:
        rig.bookie.checkpoint()
    return rig


def requests(kind: str, count: int) -> list[Request]:
    v2 = {"wire": Wire.V2, "version": 2}
    if kind == "run":
        return [ReadRequest(5, number % ENTRIES, **v2) for number in range(count)]  # type: ignore[arg-type]
    if kind == "singles":
        return [ReadRequest(5, -1, **v2) for _ in range(count)]  # type: ignore[arg-type]
    if kind == "mixed":
        return [ReadRequest(5, -1 if number % 2 else 3, **v2) for number in range(count)]  # type: ignore[arg-type]
    return [BatchReadRequest(5, 0, number, 20, 4 * MIB, **v2) for number in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("kind", ["run", "singles", "mixed", "batches"])
def test_a_client_that_asks_for_much_and_reads_nothing_costs_a_bounded_number_of_entries(
    kind: str, flushed: bool
) -> None:
    """5000 requests come in one packet: a gigabyte of answers, were they made at once."""
    with (
        ServedEngine(with_entries(flushed=flushed)) as served,
        WireClient(served.port, Wire.V2, receive_bytes=4096) as slow,
        WireClient(served.port, Wire.V2) as other,
    ):
        slow.send([(request, None) for request in requests(kind, 5000)])
        served.until(lambda: buffered_bytes(served) > served.settings.write_buffer_high_bytes, "no answers")
        most = 0
        for number in range(40):
            assert other.read(5, number % ENTRIES).code is ResultCode.OK
            most = max(most, buffered_bytes(served))
        per_turn = 4 * MIB + ENTRY_BYTES if kind == "batches" else MIB + ENTRY_BYTES
        assert most < 2 * MIB + ACTIVE_MAX * per_turn
        assert served.server.read_stage.meter.length <= ACTIVE_MAX * 128
        slow.close()
        other.close()
        served.until_idle()


def test_a_slow_client_gets_everything_when_it_reads() -> None:
    with (
        ServedEngine(with_entries(flushed=True)) as served,
        WireClient(served.port, Wire.V2, receive_bytes=4096) as slow,
    ):
        slow.send([(request, None) for request in requests("mixed", 300)])
        served.until(lambda: buffered_bytes(served) > served.settings.write_buffer_high_bytes, "no answers")
        answers = slow.receive_all()
        assert len(answers) == 300
        assert all(answer.response.code is ResultCode.OK for answer in answers)  # type: ignore[attr-defined]


def test_a_slow_client_is_disconnected_where_that_is_configured() -> None:
    settings = NetworkSettings(close_slow_readers=True, slow_reader_timeout_ms=50)
    with (
        ServedEngine(with_entries(flushed=False), settings) as served,
        WireClient(served.port, Wire.V2, receive_bytes=4096) as slow,
    ):
        served.until(lambda: served.server.connections == 1, "it was never accepted")
        slow.send([(request, None) for request in requests("run", 1000)])
        served.until(lambda: served.server.connections == 0, "it is still connected")
        with pytest.raises(DisconnectedError):
            slow.receive_all()
        served.until_idle()


def test_a_client_that_is_to_be_closed_and_takes_nothing_is_cut_off() -> None:
    settings = NetworkSettings(close_timeout_ms=100)
    with (
        ServedEngine(with_entries(flushed=False), settings) as served,
        WireClient(served.port, Wire.V2, receive_bytes=4096) as slow,
    ):
        slow.send([(request, None) for request in requests("run", 100)])
        served.until(lambda: buffered_bytes(served) > served.settings.write_buffer_high_bytes, "no answers")
        for connection in list(served.server._connections):
            served.loop.call_soon_threadsafe(connection.close)
        served.until_idle()


def test_a_stop_is_over_in_time_whatever_is_outstanding() -> None:
    """Adds that wait for a slow disk, reads that nobody takes, a long poll."""
    settings = NetworkSettings(drain_timeout_ms=200, close_timeout_ms=200)
    with (
        ServedEngine(with_entries(flushed=True), settings) as served,
        WireClient(served.port, Wire.V2, receive_bytes=4096) as slow,
        WireClient(served.port) as writer,
        WireClient(served.port) as poller,
    ):
        served.rig.system.inject(FaultRule("sync", ".txn", latency_s=2.0, error_number=None, count=1))
        writer.send([(add_request(6, 0), None)])
        poller.send([(ReadRequest(5, -1, piggyback=True, previous_lac=100, timeout_ms=600_000), None)])
        slow.send([(request, None) for request in requests("mixed", 1000)])
        served.until(lambda: served.server.long_polls.meter.length == 1, "no long poll")
        started_s = time.monotonic()
        served.stop_server()
        assert time.monotonic() - started_s < 3.0
        assert served.server.connections == 0


def test_adds_in_progress_stop_the_reading_of_the_socket() -> None:
    settings = NetworkSettings(adds_in_progress_max=100)
    with ServedEngine(settings=settings) as served, WireClient(served.port, Wire.V2) as client:
        assert client.add(5, 0) is ResultCode.OK
        served.rig.system.inject(FaultRule("sync", ".txn", latency_s=0.3, error_number=None, count=1))
        payload = bytes(20_000)
        adds = [(add_request(5, number, payload), None) for number in range(1, 1000)]
        thread = threading.Thread(target=client.send, args=(adds,))
        thread.start()
        most = 0
        while thread.is_alive() or client.connection.outstanding:
            most = max(most, served.server.adds.meter.length)
            client.receive()
            if not thread.is_alive() and not client.connection.outstanding:
                break
        thread.join()
        # A packet of 256 KiB more than the bound at most.
        assert most <= 100 + 300
        served.until(lambda: served.server.adds.meter.length == 0, "adds are left")


def test_held_adds_over_their_bound_are_answered_with_too_many_requests() -> None:
    writes = HeldAddsSettings(held_entries_max=10)
    rig = EngineRig(small_settings(write_cache_bytes=16 << 10, writes=writes, throttle_ms_max=60_000))
    with ServedEngine(rig) as served, WireClient(served.port, Wire.V2) as client:
        assert client.add(5, 0) is ResultCode.OK
        rig.system.inject(FaultRule("sync", ".log", latency_s=1.0, error_number=None, count=1))
        for number in range(1, 200):
            client.send([(add_request(5, number, bytes(1000)), None)])
        codes = {answer.response.code for answer in client.receive_all()}  # type: ignore[attr-defined]
        assert codes == {ResultCode.OK, ResultCode.TOO_MANY_REQUESTS}
        served.until(lambda: not rig.bookie.writes.meter.length, "adds are held")
        assert client.add(5, 1000) is ResultCode.OK


def test_a_full_disk_is_answered_with_read_only_and_got_over() -> None:
    rig = EngineRig(small_settings(), capacity_bytes=1 << 30)
    with ServedEngine(rig) as served, WireClient(served.port) as client:
        assert client.add(5, 0) is ResultCode.OK
        rig.memory.capacity_bytes = sum(map(len, rig.memory.files.values()))
        codes = [client.add(5, number, bytes(2000)) for number in range(1, 8)]
        assert set(codes) <= {ResultCode.OK, ResultCode.READ_ONLY}
        assert codes[-1] is ResultCode.READ_ONLY
        assert client.read(5, 0).code is ResultCode.OK
        rig.memory.capacity_bytes = 1 << 30

        def is_well() -> bool:
            rig.bookie.disks.check()
            return not rig.bookie.read_only

        served.until(is_well, "still read-only")
        assert client.add(5, 100) is ResultCode.OK


# --- turns


def test_turns_begin_in_order_and_not_too_many_at_once() -> None:
    begun: list[int] = []
    turns = ReadTurns(lambda: True, lambda full: None)
    for number in range(ACTIVE_MAX + 5):
        turns.add(lambda number=number: begun.append(number))  # type: ignore[misc]
    assert begun == list(range(ACTIVE_MAX))
    turns.ended()
    turns.again(lambda: begun.append(-1))
    assert begun[ACTIVE_MAX:] == [ACTIVE_MAX, -1]
    turns.add(lambda: begun.append(-2), first=True)
    turns.ended()
    assert begun[-1] == -2


def test_turns_that_end_at_once_do_not_pile_up_on_the_stack() -> None:
    taken = [False]
    turns = ReadTurns(lambda: taken[0], lambda full: None)
    for _ in range(50_000):
        turns.add(turns.ended)
    taken[0] = True
    turns.go_on()
    assert turns._active == 0


def test_nothing_is_begun_for_a_client_that_is_gone() -> None:
    begun: list[int] = []
    turns = ReadTurns(lambda: True, lambda full: None)
    for number in range(ACTIVE_MAX + 5):
        turns.add(lambda number=number: begun.append(number))  # type: ignore[misc]
    turns.clear()
    turns.again(lambda: begun.append(-1))
    turns.ended()
    assert len(begun) == ACTIVE_MAX


def test_turns_say_when_too_many_wait() -> None:
    told: list[bool] = []
    taken = [False]
    turns = ReadTurns(lambda: taken[0], told.append)
    for _ in range(WAITING_MAX + 1):
        turns.add(turns.ended)
    assert told == [True]
    taken[0] = True
    turns.go_on()
    assert told == [True, False]


def read_run(*entries: int, wire: Wire = Wire.V2) -> ReadRun:
    keys = [struct.pack(">qq", 5, entry) for entry in entries]
    return ReadRun(wire, keys, keys)


def test_few_runs_begin_at_once_and_those_that_wait_are_joined() -> None:
    begun: list[ReadRun] = []
    told: list[bool] = []
    turns = ReadTurns(lambda: True, told.append)

    def come(run: ReadRun) -> None:
        if not turns.join(run):
            turns.add(lambda: begun.append(run), requests=len(run), places=RUN_PLACES, join=run.join)

    for entry in range(ACTIVE_MAX // RUN_PLACES + 6):
        come(read_run(entry))
    assert [len(run) for run in begun] == [1] * (ACTIVE_MAX // RUN_PLACES)
    assert (turns.waiting, turns.requests) == (1, ACTIVE_MAX // RUN_PLACES + 6)
    turns.ended(1, places=RUN_PLACES)
    assert begun[-1].keys == read_run(*range(ACTIVE_MAX // RUN_PLACES, ACTIVE_MAX // RUN_PLACES + 6)).keys
    assert (turns.waiting, turns.requests) == (0, ACTIVE_MAX // RUN_PLACES + 5)
    # A run of another kind is not joined, nor one behind something else that waits.
    come(read_run(20))
    come(read_run(21, wire=Wire.V3))
    turns.add(lambda: None)
    come(read_run(22))
    assert turns.waiting == 4
    # So many reads in one run: the socket is not read any more, as with many runs.
    come(read_run(*range(REQUESTS_MAX)))
    assert (turns.waiting, told) == (4, [True])
    turns.clear()
    assert not turns.join(read_run(23))


@pytest.mark.parametrize("wire", [Wire.V2, Wire.V3], ids=lambda wire: wire.name)
def test_reads_that_come_one_by_one_are_all_answered_while_the_read_stage_is_busy(wire: Wire) -> None:
    """Every thread of the read stage is held, so that what comes is joined; then all is answered."""
    with ServedEngine() as served, WireClient(served.port, wire) as client:
        count = 200
        for entry in range(count):
            assert client.add(7, entry) is ResultCode.OK
        served.rig.bookie.checkpoint()
        held = threading.Event()
        for _ in range(8):
            served.server.read_stage.submit(lambda: assert_set(held))
        version = 2 if wire is Wire.V2 else 3
        for entry in range(count, -1, -1):
            client.send([(ReadRequest(7, entry, wire=wire, version=version), entry)])
        served.until(lambda: requests_of(served) == count + 1, "not all reads have come")
        held.set()
        answers = {answer.context: answer.response for answer in client.receive_all()}
        assert answers.pop(count).code is ResultCode.NO_ENTRY
        for entry, response in answers.items():
            assert (response.code, response.body) == (ResultCode.OK, entry_body(7, entry))
        served.until(lambda: requests_of(served) == 0, "requests are still counted")


def assert_set(event: threading.Event) -> None:
    assert event.wait(20)


def requests_of(served: ServedEngine) -> int:
    (connection,) = served.server._connections
    return connection.turns.requests
