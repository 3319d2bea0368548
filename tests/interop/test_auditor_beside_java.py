"""Our auditor and Java's in one cluster: who is elected, and what each of them marks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bkctl.client.bookkeeper import BookKeeper
from bkctl.codec.bookie_service_info import BookieServiceInfo, Endpoint, encode_bookie_service_info
from bkctl.codec.cookie import Cookie, encode_cookie, join_dirs
from bkctl.codec.underreplication import CheckKind, check_path, mark_path
from bkctl.metadata.api import RegistrationMode
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store
from bkctl.replication.auditor import Auditor
from bkctl.replication.auditor_status import Measure
from tests.support.audited_cluster import ledger_metadata
from tests.support.autorecovery_processes import AuditorProcess
from tests.support.grades import one_kept
from tests.support.java_bookkeeper import require_jars
from tests.support.java_cluster import OURS, SETTINGS, THEIRS, new_cluster, our_bookies
from tests.support.manual_time import eventually
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer, zookeeper_server  # noqa: F401 - a fixture

pytestmark = pytest.mark.interop

BOOKIES = tuple(f"127.0.0.1:{port}" for port in (23101, 23102, 23103, 23104))
LEDGERS = (0, 3, 65_536, 2**31 - 2)
OUR_NAME, THEIR_NAME = "our-auditor:3181", "their-auditor:3181"


class Cluster:
    """Ledgers and bookies that are names only; each bookie is up as long as its session is open."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self.uri = new_cluster(server)
        self.store = self._open()
        self.up: dict[str, TreeMetadataStore] = {}
        for bookie in BOOKIES:
            cookie = Cookie(5, bookie, "/j", join_dirs(["/l"]), "an instance")
            self.store.cookies.create_cookie(bookie, encode_cookie(cookie))
            self.come(bookie)
        a, b, c, d = BOOKIES
        for number, ledger in enumerate(LEDGERS):
            ensembles = ((a, b), (c, d)) if number % 2 else ((b, c), (b, a))
            self.store.ledgers.create_ledger(ledger, ledger_metadata(*ensembles))

    def _open(self) -> TreeMetadataStore:
        store = open_metadata_store(self.uri, SETTINGS)
        assert isinstance(store, TreeMetadataStore)
        return store

    def come(self, bookie: str) -> None:
        self.up[bookie] = store = self._open()
        endpoint = Endpoint("bookie", int(bookie.rpartition(":")[2]), "127.0.0.1", "bookie-rpc")
        info = encode_bookie_service_info(BookieServiceInfo((endpoint,)))
        store.registration.register(bookie, RegistrationMode.WRITABLE, info)

    def go(self, bookie: str) -> None:
        self.up.pop(bookie).close()

    def marks(self) -> dict[str, bytes]:
        """The bytes of the marks that are there, their times left out."""
        found = {}
        for ledger in LEDGERS:
            node = self.store._tree.get(f"{self.store.root}/{mark_path(ledger)}")
            if node is not None:
                found[mark_path(ledger)] = re.sub(rb"(?m)^ctime: [0-9]+$", b"ctime: T", node.data)
        return found

    def remove_marks(self) -> None:
        for ledger in LEDGERS:
            path = f"{self.store.root}/{mark_path(ledger)}"
            if self.store._tree.get(path) is not None:
                self.store._tree.delete(path)

    def wait_for(self, what: Callable[[], bool], process: AuditorProcess) -> None:
        try:
            until(what)
        except AssertionError:
            raise AssertionError(process.last_words()) from None

    def wait_for_auditor(self, name: str, process: AuditorProcess) -> None:
        self.wait_for(lambda: self.store.underreplication.auditor() == name, process)

    def close(self) -> None:
        for store in (*self.up.values(), self.store):
            store.close()


@pytest.fixture
def cluster(zookeeper_server: ZooKeeperServer) -> Iterator[Cluster]:  # noqa: F811 - the fixture
    require_jars()
    made = Cluster(zookeeper_server)
    yield made
    made.close()


