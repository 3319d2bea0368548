"""One behaviour suite over every metadata store: ZooKeeper (the real one), the SQLite file, memory."""

from __future__ import annotations

import itertools
import os
import queue
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from bkctl.clock import SystemClock
from bkctl.codec.layout import encode_layout, layout_text
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.codec.ledger_path import LEDGER_ID_MAX, LedgerLayout
from bkctl.errors import BkctlError, ConnectionFailedError, NotFoundError, RefusedError, UsageError
from bkctl.metadata.api import (
    AlreadyExistsError,
    LedgerRange,
    NoClusterError,
    RegisteredBookies,
    RegistrationConflictError,
    RegistrationEndedError,
    RegistrationMode,
    VersionConflictError,
)
from bkctl.metadata.store import TreeMetadataStore
from bkctl.metadata.uri import open_metadata_store
from tests.support.cluster_removal import format_cluster, remove_cluster
from tests.support.grades import one_kept
from tests.support.metadata_sites import (  # noqa: F401 - two of them are fixtures
    BOOKIE,
    INFO,
    OTHER,
    PATIENCE_S,
    READ_ONLY,
    SESSION_MS,
    SETTINGS,
    WRITABLE,
    Site,
    site_fixture,
    store_fixture,
)
from tests.support.zookeeper import zookeeper_server  # noqa: F401 - a fixture


def metadata_of(ledger: int, **changes: object) -> LedgerMetadata:
    from bkctl.types import DigestType, LedgerState

    metadata = LedgerMetadata(
        metadata_version=3,
        write_quorum=1,
        ensemble_size=1,
        ack_quorum=1,
        length=0,
        last_entry=-1,
        state=LedgerState.OPEN,
        segments=(Segment(0, (BOOKIE,)),),
        digest_type=DigestType.CRC32C,
        password=b"",
        c_token=ledger,
    )
    return replace(metadata, **changes)


class Heard:
    """A session listener that keeps what it was told."""

    def __init__(self) -> None:
        self.events: queue.Queue[str] = queue.Queue()

    def session_lost(self) -> None:
        self.events.put("lost")

    def session_restored(self) -> None:
        self.events.put("restored")

    def registration_failed(self, error: BkctlError) -> None:
        self.events.put(f"failed {type(error).__name__}")

    def next(self) -> str:
        return self.events.get(timeout=PATIENCE_S)


# --- the cluster --------------------------------------------------------------------------------------------

QUESTIONS: list[Callable[[TreeMetadataStore], object]] = [
    lambda store: store.layout.read_layout(),
    lambda store: store.layout.layout(),
    lambda store: store.layout.instance_id(),
    lambda store: store.registration.bookies(),
    lambda store: store.registration.registration(BOOKIE),
    lambda store: store.registration.register(BOOKIE, WRITABLE, INFO),
    lambda store: store.cookies.read_cookie(BOOKIE),
    lambda store: store.cookies.create_cookie(BOOKIE, b""),
    lambda store: store.cookies.update_cookie(BOOKIE, b"", 0),
    lambda store: store.cookies.cookies(),
    lambda store: store.ledgers.ledger_exists(1),
    lambda store: list(store.ledgers.ledger_ranges()),
    lambda store: store.ledgers.read_ledger(1),
    lambda store: list(store.ledgers.read_ledgers([1])),
    lambda store: list(store.ledgers.missing_ledgers([1])),
    lambda store: store.ledgers.create_ledger(1, metadata_of(1)),
    lambda store: store.ledgers.delete_ledger(1, 0),
    lambda store: store.ledgers.new_ledger_id(),
    lambda store: store.ledgers.upcoming_ledger_id(),
]


def test_without_a_cluster_every_answer_is_that_and_nothing_is_made(site: Site) -> None:
    opened = site.open()
    for question in QUESTIONS:
        with pytest.raises(NoClusterError, match=r"no cluster at"):
            question(opened)
    assert not opened.layout.cluster_exists()


def test_reading_an_embedded_store_makes_no_file(tmp_path: Path) -> None:
    with open_metadata_store(f"embedded://{tmp_path}/absent.db") as opened:
        assert not opened.layout.cluster_exists()
    assert not os.listdir(tmp_path)


