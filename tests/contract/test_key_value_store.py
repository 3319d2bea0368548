"""One behaviour suite over every KeyValueStore, then what only RocksDB can get wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import rocksdict

from bkctl.errors import BkctlError, CorruptionError, NotFoundError, RefusedError, StorageError
from bkctl.kvstore import lock_holder, rocksdb, rocksdb_store, synced_log
from bkctl.kvstore.base import Delete, DeleteRange, KeyValueStore, Put, Row, SortedFileWriter
from bkctl.kvstore.memory import MemoryFiles, MemoryStore
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE, StoreProfile
from bkctl.kvstore.rocksdb_store import open_store, sorted_file_writer
from tests.support.memory_table_files import MemoryFileWriter

Rows = dict[bytes, bytes]
PROFILES = [LOCATIONS_PROFILE, LEDGERS_PROFILE]


class Kind:
    """One implementation: opens a store again and again, and writes files for it."""

    def __init__(self, path: Path, *, memory: bool) -> None:
        self.path = path
        self.memory = memory
        self.files: MemoryFiles = {}
        self.rows: Rows = {}
        self.opened: list[KeyValueStore] = []

    def open(self) -> KeyValueStore:
        store: KeyValueStore
        if not self.memory:
            store = open_store(str(self.path / "db"), LOCATIONS_PROFILE, create=True)
        elif self.opened:
            store = MemoryStore(dict(self.opened[-1].iterate()), self.files)
        else:
            store = MemoryStore(files=self.files)
        self.opened.append(store)
        return store

    def reopened(self) -> KeyValueStore:
        if self.memory:
            return self.open()
        self.opened[-1].close()
        return self.open()

    def file(self, name: str) -> SortedFileWriter:
        path = str(self.path / name)
        return (
            MemoryFileWriter(self.files, path) if self.memory else sorted_file_writer(path, LOCATIONS_PROFILE)
        )

    def has_file(self, name: str) -> bool:
        return str(self.path / name) in self.files if self.memory else (self.path / name).exists()


@pytest.fixture(params=["memory", "rocksdb"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    made = Kind(tmp_path, memory=request.param == "memory")
    yield made
    for store in made.opened:
        store.close()


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def rows_of(store: KeyValueStore) -> Rows:
    return dict(store.iterate())


def test_a_batch_applies_in_its_order(kind: Kind) -> None:
    store = kind.open()
    store.write([Put(b"a", b"1"), Put(b"b", b"1"), Put(b"a", b"2"), Delete(b"b"), Delete(b"none")], sync=True)
    assert rows_of(store) == {b"a": b"2"}
    store.write([DeleteRange(b"a", b"c"), Put(b"b", b"3")], sync=False)
    assert rows_of(store) == {b"b": b"3"}
    store.write([Put(b"", b"empty key"), Put(b"v", b"")], sync=True)
    assert store.get(b"") == b"empty key"
    assert store.get(b"v") == b""
    store.write([], sync=True)


def test_a_batch_that_cannot_be_made_leaves_nothing(kind: Kind) -> None:
    store = kind.open()

    def operations() -> Iterator[Put]:
        yield Put(b"a", b"1")
        raise RuntimeError("the source failed")

    with pytest.raises(RuntimeError):
        store.write(operations(), sync=True)
    assert rows_of(store) == {}


@pytest.mark.parametrize(
    ("start", "stop"), [(b"b", b"d"), (b"", b"zz"), (b"b", b"b"), (b"d", b"b"), (b"bb", b"c"), (b"x", b"z")]
)
def test_ranges_are_deleted_without_their_end(kind: Kind, start: bytes, stop: bytes) -> None:
    store = kind.open()
    rows = {bytes([letter]): b"1" for letter in b"abcdef"}
    store.write([Put(*row) for row in rows.items()], sync=True)
    store.write([DeleteRange(start, stop)], sync=True)
    expected = {name: value for name, value in rows.items() if not start <= name < stop}
    assert rows_of(store) == expected
    store.flush()
    store.compact()
    assert rows_of(store) == expected
    assert rows_of(kind.reopened()) == expected


@pytest.mark.parametrize("flushed", ["never", "before", "after", "both"])
def test_the_row_below_a_key_is_found_among_deleted_ones(kind: Kind, flushed: str) -> None:
    store = kind.open()
    store.write([Put(key(number), b"1") for number in range(100)], sync=False)
    if flushed in ("before", "both"):
        store.flush()
    store.write([DeleteRange(key(first), key(first + 9)) for first in range(0, 100, 10)], sync=True)
    if flushed in ("after", "both"):
        store.flush()
    for first in range(0, 100, 7):
        for last in range(first, 101, 7):
            live = [number for number in range(first, last) if number % 10 == 9]
            expected = (key(live[-1]), b"1") if live else None
            assert store.below(key(last), start=key(first)) == expected


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
def test_what_was_written_is_there_after_a_reopen(kind: Kind, sync: bool, flushed: bool) -> None:
    store = kind.open()
    rows = {key(number): bytes([number % 251]) * 8 for number in range(5000)}
    store.write([Put(*row) for row in rows.items()], sync=sync)
    if flushed:
        store.flush()
    again = kind.reopened()
    assert rows_of(again) == rows
    assert again.floor(key(4999) + b"x") == (key(4999), rows[key(4999)])
    assert again.below(key(7)) == (key(6), rows[key(6)])
    assert again.count_estimate() == 5000


def test_an_iteration_sees_what_was_there_when_it_began(kind: Kind) -> None:
    store = kind.open()
    store.write([Put(key(number), b"1") for number in range(10)], sync=True)
    seen = store.batches(rows_max=4)
    first = next(seen)
    store.write([DeleteRange(key(5), key(9)), Put(key(7), b"2"), Put(key(99), b"2")], sync=True)
    rest = [row for batch in seen for row in batch]
    assert [*first, *rest] == [(key(number), b"1") for number in range(10)]
    assert rows_of(store).keys() == {key(number) for number in (*range(5), 7, 9, 99)}


def write_file(kind: Kind, name: str, rows: Rows) -> str:
    writer = kind.file(name)
    writer.put_many(sorted(rows.items()))
    assert writer.finish() == len(rows)
    return str(kind.path / name)


def test_ingested_rows_win_over_older_ones(kind: Kind) -> None:
    store = kind.open()
    store.write([Put(key(number), b"written") for number in range(40)], sync=True)
    store.flush()
    store.write([Put(key(number), b"in memory") for number in range(30, 50)], sync=True)
    first = write_file(kind, "1.sst", {key(number): b"first" for number in range(10, 60)})
    second = write_file(kind, "2.sst", {key(number): b"second" for number in range(20, 70, 2)})
    store.ingest([first, second])
    expected = {
        key(number): b"second"
        if number >= 20 and number % 2 == 0
        else b"first"
        if 10 <= number < 60
        else b"written"
        for number in [*range(60), *range(60, 70, 2)]
    }
    assert rows_of(store) == expected
    assert not kind.has_file("1.sst")
    assert not kind.has_file("2.sst")
    store.compact()
    assert rows_of(kind.reopened()) == expected


def test_ingested_rows_lose_to_later_writes(kind: Kind) -> None:
    store = kind.open()
    store.ingest([write_file(kind, "1.sst", {key(1): b"file", key(2): b"file", key(3): b"file"})])
    store.write([Put(key(1), b"later"), DeleteRange(key(2), key(3))], sync=True)
    assert rows_of(store) == {key(1): b"later", key(3): b"file"}
    store.ingest([])


def test_an_ingest_that_fails_leaves_nothing(kind: Kind) -> None:
    store = kind.open()
    good = write_file(kind, "1.sst", {key(1): b"file"})
    with pytest.raises(BkctlError, match="none"):
        store.ingest([good, str(kind.path / "none.sst")])
    assert rows_of(store) == {}
    assert kind.has_file("1.sst")


def test_a_file_takes_rows_in_ascending_order_only(kind: Kind) -> None:
    writer = kind.file("1.sst")
    writer.put(b"a", b"1")
    writer.put_many(iter([(b"b", b"2"), (b"c", b"3")]))
    for wrong in (b"c", b"b"):
        with pytest.raises(ValueError, match="ascending"):
            writer.put(wrong, b"4")
    assert writer.finish() == 3
    with pytest.raises(StorageError, match="finished"):
        writer.put(b"d", b"4")
    writer.abort()
    assert kind.has_file("1.sst")
    store = kind.open()
    store.ingest([str(kind.path / "1.sst")])
    assert rows_of(store) == {b"a": b"1", b"b": b"2", b"c": b"3"}


def test_a_file_that_was_aborted_or_has_no_rows_is_not_there(kind: Kind) -> None:
    writer = kind.file("1.sst")
    writer.put(b"a", b"1")
    writer.abort()
    assert not kind.has_file("1.sst")
    assert kind.file("2.sst").finish() == 0
    assert not kind.has_file("2.sst")


def test_statistics_and_closing(kind: Kind) -> None:
    store = kind.open()
    store.write([Put(b"a", b"1"), Put(b"b", b"2")], sync=True)
    assert store.statistics().rows_estimate == 2
    assert store.statistics().memtable_rows == 2
    assert store.damage is None
    begun = store.batches(rows_max=1)
    next(begun)
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.get(b"a"),
        lambda: store.write([], sync=False),
        lambda: store.ingest([]),
        lambda: next(begun),
        store.flush,
        store.compact,
        store.statistics,
        store.tables,
    ]
    for call in calls:
        with pytest.raises(StorageError, match="closed"):
            call()


# ------------------------------------------------------------------------------------------ RocksDB only


def footer(path: Path) -> tuple[int, int, bytes]:
    """Checksum type, format version and magic of a table."""
    end = path.read_bytes()[-53:]
    return end[0], int.from_bytes(end[41:45], "little"), end[45:]


def options_of(directory: Path) -> dict[str, str]:
    newest = max(directory.glob("OPTIONS-*"), key=lambda path: int(path.name.split("-")[1]))
    return dict(re.findall(r"^\s*(\w+)=(.*)$", newest.read_text(), re.MULTILINE))


def assert_tables_are_of(profile: StoreProfile, tables: list[Path]) -> None:
    """What a Java bookie's tables say of themselves (formats.md: xxhash is 2, the magic block-based)."""
    assert tables
    for table in tables:
        assert footer(table) == (2, 5, bytes.fromhex("f7cff485b741e288"))
        content = table.read_bytes()
        assert b"leveldb.BytewiseComparator" in content
        assert (b"LZ4" in content) is profile.lz4
        assert (b"Snappy" in content) is not profile.lz4
        assert (b"fullfilter.rocksdb.BuiltinBloomFilter" in content) is bool(profile.bloom_bits_per_key)


