"""Our client against Java's bookies, ours, and both mixed; either client uses what the other left.

A Java bookie is a process of its own, a real ZooKeeper has the metadata.
"""

from __future__ import annotations

import base64
import contextlib
import json
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bkctl.client.errors import AccessDeniedError, HandleFencedError, NoSuchLedgerError
from bkctl.client.ops.recovery import RecoverySettings
from bkctl.client.ops.write import WriteSettings
from bkctl.client.settings import ClientSettings
from bkctl.client.sync import BookKeeperSync
from bkctl.codec.explicit_lac import ExplicitLac, encode_explicit_lac
from bkctl.codec.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from bkctl.codec.ledger_path import LedgerLayout, ledger_path
from bkctl.metadata.store import TreeMetadataStore
from bkctl.net.connection import Done
from bkctl.net.settings import NetSettings
from bkctl.protocol.messages import ReadRequest, Request, Wire, WriteLacRequest, WriteLacResponse
from bkctl.types import DigestType, LedgerState, ResultCode
from tests.support.grades import one_kept
from tests.support.java_client import PASSWORD, JavaClient, JavaLedgerClient, entries_of, payload
from tests.support.java_cluster import OURS, SETTINGS, THEIRS, BookieProcess, new_cluster
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer, running_zookeeper, zookeeper_server  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from tests.conftest import CliResult

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]

KINDS = {"theirs": (THEIRS,) * 3, "ours": (OURS,) * 3, "mixed": (THEIRS, OURS, THEIRS)}
WIRES = {"v2": Wire.V2, "v3": Wire.V3}
DIGESTS = tuple(DigestType)

#: What Java's client says to a writer that was fenced off.
FENCED = "BKLedgerFencedException(-101)"
#: And to one that cannot replace a bookie.
NO_OTHERS = "BKNotEnoughBookiesException(-6)"

each_digest = pytest.mark.parametrize("digest", DIGESTS, ids=lambda digest: digest.value)
each_wire = pytest.mark.parametrize("wire", WIRES)


@dataclass(frozen=True, slots=True)
class Both:
    """Both clients of one cluster, each in both versions of the protocol."""

    uri: str
    bookies: dict[str, BookieProcess]
    kinds: dict[str, str]
    our: dict[str, BookKeeperSync]
    java: dict[str, JavaClient]


@contextlib.contextmanager
def running_cluster(
    server: ZooKeeperServer, java: JavaLedgerClient, folder: Path, kinds: tuple[str, ...]
) -> Iterator[Both]:
    uri = new_cluster(server)
    with contextlib.ExitStack() as stack:
        bookies = [BookieProcess(folder / f"bookie{number}", uri) for number in range(len(kinds))]
        for bookie, kind in zip(bookies, kinds, strict=True):
            stack.enter_context(bookie)
            bookie.start(kind)
        settings = {
            name: ClientSettings(add_timeout_ms=20_000, read_timeout_ms=20_000, net=NetSettings(wire=wire))
            for name, wire in WIRES.items()
        }
        our = {
            name: stack.enter_context(BookKeeperSync(uri, one, metadata=SETTINGS))
            for name, one in settings.items()
        }
        theirs = {name: java.client(uri, wire=name) for name in WIRES}
        for client in theirs.values():
            stack.callback(client.close)
            for bookie in bookies:
                client.wait_for(bookie.bookie_id)
        names = [bookie.bookie_id for bookie in bookies]
        yield Both(
            uri, dict(zip(names, bookies, strict=True)), dict(zip(names, kinds, strict=True)), our, theirs
        )


