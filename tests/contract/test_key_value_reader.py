"""One behaviour suite over every KeyValueReader, then what only RocksDB can get wrong."""

from __future__ import annotations

import gc
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import rocksdict

from bkctl.errors import CorruptionError, NotFoundError, StorageError
from bkctl.kvstore import rocksdb
from bkctl.kvstore.base import KeyValueReader, key_range
from bkctl.kvstore.memory import MemoryReader

Rows = dict[bytes, bytes]
Opener = Callable[[Rows], KeyValueReader]


def family() -> rocksdict.Options:
    options = rocksdict.Options(raw_mode=True)
    table = rocksdict.BlockBasedOptions()
    table.set_format_version(5)
    table.set_checksum_type(rocksdict.ChecksumType.xxhash())
    options.set_block_based_table_factory(table)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    return options


def writer(path: Path) -> rocksdict.Rdict:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    return rocksdict.Rdict(str(path), options, column_families={"default": family()})


def build(path: Path, rows: Rows, *, flush: bool = True) -> None:
    database = writer(path)
    for key, value in rows.items():
        database[key] = value
    if flush:
        database.flush()
    database.close()


def logged_copy(path: Path, rows: Rows, copy: Path) -> None:
    """A database whose rows are only in its write-ahead log, as a kill leaves it."""
    database = writer(path)
    for key, value in rows.items():
        database[key] = value
    database.flush_wal(True)
    shutil.copytree(path, copy)
    database.close()


def listing(path: Path) -> list[tuple[str, int, int]]:
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in path.iterdir()]
    return [*sorted(facts), (".", 0, path.stat().st_mtime_ns)]


def farms() -> set[str]:
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("bkctl-rocksdb-")}


