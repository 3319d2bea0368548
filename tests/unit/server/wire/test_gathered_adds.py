"""Runs of adds of several connections that the engine gets as one: who is answered what, and when."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator, Sequence
from typing import cast

import pytest

from bkctl import _kernels
from bkctl.codec import digest
from bkctl.engine.add_run import AddRun as EngineAddRun
from bkctl.engine.add_run import RecordRun
from bkctl.engine.held_adds import HeldAddsSettings
from bkctl.engine.write_stage import WriteStage
from bkctl.protocol.messages import ReadRequest, Wire
from bkctl.protocol.runs import PackedAddRun
from bkctl.server.wire import add_runs, gathered_adds
from bkctl.server.wire.add_answers import PendingAdds
from bkctl.types import ResultCode
from bkctl.vfs.faulty import FaultRule
from tests.support.engine_rig import EngineRig, entry_body, small_settings
from tests.support.served_engine import ServedEngine
from tests.support.wire_client import KEY, WireClient, add_request

OTHER_KEY = digest.master_key(b"other")
CLIENTS = 12
#: Entries of one client; all of them are fewer than are gathered at most.
EACH = 5
WAIT_S = 30

compiled = pytest.mark.skipif(_kernels.IMPL != "native", reason="only compiled kernels make columns")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Connections and entries of each run that the engine took as a whole."""
    runs: list[tuple[int, int]] = []
    original = WriteStage.add_run

    def seen(stage: WriteStage, run: EngineAddRun | RecordRun) -> bool:
        is_taken = original(stage, run)
        if is_taken:
            assert isinstance(run.context, Sequence)
            runs.append((len(run.context), run.count))
        return is_taken

    monkeypatch.setattr(WriteStage, "add_run", seen)
    return runs


def no_memory(_: object) -> None:
    raise MemoryError("no memory")


@contextlib.contextmanager
def loop_busy(served: ServedEngine) -> Iterator[None]:
    """Keep the loop busy: what is sent meanwhile is found by its next look at the sockets, all at once."""
    busy, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        busy.set()
        go_on.wait(WAIT_S)

    served.loop.call_soon_threadsafe(wait)
    assert busy.wait(WAIT_S)
    try:
        yield
    finally:
        go_on.set()


@contextlib.contextmanager
def clients_of(served: ServedEngine, count: int = CLIENTS) -> Iterator[list[WireClient]]:
    """Connections of both protocols, in turn, that the bookie has taken in."""
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(WireClient(served.port, Wire.V3 if number % 2 else Wire.V2))
            for number in range(count)
        ]
        served.until(lambda: served.server.connections == count, "not all connections are there")
        yield clients


def codes_of(client: WireClient) -> list[ResultCode]:
    """The answers to what is outstanding, in the order in which it was sent."""
    answers = {answer.context: answer.response.code for answer in client.receive_all()}  # type: ignore[attr-defined]
    return [ResultCode(answers[number]) for number in sorted(answers)]  # type: ignore[type-var]


def send(client: WireClient, ids: Sequence[tuple[int, int]], key: bytes = KEY) -> None:
    """Send adds in one piece."""
    client.send([(add_request(*each, key=key), number) for number, each in enumerate(ids)])


def assert_held(served: ServedEngine, ids: Sequence[tuple[int, int]]) -> None:
    """Every entry is there as it was sent."""
    for ledger, entry in ids:
        assert served.rig.bookie.reads.read(ledger, entry) == entry_body(ledger, entry)


def ids_of(number: int) -> list[tuple[int, int]]:
    """The entries that a client sends, of a ledger of its own and of one that all of them write to."""
    return [(100 + number, 1 + entry) for entry in range(EACH - 1)] + [(50, 1 + number)]


def send_all(served: ServedEngine, clients: Sequence[WireClient]) -> None:
    """Have every client send its entries, for one turn of the loop to find."""
    with loop_busy(served):
        for number, client in enumerate(clients):
            send(client, ids_of(number))