#: Of the mixed ones every pair of bookies holds replicas of a kind each, or both of Java's.
@pytest.fixture(scope="module", params=one_kept("the same as on mixed bookies", "mixed", "theirs", "ours"))
def both(
    request: pytest.FixtureRequest,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    java: JavaLedgerClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp(f"our-client-{request.param}")
    with running_cluster(zookeeper_server, java, folder, KINDS[request.param]) as running:
        yield running


def payloads(ledger: int, count: int, size: int) -> list[bytes]:
    return [payload(ledger, entry, size) for entry in range(count)]


def stored_bytes(client: BookKeeperSync, ledger: int) -> bytes:
    store = client.store
    assert isinstance(store, TreeMetadataStore)
    node = store._tree.get(store.root + ledger_path(ledger, LedgerLayout.HIERARCHICAL))
    assert node is not None
    return node.data


# --- reading what the other wrote ---------------------------------------------------------------------------


@each_wire
@each_digest
def test_java_reads_what_we_wrote(both: Both, digest: DigestType, wire: str) -> None:
    with both.our[wire].create(3, 2, 2, digest=digest, password=PASSWORD) as writer:
        assert writer.append_all(payloads(writer.ledger, 60, 700)) == 60
    for reader in both.java.values():
        opened = reader.open(writer.ledger, digest.name)
        assert (opened.lac, opened.length, opened.closed) == (59, 60 * 700, True)
        assert opened.read(0, 59) == entries_of(writer.ledger, range(60), 700)
        opened.close()


@each_wire
@each_digest
def test_we_read_what_java_wrote(both: Both, digest: DigestType, wire: str) -> None:
    ledger = both.java[wire].create(3, 2, 2, digest.name)
    ledger.add(60, 700)
    ledger.close()
    for reader in both.our.values():
        opened = reader.open(ledger.id, password=PASSWORD)
        assert (opened.last_add_confirmed, opened.length, opened.closed) == (59, 60 * 700, True)
        assert [entry.payload for entry in opened.entries()] == payloads(ledger.id, 60, 700)
    with pytest.raises(AccessDeniedError):
        both.our[wire].open(ledger.id, password=b"another")


@each_wire
def test_large_entries(both: Both, wire: str) -> None:
    size = 4 << 20
    with both.our[wire].create(3, 2, 2, password=PASSWORD) as writer:
        writer.append_all(payloads(writer.ledger, 3, size))
    opened = both.java[wire].open(writer.ledger)
    assert opened.read(0, 2) == entries_of(writer.ledger, range(3), size)
    opened.close()
    assert [entry.payload for entry in both.our[wire].open(writer.ledger).entries()] == payloads(
        writer.ledger, 3, size
    )


def test_java_wrote_metadata_is_encoded_again_byte_for_byte(both: Both) -> None:
    ledger = both.java["v3"].create(3, 3, 2, "MAC")
    ledger.add(3)
    for change in (lambda: None, ledger.close):
        change()
        data = stored_bytes(both.our["v3"], ledger.id)
        assert encode_ledger_metadata(decode_ledger_metadata(data)) == data


def test_a_ledger_that_either_deletes_is_gone_for_both(both: Both) -> None:
    with both.our["v3"].create(1, 1, 1, password=PASSWORD) as writer:
        pass
    both.java["v3"].delete(writer.ledger)
    with pytest.raises(NoSuchLedgerError):
        both.our["v3"].open(writer.ledger)
    ledger = both.java["v3"].create(1, 1, 1)
    ledger.close()
    both.our["v3"].delete(ledger.id)
    with pytest.raises(Exception, match=r"-25"):
        both.java["v3"].open(ledger.id)


@each_wire
def test_java_reads_entries_whose_ids_we_chose(both: Both, wire: str) -> None:
    order = [5, 0, 3, 1, 9, 4, 2, 8, 7, 6]
    with both.our[wire].create_adv(3, 2, 2, password=PASSWORD) as writer:
        writer.append_all((entry, payload(writer.ledger, entry, 100)) for entry in order)
    opened = both.java[wire].open(writer.ledger)
    assert (opened.lac, opened.length, opened.closed) == (9, 1000, True)
    assert opened.read(0, 9) == entries_of(writer.ledger, range(10), 100)
    opened.close()


def test_java_recovers_a_ledger_with_a_gap_that_we_left(both: Both) -> None:
    writer = both.our["v3"].create_adv(3, 3, 2, password=PASSWORD)
    writer.append_all((entry, payload(writer.ledger, entry, 100)) for entry in (2, 1, 0))
    above = writer._thread.call(writer.handle.submit(4, payload(writer.ledger, 4, 100)))
    recovered = both.java["v3"].open(writer.ledger, recovery=True)
    assert (recovered.lac, recovered.closed) == (2, True)
    assert recovered.read(0, 2) == entries_of(writer.ledger, range(3), 100)
    recovered.close()
    with pytest.raises(HandleFencedError):
        writer.append(3, b"late")
    # Above the gap it was never acknowledged.
    assert isinstance(above.exception(), HandleFencedError)


def test_we_read_and_recover_entries_whose_ids_java_chose(both: Both) -> None:
    ledger = both.java["v3"].create(3, 2, 2, "CRC32C", "adv")
    assert ledger.add_at([3, 1, 0, 2]).acknowledged == [3, 1, 0, 2]
    done = both.our["v3"].recover(ledger.id)
    assert done.last_entry == 3
    found = [entry.payload for entry in both.our["v3"].open(ledger.id).entries()]
    assert found == payloads(ledger.id, 4, 100)


# --- recovering what the other left open --------------------------------------------------------------------


@each_wire
@each_digest
def test_java_recovers_what_we_left_open(both: Both, digest: DigestType, wire: str) -> None:
    writer = both.our[wire].create(3, 2, 2, digest=digest, password=PASSWORD)
    writer.append_all(payloads(writer.ledger, 20, 100))
    recovered = both.java[wire].open(writer.ledger, digest.name, recovery=True)
    assert (recovered.lac, recovered.length, recovered.closed) == (19, 2000, True)
    assert recovered.read(0, 19) == entries_of(writer.ledger, range(20), 100)
    with pytest.raises(HandleFencedError):
        writer.append(b"late")
    with pytest.raises(HandleFencedError):
        writer.close()
    recovered.close()


@each_wire
@each_digest
def test_we_recover_what_java_left_open(both: Both, digest: DigestType, wire: str) -> None:
    ledger = both.java[wire].create(3, 2, 2, digest.name)
    assert ledger.add(20, 100).acknowledged == list(range(20))
    plan = both.our[wire].recover(ledger.id, settings=RecoverySettings(dry_run=True))
    assert (plan.last_entry, plan.length, plan.metadata.state) == (19, 2000, LedgerState.OPEN)
    done = both.our[wire].recover(ledger.id, password=PASSWORD)
    assert (done.last_entry, done.length, done.metadata.state) == (19, 2000, LedgerState.CLOSED)
    assert ledger.add().failed == {FENCED: 1}
    opened = both.java[wire].open(ledger.id, digest.name)
    assert (opened.lac, opened.length, opened.closed) == (19, 2000, True)
    assert opened.read(0, 19) == entries_of(ledger.id, range(20), 100)
    opened.close()
    data = stored_bytes(both.our[wire], ledger.id)
    assert encode_ledger_metadata(decode_ledger_metadata(data)) == data


@each_wire
def test_an_empty_ledger_is_recovered_and_its_writer_fenced(both: Both, wire: str) -> None:
    ledger = both.java[wire].create(3, 2, 2)
    done = both.our[wire].recover(ledger.id)
    assert (done.last_entry, done.length) == (-1, 0)
    assert ledger.add().failed == {FENCED: 1}


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_an_entry_that_its_writer_left_on_some_replicas(both: Both, replicas: int) -> None:
    client = both.our["v3"]
    writer = client.create(3, 3, 2, password=PASSWORD)
    writer.append_all(payloads(writer.ledger, 5, 100))
    access = writer.handle.access
    body = access.encode(5, 4, 600, payload(writer.ledger, 5, 100))
    writer.handle.abandon()
    for bookie in writer.metadata.segments[0].bookies[:replicas]:
        client.call(client.client.pool.request(bookie, access.add_request(5, body), 20))
    last = client.recover(writer.ledger).last_entry
    # On one replica it cannot have been acknowledged: either end is right.
    assert last in {1: (4, 5), 2: (5,), 3: (5,)}[replicas]
    opened = both.java["v3"].open(writer.ledger)
    assert (opened.lac, opened.length, opened.closed) == (last, (last + 1) * 100, True)
    assert opened.read(0, last) == entries_of(writer.ledger, range(last + 1), 100)
    opened.close()


@each_wire
def test_both_recover_at_once_and_agree(both: Both, wire: str) -> None:
    writer = both.our[wire].create(3, 3, 2, password=PASSWORD)
    writer.append_all(payloads(writer.ledger, 50, 100))
    lasts: list[int] = []
    ours = threading.Thread(target=lambda: lasts.append(both.our[wire].recover(writer.ledger).last_entry))
    ours.start()
    lasts.append(both.java[wire].open(writer.ledger, recovery=True).lac)
    ours.join()
    assert lasts == [49, 49]


@each_wire
def test_fencing_alone_stops_javas_writer(both: Both, wire: str) -> None:
    ledger = both.java[wire].create(3, 3, 2)
    ledger.add(5)
    client = both.our[wire]
    _, answers = client.call(client.client.ask_replicas(ledger.id, fence=True))
    assert [answer.known for answer in answers.replicas] == [True] * 3
    assert ledger.add().failed == {FENCED: 1}
    # Java's writer closes the ledger by itself when it is told.
    assert client.recover(ledger.id).last_entry == 4


# --- following a writer -------------------------------------------------------------------------------------


def test_java_tails_what_we_write(both: Both) -> None:
    writer = both.our["v3"].create(3, 3, 2, password=PASSWORD)
    for entry in range(3):
        writer.append(payload(writer.ledger, entry, 100))
    reader = both.java["v3"].open(writer.ledger)
    assert (reader.closed, reader.lac) == (False, 1)
    for entry in range(2, 6):
        key = reader.start_long_poll(entry, 15_000)
        writer.append(payload(writer.ledger, entry + 1, 100))
        answer = reader.wait_long_poll(key)
        assert answer.lac >= entry
        assert answer.entries == entries_of(writer.ledger, [entry], 100)
    writer.close()


@each_wire
def test_we_tail_what_java_writes(both: Both, wire: str) -> None:
    ledger = both.java[wire].create(3, 3, 2)
    for _ in range(3):
        ledger.add()
    reader = both.our[wire].open_without_recovery(ledger.id)
    assert (reader.closed, reader.last_add_confirmed) == (False, 1)
    tail = reader.tail(0)
    assert [next(tail).payload for _ in range(2)] == payloads(ledger.id, 2, 100)
    ledger.add()
    assert next(tail).payload == payload(ledger.id, 2, 100)
    ledger.add(4)
    ledger.close()
    assert [entry.payload for entry in tail] == payloads(ledger.id, 8, 100)[3:]


def test_explicit_lac_goes_both_ways(both: Both) -> None:
    writer = both.our["v3"].create(3, 2, 2, password=PASSWORD)
    writer.append_all(payloads(writer.ledger, 3, 100))
    writer.flush_last_add_confirmed()
    reader = both.java["v3"].open(writer.ledger)
    assert reader.last_add_confirmed("explicit") == 2
    assert both.our["v3"].open_without_recovery(writer.ledger).last_add_confirmed == 2
    writer.close()


def test_deferred_sync_is_confirmed_by_force(both: Both) -> None:
    writer = both.our["v3"].create(3, 2, 2, password=PASSWORD, write=WriteSettings(deferred_sync=True))
    for entry in range(3):
        writer.append(payload(writer.ledger, entry, 100))
    assert writer.last_add_confirmed == -1
    assert writer.force() == 2
    writer.close()
    opened = both.java["v3"].open(writer.ledger)
    assert opened.read(0, 2) == entries_of(writer.ledger, range(3), 100)
    opened.close()


# --- the commands -------------------------------------------------------------------------------------------


def rows_of(
    run_cli: Callable[..., CliResult], both: Both, *words: object, code: int = 0
) -> list[dict[str, Any]]:
    """What a command about this cluster prints."""
    result = run_cli(*words, "-o", "ndjson", "-X", "zkTimeout=10000", env={"BKCTL_METADATA_URI": both.uri})
    assert result.exit_code == code, (words, result.stderr)
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_commands_that_look(both: Both, run_cli: Callable[..., CliResult], tmp_path: Path) -> None:
    ledger = both.java["v3"].create(3, 3, 2, "MAC")
    ledger.add(4, 100)
    ledger.close()
    (shown,) = rows_of(run_cli, both, "ledger", "show", ledger.id)
    assert (shown["state"], shown["last_entry"], shown["length"], shown["digest"]) == (
        "CLOSED",
        3,
        400,
        "mac",
    )
    assert sorted(shown["ensembles"][0]["bookies"]) == sorted(both.bookies)
    bookie = shown["ensembles"][0]["bookies"][0]
    filters = ("--state", "CLOSED", "--newer-than", "1h", "--bookie", bookie)
    assert shown in rows_of(run_cli, both, "ledger", "list", *filters)
    read = rows_of(run_cli, both, "ledger", "read", ledger.id, "--entry", "1-2", "--payload", "hex")
    assert [bytes.fromhex(row["payload"]) for row in read] == payloads(ledger.id, 3, 100)[1:]
    tailed = rows_of(run_cli, both, "ledger", "tail", ledger.id, "-n", 1)
    assert [row["entry"] for row in tailed] == [3]
    (diagnosis,) = rows_of(run_cli, both, "ledger", "doctor", ledger.id)
    assert (diagnosis["verdict"], diagnosis["absent"]) == ("healthy", [])
    assert {row["bookie"] for row in rows_of(run_cli, both, "bookies", "list")} == set(both.bookies)
    assert all(row["free_bytes"] > 0 for row in rows_of(run_cli, both, "bookies", "info"))
    assert all(row["v2_ms"] > 0 and row["v3_ms"] > 0 for row in rows_of(run_cli, both, "bookies", "probe"))
    dump = tmp_path / "dump.json"
    rows_of(run_cli, both, "metadata", "dump", "--out", dump)
    assert stat.S_IMODE(dump.stat().st_mode) == 0o600
    node = next(path for path in json.loads(dump.read_text()) if path.endswith(shown_path(ledger.id)))
    assert base64.b64decode(json.loads(dump.read_text())[node]["data"]) == stored_bytes(
        both.our["v3"], ledger.id
    )


def shown_path(ledger: int) -> str:
    return ledger_path(ledger, LedgerLayout.HIERARCHICAL)


def test_commands_that_fence_recover_delete_and_restore(
    both: Both, run_cli: Callable[..., CliResult], tmp_path: Path
) -> None:
    ledgers = [both.java["v3"].create(3, 2, 2) for _ in range(3)]
    for ledger in ledgers:
        assert ledger.add(5, 100).acknowledged == list(range(5))
    first, *others = ledgers
    (fenced,) = rows_of(run_cli, both, "ledger", "fence", first.id)
    assert (fenced["covered"], fenced["state"]) == (True, "OPEN")
    (diagnosis,) = rows_of(run_cli, both, "ledger", "doctor", first.id, code=1)
    assert (diagnosis["verdict"], diagnosis["would_close_at"]) == ("recoverable", 4)
    (plan,) = rows_of(run_cli, both, "ledger", "recover", first.id, "--dry-run")
    assert (plan["last_entry"], plan["length"], plan["state"]) == (4, 500, "OPEN")
    (done,) = rows_of(run_cli, both, "ledger", "recover", first.id)
    same = ("last_entry", "length", "entries_rewritten", "lac_found")
    assert [done[key] for key in same] == [plan[key] for key in same]
    many = rows_of(run_cli, both, "ledger", "recover", *(ledger.id for ledger in others), "--concurrency", 2)
    assert {(row["ledger"], row["state"], row["last_entry"]) for row in many} == {
        (ledger.id, "CLOSED", 4) for ledger in others
    }
    for ledger in ledgers:
        assert ledger.add().failed == {FENCED: 1}
        opened = both.java["v3"].open(ledger.id)
        assert opened.read(0, 4) == entries_of(ledger.id, range(5), 100)
        opened.close()
    undo = tmp_path / "undo.json"
    before = stored_bytes(both.our["v3"], first.id)
    rows_of(run_cli, both, "ledger", "delete", first.id, "--yes", "--undo-file", undo)
    with pytest.raises(Exception, match=r"-25"):
        both.java["v3"].open(first.id)
    rows_of(run_cli, both, "ledger", "restore", undo)
    assert stored_bytes(both.our["v3"], first.id) == before
    opened = both.java["v3"].open(first.id)
    assert opened.read(0, 4) == entries_of(first.id, range(5), 100)
    opened.close()


def test_an_explicit_lac_whose_digest_does_not_check_moves_neither_plan_nor_run(both: Both) -> None:
    """Bookies of both kinds take it as it comes, and name it beside entries that they send."""
    client = both.our["v3"]
    writer = client.create(3, 3, 2, digest=DigestType.MAC, password=PASSWORD)
    writer.append_all(payloads(writer.ledger, 10, 100))
    body = encode_explicit_lac(ExplicitLac(writer.ledger, 5000)) + bytes(20)
    request = WriteLacRequest(writer.ledger, 5000, writer.handle.access.key, body)
    for bookie in writer.metadata.segments[0].bookies:
        answer = client.call(client.client.pool.request(bookie, request, 20))
        assert isinstance(answer, WriteLacResponse)
        assert answer.code is ResultCode.OK
    plan = client.recover(writer.ledger, settings=RecoverySettings(dry_run=True))
    done = client.recover(writer.ledger)
    assert (plan.last_entry, plan.length) == (done.last_entry, done.length) == (9, 1000)


def test_recovery_beside_a_stopped_bookie_waits_for_it_at_most_once(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E3 Wq3 Aq2, 60 entries behind the LAC: it leads the reads of twenty of them."""
    client = both.our["v3"]
    writer = client.create(3, 3, 2, password=PASSWORD)
    ledger, first = writer.ledger, writer.metadata.segments[0].bookies[0]
    writer.append_all(payloads(ledger, 60, 100))
    reads: list[int] = []
    real = client.client.pool.send

    def send(bookie: str, request: Request, done: Done, timeout_s: float) -> None:
        if bookie == first and isinstance(request, ReadRequest) and request.entry >= 0:
            reads.append(request.entry)
        real(bookie, request, done, timeout_s)

    monkeypatch.setattr(client.client.pool, "send", send)
    both.bookies[first].pause()
    try:
        done = client.recover(ledger)
    finally:
        both.bookies[first].resume()
        # Its session may have ended meanwhile; other tests need it.
        until(lambda: len(client.store.registration.bookies().writable) == len(both.bookies))
    assert (done.last_entry, done.metadata.state) == (59, LedgerState.CLOSED)
    assert len(reads) <= 1


def test_doctor_leaves_a_ledger_to_javas_writer(both: Both, run_cli: Callable[..., CliResult]) -> None:
    ledger = both.java["v3"].create(3, 3, 2)
    ends = threading.Event()

    def write() -> None:
        while not ends.wait(0.01):
            ledger.add(1, 100)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        (row,) = rows_of(run_cli, both, "ledger", "doctor", ledger.id)
        assert (row["verdict"], row["next_command"]) == ("open", None)
        assert not rows_of(run_cli, both, "ledger", "recover", ledger.id, code=4)
    finally:
        ends.set()
        writer.join()
    (row,) = rows_of(run_cli, both, "ledger", "doctor", ledger.id, code=1)
    assert row["verdict"] == "recoverable"
    assert ledger.add().acknowledged, "nobody has stopped it"
    ledger.close()


# --- metadata that is away ----------------------------------------------------------------------------------


def test_closed_ledgers_are_read_while_zookeeper_is_stopped(tmp_path: Path) -> None:
    """The client has opened the ledger, and made no connection to its bookies so far."""
    with (
        running_zookeeper() as server,
        BookieProcess(tmp_path / "bookie", uri := new_cluster(server)) as bookie,
    ):
        bookie.start(THEIRS)
        with BookKeeperSync(uri) as client, client.create(1, 1, 1) as writer:
            writer.append_all(payloads(writer.ledger, 5, 100))
        with BookKeeperSync(uri) as client:
            reader = client.open(writer.ledger)
            server.pause()
            try:
                found = reader.read(0, 4)
            finally:
                server.resume()
            assert [entry.payload for entry in found] == payloads(writer.ledger, 5, 100)


# --- bookies that go, last: every cluster loses one ---------------------------------------------------------


@pytest.mark.parametrize("gone", one_kept("the same as with one of Java's", THEIRS, OURS))
def test_with_a_bookie_killed(
    gone: str,
    zookeeper_server: ZooKeeperServer,  # noqa: F811
    java: JavaLedgerClient,
    tmp_path: Path,
) -> None:
    with running_cluster(zookeeper_server, java, tmp_path, (THEIRS, THEIRS, OURS, OURS)) as both:
        our, theirs = both.our["v3"], both.java["v3"]
        left_open = theirs.create(4, 3, 2)
        left_open.add(20, 100)
        writer = our.create(3, 3, 2, password=PASSWORD)
        writer.append_all(payloads(writer.ledger, 10, 100))
        victim = next(name for name in writer.metadata.segments[0].bookies if both.kinds[name] == gone)
        both.bookies[victim].kill()
        for entry in range(10, 20):
            assert writer.append(payload(writer.ledger, entry, 100)) == entry
        assert victim not in writer.metadata.segments[-1].bookies
        writer.close()
        opened = theirs.open(writer.ledger)
        assert opened.read(0, 19) == entries_of(writer.ledger, range(20), 100)
        opened.close()

        done = our.recover(left_open.id)
        assert (done.last_entry, done.metadata.state) == (19, LedgerState.CLOSED)
        # The dead bookie may come first in the writer's eyes: then it finds no other to replace it.
        ((why, count),) = left_open.add().failed.items()
        assert (why in (FENCED, NO_OTHERS), count) == (True, 1)
        opened = theirs.open(left_open.id)
        assert opened.read(0, 19) == entries_of(left_open.id, range(20), 100)
        opened.close()