@pytest.fixture(autouse=True)
def own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@pytest.fixture(params=["memory", "rocksdb tables", "rocksdb log"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    readers: list[KeyValueReader] = []

    def open_rows(rows: Rows) -> KeyValueReader:
        reader: KeyValueReader
        if request.param == "memory":
            reader = MemoryReader(rows)
        elif request.param == "rocksdb tables":
            build(tmp_path / "tables", rows)
            reader = rocksdb.open_read_only(str(tmp_path / "tables"))
        else:
            logged_copy(tmp_path / "live", rows, tmp_path / "killed")
            reader = rocksdb.open_read_only(str(tmp_path / "killed"))
        readers.append(reader)
        return reader

    yield open_rows
    for reader in readers:
        reader.close()


ROWS = {bytes([a, b]): bytes([b, a]) for a in (0, 5, 0x7F, 0x80, 0xFF) for b in (0, 1, 0xFF)}


def test_get(opened: Opener) -> None:
    reader = opened({**ROWS, b"": b"empty key", b"k": b""})
    assert reader.get(b"\x05\x01") == b"\x01\x05"
    assert reader.get(b"") == b"empty key"
    assert reader.get(b"k") == b""
    assert reader.get(b"\x05") is None
    assert reader.get(b"\x05\x01\x00") is None


def test_get_many_answers_in_the_order_of_the_keys(opened: Opener) -> None:
    reader = opened({**ROWS, b"": b"empty key", b"k": b""})
    keys = [b"k", b"\x05", b"\x05\x01", b"", b"\x05\x01", b"\xff\xff\xff"]
    expected = [b"", None, b"\x01\x05", b"empty key", b"\x01\x05", None]
    assert reader.get_many(keys) == expected == reader.get_many(tuple(keys))
    assert reader.get_many([]) == []
    assert reader.get_many(sorted(ROWS, reverse=True)) == [ROWS[key] for key in sorted(ROWS, reverse=True)]


@pytest.mark.parametrize(
    ("start", "stop", "prefix"),
    [
        (None, None, None),
        (b"\x05\x01", None, None),
        (None, b"\x05\x01", None),
        (b"\x05\x00\x00", b"\x80\x01", None),
        (b"\x05\x01", b"\x05\x01", None),
        (b"\x80", b"\x05", None),
        (None, None, b"\x05"),
        (None, None, b"\xff"),
        (None, None, b"\x06"),
        (None, None, b"\xff\xff"),
        (b"\x05\x01", None, b"\x05"),
        (b"\x05\x00", b"\x05\x01", b"\x05"),
        (b"\x80", None, b"\x05"),
    ],
)
@pytest.mark.parametrize("rows_max", [1, 2, 3, 100])
def test_ranges(
    opened: Opener, start: bytes | None, stop: bytes | None, prefix: bytes | None, rows_max: int
) -> None:
    reader = opened(ROWS)
    expected = [
        (key, value)
        for key, value in sorted(ROWS.items())
        if (start is None or key >= start) and (stop is None or key < stop) and key.startswith(prefix or b"")
    ]
    batches = list(reader.batches(start, stop, prefix=prefix, rows_max=rows_max))
    assert [row for batch in batches for row in batch] == expected
    assert all(0 < len(batch) <= rows_max for batch in batches)
    assert list(reader.iterate(start, stop, prefix=prefix)) == expected


def test_floor_and_below(opened: Opener) -> None:
    reader = opened(ROWS)
    keys = sorted(ROWS)
    for key in [*keys, b"", b"\x05\x00\x07", b"\x06", b"\xff\xff\xff"]:
        at_most = [candidate for candidate in keys if candidate <= key]
        less = [candidate for candidate in keys if candidate < key]
        assert reader.floor(key) == ((at_most[-1], ROWS[at_most[-1]]) if at_most else None)
        assert reader.below(key) == ((less[-1], ROWS[less[-1]]) if less else None)


def test_below_with_a_start(opened: Opener) -> None:
    reader = opened(ROWS)
    keys = sorted(ROWS)
    borders = [*keys, b"", b"\x05\x00\x07", b"\x06", b"\xff\xff\xff"]
    for start in borders:
        for key in borders:
            less = [candidate for candidate in keys if start <= candidate < key]
            assert reader.below(key, start=start) == ((less[-1], ROWS[less[-1]]) if less else None)


def test_empty(opened: Opener) -> None:
    reader = opened({})
    assert list(reader.batches()) == []
    assert reader.get(b"x") is None
    assert reader.floor(b"x") is None
    assert reader.count_estimate() == 0


def test_count_estimate_and_damage(opened: Opener) -> None:
    reader = opened(ROWS)
    assert reader.count_estimate() == len(ROWS)
    assert reader.damage is None


def test_closed(opened: Opener) -> None:
    reader = opened(ROWS)
    begun = reader.batches(rows_max=1)
    next(begun)
    reader.close()
    reader.close()
    calls: list[Callable[[], object]] = [
        lambda: reader.get(b"x"),
        lambda: reader.get_many([b"x"]),
        lambda: reader.floor(b"x"),
        lambda: reader.below(b"x"),
        lambda: reader.below(b"x", start=b"a"),
        lambda: list(reader.batches()),
        lambda: next(begun),
        reader.count_estimate,
    ]
    for call in calls:
        with pytest.raises(StorageError, match="closed"):
            call()


def test_key_range() -> None:
    assert key_range(b"a", b"b", None) == (b"a", b"b")
    assert key_range(None, None, b"a\xff") == (b"a\xff", b"b")
    assert key_range(None, None, b"\xff") == (b"\xff", None)


# ------------------------------------------------------------------------------------------ RocksDB only

MANY = {key.to_bytes(8, "big"): random.Random(key).randbytes(16) for key in range(20_000)}


def test_leaves_no_trace(tmp_path: Path) -> None:
    build(tmp_path / "db", MANY)
    (tmp_path / "db" / "rocksdict-config.json").unlink()
    before = listing(tmp_path / "db")
    reader = rocksdb.open_read_only(str(tmp_path / "db"))
    assert len(farms()) == 1
    assert sum(map(len, reader.batches())) == len(MANY)
    reader.close()
    assert listing(tmp_path / "db") == before
    assert farms() == set()


def test_farm_goes_when_reader_is_forgotten(tmp_path: Path) -> None:
    build(tmp_path / "db", ROWS)
    rocksdb.open_read_only(str(tmp_path / "db"))
    gc.collect()
    assert farms() == set()


def test_farm_goes_at_interpreter_exit(tmp_path: Path) -> None:
    build(tmp_path / "db", ROWS)
    program = (
        "import sys; from bkctl.kvstore.rocksdb import open_read_only;"
        "reader = open_read_only(sys.argv[1]); rows = reader.iterate(); next(rows)"
    )
    environment = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "db")], check=True, env=environment)
    assert farms() == set()