MANY = [Put(key(number), b"a location"[:8]) for number in range(20_000)]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_tables_have_the_format_of_a_java_bookie(tmp_path: Path, profile: StoreProfile) -> None:
    with open_store(str(tmp_path / "db"), profile, create=True) as store:
        store.write(MANY, sync=True)
        store.flush()
        assert_tables_are_of(profile, list((tmp_path / "db").glob("*.sst")))
        writer = sorted_file_writer(str(tmp_path / "1.sst"), profile)
        writer.put_many((put.key, put.value) for put in MANY)
        assert writer.finish() == len(MANY)
        assert_tables_are_of(profile, [tmp_path / "1.sst"])
        store.ingest([str(tmp_path / "1.sst")])
        store.compact()
        assert_tables_are_of(profile, list((tmp_path / "db").glob("*.sst")))
        properties = store._property("aggregated-table-properties")
        filter_bytes = int(re.findall(r"filter block size=(\d+);", properties)[0])
        bits = profile.bloom_bits_per_key * len(MANY)
        assert bits <= filter_bytes * 8 <= bits * 1.05
    options = options_of(tmp_path / "db")
    assert options["block_size"] == str(profile.block_bytes)
    assert options["level_compaction_dynamic_level_bytes"] == str(profile.dynamic_level_bytes).lower()
    assert options["cache_index_and_filter_blocks"] == str(profile.cache_index_and_filter_blocks).lower()
    assert options["use_fsync"] == "false"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["db"]


