"""``bkctl bookie start`` under load, killed again and again; BKCTL_SOAK=100 kills a hundred times.

The load comes from small clients of our own, and in a second test from the released Java client.

A kill comes at a random moment of the load (small journals and caches: flushes, swaps and rolls are always
under way), and in some rounds once more during the start behind it, while journals are replayed. Then
everything that was ever acknowledged is asked for over the wire.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import struct
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from bkctl.codec import digest
from bkctl.protocol.messages import ReadRequest, Wire
from bkctl.storage_kinds import KINDS
from bkctl.types import ResultCode
from tests.support.bookie_process import BookieProcess
from tests.support.engine_model import EngineModel, LedgerMemory
from tests.support.engine_rig import entry_body
from tests.support.grades import times
from tests.support.java_client import JavaClient, JavaLedger, JavaLedgerClient, payload
from tests.support.java_cluster import free_port, new_cluster
from tests.support.wire_client import DisconnectedError, WireClient, add_request
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

ROUNDS = times(2, 4, "BKCTL_SOAK")
SEED = int(os.environ.get("BKCTL_SOAK_SEED") or random.SystemRandom().randrange(1 << 30))
OTHER_KEY = digest.master_key(b"other")
#: A round of the Java client takes ten seconds: it waits for sessions to end.
JAVA_ROUNDS = int(os.environ.get("BKCTL_SOAK_JAVA") or (ROUNDS if ROUNDS > 4 else times(1, 2)))
JAVA_ENTRIES, JAVA_BYTES = 30_000, 300
FENCED = "(-101)"
#: Rounds whose ledgers are asked for after every kill; the older ones now and then, and at the end.
RECENT = 4
READS_AT_ONCE = 500
_LEDGER_STEP = 100

pytestmark = [pytest.mark.slow, pytest.mark.timeout(270 + 15 * ROUNDS)]


class Load:
    """One client with ledgers of its own, in a thread, until the bookie is gone."""

    def __init__(self, port: int, model: EngineModel, first_ledger: int, chance: random.Random) -> None:
        self._model = model
        self._first = first_ledger
        self._chance = chance
        self._port = port
        self.errors: list[BaseException] = []
        self.thread = threading.Thread(target=self._run, name=f"load-{first_ledger}")

    def _run(self) -> None:
        try:
            with WireClient(self._port, self._chance.choice(list(Wire))) as client:
                self._fenced_ledgers(client)
                if client.connection.wire is Wire.V3:
                    self._lacs(client)
                while True:
                    self._adds(client)
        except DisconnectedError:
            pass
        except BaseException as error:  # noqa: BLE001 - the top of a thread: the test tells
            self.errors.append(error)

    def _fenced_ledgers(self, client: WireClient) -> None:
        """One with an entry that stays idle from here on, one without entries."""
        idle, empty = self._first + 10, self._first + 11
        self._model.sent(idle, 0, entry_body(idle, 0, b"idle"))
        assert client.add(idle, 0, b"idle") is ResultCode.OK
        self._model.acknowledge([(idle, 0, 0)])
        for ledger, code in ((idle, ResultCode.OK), (empty, ResultCode.NO_ENTRY)):
            self._model.of(ledger).fence_sent = True
            assert client.fence(ledger) is code
            self._model.of(ledger).fenced = True

    def _lacs(self, client: WireClient) -> None:
        ledger = self._first + 12
        memory = self._model.of(ledger)
        for lac in range(self._chance.randint(1, 4)):
            memory.lacs_sent.append(lac)
            assert client.write_lac(ledger, lac) is ResultCode.OK
            memory.lac = lac

    def _adds(self, client: WireClient) -> None:
        """A window of adds to several ledgers; in v3 now and then deferred ones with a force."""
        deferred = client.connection.wire is Wire.V3 and self._chance.random() < 0.2
        sent = []
        # Now and then a lone one.
        for _ in range(1 if self._chance.random() < 0.1 else self._chance.randint(1, 60)):
            ledger = self._first + self._chance.randrange(3)
            memory = self._model.of(ledger)
            entry = len(memory.bodies)
            payload = self._chance.randbytes(4) * self._chance.choice((0, 5, 100, 250, 250, 2000))
            place = self._model.sent(ledger, entry, entry_body(ledger, entry, payload))
            request = add_request(ledger, entry, payload, deferred=deferred)
            sent.append((request, (ledger, entry, place)))
        client.send(sent)
        answered = []
        while client.connection.outstanding:
            for answer in client.receive():
                code = answer.response.code  # type: ignore[attr-defined]
                assert code in (ResultCode.OK, ResultCode.TOO_MANY_REQUESTS), code
                if code is ResultCode.OK:
                    answered.append(answer.context)
                    if not deferred:
                        self._model.acknowledge([answer.context])  # type: ignore[list-item]
        if deferred:
            for ledger in range(self._first, self._first + 3):
                if client.force(ledger) is ResultCode.OK:
                    self._model.acknowledge([add for add in answered if add[0] == ledger])  # type: ignore[index, misc]


def check(port: int, model: EngineModel, ledgers: list[int]) -> None:
    """Ask for everything that was promised."""
    with WireClient(port, Wire.V2) as plain, WireClient(port) as client:
        for ledger in ledgers:
            memory = model.ledgers[ledger]
            check_entries(plain, ledger, memory)
            if memory.promised(lacs=True):
                assert client.add(ledger, 1 << 40, key=OTHER_KEY) is ResultCode.UNAUTHORIZED
            if memory.fenced:
                assert client.add(ledger, 1 << 40) is ResultCode.FENCED, (
                    f"fence of ledger {ledger} is forgotten"
                )
            if memory.lac is not None:
                body = client.read_lac(ledger).lac_body
                assert body is not None, f"ledger {ledger}: no explicit LAC"
                assert struct.unpack_from(">qq", body)[1] >= memory.lac


def check_entries(client: WireClient, ledger: int, memory: LedgerMemory) -> None:
    entries = list(memory.bodies)
    for at in range(0, len(entries), READS_AT_ONCE):
        reads = [ReadRequest(ledger, entry) for entry in entries[at : at + READS_AT_ONCE]]
        client.send([(read, read.entry) for read in reads])
        for answer in client.receive_all():
            entry = answer.context
            assert isinstance(entry, int)
            code, body = answer.response.code, answer.response.body  # type: ignore[attr-defined]
            if code is ResultCode.OK:
                assert body in memory.bodies[entry], f"ledger {ledger}, entry {entry}: other bytes"
            else:
                assert code in (ResultCode.NO_ENTRY, ResultCode.NO_LEDGER), code
                assert entry not in memory.acknowledged, f"ledger {ledger}, entry {entry} is lost: {code}"


def one_round(
    bookie: BookieProcess, model: EngineModel, number: int, port: int, chance: random.Random
) -> str:
    """Load, a kill, perhaps another during the start; what was done."""
    loads = [
        Load(port, model, (number * 10 + each) * _LEDGER_STEP, random.Random(chance.random()))
        for each in range(chance.randint(1, 3))
    ]
    for load in loads:
        load.thread.start()
    # The last one is not short: the load is to have done something in all.
    pauses_s = (0.3, 0.6) if number == ROUNDS else (0.02, 0.1, 0.3, 0.6)
    time.sleep(chance.choice(pauses_s) * (0.5 + chance.random()))
    assert bookie.is_running
    bookie.kill()
    for load in loads:
        load.thread.join()
        assert not load.errors, load.errors
    done = f"{len(loads)} clients"
    while chance.random() < 0.3:
        bookie.spawn()
        time.sleep(0.25 + chance.random() * 0.6)
        died = not bookie.is_running
        bookie.kill()
        assert not died, bookie.log.read_text()[-3000:]
        done += ", killed while starting"
    return done


def test_no_kill_makes_the_bookie_forget(tmp_path: Path) -> None:
    print(f"seed {SEED}: BKCTL_SOAK_SEED={SEED} repeats it")
    chance = random.Random(SEED)
    model = EngineModel()
    seconds: list[float] = []
    replayed: Counter[str] = Counter()
    directories = chance.choice((1, 2))
    keys = {
        "journalDirectories": ",".join(str(tmp_path / f"journal{number}") for number in range(directories)),
        "ledgerDirectories": ",".join(str(tmp_path / f"ledgers{number}") for number in range(directories)),
    }
    keys["ledgerStorageClass"] = chance.choice([name for kind in KINDS for name in kind.classes])
    # Lone adds are written by the event loop then.
    keys["journalFlushWhenQueueEmpty"] = chance.choice(("false", "true"))
    print(keys["ledgerStorageClass"], keys["journalFlushWhenQueueEmpty"])
    if directories > 1:
        keys["allowMultipleDirsUnderSameDiskPartition"] = "true"
    with BookieProcess(tmp_path, keys) as bookie:
        row = bookie.start()
        for number in range(1, ROUNDS + 1):
            port = row["port"]
            assert isinstance(port, int)
            done = one_round(bookie, model, number, port, chance)
            started_s = time.monotonic()
            row = bookie.start()
            seconds.append(time.monotonic() - started_s)
            replayed["entries"] += int(str(row["entries"]))
            recent = number % 20 == 0 or number == ROUNDS
            first = 0 if recent else (number - RECENT) * 10 * _LEDGER_STEP
            check(int(str(row["port"])), model, [ledger for ledger in model.ledgers if ledger >= first])
            print(f"round {number}: {done}; {model.answered} acknowledged, {row['entries']} replayed")
        assert bookie.stop() == 0
        row = bookie.start()
        assert row["entries"] == 0
        assert row["unclean"] is False
        check(int(str(row["port"])), model, list(model.ledgers))
    assert model.answered > 50 * ROUNDS
    assert "Traceback" not in bookie.log.read_text()
    print(f"starts: {max(seconds):.2f} s at most, {sum(seconds) / len(seconds):.2f} s on average; {replayed}")


# --- the Java client


def java_round(
    client: JavaClient, bookie: BookieProcess, chance: random.Random
) -> tuple[JavaLedger, list[int]]:
    """Adds of the Java client, a kill in the middle; the ledger and what was acknowledged."""
    ledger = client.create(1, 1, 1)
    adding = ledger.start_add(JAVA_ENTRIES, JAVA_BYTES)
    time.sleep(0.05 + chance.random() * 0.8)
    bookie.kill()
    return ledger, ledger.wait_added(adding).acknowledged


def check_java(client: JavaClient, name: str, ledgers: dict[int, list[int]], fenced: list[int]) -> None:
    for ledger, acknowledged in ledgers.items():
        if acknowledged:
            found = client.replicas(name, ledger, 0, max(acknowledged), digest="CRC32C")
            for entry in acknowledged:
                wanted = hashlib.sha256(payload(ledger, entry, JAVA_BYTES)).hexdigest()
                assert found[entry] == wanted, f"ledger {ledger}, entry {entry}: {found[entry]}"
    for ledger in fenced:
        answer = client.late_add(name, ledger, 1_000_000)
        assert FENCED in answer, f"ledger {ledger} was fenced, a late writer is told {answer}"


@pytest.mark.interop
@pytest.mark.timeout(300 + 20 * ROUNDS)
def test_no_kill_makes_the_bookie_forget_what_the_java_client_was_told(
    tmp_path: Path,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
) -> None:
    print(f"seed {SEED}: BKCTL_SOAK_SEED={SEED} repeats it")
    chance = random.Random(SEED)
    name = "victim"
    uri = new_cluster(zookeeper_server)
    keys = {"bookieId": name, "bookiePort": str(free_port()), "metadataServiceUri": uri, "zkTimeout": "2000"}
    ledgers: dict[int, list[int]] = {}
    fenced: list[int] = []
    with contextlib.ExitStack() as stack:
        java = stack.enter_context(JavaLedgerClient())
        bookie = stack.enter_context(BookieProcess(tmp_path, keys))
        bookie.start()
        clients = {wire: java.client(uri, wire=wire, addEntryTimeoutSec=5) for wire in ("v2", "v3")}
        for number in range(1, JAVA_ROUNDS + 1):
            wire = chance.choice(list(clients))
            for client in clients.values():
                client.wait_for(name)
            empty = clients["v3"].create(1, 1, 1)
            clients["v3"].open(empty.id, recovery=True).close()
            fenced.append(empty.id)
            ledger, acknowledged = java_round(clients[wire], bookie, chance)
            ledgers[ledger.id] = acknowledged
            row = bookie.start()
            for client in clients.values():
                client.wait_for(name)
            recent = number % 20 == 0 or number == JAVA_ROUNDS
            shown = ledgers if recent else dict(list(ledgers.items())[-RECENT:])
            check_java(clients["v3"], name, shown, fenced if recent else fenced[-2 * RECENT :])
            # A writer that lost its only bookie has perhaps closed the ledger: there is nothing to recover.
            if clients["v3"].metadata(ledger.id).state != "CLOSED":
                fenced.append(ledger.id)
            reopened = clients["v3"].open(ledger.id, recovery=True)
            assert reopened.lac >= max(acknowledged, default=-1)
            reopened.close()
            print(f"round {number}: {wire}, {len(acknowledged)} acknowledged, {row['entries']} replayed")
        assert sum(map(len, ledgers.values()))
        check_java(clients["v3"], name, ledgers, fenced)
        assert bookie.stop() == 0
    assert "Traceback" not in bookie.log.read_text()