def test_both_make_the_same_marks_and_each_extends_the_others(cluster: Cluster, tmp_path: Path) -> None:
    found = {}
    b, d = BOOKIES[1], BOOKIES[3]
    for kind, name in ((THEIRS, THEIR_NAME), (OURS, OUR_NAME)):
        with AuditorProcess(kind, tmp_path / kind, cluster.uri, name) as auditor:
            cluster.wait_for_auditor(name, auditor)
            cluster.go(d)
            cluster.wait_for(lambda: len(cluster.marks()) == 2, auditor)
            one = cluster.marks()
            cluster.go(b)
            cluster.wait_for(lambda: all(b.encode() in mark for mark in cluster.marks().values()), auditor)
            cluster.wait_for(lambda: len(cluster.marks()) == len(LEDGERS), auditor)
            found[kind] = (one, cluster.marks())
        cluster.remove_marks()
        cluster.come(b)
        cluster.come(d)
    assert found[OURS] == found[THEIRS]
    one, both = found[OURS]
    assert set(one.values()) == {f'replica: "{d}"\nctime: T\n'.encode()}
    assert both[mark_path(3)] == f'replica: "{d}"\nreplica: "{b}"\nctime: T\n'.encode()


@pytest.mark.parametrize(
    ("first", "second"), one_kept("as the other way round", (THEIRS, OURS), (OURS, THEIRS))
)
def test_the_other_ones_auditor_waits_and_takes_over_when_the_elected_one_is_killed(
    cluster: Cluster, tmp_path: Path, first: str, second: str
) -> None:
    names = {OURS: OUR_NAME, THEIRS: THEIR_NAME}
    folder = f"{cluster.store.root}/underreplication/auditorelection"
    with AuditorProcess(first, tmp_path / first, cluster.uri, names[first]) as elected:
        cluster.wait_for_auditor(names[first], elected)
        with AuditorProcess(second, tmp_path / second, cluster.uri, names[second]) as waiting:
            cluster.wait_for(lambda: len(cluster.store._tree.children(folder) or ()) == 2, waiting)
            cluster.go(BOOKIES[3])
            cluster.wait_for(lambda: len(cluster.marks()) == 2, elected)
            assert cluster.store.underreplication.auditor() == names[first]
            elected.kill()
            cluster.wait_for_auditor(names[second], waiting)
            cluster.go(BOOKIES[1])
            cluster.wait_for(lambda: len(cluster.marks()) == len(LEDGERS), waiting)
            parent = cluster.store._tree.get(folder)
            assert parent is not None
            assert names[second].encode() in parent.data


@pytest.mark.thorough("waits for sessions to end; tests/sim/test_auditor_simulation.py ends them")
def test_our_auditor_that_was_stopped_past_its_session_is_not_a_second_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    with AuditorProcess(OURS, tmp_path / OURS, cluster.uri, OUR_NAME) as ours:
        cluster.wait_for_auditor(OUR_NAME, ours)
        cluster.wait_for(lambda: "is the auditor" in ours.log(), ours)
        with AuditorProcess(THEIRS, tmp_path / THEIRS, cluster.uri, THEIR_NAME) as theirs:
            folder = f"{cluster.store.root}/underreplication/auditorelection"
            cluster.wait_for(lambda: len(cluster.store._tree.children(folder) or ()) == 2, theirs)
            ours.pause()
            cluster.wait_for_auditor(THEIR_NAME, theirs)
            cluster.wait_for(lambda: theirs.log().count("Completed auditBookies") == 1, theirs)
            cluster.go(BOOKIES[3])
            cluster.wait_for(lambda: theirs.log().count("Completed auditBookies") == 2, theirs)
            assert len(cluster.marks()) == 2
            cluster.remove_marks()
            ours.resume()
            cluster.wait_for(lambda: len(cluster.store._tree.children(folder) or ()) == 2, ours)
            assert cluster.store.underreplication.auditor() == THEIR_NAME
            assert "no longer the auditor" in ours.log()
            assert cluster.marks() == {}
            theirs.kill()
            cluster.wait_for_auditor(OUR_NAME, ours)
            # Java's left the lost bookie unmarked; the new auditor's first look finds it.
            cluster.wait_for(lambda: len(cluster.marks()) == 2, ours)


