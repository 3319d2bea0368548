"""Starts over entry logs whose index is lost: refused with the way out, or accepted and in limbo."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.conversion.bookie_places import places_of, refuse_lost_index
from bkctl.client.bookkeeper import BookKeeper
from bkctl.client.errors import RecoveryFailedError
from bkctl.clock import SystemClock
from bkctl.codec.cookie import decode_cookie
from bkctl.codec.ledger_data import LedgerData, encode_ledger_data, encode_ledger_key
from bkctl.engine.accepted_losses import note_accepted
from bkctl.engine.bookie import Bookie
from bkctl.engine.db_storage import ledgers as rows_of_ledgers
from bkctl.errors import ConnectionFailedError, LedgerLimboError, NoLedgerError, RefusedError, StorageError
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE, StoreProfile
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.metadata.uri import open_metadata_store
from bkctl.server.life.embedded import EmbeddedBookie, LocalCluster
from bkctl.server.life.live_ledgers import LiveLedgers
from bkctl.types import DigestType, ResultCode
from bkctl.vfs import PosixFileSystem
from tests.demo_client import MASTER_KEY, DemoClient, body_of
from tests.support.audited_cluster import ledger_metadata
from tests.support.engine_rig import Waiter
from tests.support.faulty_store import FaultyStore, StoreFaultRule
from tests.support.truthful_bookie import DELETED, TruthfulBookie, settings_of, started
from tests.support.truthful_damage import cut_log

Run = Callable[..., Any]
LEDGER = 3
PROFILES = {"ledgers": LEDGERS_PROFILE, "locations": LOCATIONS_PROFILE}


def written(path: Path, **overrides: str) -> EmbeddedBookie:
    """A stopped bookie with entries in its logs."""
    bookie = EmbeddedBookie(path, overrides=overrides)
    with bookie, DemoClient(bookie.port) as client:
        for ledger in (LEDGER, LEDGER + 1):
            assert client.add(ledger, range(10)).done == list(range(10))
    return bookie


def assert_waits_for_the_cluster(
    monkeypatch: pytest.MonkeyPatch, bookie: EmbeddedBookie, question: str
) -> None:
    """Start a bookie while the metadata store does not answer a question: the start has to end."""

    def silent(*_: object) -> None:
        raise ConnectionFailedError("the metadata store does not answer")

    with monkeypatch.context() as away:
        away.setattr(LiveLedgers, question, silent)
        with pytest.raises(ConnectionFailedError, match="does not answer"):
            bookie.start()


def written_without_journals(path: Path, **overrides: str) -> EmbeddedBookie:
    """A stopped bookie with entries in its logs, whose journals went when it was started again."""
    bookie = written(path, journalMaxBackups="0", **overrides)
    with bookie:
        pass
    return bookie


def lose(current: Path, databases: tuple[str, ...], *, emptied: bool, with_logs: bool = False) -> None:
    """Remove databases, or put an empty one in the place of each; with them all entry logs, if asked."""
    for name in databases:
        shutil.rmtree(current / name)
        if emptied:
            open_store(str(current / name), PROFILES[name], create=True).close()
    for log in current.glob("*.log") if with_logs else ():
        log.unlink()


def place_on(bookie: EmbeddedBookie, ledger: int) -> None:
    """Have the cluster know a ledger of a bookie."""
    cookie = decode_cookie(Path(bookie.config.directories.ledgers[0], "current/VERSION").read_bytes())
    with open_metadata_store(bookie.config.metadata.uri) as store:
        store.ledgers.create_ledger(ledger, ledger_metadata((cookie.bookie_host,)))


def serves(bookie: EmbeddedBookie) -> bool:
    with DemoClient(bookie.port) as client:
        return client.read(LEDGER, range(10)).bodies.get(9) == body_of(LEDGER, 9, 1000)


@pytest.mark.parametrize("emptied", [False, True], ids=["gone", "empty"])
@pytest.mark.parametrize("databases", [("ledgers", "locations"), ("ledgers",), ("locations",)])
def test_a_lost_index_refuses_the_start_and_a_rebuild_brings_it_back(
    tmp_path: Path, run_cli: Run, databases: tuple[str, ...], emptied: bool
) -> None:
    bookie = written(tmp_path)
    current = tmp_path / "ledgers/current"
    lose(current, databases, emptied=emptied)
    before = sorted(os.listdir(current))
    state = "empty" if emptied else "gone"
    for _ in range(2):
        with pytest.raises(RefusedError, match=rf"{databases[0]} is {state}.*index rebuild .*--accept-loss"):
            bookie.start()
    assert sorted(os.listdir(current)) == before
    kind = ["--storage", "db"] if len(databases) == 2 and not emptied else []
    # What the refusal names; that differences are told is no failure.
    assert run_cli("index", "rebuild", str(tmp_path / "ledgers"), *kind, "--yes").exit_code in (0, 1)
    with bookie:
        assert serves(bookie)


@pytest.mark.parametrize("mark", [None, b"short"], ids=["lost", "damaged"])
def test_a_lost_index_is_lost_without_a_mark_too(tmp_path: Path, mark: bytes | None) -> None:
    """A bookie without a mark looks like one that never flushed; its journal, which was cut, says nothing."""
    bookie = written(tmp_path)
    current = tmp_path / "ledgers/current"
    lose(current, ("ledgers", "locations"), emptied=False)
    (current / "lastMark").unlink()
    if mark is not None:
        (current / "lastMark").write_bytes(mark)
    for journal in (tmp_path / "journal/current").glob("*.txn"):
        journal.write_bytes(b"")
    with pytest.raises(RefusedError, match="holds records that no journal holds"):
        bookie.start()


@pytest.mark.parametrize("databases", [("ledgers", "locations"), ("ledgers",), ("locations",)])
def test_an_accepted_loss_of_an_index_is_limbo_and_accepted_once(
    tmp_path: Path, databases: tuple[str, ...]
) -> None:
    written(tmp_path)
    lose(tmp_path / "ledgers/current", databases, emptied=False)
    accepting = EmbeddedBookie(tmp_path, accept_loss=True)
    with accepting, DemoClient(accepting.port) as client:
        assert accepting.report is not None
        assert accepting.report.recovery.lost_indexes == 1
        assert accepting.report.recovery.limbo_ledgers == 2
        missing = client.read(LEDGER, range(20, 21)).refused
        assert missing == {20: ResultCode.UNKNOWN_LEDGER_STATE}
    with EmbeddedBookie(tmp_path) as again:
        assert again.report is not None
        assert again.report.recovery.limbo_ledgers == 0


def test_an_accepted_loss_that_was_cut_off_behind_the_opening_is_seen_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The empty databases that it has made, beside a last mark, are those of a directory without a ledger."""
    bookie = written_without_journals(tmp_path)
    place_on(bookie, LEDGER)
    current = tmp_path / "ledgers/current"
    lose(current, ("ledgers", "locations"), emptied=False, with_logs=True)

    def killed(*_: object, **__: object) -> None:
        raise StorageError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Bookie, "start", killed)
        with pytest.raises(StorageError):
            EmbeddedBookie(tmp_path, accept_loss=True).start()
    assert {"ledgers", "locations"} <= set(os.listdir(current))
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"ACCEPTED_LOSS shows .* interrupted .*lost.*--accept-loss"):
            bookie.start()
    with EmbeddedBookie(tmp_path, accept_loss=True) as accepting, DemoClient(accepting.port) as client:
        assert client.read(LEDGER, range(1)).refused == {0: ResultCode.UNKNOWN_LEDGER_STATE}
    with bookie:
        assert "ACCEPTED_LOSS" not in os.listdir(current)


