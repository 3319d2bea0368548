"""``gc run``: what it removes, what it refuses, and that a stop at any step loses nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import pytest

from bkctl.admin.gc.plan import COMPACT, REMOVE
from bkctl.admin.gc.run import RunOptions, perform, prepare
from bkctl.admin.gc.run_rows import DELETE_LEDGERS, FINISH, LEFT, SET_ASIDE
from bkctl.admin.ledgers.known_ledgers import DumpedCluster, NoCluster
from bkctl.codec import ledger_data
from bkctl.codec.entry_log_metadata import EntryLogMetadata, encode_entry_log_metadata, encode_log_key
from bkctl.codec.ledger_data import LedgerData
from bkctl.directories.holders import DirectoryLock
from bkctl.engine.db_storage.entry_locations import EntryLocationIndex
from bkctl.engine.db_storage.ledgers import LedgerIndex
from bkctl.engine.entrylog.entry_logger import EntryLogger
from bkctl.engine.gc import policy
from bkctl.errors import BkctlError, RefusedError, SyncError
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb import open_read_only
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.metadata.uri import open_metadata_store
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.faulty import CrashPointReached, FaultRule, FaultyFileSystem
from tests.support import cluster_dumps
from tests.support.checked_bookie import FILES, check
from tests.support.grades import times
from tests.support.manifest import index_rows
from tests.unit.admin.gc.stopped_bookie import (
    CLOCK,
    LIVE,
    RECORD_BYTES,
    Stopped,
    cluster_of,
    on_bookie,
    some_metadata,
)

HOST = "bookie:3181"
HALF = RunOptions(threshold=0.6)
DELETE = RunOptions(delete_ledgers=True)


def dump_of(*ledgers: int) -> DumpedCluster:
    metadata = {ledger: on_bookie(some_metadata(), HOST) for ledger in ledgers}
    return DumpedCluster(cluster_dumps.dump_of(metadata))


@pytest.fixture
def bookie(tmp_path: Path) -> Stopped:
    return Stopped(tmp_path / "b").build()


def indexed_ledgers(bookie: Stopped) -> set[int]:
    reader = open_read_only(str(bookie.current() / "ledgers"))
    ids = {int.from_bytes(key, "big") for key, _ in reader.iterate()}
    reader.close()
    return ids


def test_garbage_goes_and_nothing_else(bookie: Stopped) -> None:
    rows = bookie.run()
    assert [(row.action, row.log_id, row.done) for row in rows] == [(REMOVE, 1, True)]
    assert rows[0].freed_bytes == rows[0].bytes
    assert bookie.logs_left() == [0, 2, 3]
    assert bookie.readable() == LIVE


def test_compaction_takes_the_emptiest_first(bookie: Stopped) -> None:
    rows = bookie.run(options=HALF)
    assert [(row.action, row.log_id) for row in rows] == [(REMOVE, 1), (COMPACT, 2), (COMPACT, 0)]
    assert [row.copied_bytes for row in rows] == [0, 100, 2000]
    assert bookie.logs_left() == [3, 4]
    assert bookie.readable() == LIVE
    assert check([bookie.root]) == []
    assert bookie.prepare(options=HALF).is_empty


@pytest.mark.parametrize("what", ["ledger", "size"])
def test_a_log_with_a_record_that_hides_a_live_entry_stays(bookie: Stopped, what: str) -> None:
    """A flipped ledger id, or a size that swallows the next records; the index still names what is there."""
    log = bookie.current() / "0.log"
    content = bytearray(log.read_bytes())
    # Of an entry of the live ledger, with one of the dead ledger and one of the live behind it.
    at = content.index((1).to_bytes(8, "big") + (5).to_bytes(8, "big"))
    if what == "ledger":
        content[at + 6] ^= 1
    else:
        content[at - 4 : at] = (RECORD_BYTES - 4 + 2 * RECORD_BYTES).to_bytes(4, "big")
    log.write_bytes(content)
    rows = bookie.run(options=HALF)
    (stays,) = [row for row in rows if row.log_id == 0]
    assert (stays.action, stays.done) == (SET_ASIDE, False)
    assert f"ledger 1, entry {5 if what == 'ledger' else 6} first (bkctl entrylog salvage)" in stays.detail
    assert 0 in bookie.logs_left()
    assert LIVE - {(1, 5)} <= {row[:2] for row in index_rows(bookie.current())}


def test_a_log_that_seems_to_be_garbage_stays_when_a_row_points_into_it(bookie: Stopped) -> None:
    """One bit of the ledger id of its only live record is flipped, and no ledger of it is alive."""
    log = bookie.current() / "2.log"
    content = bytearray(log.read_bytes())
    content[content.index((1).to_bytes(8, "big") + (200).to_bytes(8, "big")) + 6] ^= 1
    log.write_bytes(content)
    rows = bookie.run()
    assert [(row.action, row.log_id, row.done) for row in rows] == [(REMOVE, 1, True), (SET_ASIDE, 2, False)]
    assert "ledger 1, entry 200 first (bkctl entrylog salvage)" in rows[1].detail
    assert log.read_bytes() == content


def test_preparing_writes_nothing(bookie: Stopped) -> None:
    before = {path: path.stat().st_mtime_ns for path in bookie.root.rglob("*")}
    work = bookie.prepare(options=HALF)
    assert not work.is_empty
    assert [row.done for row in work.rows()] == [False] * 3
    assert {path: path.stat().st_mtime_ns for path in bookie.root.rglob("*")} == before


def test_deleted_ledgers_lose_their_rows_first(bookie: Stopped) -> None:
    rows = bookie.run(dump_of(1, 9), DELETE)
    assert [(row.action, row.log_id, row.ledgers) for row in rows] == [
        (DELETE_LEDGERS, None, 1),
        (REMOVE, 1, 0),
        (REMOVE, 3, 0),
    ]
    assert indexed_ledgers(bookie) == {1}
    assert bookie.logs_left() == [0, 2]
    assert bookie.readable() == {(ledger, entry) for ledger, entry in LIVE if ledger == 1}


def test_without_being_told_no_ledger_is_deleted(bookie: Stopped) -> None:
    bookie.run(dump_of(1, 9))
    assert indexed_ledgers(bookie) == {1, 3}
    assert bookie.readable() == LIVE


def test_locations_of_a_ledger_that_is_proven_gone_go_too(tmp_path: Path) -> None:
    made = Stopped(tmp_path)
    made.ledger(1)
    made.add(1, 0)
    made.add(7, 0, log_id=1)
    made.write()
    assert made.prepare(dump_of(1, 9)).steps == []
    rows = made.run(dump_of(1, 9), DELETE)
    assert [(row.action, row.ledgers) for row in rows] == [(DELETE_LEDGERS, 1), (REMOVE, 0)]
    assert {ledger for ledger, *_ in index_rows(made.current())} == {1}


def test_a_ledger_that_the_journals_bring_back_is_not_deleted(tmp_path: Path) -> None:
    made = Stopped(tmp_path)
    made.journaled(3, [99], master_key=False)
    made.build()
    work = made.prepare(dump_of(1, 9), DELETE)
    assert work.gone == []


def test_what_a_bookie_remembers_of_a_removed_log_is_dropped(bookie: Stopped) -> None:
    path = str(bookie.current() / "metadata-cache")
    with open_store(path, LEDGERS_PROFILE, create=True) as store:
        for log_id in (1, 3):
            row = EntryLogMetadata(log_id, 100, 100, ((2, 100),))
            store.write([Put(encode_log_key(log_id), encode_entry_log_metadata(row))], sync=True)
    bookie.run()
    reader = open_read_only(path)
    assert [key for key, _ in reader.iterate()] == [encode_log_key(3)]
    reader.close()


def test_a_damaged_log_is_set_aside_and_the_others_are_done(bookie: Stopped) -> None:
    path = bookie.current() / "2.log"
    data = bytearray(path.read_bytes())
    data[1500:1600] = b"\xee" * 100
    path.write_bytes(data)
    rows = bookie.run(options=HALF)
    assert [(row.action, row.log_id, row.done) for row in rows] == [
        (REMOVE, 1, True),
        (COMPACT, 0, True),
        (SET_ASIDE, 2, False),
    ]
    assert path.read_bytes() == data


def test_a_compaction_that_was_cut_off_is_finished(bookie: Stopped) -> None:
    """Log 3 was copied to 5 and is not indexed there yet."""
    data = (bookie.current() / "3.log").read_bytes()
    (bookie.current() / "5.log.3.compacted").write_bytes(data)
    rows = bookie.run()
    assert [(row.action, row.log_id, row.done) for row in rows] == [
        (FINISH, 5, True),
        (REMOVE, 1, True),
        (LEFT, 3, False),
    ]
    assert bookie.logs_left() == [0, 2, 5]
    assert bookie.readable() == LIVE


# --- refusals


def rebuild_begun(bookie: Stopped) -> None:
    (bookie.current() / "locations.bkctl-rebuild").mkdir()


def java_rebuild_begun(bookie: Stopped) -> None:
    (bookie.current() / "ledgers.TEMP-1700000000").mkdir()


def flagged(bookie: Stopped) -> None:
    with open_store(str(bookie.current() / "ledgers"), LEDGERS_PROFILE, create=False) as store:
        key = ledger_data.encode_ledger_key(ledger_data.FLAGS_ID)
        store.write([Put(key, (1).to_bytes(8, "big"))], sync=True)


def undecodable(bookie: Stopped) -> None:
    with open_store(str(bookie.current() / "ledgers"), LEDGERS_PROFILE, create=False) as store:
        store.write([Put(ledger_data.encode_ledger_key(8), b"\xff\xff")], sync=True)


def no_ledger_rows(bookie: Stopped) -> None:
    with open_store(str(bookie.current() / "ledgers"), LEDGERS_PROFILE, create=False) as store:
        keys = [key for batch in store.batches() for key, _ in batch]
        from bkctl.kvstore.base import Delete

        store.write([Delete(key) for key in keys], sync=True)


def no_ledgers_database(bookie: Stopped) -> None:
    shutil.rmtree(bookie.current() / "ledgers")


def no_index(bookie: Stopped) -> None:
    shutil.rmtree(bookie.current() / "ledgers")
    shutil.rmtree(bookie.current() / "locations")


def no_locations_database(bookie: Stopped) -> None:
    shutil.rmtree(bookie.current() / "locations")


def dirty_without_journals(bookie: Stopped) -> None:
    shutil.rmtree(bookie.root / "j")
    (bookie.current() / "DIRTY").touch()


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (rebuild_begun, "has not ended"),
        (java_rebuild_begun, "has not ended"),
        (flagged, "integrity check"),
        (undecodable, "index rebuild --ledgers"),
        (no_ledger_rows, "index rebuild --all"),
        (no_ledgers_database, "ledgers"),
        (no_index, ""),
        (no_locations_database, "locations"),
        (dirty_without_journals, "journals were not found"),
    ],
)
@pytest.mark.parametrize("options", [HALF, DELETE])
def test_an_index_in_doubt_costs_nothing(
    bookie: Stopped, break_it: Callable[[Stopped], None], says: str, options: RunOptions
) -> None:
    break_it(bookie)
    before = bookie.logs_left()
    with pytest.raises(BkctlError) as caught:
        bookie.run(dump_of(1, 3, 9), options)
    assert caught.value.exit_code == 4
    assert says in str(caught.value)
    assert bookie.logs_left() == before


def test_half_of_the_locations_missing_keeps_their_log(tmp_path: Path) -> None:
    made = Stopped(tmp_path)
    made.ledger(1)
    made.add(1, 0)
    for entry in range(1, 30):
        made.store(1, entry)
    made.write()
    rows = made.run(options=HALF)
    assert [(row.action, row.log_id) for row in rows] == [(LEFT, 0)]
    assert made.logs_left() == [0]


def test_damage_behind_the_mark_is_refused(tmp_path: Path) -> None:
    made = Stopped(tmp_path)
    made.journaled(5, range(20))
    made.build()
    (journal,) = (tmp_path / "j" / "current").glob("*.txn")
    data = bytearray(journal.read_bytes())
    data[700:900] = b"\xee" * 200
    journal.write_bytes(data)
    with pytest.raises(RefusedError, match="after the last mark"):
        made.run()


def test_what_a_conversion_left_of_other_directories_is_collected(tmp_path: Path) -> None:
    """The newest logs hold ledgers of another directory; one in front of them has the ledger of this one."""
    made = Stopped(tmp_path, count=2)
    made.fill([2], log_id=0)
    made.fill([1], log_id=0)
    for log_id in range(1, 20):
        for ledger in range(1, 41, 2):
            made.store(ledger, log_id, log_id, place=0)
    made.write()
    space = next(space for space in made.spaces() if space.position == 0)
    with DirectoryLock(str(made.current(0))) as lock:
        work = prepare(FILES, space, NoCluster(), CLOCK, RunOptions())
        rows = list(perform(FILES, work, CLOCK, lock))
    assert [(row.action, row.log_id) for row in rows if row.done] == [(REMOVE, n) for n in range(1, 20)]
    assert made.logs_left() == [0]


def test_idx_files_about_several_directories_are_collected(tmp_path: Path) -> None:
    """Each log is compacted in its own directory, under an id that no directory has."""
    made = Stopped(tmp_path, count=2, storage="idx").build()
    for log_id in (1, 2):
        (made.current(0) / f"{log_id}.log").rename(made.current(1) / f"{log_id}.log")
    rows = made.run(dump_of(1, 3, 9), RunOptions(threshold=0.6, delete_ledgers=True))
    assert [(row.action, row.log_id, Path(row.dir).parent.name) for row in rows if row.done] == [
        (REMOVE, 1, "l1"),
        (COMPACT, 0, "l0"),
        (COMPACT, 2, "l1"),
    ]
    left = [sorted(path.name for path in made.current(place).glob("*.log")) for place in range(2)]
    assert "3.log" in left[0]
    assert not set(left[0]) & set(left[1])
    assert [len(names) for names in left] == [2, 1]
    assert made.readable() == LIVE
    assert check([made.root]) == []
    assert not [row for row in made.run(dump_of(1, 3, 9), HALF) if row.action in (REMOVE, COMPACT)]


def test_idx_files_are_collected(tmp_path: Path) -> None:
    """The file of a deleted ledger goes, and those of the others stay as they are."""
    made = Stopped(tmp_path, storage="idx").build()
    rows = made.run(dump_of(1, 9), RunOptions(threshold=0.6, delete_ledgers=True))
    assert [row.action for row in rows] == [DELETE_LEDGERS, REMOVE, REMOVE, COMPACT, COMPACT]
    assert made.readable() == {key for key in LIVE if key[0] == 1}
    assert [path.name for path in made.current().rglob("*.idx")] == ["1.idx"]
    assert check([made.root]) == []


def test_a_bookie_that_starts_meanwhile_is_noticed(bookie: Stopped) -> None:
    """It has come and gone between the decision and the deed."""
    with DirectoryLock(str(bookie.current())) as lock:
        work = bookie.prepare()
        (bookie.current() / "lastMark").write_bytes(bytes(16))
        with pytest.raises(RefusedError, match="changed while"):
            list(perform(PosixFileSystem(), work, CLOCK, lock))
    assert bookie.logs_left() == [0, 1, 2, 3]


def test_a_process_that_opens_a_log_meanwhile_is_named(bookie: Stopped) -> None:
    program = "import sys; file = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with DirectoryLock(str(bookie.current())) as lock:
        work = bookie.prepare()
        line = [sys.executable, "-c", program, str(bookie.current() / "1.log")]
        with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"open\n"
            with pytest.raises(RefusedError, match=f"pid {other.pid}"):
                list(perform(PosixFileSystem(), work, CLOCK, lock))
            other.communicate()
    assert bookie.logs_left() == [0, 1, 2, 3]


def test_a_held_database_is_refused(bookie: Stopped) -> None:
    with (
        open_store(str(bookie.current() / "locations"), LEDGERS_PROFILE, create=False),
        pytest.raises(RefusedError, match="in use by"),
    ):
        bookie.run()
    assert bookie.logs_left() == [0, 1, 2, 3]


def test_surprisingly_many_deletions_wait_for_a_word(
    bookie: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "too_many", lambda deletions, ledgers, settings: 2 * deletions > ledgers)
    with pytest.raises(RefusedError, match="--confirm-deletions"):
        bookie.run(dump_of(9), DELETE)
    assert bookie.logs_left() == [0, 1, 2, 3]
    assert indexed_ledgers(bookie) == {1, 3}
    bookie.run(dump_of(9), RunOptions(delete_ledgers=True, confirmed=True))
    assert indexed_ledgers(bookie) == set()
    assert bookie.logs_left() == []


def test_many_unknown_ledgers_want_a_metadata_store(tmp_path: Path) -> None:
    made = Stopped(tmp_path)
    made.ledgers[0, 1] = LedgerData(False, b"", None, None)
    for ledger in range(2000, 3100):
        made.store(ledger, 0)
    made.write()
    with pytest.raises(RefusedError, match="--metadata"):
        made.run()
    with open_metadata_store("memory://gc-many-unknown") as store:
        store.layout.initialise_cluster()
        cluster = cluster_of(store, [1, 2000], HOST, issued=4000)
        cluster.instance_id = "instance"
        made.run(cluster)
        assert made.logs_left() == [0]  # one of its ledgers exists, and has lost its row
        store.ledgers.delete_ledger(2000, store.ledgers.read_ledger(2000).version)
        made.run(cluster)
    assert made.logs_left() == []


def test_a_store_proves_that_an_empty_index_is_right(tmp_path: Path) -> None:
    """Every ledger of the directory was deleted."""
    made = Stopped(tmp_path)
    for ledger in (5, 6):
        made.store(ledger, 0, log_id=ledger)
    made.write()
    with pytest.raises(RefusedError, match="--metadata"):
        made.run(dump_of(7), DELETE)
    with open_metadata_store("memory://gc-empty-index") as store:
        store.layout.initialise_cluster()
        cluster = cluster_of(store, [5], HOST)
        cluster.instance_id = "instance"
        made.run(cluster)
    assert made.logs_left() == [5]


# --- order and stops


def test_nothing_is_unlinked_before_what_it_depends_on_is_durable(
    bookie: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def record(owner: type, name: str, label: str) -> None:
        original = getattr(owner, name)

        def recorded(self: object, *args: object, **options: object) -> object:
            result = original(self, *args, **options)
            done.append(label)
            return result

        monkeypatch.setattr(owner, name, recorded)

    record(EntryLocationIndex, "delete_ledgers", "locations deleted")
    record(EntryLocationIndex, "move_many", "locations put")
    record(EntryLocationIndex, "sync", "locations durable")
    record(LedgerIndex, "flush", "rows durable")
    record(EntryLogger, "force", "copies durable")
    record(EntryLogger, "remove", "unlinked")
    record(PosixFileSystem, "sync_directory", "names durable")
    bookie.run(dump_of(1, 9), RunOptions(threshold=0.3, delete_ledgers=True))
    assert [label for label, _ in groupby(done)] == [
        *("locations deleted", "rows durable"),
        *("unlinked", "names durable"),
        *("copies durable", "locations put", "locations durable", "unlinked", "names durable"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("storage", "first"), [("db", 0), ("idx", 1)])
def test_a_stop_at_any_step_loses_nothing(tmp_path: Path, storage: str, first: int) -> None:
    """Each storage is stopped at every second step or some, one at those that the other leaves out."""
    options = RunOptions(threshold=0.6, delete_ledgers=True)
    cluster = dump_of(1, 9)
    alive = {key for key in LIVE if key[0] == 1}
    point = first
    while True:
        made = Stopped(tmp_path / str(point), storage=storage).build()
        faulty = FaultyFileSystem(PosixFileSystem(), crash_after=point)
        with DirectoryLock(str(made.current())) as lock:
            work = made.prepare(cluster, options)
            with suppress(CrashPointReached):
                list(perform(faulty, work, CLOCK, lock))
        assert made.readable() >= alive
        # What a stop leaves behind is no obstacle for the next run, which does the rest.
        made.run(cluster, options)
        assert made.readable() == alive
        assert {row.eligible for row in made.explain(cluster).values()} == {"no"}
        if not faulty.stopped.is_set():
            break
        point += times(8, 2)
    assert point > 10


def test_a_failed_sync_ends_the_run(bookie: Stopped) -> None:
    rule = FaultRule("sync", path=".log")
    faulty = FaultyFileSystem(PosixFileSystem(), [rule])
    with DirectoryLock(str(bookie.current())) as lock:
        work = bookie.prepare(options=HALF)
        with pytest.raises(SyncError):
            list(perform(faulty, work, CLOCK, lock))
    assert {0, 2, 3} <= set(bookie.logs_left())
    assert bookie.readable() == LIVE