@pytest.mark.thorough("waits for sessions to end; tests/sim/test_auditor_simulation.py ends them")
def test_our_auditor_that_is_stopped_while_it_marks_marks_nothing_behind_the_next_ones_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    """What was on its way when it was stopped is sent again by its new session, and refused."""
    ledgers, lost = range(10_000, 10_600), BOOKIES[3]
    tree, folder = cluster.store._tree, f"{cluster.store.root}/underreplication/auditorelection"
    for ledger in ledgers:
        cluster.store.ledgers.create_ledger(ledger, ledger_metadata((BOOKIES[0], lost)))

    def marked() -> list[str]:
        paths = [f"{cluster.store.root}/{mark_path(ledger)}" for ledger in ledgers]
        return [path for path, node in tree.get_many(paths) if node is not None]

    with (
        AuditorProcess(OURS, tmp_path / "first", cluster.uri, "first") as first,
        AuditorProcess(OURS, tmp_path / "second", cluster.uri, "second") as second,
    ):
        cluster.wait_for(lambda: len(tree.children(folder) or ()) == 2, second)
        elected, other = (
            (first, second) if cluster.store.underreplication.auditor() == "first" else (second, first)
        )
        cluster.wait_for(lambda: "bookies are audited" in elected.log(), elected)
        cluster.go(lost)
        cluster.wait_for(lambda: len(marked()) >= 20, elected)
        elected.pause()
        assert len(marked()) < len(ledgers), "it was quicker than the test"
        cluster.wait_for(lambda: "bookies are audited" in other.log(), other)
        assert len(marked()) == len(ledgers)
        for path in marked():
            tree.delete(path)
        elected.resume()
        cluster.wait_for(lambda: len(tree.children(folder) or ()) == 2, elected)
        cluster.wait_for(lambda: "no longer the auditor" in elected.log(), elected)
        assert marked() == []


async def written_and_damaged(uri: str, bookies: Sequence[str]) -> set[int]:
    """Write ledgers of one replica an entry; return those whose metadata then name the wrong bookies."""
    a, b = bookies
    damaged = {}
    async with await BookKeeper.connect(uri) as client:
        for wrong in ((b, a), None, ("127.0.0.1:9", b)):
            async with await client.create(2, 1, 1, password=b"pw") as ledger:
                for number in range(10):
                    await ledger.append(b"%d" % number)
            if wrong is not None:
                damaged[ledger.ledger] = wrong
        for number, wrong in damaged.items():
            stored = await client.read_metadata(number)
            (segment,) = stored.metadata.segments
            names = segment.bookies[::-1] if wrong == (b, a) else wrong
            metadata = replace(stored.metadata, segments=(replace(segment, bookies=names),))
            client.store.ledgers.update_ledger(number, metadata, stored.version)
    return set(damaged)


async def check_with_ours(uri: str) -> None:
    """Our auditor's check of all ledgers."""
    async with await BookKeeper.connect(uri, metadata=SETTINGS) as client:
        auditor = Auditor(client.store, OUR_NAME, client=client)
        running = asyncio.create_task(auditor.run())
        try:
            await eventually(lambda: auditor.status().summaries[Measure.LEDGER_CHECK_TIME].count)
        finally:
            await auditor.stop()
        await running


def test_both_find_the_same_replicas_missing_by_reading(
    zookeeper_server: ZooKeeperServer,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    require_jars()
    uri = new_cluster(zookeeper_server)
    with our_bookies(tmp_path, uri, 2) as bookies, open_metadata_store(uri, SETTINGS) as store:
        damaged = asyncio.run(written_and_damaged(uri, list(bookies)))
        known = store.underreplication

        def marks() -> dict[int, set[str]]:
            return {ledger: set(mark.replicas) for ledger, mark in known.marked_ledgers()}

        conf = {"auditorPeriodicCheckInterval": "3600"}
        with AuditorProcess(THEIRS, tmp_path / THEIRS, uri, THEIR_NAME, conf) as theirs:
            try:
                until(lambda: known.checked_at(CheckKind.ALL_LEDGERS) is not None)
            except AssertionError:
                raise AssertionError(theirs.last_words()) from None
            of_java = marks()
        assert set(of_java) == damaged
        assert isinstance(store, TreeMetadataStore)
        for ledger in damaged:
            store._tree.delete(f"{store.root}/{mark_path(ledger)}")
        store._tree.delete(f"{store.root}/{check_path(CheckKind.ALL_LEDGERS)}")
        until(lambda: known.auditor() is None)
        asyncio.run(check_with_ours(uri))
        assert marks() == of_java
        assert known.checked_at(CheckKind.ALL_LEDGERS) is not None