def test_a_new_cluster_has_what_java_makes(site: Site) -> None:
    opened = site.open()
    instance = opened.layout.initialise_cluster()
    assert str(uuid.UUID(instance)) == instance == opened.layout.instance_id()
    tree, root = site.tree(opened), opened.root
    assert sorted(tree.children(root) or []) == ["INSTANCEID", "LAYOUT", "available"]
    assert tree.children(f"{root}/available") == ["readonly"]
    layout = tree.get(f"{root}/LAYOUT")
    assert layout is not None
    assert layout.data == b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
    assert opened.layout.layout() is LedgerLayout.HIERARCHICAL
    with pytest.raises(AlreadyExistsError):
        opened.layout.initialise_cluster()
    assert opened.layout.instance_id() == instance


def test_another_kind_than_the_clusters_is_refused(site: Site) -> None:
    site.open("flat").layout.initialise_cluster()
    assert site.open("flat").layout.layout() is LedgerLayout.FLAT
    assert site.open().layout.layout() is LedgerLayout.FLAT
    with pytest.raises(RefusedError, match=r"does not match existing layout"):
        site.open("hierarchical").layout.layout()


def test_a_cluster_without_layout_is_hierarchical_and_a_read_does_not_write_one(
    site: Site, store: TreeMetadataStore
) -> None:
    site.tree(store).delete(f"{store.root}/LAYOUT")
    assert store.layout.layout() is LedgerLayout.HIERARCHICAL
    assert list(store.ledgers.ledgers()) == []
    assert not store.ledgers.ledger_exists(7)
    assert store.layout.read_layout() is None


def test_ledgers_that_a_guessed_layout_would_hide_are_not_reported_as_gone(
    site: Site, store: TreeMetadataStore
) -> None:
    site.tree(store).delete(f"{store.root}/LAYOUT")
    site.tree(store).create(f"{store.root}/L0000000004", b"")
    for question in (lambda: list(store.ledgers.ledgers()), lambda: store.ledgers.ledger_exists(4)):
        with pytest.raises(RefusedError, match=r"has no LAYOUT"):
            question()


# --- registration -------------------------------------------------------------------------------------------


def test_a_registered_bookie_is_seen_by_others_with_what_it_told(
    site: Site, store: TreeMetadataStore
) -> None:
    store.registration.register(BOOKIE, WRITABLE, INFO)
    other = site.open().registration
    assert other.bookies() == RegisteredBookies((BOOKIE,), ())
    found = other.registration(BOOKIE)
    assert found is not None
    assert (found.mode, found.service_info) == (WRITABLE, INFO)
    assert abs(found.registered_ms - SystemClock().time_ms()) < 60_000
    assert other.registration(OTHER) is None
    store.registration.register(BOOKIE, WRITABLE, b"changed")
    found = other.registration(BOOKIE)
    assert found is not None
    assert found.service_info == b"changed"
    store.registration.unregister()
    assert other.bookies() == RegisteredBookies((), ())
    store.registration.unregister()


def test_a_bookie_that_changes_its_mode_is_never_seen_as_down(site: Site, store: TreeMetadataStore) -> None:
    store.registration.register(BOOKIE, WRITABLE, INFO)
    other, done = site.open().registration, threading.Event()
    seen: list[RegisteredBookies] = []

    def look() -> None:
        while not done.is_set():
            seen.append(other.bookies())

    thread = threading.Thread(target=look)
    thread.start()
    for mode in [READ_ONLY, WRITABLE] * 10:
        store.registration.register(BOOKIE, mode, INFO)
    done.set()
    thread.join()
    assert {*seen} <= {RegisteredBookies((BOOKIE,), ()), RegisteredBookies((), (BOOKIE,))}
    assert other.bookies() == RegisteredBookies((BOOKIE,), ())


def test_in_both_lists_counts_as_read_only(site: Site, store: TreeMetadataStore) -> None:
    store.registration.register(BOOKIE, READ_ONLY, INFO)
    site.tree(store).create(f"{store.root}/available/{BOOKIE}", b"", ephemeral=True)
    assert store.registration.bookies() == RegisteredBookies((), (BOOKIE,))
    found = store.registration.registration(BOOKIE)
    assert found is not None
    assert found.mode is READ_ONLY