def test_beside_a_writer_that_holds_the_lock(tmp_path: Path) -> None:
    database = writer(tmp_path / "db")
    database[b"flushed"] = b"1"
    database.flush()
    database[b"logged"] = b"2"
    reader = rocksdb.open_read_only(str(tmp_path / "db"))
    database[b"later"] = b"3"
    assert dict(reader.iterate()) == {b"flushed": b"1", b"logged": b"2"}
    database.close()
    reader.close()


def test_tables_deleted_after_the_open_stay_readable(tmp_path: Path) -> None:
    build(tmp_path / "db", MANY)
    reader = rocksdb.open_read_only(str(tmp_path / "db"))
    shutil.rmtree(tmp_path / "db")
    assert dict(reader.iterate()) == MANY
    assert reader.get((7).to_bytes(8, "big")) == MANY[(7).to_bytes(8, "big")]
    reader.close()


def test_starts_again_when_the_database_moved_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = writer(tmp_path / "db")
    for number in range(4):
        database[b"key %d" % number] = b"value"
        database.flush()
    database[b"logged"] = b"value"
    attempts = 0
    original = rocksdb._open_farm

    def move_on_first(*arguments: object) -> object:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            # The farm is made; now its log is flushed into a table it does not know, and deleted.
            database.flush()
            database.compact_range(None, None)
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(rocksdb, "_open_farm", move_on_first)
    reader = rocksdb.open_read_only(str(tmp_path / "db"))
    assert attempts == 2
    assert len(list(reader.iterate())) == 5
    reader.close()
    database.close()
    assert farms() == set()