@pytest.mark.corpora
@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_options_are_those_that_a_java_bookie_writes(
    tmp_path: Path, corpora: Callable[[str], Path], profile: StoreProfile
) -> None:
    """Compared one by one; what differs leaves no trace in tables, logs or the MANIFEST."""
    theirs = options_of(corpora("db") / "clean/bookie1/ledgers/current" / profile.name)
    open_store(str(tmp_path / "db"), profile, create=True).close()
    ours = options_of(tmp_path / "db")
    differing = {name for name in theirs if name in ours and ours[name] != theirs[name]}
    # Versions, pools and periods; defaults that RocksDB changed between 7.10 and 9.8.
    assert differing <= {
        "rocksdb_version", "max_background_jobs", "stats_persist_period_sec", "wal_recovery_mode",
        "delete_obsolete_files_period_micros", "compaction_readahead_size", "write_dbid_to_manifest",
        "create_if_missing", "max_manifest_file_size", "fail_if_options_file_error", "compression_opts",
        "bottommost_compression_opts", "compaction_options_fifo", "compaction_options_universal",
        "advise_random_on_open", "cache_index_and_filter_blocks_with_high_priority",
        "max_bytes_for_level_multiplier",
        "pin_top_level_index_and_filter", "filter_policy", "block_align", "optimize_filters_for_memory",
        "level0_slowdown_writes_trigger", "level0_stop_writes_trigger", "bgerror_resume_retry_interval",
        "db_host_id", "log_file_time_to_roll", "ttl", "max_open_files",
    }  # fmt: skip
    if profile.bloom_bits_per_key:
        assert ours["filter_policy"] == "bloomfilter"  # the C interface does not tell the bits
        assert theirs["filter_policy"].startswith("bloomfilter:10")


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_new_tables_of_an_existing_database_have_the_format_too(
    tmp_path: Path, profile: StoreProfile
) -> None:
    """The binding would take column-family options from the database's OPTIONS file (format 6, no filter)."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    family = rocksdict.Options(raw_mode=True)
    table = rocksdict.BlockBasedOptions()
    table.set_format_version(6)
    table.set_checksum_type(rocksdict.ChecksumType.crc32c())
    family.set_block_based_table_factory(table)
    family.set_compression_type(rocksdict.DBCompressionType.zstd())
    database = rocksdict.Rdict(str(tmp_path / "db"), options, column_families={"default": family})
    database[b"old"] = b"row"
    database.flush()
    database.close()
    old = set((tmp_path / "db").glob("*.sst"))
    assert {footer(path)[:2] for path in old} != {(2, 5)}
    with open_store(str(tmp_path / "db"), profile, create=False) as store:
        store.write(MANY, sync=True)
        store.flush()
        assert_tables_are_of(profile, [path for path in (tmp_path / "db").glob("*.sst") if path not in old])
        store.compact()
        assert_tables_are_of(profile, list((tmp_path / "db").glob("*.sst")))
        assert store.get(b"old") == b"row"


def test_never_creates_unless_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        open_store(str(tmp_path / "none"), LOCATIONS_PROFILE, create=False)
    assert not (tmp_path / "none").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorruptionError, match="CURRENT"):
        open_store(str(tmp_path / "empty"), LOCATIONS_PROFILE, create=False)
    assert not list((tmp_path / "empty").iterdir())
    open_store(str(tmp_path / "empty"), LOCATIONS_PROFILE, create=True).close()
    with pytest.raises(StorageError, match="none"):
        open_store(str(tmp_path / "none/below"), LOCATIONS_PROFILE, create=True)


def test_never_creates_over_tables_without_a_database(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True) as store:
        store.write(MANY, sync=True)
        store.flush()
    (tmp_path / "db/CURRENT").unlink()
    before = sorted(path.name for path in (tmp_path / "db").iterdir())
    with pytest.raises(CorruptionError, match="without CURRENT"):
        open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True)
    assert sorted(path.name for path in (tmp_path / "db").iterdir()) == before


HOLD = """
import sys
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
store = open_store(sys.argv[1], LOCATIONS_PROFILE, create=True)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has ``tmp_path / "db"`` open."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_refuses_a_database_that_another_process_holds(tmp_path: Path, held: subprocess.Popen[str]) -> None:
    before = sorted(path.name for path in (tmp_path / "db").iterdir())
    with pytest.raises(RefusedError, match=rf"db: in use by python\S* \(pid {held.pid}\)"):
        open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=False)
    assert sorted(path.name for path in (tmp_path / "db").iterdir()) == before
    held.kill()
    held.wait()
    open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=False).close()