def test_closing_a_store_ends_its_registration_at_once(site: Site, store: TreeMetadataStore) -> None:
    other = site.open()
    other.registration.register(BOOKIE, WRITABLE, INFO)
    other.close()
    other.close()
    assert store.registration.bookies() == RegisteredBookies((), ())


@pytest.mark.parametrize("mode", one_kept("the same wait for the session", WRITABLE, READ_ONLY))
def test_an_id_that_another_session_holds_is_refused_and_left_alone(
    site: Site, store: TreeMetadataStore, mode: RegistrationMode, caplog: pytest.LogCaptureFixture
) -> None:
    holder = site.open()
    holder.registration.register(BOOKIE, READ_ONLY, INFO)
    with caplog.at_level("INFO"), pytest.raises(RegistrationConflictError, match=BOOKIE):
        store.registration.register(BOOKIE, mode, b"mine")
    assert "still registered by the session of an earlier process" in caplog.text
    store.registration.unregister()
    found = holder.registration.registration(BOOKIE)
    assert found is not None
    assert (found.mode, found.service_info) == (READ_ONLY, INFO)


def leave(store: TreeMetadataStore) -> None:
    store.registration.leave()


def unregister(store: TreeMetadataStore) -> None:
    store.registration.unregister()


@pytest.mark.parametrize("end", [leave, unregister, TreeMetadataStore.close])
def test_who_leaves_waits_for_no_other_session(
    site: Site,
    store: TreeMetadataStore,
    end: Callable[[TreeMetadataStore], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, ended = threading.Event(), queue.Queue[BkctlError]()
    holder, tree = site.open(), site.tree(store)
    holder.registration.register(BOOKIE, WRITABLE, b"theirs")
    wait = tree.wait_until_gone

    def waiting(*arguments: Any) -> bool:
        waits.set()
        return wait(*arguments)

    def register() -> None:
        try:
            store.registration.register(BOOKIE, WRITABLE, INFO)
        except BkctlError as error:
            ended.put(error)

    monkeypatch.setattr(tree, "wait_until_gone", waiting)
    thread = threading.Thread(target=register)
    thread.start()
    assert waits.wait(PATIENCE_S)
    clock = SystemClock()
    since_s = clock.monotonic()
    end(store)
    error = ended.get(timeout=PATIENCE_S)
    thread.join()
    assert clock.monotonic() - since_s < SESSION_MS / 1000
    assert not isinstance(error, RegistrationConflictError)
    if end is not TreeMetadataStore.close:  # there an outcome may be that of any other call
        assert isinstance(error, RegistrationEndedError)
    holder.registration.unregister()
    assert holder.registration.bookies() == RegisteredBookies((), ())


def test_who_has_left_is_not_registered(store: TreeMetadataStore) -> None:
    store.registration.unregister()
    store.registration.register(BOOKIE, WRITABLE, INFO)  # without leaving for good it may be again
    store.registration.leave()
    with pytest.raises(RegistrationEndedError, match=BOOKIE):
        store.registration.register(BOOKIE, READ_ONLY, INFO)
    assert store.registration.bookies() == RegisteredBookies((BOOKIE,), ())
    store.registration.unregister()
    assert store.registration.bookies() == RegisteredBookies((), ())


def test_the_registration_of_a_killed_process_is_waited_for(site: Site, store: TreeMetadataStore) -> None:
    site.die_registered(BOOKIE)
    assert store.registration.bookies() == RegisteredBookies((BOOKIE,), ())
    store.registration.register(BOOKIE, WRITABLE, INFO)
    found = store.registration.registration(BOOKIE)
    assert found is not None
    assert found.service_info == INFO


def test_after_a_lost_session_the_bookie_is_registered_again(site: Site, store: TreeMetadataStore) -> None:
    heard = Heard()
    store.registration.add_session_listener(heard)
    store.registration.register(BOOKIE, READ_ONLY, INFO)
    before = site.tree(store).session()
    site.expire(store)
    assert [heard.next(), heard.next()] == ["lost", "restored"]
    assert site.tree(store).session() != before
    assert site.open().registration.bookies() == RegisteredBookies((), (BOOKIE,))
    store.registration.register(BOOKIE, WRITABLE, INFO)
    assert store.registration.bookies() == RegisteredBookies((BOOKIE,), ())


def test_who_left_while_the_store_was_away_is_not_registered_again(
    site: Site, store: TreeMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> NoReturn:
        raise ConnectionFailedError("away")

    heard = Heard()
    store.registration.add_session_listener(heard)
    store.registration.register(BOOKIE, WRITABLE, INFO)
    with monkeypatch.context() as patch:
        patch.setattr(site.tree(store), "get", away)
        with pytest.raises(ConnectionFailedError):
            store.registration.unregister()
    site.expire(store)
    assert [heard.next(), heard.next()] == ["lost", "restored"]
    assert site.open().registration.bookies() == RegisteredBookies((), ())


def test_an_id_taken_while_the_session_was_lost_is_reported(site: Site, store: TreeMetadataStore) -> None:
    heard = Heard()
    store.registration.add_session_listener(heard)
    store.registration.register(BOOKIE, WRITABLE, INFO)
    with store.registration._lock:  # the new session comes, and the other bookie is quicker
        site.expire(store)
        other = site.open()
        other.registration.register(BOOKIE, WRITABLE, b"theirs")
    assert [heard.next(), heard.next()] == ["lost", "failed RegistrationConflictError"]
    found = other.registration.registration(BOOKIE)
    assert found is not None
    assert found.service_info == b"theirs"


def test_pulsars_clusters_have_no_folders_before_the_first_bookie(
    site: Site, store: TreeMetadataStore
) -> None:
    for path in ("available/readonly", "available", "LAYOUT"):
        site.tree(store).delete(f"{store.root}/{path}")
    assert store.registration.bookies() == RegisteredBookies((), ())
    assert store.registration.registration(BOOKIE) is None
    store.registration.register(BOOKIE, READ_ONLY, INFO)
    assert store.registration.bookies() == RegisteredBookies((), (BOOKIE,))


def test_a_watcher_goes_on_after_a_lost_session(site: Site, store: TreeMetadataStore) -> None:
    seen: queue.Queue[RegisteredBookies] = queue.Queue()
    heard = Heard()
    store.registration.add_session_listener(heard)
    store.registration.register(BOOKIE, WRITABLE, INFO)
    watch = store.registration.watch_bookies(seen.put)
    assert seen.get(timeout=PATIENCE_S) == RegisteredBookies((BOOKIE,), ())
    site.expire(store)
    assert [heard.next(), heard.next()] == ["lost", "restored"]
    site.open().registration.register(OTHER, READ_ONLY, INFO)
    while seen.get(timeout=PATIENCE_S) != RegisteredBookies((BOOKIE,), (OTHER,)):
        pass
    watch.close()


def test_a_listener_that_was_removed_hears_nothing(site: Site, store: TreeMetadataStore) -> None:
    removed, heard = Heard(), Heard()
    store.registration.add_session_listener(removed)
    store.registration.add_session_listener(heard)
    store.registration.remove_session_listener(removed)
    store.registration.register(BOOKIE, WRITABLE, INFO)
    site.expire(store)
    assert [heard.next(), heard.next()] == ["lost", "restored"]
    assert removed.events.empty()


def test_one_store_holds_one_registration(store: TreeMetadataStore) -> None:
    store.registration.register(BOOKIE, WRITABLE, INFO)
    with pytest.raises(RefusedError, match=BOOKIE):
        store.registration.register(OTHER, WRITABLE, INFO)
    store.registration.unregister()
    store.registration.register(OTHER, WRITABLE, INFO)
    assert store.registration.bookies() == RegisteredBookies((OTHER,), ())


def test_a_watcher_hears_of_every_change(site: Site, store: TreeMetadataStore) -> None:
    seen: queue.Queue[RegisteredBookies] = queue.Queue()
    watch = store.registration.watch_bookies(seen.put)
    assert seen.get(timeout=PATIENCE_S) == RegisteredBookies((), ())
    other = site.open()
    other.registration.register(OTHER, WRITABLE, INFO)
    assert seen.get(timeout=PATIENCE_S) == RegisteredBookies((OTHER,), ())
    other.registration.register(OTHER, READ_ONLY, INFO)
    while (latest := seen.get(timeout=PATIENCE_S)) != RegisteredBookies((), (OTHER,)):
        assert latest == RegisteredBookies((OTHER,), ())
    other.close()
    assert seen.get(timeout=PATIENCE_S) == RegisteredBookies((), ())
    watch.close()
    watch.close()


@pytest.mark.parametrize("bookie", ["", "readonly", "ReadOnly", "a/b", "a,b", "a b", "..", ".", "ü:1", "a\n"])
def test_ids_that_java_refuses_or_that_are_no_names_are_refused(site: Site, bookie: str) -> None:
    store = site.open()
    store.layout.initialise_cluster()
    for ask in (
        lambda: store.registration.register(bookie, WRITABLE, INFO),
        lambda: store.registration.registration(bookie),
        lambda: store.cookies.create_cookie(bookie, b""),
    ):
        with pytest.raises(UsageError):
            ask()


def test_an_odd_but_allowed_id_works(store: TreeMetadataStore) -> None:
    bookie = "My-Bookie_5.x:;<=>?@[\\]^"
    store.cookies.create_cookie(bookie, b"cookie")
    store.registration.register(bookie, WRITABLE, INFO)
    assert store.registration.bookies().writable == (bookie,)
    assert store.cookies.cookie_bookies() == [bookie]


# --- cookies ------------------------------------------------------------------------------------------------


def test_a_cookie_is_changed_only_with_the_version_that_was_read(store: TreeMetadataStore) -> None:
    cookies = store.cookies
    assert cookies.read_cookie(BOOKIE) is None
    cookies.create_cookie(BOOKIE, b"first")
    with pytest.raises(AlreadyExistsError):
        cookies.create_cookie(BOOKIE, b"second")
    first = cookies.read_cookie(BOOKIE)
    assert first is not None
    assert first.data == b"first"
    version = cookies.update_cookie(BOOKIE, b"second", first.version)
    with pytest.raises(VersionConflictError):
        cookies.update_cookie(BOOKIE, b"third", first.version)
    with pytest.raises(VersionConflictError):
        cookies.delete_cookie(BOOKIE, first.version)
    for unconditional in (
        lambda: cookies.update_cookie(BOOKIE, b"third", -1),
        lambda: cookies.delete_cookie(BOOKIE, -1),
    ):
        with pytest.raises(UsageError):
            unconditional()
    assert {bookie: cookie.data for bookie, cookie in cookies.cookies().items()} == {BOOKIE: b"second"}
    cookies.delete_cookie(BOOKIE, version)
    assert cookies.read_cookie(BOOKIE) is None
    for missing in (lambda: cookies.update_cookie(BOOKIE, b"", 0), lambda: cookies.delete_cookie(BOOKIE, 0)):
        with pytest.raises(NotFoundError, match=r"has no cookie"):
            missing()


def test_cookies_survive_their_process(site: Site, store: TreeMetadataStore) -> None:
    other = site.open()
    other.cookies.create_cookie(BOOKIE, b"\x00cookie\xff")
    other.close()
    found = store.cookies.read_cookie(BOOKIE)
    assert found is not None
    assert found.data == b"\x00cookie\xff"


# --- ledgers ------------------------------------------------------------------------------------------------

AWKWARD_IDS = [0, 1, 9_999, 10_000, 2**31 - 2, 2**31 - 1, 2**31, 4_294_967_296, 98_765_432_109, LEDGER_ID_MAX]


def test_a_ledger_is_changed_only_with_the_version_that_was_read(store: TreeMetadataStore) -> None:
    ledgers = store.ledgers
    assert not ledgers.ledger_exists(42)
    with pytest.raises(NotFoundError, match=r"no ledger 42"):
        ledgers.read_ledger(42)
    version = ledgers.create_ledger(42, metadata_of(42))
    with pytest.raises(AlreadyExistsError):
        ledgers.create_ledger(42, metadata_of(43))
    stored = ledgers.read_ledger(42)
    assert (stored.metadata, stored.version) == (metadata_of(42), version)
    newer = ledgers.update_ledger(42, metadata_of(42, length=1), version)
    with pytest.raises(VersionConflictError):
        ledgers.update_ledger(42, metadata_of(42, length=2), version)
    with pytest.raises(VersionConflictError):
        ledgers.delete_ledger(42, version)
    with pytest.raises(UsageError):
        ledgers.update_ledger(42, metadata_of(42), -1)
    assert ledgers.read_ledger(42).metadata.length == 1
    ledgers.delete_ledger(42, newer)
    ledgers.delete_ledger(42, newer)
    assert not ledgers.ledger_exists(42)


@pytest.mark.parametrize("kind", ["hierarchical", "longhierarchical", "flat"])
def test_the_list_is_ascending_and_covers_every_id_once(site: Site, kind: str) -> None:
    store = site.open(kind)
    store.layout.initialise_cluster()
    ids = [ledger for ledger in AWKWARD_IDS if kind != "flat" or ledger < 10**10]
    for ledger in reversed(ids):
        store.ledgers.create_ledger(ledger, metadata_of(ledger))
    ranges = list(store.ledgers.ledger_ranges())
    assert [ledger for found in ranges for ledger in found.ledgers] == ids == list(store.ledgers.ledgers())
    assert ranges[0].first == 0
    assert ranges[-1].last == LEDGER_ID_MAX
    assert all(after.first == before.last + 1 for before, after in itertools.pairwise(ranges))
    assert all(found.first <= ledger <= found.last for found in ranges for ledger in found.ledgers)
    for ledger in ids:
        assert store.ledgers.read_ledger(ledger).metadata == metadata_of(ledger)


def test_an_empty_cluster_has_one_empty_range(store: TreeMetadataStore) -> None:
    assert list(store.ledgers.ledger_ranges()) == [LedgerRange(0, LEDGER_ID_MAX, ())]


def test_a_deleted_ledger_takes_its_empty_directories_along(site: Site, store: TreeMetadataStore) -> None:
    for ledger in (1, 2, 2**31):
        store.ledgers.create_ledger(ledger, metadata_of(ledger))
    store.ledgers.delete_ledger(1, 0)
    store.ledgers.delete_ledger(2**31, 0)
    assert set(site.tree(store).children(store.root) or ()) & {"00", "000"} == {"00"}
    assert list(store.ledgers.ledgers()) == [2]


def test_directories_that_others_remove_are_made_again(site: Site, store: TreeMetadataStore) -> None:
    failures: queue.Queue[BaseException] = queue.Queue()

    def come_and_go(opened: TreeMetadataStore, ledger: int) -> None:
        try:
            for _ in range(15):
                opened.ledgers.create_ledger(ledger, metadata_of(ledger))
                opened.ledgers.delete_ledger(ledger, 0)
        except BkctlError as error:
            failures.put(error)

    stores = [store, site.open()]
    threads = [
        threading.Thread(target=come_and_go, args=(opened, 2**40 + at)) for at, opened in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert failures.empty(), failures.get_nowait()
    assert list(store.ledgers.ledgers()) == []


@pytest.mark.parametrize("what", ["removed", "formatted"])
def test_a_list_does_not_end_well_when_the_cluster_goes_meanwhile(
    site: Site, store: TreeMetadataStore, what: str
) -> None:
    for ledger in (1, 10_001, 2**31):
        store.ledgers.create_ledger(ledger, metadata_of(ledger))
    ranges = store.ledgers.ledger_ranges()
    assert next(ranges).ledgers == (1,)
    other = site.open()
    if what == "removed":
        remove_cluster(other)
    else:
        format_cluster(other)
    with pytest.raises((NoClusterError, RefusedError)):
        list(ranges)


def test_names_that_are_no_ledgers_are_not_listed(site: Site, store: TreeMetadataStore) -> None:
    tree, root = site.tree(store), store.root
    store.ledgers.create_ledger(3, metadata_of(3))
    for path in ("/foreign", "/0000", "/00/foreign", "/00/0000/foreign", "/00/0000/L00000", "/idgen-long"):
        tree.create(root + path)
    assert list(store.ledgers.ledgers()) == [3]


def test_damaged_metadata_is_an_error_that_names_the_node(site: Site, store: TreeMetadataStore) -> None:
    store.ledgers.create_ledger(3, metadata_of(3))
    site.tree(store).set(f"{store.root}/00/0000/L0003", b"garbage", 0)
    assert store.ledgers.ledger_exists(3)
    with pytest.raises(BkctlError, match=r"00/0000/L0003"):
        store.ledgers.read_ledger(3)
    site.tree(store).set(f"{store.root}/LAYOUT", b"garbage", 0)
    with pytest.raises(BkctlError, match=r"LAYOUT"):
        store.layout.layout()


def test_ids_are_new_ascending_and_shared(site: Site, store: TreeMetadataStore) -> None:
    other = site.open()
    ids = [opened.ledgers.new_ledger_id() for opened in (store, other) * 5]
    assert ids == list(range(10))


def test_the_upcoming_id_is_the_next_one_and_is_not_taken(store: TreeMetadataStore) -> None:
    assert [store.ledgers.upcoming_ledger_id() for _ in range(2)] == [0, 0]
    for expected in range(3):
        assert store.ledgers.upcoming_ledger_id() == expected
        assert store.ledgers.new_ledger_id() == expected
    store.ledgers.create_ledger(70, metadata_of(70))  # an id that a client chose
    assert store.ledgers.upcoming_ledger_id() == 3


def test_ids_of_many_threads_are_all_different(store: TreeMetadataStore) -> None:
    found: queue.Queue[int] = queue.Queue()
    threads = [
        threading.Thread(target=lambda: [found.put(store.ledgers.new_ledger_id()) for _ in range(5)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(found.get_nowait() for _ in range(20)) == list(range(20))


def test_with_idgen_long_ids_have_63_bits(site: Site, store: TreeMetadataStore) -> None:
    site.tree(store).create(f"{store.root}/idgen-long")
    assert store.ledgers.upcoming_ledger_id() == 4_294_967_296
    assert [store.ledgers.new_ledger_id() for _ in range(2)] == [4_294_967_296, 4_294_967_297]
    assert store.ledgers.upcoming_ledger_id() == 4_294_967_298
    assert site.tree(store).children(f"{store.root}/idgen-long") == ["HOB-0000000001"]


def test_flat_ids_come_from_the_root(site: Site) -> None:
    store = site.open("flat")
    store.layout.initialise_cluster()
    first = store.ledgers.new_ledger_id()
    store.ledgers.create_ledger(first, metadata_of(first))
    # As with Java every child made under the root counts.
    assert store.ledgers.upcoming_ledger_id() == 5
    assert (first, store.ledgers.new_ledger_id()) == (3, 5)


def test_of_many_updates_with_one_version_one_wins(site: Site, store: TreeMetadataStore) -> None:
    store.ledgers.create_ledger(1, metadata_of(1))
    stores = [site.open() for _ in range(3)]
    results: queue.Queue[str] = queue.Queue()
    barrier = threading.Barrier(len(stores))

    def update(opened: TreeMetadataStore, length: int) -> None:
        barrier.wait(PATIENCE_S)
        try:
            opened.ledgers.update_ledger(1, metadata_of(1, length=length), 0)
            results.put("won")
        except VersionConflictError:
            results.put("lost")

    threads = [
        threading.Thread(target=update, args=(opened, at)) for at, opened in enumerate(stores, start=1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(results.get_nowait() for _ in stores) == ["lost", "lost", "won"]


def test_layouts_of_old_clusters_work(site: Site, store: TreeMetadataStore) -> None:
    site.tree(store).set(f"{store.root}/LAYOUT", encode_layout(layout_text(LedgerLayout.LEGACY)), 0)
    old = site.open()
    old.ledgers.create_ledger(2**31, metadata_of(0))
    assert site.tree(old).children(f"{old.root}/21/4748") == ["L3648"]
    assert list(old.ledgers.ledgers()) == [2**31]
    with pytest.raises(UsageError):
        old.ledgers.create_ledger(10**10, metadata_of(0))
    old.ledgers.delete_ledger(2**31, 0)
    assert site.tree(old).children(f"{old.root}/21/4748") == []