def with_ledgers(served: ServedEngine) -> None:
    """Have the ledgers of all clients open."""
    for ledger in (50, *(100 + number for number in range(CLIENTS))):
        served.rig.add(ledger, 0)


@compiled
def test_runs_that_one_turn_finds_go_to_the_engine_together(taken: list[tuple[int, int]]) -> None:
    with ServedEngine() as served, clients_of(served) as clients:
        with_ledgers(served)
        send_all(served, clients)
        for number, client in enumerate(clients):
            assert codes_of(client) == [ResultCode.OK] * EACH
            assert_held(served, ids_of(number))
        # The first goes directly, as nothing is under way then; all others are one run.
        assert taken == [(1, EACH), (CLIENTS - 1, EACH * (CLIENTS - 1))]
        assert served.rig.bookie.reads.last_add_confirmed(50) == CLIENTS - 1
        served.until(lambda: served.server.adds.meter.done == EACH * CLIENTS, "adds have not ended")
        counted = {each.ledger: each.entries for each in served.rig.bookie.writes.busiest_ledgers(99)}
        assert counted == {50: CLIENTS + 1, **{100 + number: EACH for number in range(CLIENTS)}}


@compiled
def test_a_power_cut_behind_the_answers_loses_none() -> None:
    with ServedEngine() as served, clients_of(served) as clients:
        with_ledgers(served)
        send_all(served, clients)
        for client in clients:
            assert codes_of(client) == [ResultCode.OK] * EACH
        after = served.rig.cut_off(random.Random(7))
    with ServedEngine(after) as served:
        for number in range(CLIENTS):
            assert_held(served, ids_of(number))


@compiled
def test_no_more_is_gathered_than_the_bound(
    taken: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathered_adds, "ENTRIES_MAX", 3 * EACH)
    with ServedEngine() as served, clients_of(served) as clients:
        with_ledgers(served)
        send_all(served, clients)
        for client in clients:
            assert codes_of(client) == [ResultCode.OK] * EACH
        assert max(entries for _, entries in taken) == 3 * EACH
        assert sum(entries for _, entries in taken) == CLIENTS * EACH