def test_the_lock_is_found_without_proc_locks(
    tmp_path: Path, held: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_holder, "_pid_in_proc_locks", lambda *_: None)
    holder = lock_holder.lock_holder(str(tmp_path / "db/LOCK"))
    assert holder is not None
    assert holder.pid == held.pid
    monkeypatch.setattr(lock_holder, "_pid_by_getlk", lambda _: 0)
    with pytest.raises(RefusedError, match="in another container"):
        open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=False)


def test_refuses_a_second_open_in_this_process_and_keeps_the_lock(tmp_path: Path) -> None:
    """Looking at the lock must not drop it: closing a descriptor of a locked file would."""
    with open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True):
        for _ in range(2):
            with pytest.raises(RefusedError, match=str(os.getpid())):
                open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=False)
        assert f"WRITE {os.getpid()} " in Path("/proc/locks").read_text()
        assert lock_holder._pid_in_proc_locks(*identity(tmp_path / "db/LOCK")) == os.getpid()
    assert lock_holder.lock_holder(str(tmp_path / "db/LOCK")) is None
    assert lock_holder.lock_holder(str(tmp_path / "none")) is None


def identity(path: Path) -> tuple[int, int]:
    return path.stat().st_dev, path.stat().st_ino


def test_closing_gives_the_lock_back_in_the_middle_of_an_iteration(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True)
    store.write(MANY, sync=True)
    begun = store.batches(rows_max=10)
    next(begun)
    store.close()
    open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=False).close()


