"""Every HTTP endpoint that we serve, asked of a Java bookie and of ours in one cluster, key by key."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from bkctl.codec.underreplication import UnderreplicatedMark
from bkctl.metadata.uri import open_metadata_store
from tests.support.autorecovery_nodes import holder_text, mark_text
from tests.support.java_client import JavaLedgerClient
from tests.support.java_cluster import OURS, SETTINGS, THEIRS, BookieProcess, free_port, new_cluster
from tests.support.java_http import HttpAnswer, http_conf, request
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = [pytest.mark.interop, pytest.mark.timeout(280)]

API = "/api/v1"
ENTRIES = 1005
TOKEN = "a-token-of-the-tests"
KINDS = (THEIRS, OURS)


@dataclass(frozen=True, slots=True)
class Pair:
    """Both bookies; ledger 0 is closed, 1 open and empty, the others are there to be deleted."""

    root: str
    zookeeper: str
    ports: dict[str, int]
    bookies: dict[str, BookieProcess]
    closed: int
    spare: dict[str, int]

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> dict[str, HttpAnswer]:
        """Both answers."""
        return {kind: request(port, method, path, body, headers) for kind, port in self.ports.items()}

    def values(self, path: str, **headers: str) -> tuple[Any, Any]:
        """The JSON of both answers to a GET, Java's first."""
        answers = self.ask("GET", API + path, **headers)
        assert {kind: answer.status for kind, answer in answers.items()} == dict.fromkeys(KINDS, 200), answers
        return answers[THEIRS].json, answers[OURS].json


@pytest.fixture(scope="module")
def pair(
    zookeeper_server: ZooKeeperServer,  # noqa: F811 - the fixture
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    uri = new_cluster(zookeeper_server)
    ports = {kind: free_port() for kind in KINDS}
    token_file = tmp_path_factory.mktemp("token") / "token"
    token_file.write_text(TOKEN + "\n")
    token_file.chmod(0o600)
    with contextlib.ExitStack() as stack:
        bookies = {}
        for kind in KINDS:
            # Java does not look at a key that it does not know.
            conf = {
                **http_conf(ports[kind]),
                "flushInterval": "200",
                "bkctlHttpAdminTokenFile": str(token_file),
            }
            folder = tmp_path_factory.mktemp(f"{kind}-http") / "bookie"
            bookies[kind] = stack.enter_context(BookieProcess(folder, uri, conf=conf))
            bookies[kind].start(kind)
        java = stack.enter_context(JavaLedgerClient())
        client = java.client(uri)
        for bookie in bookies.values():
            client.wait_for(bookie.bookie_id)
        ledgers = [client.create(1, 1, 1, "CRC32C") for _ in range(4)]
        assert not ledgers[0].add(count=ENTRIES, size=40).failed
        ledgers[0].close()
        root = stack.enter_context(open_metadata_store(uri, SETTINGS)).root
        spare = {THEIRS: ledgers[2].id, OURS: ledgers[3].id}
        yield Pair(root, zookeeper_server.address, ports, bookies, ledgers[0].id, spare)


def with_token() -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}"}