@compiled
def test_no_more_bytes_are_gathered_than_the_bound(
    taken: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    size_bytes = len(entry_body(1, 1))
    monkeypatch.setattr(gathered_adds, "BYTES_MAX", 2 * EACH * size_bytes)
    with ServedEngine() as served, clients_of(served) as clients:
        with_ledgers(served)
        send_all(served, clients)
        for client in clients:
            assert codes_of(client) == [ResultCode.OK] * EACH
        assert max(entries for _, entries in taken) == 2 * EACH
        assert sum(entries for _, entries in taken) == CLIENTS * EACH


def test_an_add_that_comes_alone_waits_for_no_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    with ServedEngine() as served, WireClient(served.port) as client:
        served.rig.add(7, 0)
        intake = served.server.add_intake
        monkeypatch.setattr(intake, "_turn_ends", lambda: pytest.fail("a turn was waited for"))
        for entry in range(1, 20):
            assert client.add(7, entry) is ResultCode.OK


def test_one_refused_run_does_not_refuse_those_beside_it(taken: list[tuple[int, int]]) -> None:
    """A fenced ledger, a wrong key, a new ledger: each connection gets the answers it would get alone."""
    with ServedEngine() as served, clients_of(served) as clients:
        with_ledgers(served)
        assert served.rig.fence(103) is None
        with loop_busy(served):
            for number, client in enumerate(clients):
                if number == 7:
                    send(client, [(900, entry) for entry in range(EACH)])
                else:
                    send(client, ids_of(number), key=OTHER_KEY if number == 5 else KEY)
        for number, client in enumerate(clients):
            codes = codes_of(client)
            if number == 3:
                assert codes == [ResultCode.FENCED] * (EACH - 1) + [ResultCode.OK]
            elif number == 5:
                assert codes == [ResultCode.UNAUTHORIZED] * EACH
            else:
                assert codes == [ResultCode.OK] * EACH
        assert_held(served, [(900, entry) for entry in range(EACH)])
        for number in set(range(CLIENTS)) - {3, 5, 7}:
            assert_held(served, ids_of(number))
        served.until(lambda: served.server.adds.meter.length == 0, "adds are left")
        assert served.server.adds.size_bytes == 0


@compiled
def test_what_is_refused_is_not_held_with_the_runs_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds in progress count their own bytes: whatever else came in the same turn has to be given back."""
    runs: list[RecordRun] = []
    original = WriteStage.add_run

    def seen(stage: WriteStage, run: EngineAddRun | RecordRun) -> bool:
        is_taken = original(stage, run)
        if is_taken:
            assert isinstance(run, RecordRun)
            runs.append(run)
        return is_taken

    monkeypatch.setattr(WriteStage, "add_run", seen)
    with ServedEngine() as served, clients_of(served) as clients:
        with_ledgers(served)
        assert served.rig.fence(103) is None
        with loop_busy(served):
            for number, client in enumerate(clients):
                ledger = 100 + number
                send(client, [(ledger, 1 + entry) for entry in range(EACH)])
        for number, client in enumerate(clients):
            assert codes_of(client) == [ResultCode.FENCED if number == 3 else ResultCode.OK] * EACH
    assert len(runs) == CLIENTS - 1, "those beside the refused one are taken one by one"
    for run in runs:
        (pending,) = cast("Sequence[PendingAdds]", run.context)
        assert isinstance(pending.run, PackedAddRun)
        assert pending.run.records is run.records


def test_a_request_behind_the_adds_of_its_connection_finds_them_added() -> None:
    with ServedEngine() as served, clients_of(served) as clients:
        with_ledgers(served)
        with loop_busy(served):
            # Something that is under way, so that the next run is one to gather.
            send(clients[0], ids_of(0))
            client = clients[1]
            adds = [client.connection.send(add_request(101, 1 + entry), entry) for entry in range(EACH)]
            recovery = client.connection.send(add_request(101, 99, recovery=True), EACH)
            client.send_bytes(b"".join(adds) + recovery)
        assert codes_of(client) == [ResultCode.OK] * (EACH + 1)
        journal = b"".join(
            data for path, data in sorted(served.rig.memory.files.items()) if path.endswith(".txn")
        )
        places = [journal.index(entry_body(101, entry)) for entry in (*range(1, 1 + EACH), 99)]
        assert places == sorted(places)


@pytest.mark.parametrize("wire", list(Wire))
def test_reads_behind_the_adds_of_their_connection_find_them(wire: Wire) -> None:
    with ServedEngine() as served, clients_of(served) as clients, WireClient(served.port, wire) as client:
        with_ledgers(served)
        with loop_busy(served):
            # Something that is under way, so that the next run is one to gather.
            send(clients[0], ids_of(0))
            entries = range(1, 1 + EACH)
            adds = [client.connection.send(add_request(101, entry), entry) for entry in entries]
            reads = [client.connection.send(ReadRequest(101, entry), EACH + entry) for entry in entries]
            client.send_bytes(b"".join(adds + reads))
        assert codes_of(client) == [ResultCode.OK] * 2 * EACH


def test_a_failing_journal_acknowledges_nothing_of_anybody() -> None:
    with ServedEngine() as served, clients_of(served) as clients:
        with_ledgers(served)
        served.rig.system.inject(FaultRule("sync", ".txn"))
        send_all(served, clients)
        for client in clients:
            assert ResultCode.OK not in codes_of(client)
        served.rig.wait_failure()
        served.until(lambda: not served.server.adds.meter.length, "adds are counted that were answered")


def test_an_error_that_nobody_foresaw_is_an_answer_to_all_whose_adds_it_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ServedEngine() as served, clients_of(served) as clients:
        with_ledgers(served)
        writes = served.rig.bookie.writes
        with monkeypatch.context() as patch:
            patch.setattr(writes, "add_run", no_memory)
            patch.setattr(writes, "add", no_memory)
            with loop_busy(served):
                for number, client in enumerate(clients):
                    send(client, ids_of(number))
                # A read behind it, of an entry that is there, is answered.
                clients[-1].send([(ReadRequest(50, 0), EACH)])
            codes = [codes_of(client) for client in clients]
        assert codes.pop() == [ResultCode.IO_ERROR] * EACH + [ResultCode.OK]
        assert codes == [[ResultCode.IO_ERROR] * EACH] * (CLIENTS - 1)
        served.until(lambda: not served.server.adds.meter.length, "adds are counted that were answered")
        assert served.server.adds.size_bytes == 0
        assert clients[0].add(100, 1) is ResultCode.OK


def test_an_error_behind_the_append_is_no_second_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal answers what it has: counted down twice, adds would be let in beyond their bound."""
    with ServedEngine() as served, clients_of(served) as clients:
        with_ledgers(served)
        writes = served.rig.bookie.writes
        with monkeypatch.context() as patch:
            patch.setattr(writes._notes, "_note_use", no_memory)
            with loop_busy(served):
                for number, client in enumerate(clients):
                    send(client, ids_of(number))
            assert [codes_of(client) for client in clients] == [[ResultCode.OK] * EACH] * CLIENTS
            # The first add of a ledger, which goes there by itself.
            assert clients[0].add(7777, 0) is ResultCode.OK
        served.until(lambda: not served.server.adds.meter.length, "adds are counted that were answered")
        # A second answer would come in front of this one's.
        assert clients[0].add(100, 1) is ResultCode.OK
        served.until(lambda: not served.server.adds.meter.length, "adds are counted down twice")
        assert served.server.adds.size_bytes == 0


def test_gathered_runs_that_wait_for_room_are_answered_when_there_is_some() -> None:
    rig = EngineRig(
        small_settings(
            write_cache_bytes=16 << 10,
            writes=HeldAddsSettings(held_entries_max=10_000),
            throttle_ms_max=60_000,
        )
    )
    with ServedEngine(rig) as served, clients_of(served) as clients:
        with_ledgers(served)
        rig.system.inject(FaultRule("sync", ".log", latency_s=0.3, error_number=None, count=1))
        payload = bytes(300)
        with loop_busy(served):
            for number, client in enumerate(clients):
                client.send([(add_request(100 + number, 1 + entry, payload), entry) for entry in range(60)])
        # A ledger is fenced while its adds may wait: each of them is answered all the same.
        assert rig.fence(104) is None
        for number, client in enumerate(clients):
            codes = codes_of(client)
            assert len(codes) == 60
            if number != 4:
                assert set(codes) == {ResultCode.OK}
            for entry, code in enumerate(codes):
                if code is ResultCode.OK:
                    body = entry_body(100 + number, 1 + entry, payload)
                    assert rig.bookie.reads.read(100 + number, 1 + entry) == body
        served.until(lambda: not served.server.adds.meter.length, "adds are counted that were answered")
        assert served.server.adds.size_bytes == 0


def test_a_client_that_goes_away_takes_nobodys_answers_with_it() -> None:
    with ServedEngine() as served, clients_of(served) as clients:
        with_ledgers(served)
        with loop_busy(served):
            for number, client in enumerate(clients):
                send(client, ids_of(number))
            for client in clients[::3]:
                client.close()
        for number, client in enumerate(clients):
            if number % 3:
                assert codes_of(client) == [ResultCode.OK] * EACH
                assert_held(served, ids_of(number))
        served.until(lambda: not served.server.adds.meter.length, "adds are counted that were answered")


@pytest.mark.parametrize("disks", [(1, 1), (2, 3)], ids=["one of each", "journals and directories"])
@pytest.mark.parametrize("seed", range(6))
def test_every_connection_gets_its_own_answers_in_whatever_mixture(seed: int, disks: tuple[int, int]) -> None:
    chance = random.Random(seed)
    journals, directories = disks
    rig = EngineRig(small_settings(journals=journals, directories=directories))
    with ServedEngine(rig) as served, clients_of(served) as clients:
        for ledger in range(10):
            served.rig.add(ledger, 0)
        for ledger in (3, 4):
            assert served.rig.fence(ledger) is None
        for turn in range(8):
            sent = []
            with loop_busy(served):
                for number, client in enumerate(clients):
                    entries = range(chance.choice((0, 1, 1, 4, 30, 150)))
                    # Few of them new, so that many runs are taken together.
                    ledgers = range(14 if chance.random() < 0.2 else 3)
                    ids = [
                        (chance.choice(ledgers), 1 + number * 10_000 + turn * 1000 + entry)
                        for entry in entries
                    ]
                    send(client, ids)
                    sent.append(ids)
            for client, ids in zip(clients, sent, strict=True):
                codes = codes_of(client)
                assert codes == [
                    ResultCode.FENCED if ledger in (3, 4) else ResultCode.OK for ledger, _ in ids
                ]
                held = zip(ids, codes, strict=True)
                assert_held(served, [each for each, code in held if code is ResultCode.OK])
        served.until(lambda: served.server.adds.meter.length == 0, "adds are left")
        assert served.server.adds.size_bytes == 0


def engine_of(journals: int, directories: int) -> EngineRig:
    return EngineRig(small_settings(journals=journals, directories=directories))


@compiled
@pytest.mark.parametrize("homes", [(2, 1), (1, 2), (2, 2)], ids=str)
def test_runs_of_one_turn_go_to_the_engine_by_their_journals(
    homes: tuple[int, int], taken: list[tuple[int, int]]
) -> None:
    """Each client writes to one ledger: no answer waits for a journal that has none of its entries."""
    with ServedEngine(engine_of(*homes)) as served, clients_of(served) as clients:
        with_ledgers(served)
        ids = [[(100 + number, 1 + entry) for entry in range(EACH)] for number in range(CLIENTS)]
        with loop_busy(served):
            # Something that is under way, so that the others are gathered.
            send(clients[0], ids[0])
            for client, its in zip(clients[1:], ids[1:], strict=True):
                send(client, its)
        for client, its in zip(clients, ids, strict=True):
            assert codes_of(client) == [ResultCode.OK] * EACH
            assert_held(served, its)
    assert sum(entries for _, entries in taken) == CLIENTS * EACH
    # The first run, and of the others one for the even ledgers and one for the odd ones.
    assert sorted(connections for connections, _ in taken) == [1, (CLIENTS - 1) // 2, CLIENTS // 2]


@pytest.mark.parametrize("homes", [(2, 1), (3, 2), (2, 2)], ids=str)
def test_runs_over_several_journals_and_directories_are_all_answered(homes: tuple[int, int]) -> None:
    with ServedEngine(engine_of(*homes)) as served, clients_of(served) as clients:
        with_ledgers(served)
        for _ in range(3):
            send_all(served, clients)
            for number, client in enumerate(clients):
                assert codes_of(client) == [ResultCode.OK] * EACH
                assert_held(served, ids_of(number))
        served.until(lambda: served.server.adds.meter.length == 0, "adds are left")


@compiled
def test_runs_that_cannot_be_grouped_are_handed_on_together(
    taken: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ServedEngine(engine_of(2, 1)) as served, clients_of(served) as clients:
        with_ledgers(served)
        monkeypatch.setattr(add_runs, "ledgers_of", no_memory)
        send_all(served, clients)
        for number, client in enumerate(clients):
            assert codes_of(client) == [ResultCode.OK] * EACH
            assert_held(served, ids_of(number))
    assert sum(entries for _, entries in taken) == CLIENTS * EACH