def test_leaves_no_file_of_the_binding(tmp_path: Path) -> None:
    stray = tmp_path / "db/rocksdict-config.json"
    with open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True) as store:
        assert not stray.exists()
        store.write(MANY, sync=True)
    assert not stray.exists()


def test_a_kill_loses_nothing_that_was_synced(tmp_path: Path) -> None:
    program = HOLD.replace(
        'print("held"',
        "from bkctl.kvstore.base import Put\nstore.write([Put(b'k', b'v')], sync=True)\nprint('x'",
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "db")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    with open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=False) as store:
        assert dict(store.iterate()) == {b"k": b"v"}


@pytest.mark.parametrize("noted", [True, False])
def test_a_damaged_write_ahead_log_fails_the_open(tmp_path: Path, noted: bool) -> None:
    """Java and older bookies keep no note of what was synced: all of it is held for synced then."""
    store = open_store(str(tmp_path / "live"), LOCATIONS_PROFILE, create=True)
    for put in MANY[:2000]:
        store.write([put], sync=False)
    store.write([], sync=True)
    store.note_synced()
    shutil.copytree(tmp_path / "live", tmp_path / "db")
    store.close()
    if not noted:
        (tmp_path / "db" / synced_log.NAME).unlink()
    (log,) = (path for path in (tmp_path / "db").glob("*.log") if path.stat().st_size)
    with log.open("r+b") as file:
        file.seek(log.stat().st_size // 2)
        file.write(b"\xff" * 40)
    with pytest.raises(CorruptionError):
        open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=False)