def shape(value: object) -> object:
    """Keys and types, at any depth; of a list that of its items."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return type(value).__name__


@pytest.mark.parametrize(
    "path",
    [
        "/ledger/list",
        "/bookie/list_bookies",
        "/bookie/list_bookies?type=rw",
        "/bookie/list_bookies?type=ro",
        "/bookie/list_bookies?type=rw&print_hostnames=true",
        "/bookie/list_bookies?type=other",
        "/bookie/gc",
        "/bookie/gc/suspend_compaction",
        "/bookie/state",
        "/bookie/state/readonly",
        "/bookie/cluster_info",
        "/autorecovery/status",
    ],
)
def test_answers_are_equal(pair: Pair, path: str) -> None:
    theirs, ours = pair.values(path)
    assert ours == theirs
    assert shape(ours) == shape(theirs)


@pytest.mark.parametrize("path", ["/heartbeat", f"{API}/bookie/is_ready"])
def test_texts_are_equal(pair: Pair, path: str) -> None:
    answers = pair.ask("GET", path)
    assert answers[OURS] == answers[THEIRS]
    assert answers[OURS].status == 200


def test_metadata_of_a_ledger_are_equal_with_the_token(pair: Pair) -> None:
    path = f"/ledger/metadata?ledger_id={pair.closed}"
    theirs, ours = pair.values(path, **with_token())
    assert ours == theirs
    values = ours[str(pair.closed)]
    assert (values["state"], values["lastEntryId"], values["password"]) == ("CLOSED", ENTRIES - 1, "cHc=")


def test_without_the_token_the_password_is_null_and_nothing_else_differs(pair: Pair) -> None:
    theirs, ours = pair.values(f"/ledger/metadata?ledger_id={pair.closed}")
    (values,), (known,) = ours.values(), theirs.values()
    assert values.pop("password") is None
    assert known.pop("password") == "cHc="
    assert values == known
    raw = request(pair.ports[OURS], "GET", f"{API}/ledger/list?print_metadata=true").text
    assert "pw" not in raw.replace("Format", "")


@pytest.mark.parametrize("parameters", ["print_metadata=true&decode_meta=true", "print_metadata=true"])
def test_lists_with_metadata_are_equal_with_the_token(pair: Pair, parameters: str) -> None:
    theirs, ours = pair.values(f"/ledger/list?{parameters}", **with_token())
    assert list(ours) == list(theirs)
    assert ours == theirs


def test_a_page_of_ledgers(pair: Pair) -> None:
    parameters = "print_metadata=true&decode_meta=true&page"
    assert pair.values(f"/ledger/list?{parameters}=1", **with_token())[1].keys() >= {str(pair.closed)}
    theirs, ours = pair.values(f"/ledger/list?{parameters}=2", **with_token())
    assert theirs == ours == {}


@pytest.mark.parametrize(
    "parameters",
    [
        "",
        "&page=1",
        "&page=2",
        "&page=9",
        "&page=0",
        "&start_entry_id=3&end_entry_id=5",
        f"&start_entry_id={ENTRIES - 2}",
        f"&start_entry_id={ENTRIES - 2}&end_entry_id=5000",
        "&start_entry_id=5000",
        "&start_entry_id=1002&page=2",
    ],
)
def test_entries_are_equal(pair: Pair, parameters: str) -> None:
    theirs, ours = pair.values(f"/ledger/read?ledger_id={pair.closed}{parameters}", **with_token())
    assert ours == theirs


@pytest.mark.parametrize("path", ["/ledger/read?ledger_id=0", "/bookie/sanity"])
def test_entries_and_the_test_that_writes_need_the_token(pair: Pair, path: str) -> None:
    answer = request(pair.ports[OURS], "GET", f"{API}{path}")
    assert (answer.status, "token" in answer.text) == (401, True)


def test_sanity(pair: Pair) -> None:
    # By GET, as Java has it: with the token that is no page's doing.
    theirs, ours = pair.values("/bookie/sanity", **with_token())
    assert ours == theirs == {"passed": True, "readOnly": False}


def test_a_ledger_is_deleted_by_each(pair: Pair) -> None:
    answers = {
        kind: request(port, "DELETE", f"{API}/ledger/delete?ledger_id={pair.spare[kind]}", None, with_token())
        for kind, port in pair.ports.items()
    }
    assert {kind: answer.json for kind, answer in answers.items()} == {
        kind: f"Deleted ledger: {pair.spare[kind]}" for kind in KINDS
    }
    theirs, ours = pair.values("/ledger/list")
    assert theirs == ours
    assert not {str(ledger) for ledger in pair.spare.values()} & ours.keys()


def test_configuration_that_was_given(pair: Pair) -> None:
    theirs, ours = pair.values("/config/server_config")
    assert ours.keys() == theirs.keys()
    their_own = {"httpServerPort", "bookiePort", "ledgerDirectories", "journalDirectories"}
    # Each says its own; the rest was given to both.
    for name in ours.keys() - their_own:
        assert ours[name] == theirs[name], name
    for kind, values in ((THEIRS, theirs), (OURS, ours)):
        assert values["httpServerPort"] == str(pair.ports[kind])
        assert values["ledgerDirectories"] == str(pair.bookies[kind].folder / "ledgers")


def test_configuration_that_is_changed(pair: Pair) -> None:
    answers = pair.ask("PUT", f"{API}/config/server_config", {"flushInterval": "300"}, **with_token())
    assert answers[OURS] == answers[THEIRS]
    assert answers[OURS].text == "Success set server config."
    theirs, ours = pair.values("/config/server_config")
    assert ours["flushInterval"] == theirs["flushInterval"] == "300"


def test_room_is_told_in_the_same_words(pair: Pair) -> None:
    theirs, ours = pair.values("/bookie/list_bookie_info")
    assert ours.keys() == theirs.keys()
    pattern = re.compile(r"\{Free: \d+\(\d+(\.\d{1,3})?[GT]B\), Total: (\d+\(\d+(\.\d{1,3})?[GT]B\))\}")
    for key, value in ours.items():
        found, known = pattern.search(value), pattern.search(theirs[key])
        assert found is not None, value
        assert known is not None, theirs[key]
        # The free room changes while it is asked for.
        assert found[2] == known[2]
        assert (found.start(), len(value) - found.end()) == (known.start(), len(theirs[key]) - known.end())
    theirs, ours = pair.values("/bookie/info")
    assert shape(ours) == shape(theirs)
    assert ours["totalSpace"] == theirs["totalSpace"]
    assert ours["freeSpace"] == pytest.approx(theirs["freeSpace"], rel=0.2)


def test_marks_and_files_have_the_same_form(pair: Pair) -> None:
    for answer in pair.values("/bookie/last_log_mark"):
        ((key, value),) = answer.items()
        found = re.fullmatch(r"LastLogMark: Journal Id - (\d+)\(([0-9a-f]+)\.txn\)", key)
        assert found is not None, key
        assert int(found[1]) == int(found[2], 16)
        assert re.fullmatch(r"Pos - \d+", value)
    for kind, name, suffix in (("journal", "journal files", "txn"), ("entrylog", "entrylog files", "log")):
        for answer in pair.values(f"/bookie/list_disk_file?file_type={kind}"):
            assert list(answer) == [name]
            assert re.fullmatch(rf"([0-9a-f]+\.{suffix}\t)*", answer[name]), answer
    assert all(
        answer == {"index files": ""} for answer in pair.values("/bookie/list_disk_file?file_type=index")
    )
    theirs, ours = pair.values("/bookie/list_disk_file")
    assert shape(ours) == shape(theirs)


def test_details_of_garbage_collection_have_the_same_form(pair: Pair) -> None:
    theirs, ours = pair.values("/bookie/gc_details")
    assert shape(ours) == shape(theirs)
    answers = pair.ask("PUT", f"{API}/bookie/gc", None, **with_token())
    for kind, answer in answers.items():
        assert answer.status == 200
        assert answer.text.strip('"') == f"Triggered GC on BookieServer: {pair.bookies[kind].bookie_id}"


@pytest.mark.parametrize(("major", "minor"), [(True, False), (False, True), (True, True)])
def test_compaction_is_suspended_and_resumed(pair: Pair, major: bool, minor: bool) -> None:
    for verb in ("suspend", "resume"):
        body = {f"{verb}Major": major, f"{verb}Minor": minor}
        answers = pair.ask("PUT", f"{API}/bookie/gc/{verb}_compaction", body, **with_token())
        # What they say of it differs in words.
        for kind, answer in answers.items():
            assert answer.status == 200
            assert pair.bookies[kind].bookie_id in answer.text
        theirs, ours = pair.values("/bookie/gc/suspend_compaction")
        assert ours == theirs
        assert ours["isMajorGcSuspended"] == str(major and verb == "suspend").lower()


def test_suspending_nothing_is_refused(pair: Pair) -> None:
    answers = pair.ask("PUT", f"{API}/bookie/gc/suspend_compaction", {}, **with_token())
    assert answers[OURS].status == answers[THEIRS].status == 400


def test_read_only_and_back(pair: Pair) -> None:
    for wanted in (True, False):
        answers = pair.ask("PUT", f"{API}/bookie/state/readonly", {"readOnly": wanted}, **with_token())
        assert answers[OURS].json == answers[THEIRS].json == {"readOnly": wanted}
        theirs, ours = pair.values("/bookie/state")
        assert ours == theirs
        assert ours["readOnly"] is wanted


def test_autorecovery_is_switched_by_either(pair: Pair) -> None:
    for kind, wanted in ((OURS, False), (THEIRS, True), (THEIRS, False), (OURS, True)):
        text = "true" if wanted else "false"
        answer = request(
            pair.ports[kind], "PUT", f"{API}/autorecovery/status?enabled={text}", None, with_token()
        )
        assert answer.json == {"enabled": wanted}
        assert pair.values("/autorecovery/status") == ({"enabled": wanted}, {"enabled": wanted})
        assert pair.values("/bookie/cluster_info")[1]["ledgerReplicationEnabled"] is wanted


def test_under_replication_as_the_store_has_it(pair: Pair) -> None:
    path = f"{API}/autorecovery/list_under_replicated_ledger"
    none = pair.ask("GET", path)
    assert none[OURS] == none[THEIRS] == HttpAnswer(404, "No under replicated ledgers found")
    with _zookeeper(pair) as zookeeper:
        base = f"{pair.root}/underreplication/ledgers/0000/0000/0000"
        for ledger, bookie in ((3, "127.0.0.1:1"), (12, "127.0.0.1:2")):
            mark = mark_text(UnderreplicatedMark((bookie,), 1795263329069))
            zookeeper.create(f"{base}/{ledger:04x}/urL{ledger:010d}", mark, makepath=True)
        for parameters in (
            "",
            "?printmissingreplica=true",
            "?missingreplica=127.0.0.1:2",
            "?excludingmissingreplica=127.0.0.1:2",
        ):
            theirs, ours = pair.values(f"/autorecovery/list_under_replicated_ledger{parameters}")
            assert ours == theirs
            assert ours
        assert pair.values("/bookie/cluster_info")[1]["clusterUnderReplicated"] is True
        zookeeper.delete(f"{pair.root}/underreplication/ledgers/0000", recursive=True)


def test_the_auditor_and_what_it_is_told(pair: Pair) -> None:
    path = f"{API}/autorecovery/who_is_auditor"
    assert {answer.status for answer in pair.ask("GET", path).values()} == {404}
    delay = f"{API}/autorecovery/lost_bookie_recovery_delay"
    assert {answer.status for answer in pair.ask("GET", delay).values()} == {404}
    for seconds in (30, 0, 45):
        for kind in KINDS:
            answer = request(pair.ports[kind], "PUT", delay, {"delay_seconds": seconds}, with_token())
            assert answer == HttpAnswer(200, f"Success set lostBookieRecoveryDelay to {seconds}")
            answers = pair.ask("GET", delay)
            assert answers[OURS] == answers[THEIRS]
            assert answers[OURS].text == f"lostBookieRecoveryDelay value: {seconds}"
    with _zookeeper(pair) as zookeeper:
        election = f"{pair.root}/underreplication/auditorelection"
        for number, bookie in ((7, "127.0.0.1:7"), (3, "127.0.0.1:3")):
            zookeeper.create(f"{election}/V_{number:010d}", holder_text(bookie), makepath=True)
        answers = pair.ask("GET", path)
        assert answers[OURS] == answers[THEIRS] == HttpAnswer(200, "Auditor: 127.0.0.1:3")
        theirs, ours = pair.values("/bookie/cluster_info")
        assert ours == theirs
        assert ours["auditorId"] == "127.0.0.1:3"
        version = zookeeper.get(f"{pair.root}/underreplication/lostBookieRecoveryDelay")[1].version
        answers = pair.ask("PUT", f"{API}/autorecovery/trigger_audit", None, **with_token())
        assert answers[OURS] == answers[THEIRS] == HttpAnswer(200, "Success trigger audit.")
        # Both have written the same delay once more: that is what auditors watch.
        assert (
            zookeeper.get(f"{pair.root}/underreplication/lostBookieRecoveryDelay")[1].version == version + 2
        )
        zookeeper.delete(election, recursive=True)


@contextlib.contextmanager
def _zookeeper(pair: Pair) -> Iterator[Any]:
    from kazoo.client import KazooClient

    client = KazooClient(pair.zookeeper)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize(
    "path",
    [
        "/bookie/expand_storage",
        "/bookie/entry_location_compact",
    ],
)
def test_what_is_not_served_says_so(pair: Pair, path: str) -> None:
    answer = request(pair.ports[OURS], "PUT", API + path, {}, with_token())
    assert (answer.status, answer.text.startswith("Not served by this bookie")) == (501, True)