def test_a_log_deleted_behind_the_manifest_copy_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB would take the log for flushed, and the copied MANIFEST does not know the table it became."""
    database = writer(tmp_path / "db")
    database[b"logged"] = b"value"
    original = rocksdb._read
    manifests = 0

    def flush_behind_manifest(directory: str, path: str) -> bytes:
        nonlocal manifests
        content = original(directory, path)
        if "MANIFEST" in path:
            manifests += 1
            if manifests == 1:
                database.flush()
        return content

    monkeypatch.setattr(rocksdb, "_read", flush_behind_manifest)
    reader = rocksdb.open_read_only(str(tmp_path / "db"))
    assert manifests == 2
    assert list(reader.iterate()) == [(b"logged", b"value")]
    reader.close()
    database.close()


def test_gives_up_when_it_never_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path / "db", ROWS)
    original = rocksdb._open_farm
    (tmp_path / "db" / "0.log").touch()

    def rename_a_log(*arguments: object) -> object:
        for old in (tmp_path / "db").glob("*.log"):
            old.rename(old.with_name(f"9{old.name}"))
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(rocksdb, "_open_farm", rename_a_log)
    monkeypatch.setattr(rocksdb, "RETRY_WAIT_S", 0)
    with pytest.raises(StorageError, match="changed during each"):
        rocksdb.open_read_only(str(tmp_path / "db"))
    assert farms() == set()


def test_beside_a_writer_that_flushes_and_compacts(tmp_path: Path) -> None:
    database = writer(tmp_path / "db")
    database[b"first"] = b"0"
    written = 0
    done = threading.Event()

    def churn() -> None:
        nonlocal written
        while not done.is_set():
            database[b"%08d" % written] = bytes(64)
            written += 1
            if written % 50 == 0:
                database.flush()
                # A hundred times a second: beside a loop, which no bookie is, no attempt may succeed.
                done.wait(0.01)
            if written % 200 == 0:
                database.compact_range(None, None)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(30):
            surely = written
            reader = rocksdb.open_read_only(str(tmp_path / "db"))
            keys = [key for key, _ in reader.iterate()]
            reader.close()
            # A prefix of what was written, without holes, and no less than was there before the open.
            assert keys == [b"%08d" % number for number in range(len(keys) - 1)] + [b"first"]
            assert len(keys) > surely
    finally:
        done.set()
        thread.join()
        database.close()


def test_a_bad_block_is_not_the_end(tmp_path: Path) -> None:
    build(tmp_path / "db", MANY)
    (table,) = (tmp_path / "db").glob("*.sst")
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 0xFF
    table.write_bytes(content)
    reader = rocksdb.open_read_only(str(tmp_path / "db"))
    rows: list[tuple[bytes, bytes]] = []
    with pytest.raises(CorruptionError, match="checksum") as caught:
        rows.extend(reader.iterate())
    seen = len(rows)
    assert 0 < seen < len(MANY)
    assert caught.value.path == str(tmp_path / "db")
    assert "bkctl-rocksdb-" not in str(caught.value)
    failures = 0
    for key in MANY:
        try:
            assert reader.get(key) == MANY[key]
        except CorruptionError:
            failures += 1
    assert failures
    with pytest.raises(CorruptionError, match="checksum"):
        reader.get_many(list(MANY))
    last_before = seen - 1
    with pytest.raises(CorruptionError):
        reader.floor((last_before + 2).to_bytes(8, "big"))
    reader.close()


def damage_log(path: Path, at: float, content: bytes) -> None:
    (log,) = path.glob("*.log")
    with log.open("r+b") as file:
        file.seek(int(log.stat().st_size * at))
        file.write(content)


def test_damaged_log_is_read_up_to_the_damage_and_said(tmp_path: Path) -> None:
    logged_copy(tmp_path / "live", MANY, tmp_path / "db")
    damage_log(tmp_path / "db", 0.5, b"\xff" * 40)
    reader = rocksdb.open_read_only(str(tmp_path / "db"))
    assert reader.damage is not None
    assert "write-ahead log" in reader.damage
    rows = dict(reader.iterate())
    assert 0 < len(rows) < len(MANY)
    assert rows.items() <= MANY.items()
    reader.close()


def test_torn_log_is_no_damage(tmp_path: Path) -> None:
    logged_copy(tmp_path / "live", MANY, tmp_path / "db")
    (log,) = (tmp_path / "db").glob("*.log")
    os.truncate(log, log.stat().st_size - 7)
    reader = rocksdb.open_read_only(str(tmp_path / "db"))
    assert reader.damage is None
    assert len(list(reader.iterate())) == len(MANY) - 1
    reader.close()


def remove(pattern: str) -> Callable[[Path], None]:
    return lambda path: next(path.glob(pattern)).unlink()


@pytest.mark.parametrize(
    "harm",
    [
        remove("CURRENT"),
        remove("MANIFEST-*"),
        remove("*.sst"),
        lambda path: (path / "CURRENT").write_bytes(b""),
        lambda path: (path / "CURRENT").write_bytes(b"MANIFEST-../../x\n"),
        lambda path: next(path.glob("MANIFEST-*")).write_bytes(b"x" * 100),
        lambda path: os.truncate(next(path.glob("*.sst")), 100),
    ],
)
def test_damaged_databases_are_corruption(tmp_path: Path, harm: Callable[[Path], object]) -> None:
    build(tmp_path / "db", MANY)
    harm(tmp_path / "db")
    with pytest.raises(CorruptionError) as caught:
        rocksdb.open_read_only(str(tmp_path / "db"))
    assert caught.value.path == str(tmp_path / "db")
    assert farms() == set()


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST", "IDENTITY"])
@pytest.mark.parametrize("kind", ["fifo", "link to a device", "link to a file"])
def test_a_database_of_somebody_else_cannot_make_a_command_wait_or_read_elsewhere(
    tmp_path: Path, name: str, kind: str
) -> None:
    build(tmp_path / "db", ROWS)
    [path] = (tmp_path / "db").glob(f"{name}*")
    content = path.read_bytes()
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    else:
        (tmp_path / "elsewhere").write_bytes(content)
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=f"{name}.*not a regular file"):
        rocksdb.open_read_only(str(tmp_path / "db"))
    assert farms() == set()


def test_other_failures(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        rocksdb.open_read_only(str(tmp_path / "none"))
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        rocksdb.open_read_only(str(tmp_path / "file"))
    build(tmp_path / "db", ROWS)
    (tmp_path / "db" / "CURRENT").unlink()
    (tmp_path / "db" / "CURRENT").mkdir()
    with pytest.raises(StorageError, match="CURRENT"):
        rocksdb.open_read_only(str(tmp_path / "db"))


def test_few_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path / "db", MANY)
    for soft, expected in ((1024, -1), (257, rocksdb.OPEN_FILES_MIN), (resource.RLIM_INFINITY, -1)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert rocksdb._open_files_max(2) == expected
        reader = rocksdb.open_read_only(str(tmp_path / "db"))
        assert len(list(reader.iterate())) == len(MANY)
        reader.close()