def test_a_read_only_open_has_the_same_statistics(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True) as store:
        store.write(MANY, sync=True)
        store.write([Delete(MANY[3].key), DeleteRange(MANY[100].key, MANY[200].key)], sync=True)
        store.flush()
        ours = store.statistics()
        reader = rocksdb.open_read_only(str(tmp_path / "db"))
        assert reader.statistics() == ours
        assert reader.tables() == store.tables()
        reader.close()
    assert (ours.point_tombstones, ours.range_tombstones, ours.files, ours.memtable_rows) == (1, 1, 1, 0)
    assert ours.bytes == sum(path.stat().st_size for path in (tmp_path / "db").glob("*.sst"))
    with open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=False) as store:
        store.compact()
        compacted = store.statistics()
        assert (compacted.point_tombstones, compacted.range_tombstones) == (0, 0)
        assert compacted.rows_estimate == len(MANY) - 101
        (table,) = store.tables()
        assert (table.start, table.last) == (MANY[0].key, MANY[-1].key)


def test_compacting_a_range_leaves_the_rest_alone(tmp_path: Path) -> None:
    profile = replace(LOCATIONS_PROFILE, level0_files_trigger=100)
    with open_store(str(tmp_path / "db"), profile, create=True) as store:
        for half in (MANY[:10_000], MANY[10_000:]):
            store.write(half, sync=True)
            store.flush()
        before = {table.start: table.name for table in store.tables()}
        store.compact(MANY[0].key, MANY[5].key)
        after = {table.start: table.name for table in store.tables()}
        assert after[MANY[10_000].key] == before[MANY[10_000].key]
        assert after[MANY[0].key] != before[MANY[0].key]


def test_ingest_moves_and_does_not_copy(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True) as store:
        writer = sorted_file_writer(str(tmp_path / "1.sst"), LOCATIONS_PROFILE)
        rows: list[Row] = [(put.key, put.value) for put in MANY]
        writer.put_many(rows)
        writer.finish()
        inode = (tmp_path / "1.sst").stat().st_ino
        store.ingest([str(tmp_path / "1.sst")])
        assert inode in {path.stat().st_ino for path in (tmp_path / "db").glob("*.sst")}


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="none"):
        sorted_file_writer(str(tmp_path / "none/1.sst"), LOCATIONS_PROFILE)


def test_a_failed_directory_sync_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(rocksdb_store, "_sync_directory", fail)
    with pytest.raises(StorageError, match="Input/output error"):
        open_store(str(tmp_path / "db"), LOCATIONS_PROFILE, create=True)
    writer = sorted_file_writer(str(tmp_path / "1.sst"), LOCATIONS_PROFILE)
    writer.put(b"a", b"1")
    with pytest.raises(StorageError, match="Input/output error"):
        writer.finish()


def test_a_store_knows_whether_it_was_ever_written_to(kind: Kind) -> None:
    store = kind.open()
    assert store.never_written
    store.write([], sync=True)
    assert store.never_written
    store.write([Delete(key(1))], sync=True)
    assert not store.never_written


def test_rows_that_were_deleted_leave_a_store_that_was_written_to(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    with open_store(path, LOCATIONS_PROFILE, create=True) as store:
        store.write([Put(key(1), b"1")], sync=True)
        store.flush()
        store.write([DeleteRange(key(0), key(9))], sync=True)
        store.flush()
        store.compact()
    with open_store(path, LOCATIONS_PROFILE, create=False) as store:
        assert rows_of(store) == {}
        assert not store.never_written
    reader = rocksdb.open_read_only(path)
    assert not reader.never_written
    reader.close()


def test_ingested_tables_make_a_store_that_was_written_to(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    writer = sorted_file_writer(str(tmp_path / "rows.sst"), LOCATIONS_PROFILE)
    writer.put(key(1), b"1")
    writer.finish()
    with open_store(path, LOCATIONS_PROFILE, create=True) as store:
        store.ingest([str(tmp_path / "rows.sst")])
        assert not store.never_written