def cut_off_a_start(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a bookie with ``--accept-loss``, and end that behind some of the rows in limbo."""
    monkeypatch.setattr(rows_of_ledgers, "OPERATIONS_MAX", 1)

    def opened(path: str, profile: StoreProfile) -> FaultyStore:
        is_hit = path.endswith("/ledgers")
        return FaultyStore(open_store(path, profile, create=True), [StoreFaultRule("write", 3)] * is_hit)

    settings = settings_of(path, 1)
    cut_off = Bookie(settings, filesystem=PosixFileSystem(), clock=SystemClock(), open_store=opened)
    with pytest.raises(StorageError):
        cut_off.start(accept_loss=True)
    cut_off.stop()


@pytest.mark.parametrize("emptied", [False, True], ids=["gone", "empty"])
def test_an_accepted_loss_of_which_some_rows_were_written_is_seen_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Run, *, emptied: bool
) -> None:
    """A database with some of the rows in limbo was written to; the other ledgers are "no such ledger"."""
    bookie = TruthfulBookie.make(tmp_path, "db", 1)
    lose(bookie.current(), ("ledgers", "locations"), emptied=emptied)
    cut_off_a_start(tmp_path, monkeypatch)
    with pytest.raises(RefusedError, match=r"ACCEPTED_LOSS shows .*index rebuild"), started(tmp_path, 1):
        pass
    assert run_cli("index", "rebuild", bookie.current(), "--yes").exit_code in (0, 1, 3)
    with started(tmp_path, 1) as engine:
        assert engine.reads.read(1, 0) == bookie.truth.bodies[1, 0]


@pytest.mark.parametrize("part", ["ledgers", "all"])
def test_what_a_start_that_was_cut_off_has_made_proves_nothing_to_a_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Run, part: str
) -> None:
    """A log is gone as well: that the logs have every entry is no more proved than without a database."""
    bookie = TruthfulBookie.make(tmp_path, "db", 1)
    lose(bookie.current(), ("ledgers", "locations"), emptied=False)
    bookie.logs()[0].unlink()
    cut_off_a_start(tmp_path, monkeypatch)
    rebuilt = run_cli("index", "rebuild", bookie.current(), f"--{part}", "--yes", "-o", "json")
    if part == "all":
        assert (rebuilt.exit_code, "accepted its loss was cut off" in rebuilt.stdout) == (3, True)
        return
    # The locations are still what that start has made, and cannot say what the log that is gone had.
    assert rebuilt.exit_code == 3, rebuilt.stderr
    with pytest.raises(RefusedError, match=r"locations is gone.*ACCEPTED_LOSS shows"), started(tmp_path, 1):
        pass
    with started(tmp_path, 1, accept_loss=True) as engine:
        for ledger, entry in bookie.truth.bodies:
            if ledger != DELETED:
                with suppress(LedgerLimboError):
                    engine.reads.read(ledger, entry)


def test_rows_that_were_brought_back_alone_are_in_limbo_too(tmp_path: Path) -> None:
    bookie = TruthfulBookie.make(tmp_path, "db", 1)
    lose(bookie.current(), ("locations",), emptied=False)
    note_accepted(PosixFileSystem(), str(bookie.current()), {"ledgers": "gone", "locations": "gone"})
    with started(tmp_path, 1, accept_loss=True) as engine, pytest.raises(LedgerLimboError):
        engine.reads.read(1, 0)


def test_an_accepted_loss_knows_the_ledgers_of_kept_journals(tmp_path: Path) -> None:
    """Of a ledger whose log was cut as well the journal in front of the mark is all that is left."""
    bookie = TruthfulBookie.make(tmp_path, "db", 1)
    cut_log(bookie, 0, 0)
    lose(bookie.current(), ("ledgers", "locations"), emptied=False)
    assert not any(ledger == 2 for ledger, _ in bookie.proved_by_logs())
    assert (2, 0) in bookie.proved_by_journals()
    with started(tmp_path, 1, accept_loss=True) as engine:
        with pytest.raises(LedgerLimboError):
            engine.reads.read(2, 0)
        with pytest.raises(NoLedgerError):
            engine.reads.read(99, 0)


def test_a_recovery_never_cuts_what_a_lost_index_held(tmp_path: Path) -> None:
    """Three bookies, acknowledged by two: one of them without its index must not say "no such entry"."""
    with LocalCluster(3, tmp_path, overrides={"gcWaitTime": "600000"}) as cluster:

        async def write() -> dict[int, int]:
            async with await BookKeeper.connect(cluster.metadata_uri) as client:
                ledgers: dict[int, int] = {}
                for _ in range(3):
                    handle = await client.create(3, 2, 2, digest=DigestType.CRC32C, password=b"pw")
                    for _ in range(20):
                        await handle.append(b"x" * 8)
                    ledgers[handle.ledger] = handle.last_add_confirmed
                    handle.abandon()
                return ledgers

        async def recover(ledgers: dict[int, int]) -> None:
            async with await BookKeeper.connect(cluster.metadata_uri) as client:
                for ledger, acknowledged in ledgers.items():
                    try:
                        closed = await client.recover(ledger)
                    except RecoveryFailedError:
                        continue
                    assert closed.last_entry >= acknowledged

        ledgers = asyncio.run(write())
        lossy = cluster.bookies[0]
        lossy.stop()
        lose(tmp_path / "bookie0/ledgers/current", ("ledgers", "locations"), emptied=False)
        with pytest.raises(RefusedError, match="the index was lost"):
            lossy.start()
        lossy._accept_loss = True
        lossy.start()
        asyncio.run(recover(ledgers))


# --- starts that are natural


def test_a_ledger_that_was_only_fenced_has_lost_no_locations(tmp_path: Path) -> None:
    """Another bookie flushed its row, and never an entry; and rows in limbo deny nothing."""
    bookie = EmbeddedBookie(tmp_path, overrides={"journalMaxBackups": "0"})
    with bookie:
        pass
    fenced = LedgerData(fenced=True, master_key=b"")
    for emptied, row in ((True, fenced), (False, replace(fenced, limbo=True))):
        with open_store(str(tmp_path / "ledgers/current/ledgers"), LEDGERS_PROFILE, create=False) as store:
            store.write([Put(encode_ledger_key(LEDGER), encode_ledger_data(row))], sync=True)
        lose(tmp_path / "ledgers/current", ("locations",), emptied=emptied)
        place_on(bookie, LEDGER + emptied)
        with bookie:
            pass


def test_an_index_whose_rows_were_all_deleted_is_not_lost(tmp_path: Path) -> None:
    bookie = written(tmp_path)
    with bookie:
        assert bookie.service is not None
        assert bookie.service.bookie is not None
        for ledger in (LEDGER, LEDGER + 1):
            bookie.service.bookie.delete_ledger(ledger)
    assert list((tmp_path / "ledgers/current").glob("*.log"))
    with bookie:
        assert not serves(bookie)


def test_an_empty_rebuilt_index_is_not_lost(tmp_path: Path, run_cli: Run) -> None:
    bookie = written(tmp_path)
    with bookie:
        assert bookie.service is not None
        assert bookie.service.bookie is not None
        for ledger in (LEDGER, LEDGER + 1):
            bookie.service.bookie.delete_ledger(ledger)
    run_cli("index", "rebuild", str(tmp_path / "ledgers"), "--yes")
    bookie.start()
    bookie.stop()


@pytest.mark.parametrize("content", [b"", b"BKLO" + bytes(1020), bytes(4096)], ids=["0", "header", "zeros"])
def test_logs_without_records_need_no_index(tmp_path: Path, content: bytes) -> None:
    """Of a bookie that never got an entry."""
    bookie = EmbeddedBookie(tmp_path)
    bookie.start()
    bookie.stop()
    current = tmp_path / "ledgers/current"
    lose(current, ("ledgers", "locations"), emptied=False)
    (current / "0.log").write_bytes(content)
    bookie.start()
    bookie.stop()


@pytest.mark.parametrize("emptied", [False, True], ids=["gone", "empty"])
def test_an_index_that_is_lost_with_all_logs_refuses_the_start(tmp_path: Path, emptied: bool) -> None:
    """The journal has entries in front of the mark, which no replay brings back."""
    bookie = written(tmp_path)
    place_on(bookie, LEDGER)
    current = tmp_path / "ledgers/current"
    lose(current, ("ledgers", "locations"), emptied=emptied, with_logs=True)
    state = "empty" if emptied else "gone"
    words = rf"locations is {state}, and so are the logs.*before the last mark.*--accept-loss"
    for _ in range(2):
        with pytest.raises(RefusedError, match=words):
            bookie.start()
    accepting = EmbeddedBookie(tmp_path, accept_loss=True)
    accepting.start()
    try:
        assert accepting.report.recovery.limbo_ledgers == 2
    finally:
        accepting.stop()
    bookie.start()
    bookie.stop()


@pytest.mark.parametrize("kept", [{"VERSION"}, {"VERSION", "lastMark"}], ids=["cookie", "cookie-and-mark"])
def test_a_directory_that_was_emptied_beside_another_is_lost(tmp_path: Path, kept: set[str]) -> None:
    """Its cookie was put back, and no journal has anything of it any more; the other one has lived."""
    two = {"ledgerDirectories": f"{tmp_path}/ledgers,{tmp_path}/more", "journalMaxBackups": "0"}
    bookie = written(tmp_path, **two)
    with bookie:
        pass
    for path in (tmp_path / "more/current").iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"ledgers is gone.*/ledgers/current has.*--accept-loss") as it:
            bookie.start()
        # A mark was written there: it is not new.
        assert ("only added" in str(it.value)) == ("lastMark" not in kept)
    # The loss is that of the entries of a ledger which the cluster still places there.
    place_on(bookie, LEDGER)
    with EmbeddedBookie(tmp_path, overrides=two, accept_loss=True) as accepting:
        assert accepting.report is not None
        assert accepting.report.recovery.lost_indexes == 1
        with DemoClient(accepting.port) as client:
            assert client.read(LEDGER, range(1)).refused == {0: ResultCode.UNKNOWN_LEDGER_STATE}
    with bookie:
        pass


def test_a_directory_that_was_emptied_shows_beside_one_without_a_mark(tmp_path: Path) -> None:
    """Its mark is lost as well, or it is a new disk, which was filled in the place of a lost one."""
    two = {"ledgerDirectories": f"{tmp_path}/ledgers,{tmp_path}/more", "journalMaxBackups": "0"}
    bookie = written(tmp_path, **two)
    with bookie:
        pass
    (tmp_path / "ledgers/current/lastMark").unlink()
    for path in (tmp_path / "more/current").iterdir():
        if path.name != "VERSION":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"more/current: ledgers is gone.*/ledgers/current has"):
            bookie.start()
    # A database that nothing was written to is what a first start that was killed has left.
    lose(tmp_path / "ledgers/current", ("ledgers", "locations"), emptied=True, with_logs=True)
    with bookie:
        pass


@pytest.mark.parametrize("emptied", [False, True], ids=["gone", "empty"])
def test_a_directory_that_was_added_in_front_of_its_first_flush_starts_as_the_refusal_says(
    tmp_path: Path, emptied: bool
) -> None:
    """As a bookie of Java's leaves it that is killed; a directory that has lost all looks the same."""
    two = {"ledgerDirectories": f"{tmp_path}/ledgers,{tmp_path}/more"}
    bookie = EmbeddedBookie(tmp_path, overrides=two)
    with bookie, DemoClient(bookie.port) as client:
        client.add(LEDGER + 1, range(10))
    place_on(bookie, LEDGER + 1)
    for path in (tmp_path / "more/current").iterdir():
        if path.is_file() and path.name != "VERSION":
            path.unlink()
    lose(tmp_path / "more/current", ("ledgers", "locations"), emptied=emptied)
    with pytest.raises(RefusedError, match=r"only added .* never had an entry, .*: start with --accept-loss"):
        bookie.start()
    with EmbeddedBookie(tmp_path, overrides=two, accept_loss=True) as accepting:
        assert accepting.report is not None
        assert accepting.report.recovery.limbo_ledgers == 0
        with DemoClient(accepting.port) as client:
            assert len(client.read(LEDGER + 1, range(10)).bodies) == 10
            assert client.read(LEDGER, range(1)).refused == {0: ResultCode.NO_LEDGER}
    with bookie:
        pass


@pytest.mark.parametrize("emptied", [False, True], ids=["gone", "empty"])
@pytest.mark.parametrize("lost", ["ledgers", "locations"])
def test_a_database_that_is_lost_with_all_logs_shows_in_the_other(
    tmp_path: Path, lost: str, *, emptied: bool
) -> None:
    """No log and no journal is left that would say so."""
    bookie = written_without_journals(tmp_path)
    place_on(bookie, LEDGER)
    current = tmp_path / "ledgers/current"
    lose(current, (lost,), emptied=emptied, with_logs=True)
    for _ in range(2):
        with pytest.raises(RefusedError, match=rf"{lost} is .* has .*ledger {LEDGER}.*was lost"):
            bookie.start()
    with EmbeddedBookie(tmp_path, accept_loss=True) as accepting, DemoClient(accepting.port) as client:
        # What the locations still name is an error, because its log is gone.
        assert client.read(LEDGER, range(20, 21)).refused == {20: ResultCode.UNKNOWN_LEDGER_STATE}
    with bookie, DemoClient(bookie.port) as client:
        assert client.read(LEDGER, range(20, 21)).refused == {20: ResultCode.UNKNOWN_LEDGER_STATE}


def test_locations_of_a_fenced_ledger_are_lost_where_a_journal_has_an_entry_of_it(tmp_path: Path) -> None:
    bookie = written(tmp_path)
    with bookie:
        assert bookie.service is not None
        assert bookie.service.bookie is not None
        for ledger in (LEDGER, LEDGER + 1):
            bookie.service.bookie.fencing.fence(ledger, MASTER_KEY, fenced := Waiter())
            assert fenced.wait() is None
    place_on(bookie, LEDGER)
    current = tmp_path / "ledgers/current"
    lose(current, ("locations",), emptied=True, with_logs=True)
    with pytest.raises(RefusedError, match=rf"locations is empty.*before the last mark.*ledger {LEDGER},"):
        bookie.start()


def test_databases_that_are_gone_with_all_logs_and_journals_show_in_mark_and_cluster(tmp_path: Path) -> None:
    bookie = written_without_journals(tmp_path)
    current = tmp_path / "ledgers/current"
    lose(current, ("ledgers", "locations"), emptied=False, with_logs=True)
    place_on(bookie, LEDGER)
    for _ in range(2):
        with pytest.raises(RefusedError, match=rf"has a last mark, and the cluster places ledger {LEDGER} "):
            bookie.start()
    with EmbeddedBookie(tmp_path, accept_loss=True) as accepting, DemoClient(accepting.port) as client:
        assert client.read(LEDGER, range(1)).refused == {0: ResultCode.UNKNOWN_LEDGER_STATE}
    with bookie:
        pass


def test_the_only_ledger_directory_was_emptied_and_a_journal_is_left(tmp_path: Path) -> None:
    """Databases are made before the first journal, and the cluster places no ledger on a new bookie."""
    bookie = written_without_journals(tmp_path)
    for path in (tmp_path / "ledgers/current").iterdir():
        if path.name != "VERSION":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    place_on(bookie, LEDGER)
    for _ in range(2):
        with pytest.raises(RefusedError, match=rf"\.txn is there, and the cluster places ledger {LEDGER} "):
            bookie.start()
    with EmbeddedBookie(tmp_path, accept_loss=True) as accepting, DemoClient(accepting.port) as client:
        assert client.read(LEDGER, range(1)).refused == {0: ResultCode.UNKNOWN_LEDGER_STATE}


@pytest.mark.parametrize("left", [("VERSION",), ("VERSION", "lastMark", "lastId")], ids=["journal", "mark"])
def test_the_only_directory_of_index_files_was_emptied(tmp_path: Path, left: tuple[str, ...]) -> None:
    """A folder is made there before the first journal, and the cluster places no ledger on a new bookie."""
    keys = {"ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage"}
    bookie = written(tmp_path, journalMaxBackups="0", **keys)
    with bookie:
        pass
    place_on(bookie, LEDGER)
    for path in (tmp_path / "ledgers/current").iterdir():
        if path.name not in left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for _ in range(2):
        with pytest.raises(
            RefusedError, match=rf"and the cluster places ledger {LEDGER} here: the index was"
        ):
            bookie.start()
    with (
        EmbeddedBookie(tmp_path, overrides=keys, accept_loss=True) as accepting,
        DemoClient(accepting.port) as client,
    ):
        assert client.read(LEDGER, range(1)).refused == {0: ResultCode.UNKNOWN_LEDGER_STATE}
    with bookie:
        pass


def test_a_young_bookie_over_index_files_whose_journal_has_it_all_is_not_refused(tmp_path: Path) -> None:
    """Java's makes no folder before its first flush."""
    keys = {"ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage"}
    bookie = written(tmp_path, **keys)
    place_on(bookie, LEDGER)
    for path in (tmp_path / "ledgers/current").iterdir():
        if path.name != "VERSION":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with bookie:
        assert serves(bookie)


@pytest.mark.parametrize("words", [(), ("--ledgers",)], ids=["all", "ledgers"])
def test_a_ledger_that_a_rebuild_without_metadata_knew_nothing_of_is_asked_for_once(
    tmp_path: Path, run_cli: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Its row and all logs were lost; the index that was made reads well, and nothing in it says so."""
    bookie = written_without_journals(tmp_path)
    place_on(bookie, LEDGER)
    lose(tmp_path / "ledgers/current", ("ledgers", "locations"), emptied=False, with_logs=True)
    rebuild = ("index", "rebuild", str(tmp_path / "ledgers"), "--storage", "db", "--yes", *words)
    assert run_cli(*rebuild).exit_code == 3
    assert_waits_for_the_cluster(monkeypatch, bookie, "kept_here")
    with bookie, DemoClient(bookie.port) as client:
        assert client.read(LEDGER, range(1)).refused == {0: ResultCode.UNKNOWN_LEDGER_STATE}
    # A ledger that is new on the bookie, and has no entry yet, is no lost one at the next start.
    place_on(bookie, LEDGER + 5)
    with bookie, DemoClient(bookie.port) as client:
        assert client.read(LEDGER, range(1)).refused == {0: ResultCode.UNKNOWN_LEDGER_STATE}
        assert client.read(LEDGER + 5, range(1)).refused == {0: ResultCode.NO_LEDGER}
    check = run_cli("index", "check", str(tmp_path / "ledgers"))
    assert "could not prove that the logs have every entry" in f"{check.stdout}{check.stderr}"


def test_a_rebuild_of_some_index_files_without_metadata_leaves_the_others_to_the_cluster(
    tmp_path: Path, run_cli: Run
) -> None:
    """Of two logs one is lost with all index files: the files that are made of the other hide that."""
    keys = {"ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage"}
    bookie = written_without_journals(tmp_path, **keys)
    with bookie, DemoClient(bookie.port) as client:
        assert client.add(LEDGER + 2, range(10)).done == list(range(10))
    with bookie:
        pass  # the journal of these entries goes, too
    place_on(bookie, LEDGER)
    current = tmp_path / "ledgers/current"
    for path in current.iterdir():
        if path.name == "0.log" or path.is_dir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    rebuild = ("index", "rebuild", str(tmp_path / "ledgers"), "--storage", "idx", "--yes")
    assert run_cli(*rebuild).exit_code == 3
    assert list(current.rglob("*.idx"))
    with bookie, DemoClient(bookie.port) as client:
        assert client.read(LEDGER, range(1)).refused == {0: ResultCode.UNKNOWN_LEDGER_STATE}
        assert client.read(LEDGER + 2, range(1)).bodies


def test_an_accepted_loss_that_the_cluster_alone_knows_waits_for_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is silent for a moment names no ledger to put into limbo: each would be denied."""
    bookie = written_without_journals(tmp_path)
    place_on(bookie, LEDGER)
    current = tmp_path / "ledgers/current"
    lose(current, ("ledgers", "locations"), emptied=False, with_logs=True)
    accepting = EmbeddedBookie(tmp_path, accept_loss=True)
    assert_waits_for_the_cluster(monkeypatch, accepting, "kept_here")
    with accepting, DemoClient(accepting.port) as client:
        assert client.read(LEDGER, range(1)).refused == {0: ResultCode.UNKNOWN_LEDGER_STATE}


@pytest.mark.parametrize("emptied", ["index0", "index1"])
def test_one_of_several_directories_of_index_files_is_lost(tmp_path: Path, emptied: str) -> None:
    """It was emptied, and its cookie put back; its ledgers are in the logs still, and in the cluster."""
    keys = {
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
        "indexDirectories": f"{tmp_path}/index0,{tmp_path}/index1",
    }
    bookie = EmbeddedBookie(tmp_path, overrides=keys)
    ledgers = one_in_each(tmp_path, bookie)
    lost, kept = ledgers.pop(emptied), *ledgers.values()
    place_on(bookie, kept)
    shutil.rmtree(tmp_path / emptied / "current/0")
    # Of a ledger that was deleted nothing is lost.
    with bookie:
        pass
    place_on(bookie, lost)
    shutil.rmtree(tmp_path / emptied / "current/0")
    for _ in range(2):
        with pytest.raises(RefusedError, match=rf"{emptied}/current is empty.*ledger {lost}, .*was lost"):
            bookie.start()
    with EmbeddedBookie(tmp_path, overrides=keys, accept_loss=True) as accepting:
        assert accepting.report is not None
        assert accepting.report.recovery.lost_indexes == 1
        with DemoClient(accepting.port) as client:
            assert client.read(lost, range(1)).refused == {0: ResultCode.UNKNOWN_LEDGER_STATE}
            assert client.read(kept, range(1)).bodies
    with bookie:
        pass


@pytest.mark.parametrize("lost", [["index0"], ["index1"], ["index0", "index1"]])
def test_index_files_of_which_a_rebuild_has_put_some_back_are_lost(
    tmp_path: Path, run_cli: Run, monkeypatch: pytest.MonkeyPatch, lost: list[str]
) -> None:
    """The folders of those that are back hide the others from a start."""
    keys = {
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
        "ledgerDirectories": f"{tmp_path}/ledgers1,{tmp_path}/ledgers0",
        "indexDirectories": f"{tmp_path}/index1,{tmp_path}/index0",
    }
    bookie = EmbeddedBookie(tmp_path, overrides=keys)
    one_in_each(tmp_path, bookie)
    for ledger in range(LEDGER, LEDGER + 8):
        place_on(bookie, ledger)
    for name in lost:
        shutil.rmtree(tmp_path / name / "current/0")
    command = ("index", "rebuild", tmp_path, "--metadata", bookie.config.metadata.uri, "--yes")
    command += ("--storage", "idx") if len(lost) > 1 else ()
    moved, left = os.replace, [3]

    def replace(source: str, target: str) -> None:
        left[0] -= str(target).endswith(".idx")
        if left[0] < 0:
            raise OSError(errno.EIO, "the power went")
        moved(source, target)

    for _ in range(2):
        left[0] = 3
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace)
            assert run_cli(*command).exit_code == 7
        with pytest.raises(RefusedError, match="an index rebuild which restores it was interrupted"):
            bookie.start()
    assert run_cli(*command).exit_code in (0, 1, 3)
    with bookie, DemoClient(bookie.port) as client:
        for ledger in range(LEDGER, LEDGER + 8):
            assert len(client.read(ledger, range(10)).bodies) == 10


def one_in_each(path: Path, bookie: EmbeddedBookie) -> dict[str, int]:
    """Write ledgers; return one by directory of index files."""
    with bookie, DemoClient(bookie.port) as client:
        for ledger in range(LEDGER, LEDGER + 8):
            assert client.add(ledger, range(10)).done == list(range(10))
    files = {file.relative_to(path).parts[0]: int(file.stem, 16) for file in path.rglob("*.idx")}
    assert len(files) == 2
    return files


def test_index_files_that_are_lost_with_all_logs_show_in_mark_and_cluster(tmp_path: Path) -> None:
    keys = {
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
        "indexDirectories": f"{tmp_path}/index0,{tmp_path}/index1",
        "journalMaxBackups": "0",
    }
    bookie = written(tmp_path, **keys)
    with bookie:
        pass
    (file,) = tmp_path.rglob(f"{LEDGER}.idx")
    shutil.rmtree(file.parents[1])
    for log in tmp_path.glob("ledgers/current/*.log"):
        log.unlink()
    # Of a ledger that was deleted nothing is lost.
    with bookie:
        pass
    shutil.rmtree(file.parents[1])
    place_on(bookie, LEDGER)
    with pytest.raises(RefusedError, match=rf"places ledger {LEDGER} here, which has no file: .*was lost"):
        bookie.start()
    accepting = EmbeddedBookie(tmp_path, overrides=keys, accept_loss=True)
    with accepting, DemoClient(accepting.port) as client:
        assert client.read(LEDGER, range(1)).refused == {0: ResultCode.UNKNOWN_LEDGER_STATE}


def test_an_index_is_not_called_lost_for_a_cluster_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the ledger in front of the mark was deleted is not known: the start can be tried again."""
    bookie = written(tmp_path)
    current = tmp_path / "ledgers/current"
    lose(current, ("ledgers", "locations"), emptied=False, with_logs=True)
    assert_waits_for_the_cluster(monkeypatch, bookie, "is_kept_here")
    with bookie:
        assert not serves(bookie)


def test_an_emptied_bookie_over_index_files_becomes_one_over_databases(tmp_path: Path, run_cli: Run) -> None:
    """All its ledgers were deleted, here and in the cluster, which the journals do not know."""
    files = {"ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage"}
    bookie = written(tmp_path, **files)
    with bookie:
        assert bookie.service is not None
        assert bookie.service.bookie is not None
        for ledger in (LEDGER, LEDGER + 1):
            bookie.service.bookie.delete_ledger(ledger)
    for log in (tmp_path / "ledgers/current").glob("*.log"):
        log.unlink()
    assert run_cli("doctor", str(tmp_path / "ledgers"), str(tmp_path / "journal")).exit_code == 0
    refuse_lost_index(PosixFileSystem(), places_of(bookie.config))
    with EmbeddedBookie(tmp_path) as over_databases:
        assert not serves(over_databases)


def test_a_new_directory_has_lost_no_index(tmp_path: Path) -> None:
    """Journals hold entries in front of the mark of ledgers that are its own by their ids."""
    bookie = written(tmp_path)
    current = tmp_path / "ledgers/current"
    lose(current, ("ledgers", "locations"), emptied=False)
    for path in (*current.glob("*.log"), *current.glob("lastMark*")):
        path.unlink()
    bookie.start()
    bookie.stop()


def test_the_first_flush_of_an_older_bookie_that_was_cut_off_is_no_loss(tmp_path: Path) -> None:
    """Its databases were never written to, and its logs hold what the journal holds."""
    bookie = EmbeddedBookie(tmp_path)
    with bookie, DemoClient(bookie.port) as client:
        client.add(LEDGER, range(10))
        saved = {path.name: path.read_bytes() for path in (tmp_path / "journal/current").glob("*.txn")}
    current = tmp_path / "ledgers/current"
    lose(current, ("ledgers", "locations"), emptied=True)
    for mark in current.glob("lastMark*"):
        mark.unlink()
    for name, content in saved.items():
        (tmp_path / "journal/current" / name).write_bytes(content)
    with bookie:
        assert serves(bookie)


def test_a_directory_in_front_of_its_first_flush_is_no_loss_beside_one_that_has_flushed(
    tmp_path: Path,
) -> None:
    """The same with a mark: the logs hold nothing but what the journal behind it holds."""
    two = f"{tmp_path}/ledgers,{tmp_path}/more"
    bookie = EmbeddedBookie(tmp_path, overrides={"ledgerDirectories": two})
    with bookie, DemoClient(bookie.port) as client:
        client.add(4, range(10))
        assert bookie.service is not None
        assert bookie.service.bookie is not None
        bookie.service.bookie.checkpoint()
        marks = {path: path.read_bytes() for path in tmp_path.glob("*/current/lastMark")}
        client.add(LEDGER, range(10))
        journals = {path: path.read_bytes() for path in tmp_path.glob("journal/current/*.txn")}
    lose(tmp_path / "more/current", ("ledgers", "locations"), emptied=True)
    for path, content in {**marks, **journals}.items():
        path.write_bytes(content)
    for journal in set(tmp_path.glob("journal/current/*.txn")) - journals.keys():
        journal.unlink()
    with bookie:
        assert serves(bookie)
