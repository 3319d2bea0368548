"""Rebuilds of small directories that the codecs made: proof, resumption, swaps, damage, ledger rows."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.admin.index.rebuild import (
    db_rebuild,
    idx_rebuild,
    idx_swap,
    log_scan,
    run_merging,
    swap,
    verification,
)
from bkctl.admin.index.rebuild.state import WorkDirectory, read_json
from bkctl.client.ops.create import NewLedger
from bkctl.codec.cookie import Cookie, encode_cookie
from bkctl.codec.digest import master_key
from bkctl.codec.file_info import FENCED, LIMBO, FileInfoHeader, encode_header, encode_slots, index_path
from bkctl.codec.journal import explicit_lac_record, fence_record, master_key_record
from bkctl.codec.ledger_data import LedgerData, decode_ledger_data, encode_ledger_data, encode_ledger_key
from bkctl.codec.location import Location, encode_key, encode_value
from bkctl.errors import RefusedError, StorageError
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb import open_read_only
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.uri import open_metadata_store
from bkctl.types import DigestType
from tests.support.log_builder import CRC32C, Built, EntryLogBuilder, JournalBuilder, entry_body

Cli = Callable[..., Any]
Rows = dict[tuple[int, int], tuple[int, int]]
#: Of the password that the tests give to ledgers in metadata.
KEY = master_key(b"pw")
METADATA = NewLedger(1, 1, 1, DigestType.CRC32C, b"pw").metadata(("bookie:3181",))
LAC = bytes(20)


def log(*entries: tuple[int, int], rolled: bool = True) -> Built:
    builder = EntryLogBuilder()
    for ledger, entry in entries:
        builder.add(entry_body(ledger, entry, b"payload" * (entry % 5 + 1), CRC32C))
    return builder.roll() if rolled else builder.build()


class Bookie:
    """A folder with ``journal/current`` and ``ledgers/current``."""

    def __init__(self, root: Path, instance_id: str | None = None) -> None:
        self.root = root
        self.current = root / "ledgers/current"
        self.current.mkdir(parents=True)
        cookie = Cookie(5, "bookie:3181", "/data/j", f"1\t{root / 'ledgers'}", instance_id)
        (self.current / "VERSION").write_bytes(encode_cookie(cookie))
        self.logs: dict[int, Built] = {}

    def add(self, log_id: int, built: Built) -> None:
        self.logs[log_id] = built
        (self.current / f"{log_id:x}.log").write_bytes(built.data)

    def ledgers(self, rows: dict[bytes, bytes]) -> None:
        with open_store(str(self.current / "ledgers"), LEDGERS_PROFILE, create=True) as store:
            store.write([Put(key, value) for key, value in rows.items()], sync=True)

    def locations(self, rows: Rows) -> None:
        with open_store(str(self.current / "locations"), LOCATIONS_PROFILE, create=True) as store:
            puts = [Put(encode_key(*key), encode_value(Location(*place))) for key, place in rows.items()]
            store.write(puts, sync=True)

    def journal(self, *records: Any) -> None:
        builder = JournalBuilder()
        for record in records:
            builder.special(record)
        builder.flush()
        folder = self.root / "journal/current"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "1.txn").write_bytes(builder.build().data)

    def expected(self, *ledgers: int) -> Rows:
        """What an index of these ledgers must hold."""
        return {
            (entry.ledger, entry.entry): (log_id, entry.offset + 4)
            for log_id in sorted(self.logs)
            for entry in self.logs[log_id].entries
            if entry.ledger in ledgers
        }

    def ledger_rows(self) -> dict[bytes, bytes]:
        store = open_read_only(str(self.current / "ledgers"))
        try:
            return dict(store.iterate())
        finally:
            store.close()

    def data(self, ledger: int) -> LedgerData:
        return decode_ledger_data(self.ledger_rows()[encode_ledger_key(ledger)])

    def leftovers(self) -> list[str]:
        return sorted(path.name for path in self.current.iterdir() if "bkctl-rebuild" in path.name)


@pytest.mark.usefixtures("alone")
def test_rows_of_no_ledger_that_can_be_told_are_not_no_ledgers(
    bookie: Bookie, rebuild: Any, found: Any, run_cli: Cli
) -> None:
    """The two databases under each other's names: without distrust every entry would count as deleted."""
    shutil.rmtree(bookie.current / "ledgers")
    bookie.ledgers({encode_key(1, 1): encode_value(Location(0, 9999))})
    refused = run_cli("index", "rebuild", bookie.root, "--locations", "--yes")
    assert_refused(refused, "ledgers: row 00000000000000010000000000000001: ")
    answer = rebuild(bookie)
    assert found(bookie) == bookie.expected(1, 2, 3)
    assert all(bookie.data(ledger).fenced for ledger in (1, 2, 3))
    details = [difference["detail"] for difference in answer["differences"]]
    assert any("old ledger rows not relied on: row 0000" in detail for detail in details)


@pytest.mark.usefixtures("alone")
def test_a_row_under_a_long_key_that_does_not_decode_is_its_ledgers(bookie: Bookie, rebuild: Any) -> None:
    shutil.rmtree(bookie.current / "ledgers")
    first, second = (encode_ledger_key(ledger) for ledger in (1, 2))
    bookie.ledgers({first: row(), first + bytes(8): b"\xff", second + bytes(8): b"\xff", b"\xff" * 8: b""})
    rebuild(bookie, "--ledgers")
    assert bookie.ledger_rows()[first] == row()
    assert bookie.data(2).fenced
    assert len(bookie.ledger_rows()) == 2


def row(fenced: bool = False, **more: Any) -> bytes:
    return encode_ledger_data(LedgerData(fenced, KEY, **more))


@pytest.fixture(autouse=True)
def cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[MetadataStore]:
    """The cluster has ledgers 1, 2 and 7; 3 was deleted. Commands ask it unless a test forgets the URI."""
    uri = f"memory://{request.node.name}"
    with open_metadata_store(uri) as store:
        store.layout.initialise_cluster()
        for _ in range(10):
            store.ledgers.new_ledger_id()
        for ledger in (1, 2, 7):
            store.ledgers.create_ledger(ledger, METADATA)
        monkeypatch.setenv("BKCTL_METADATA_URI", uri)
        yield store


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tells which ledgers there are."""
    monkeypatch.delenv("BKCTL_METADATA_URI")


@pytest.fixture
def bookie(tmp_path: Path, cluster: MetadataStore) -> Bookie:
    made = Bookie(tmp_path / "bookie", cluster.layout.instance_id())
    made.add(0, log((1, 0), (2, 0), (1, 1), (3, 0), (3, 1)))
    made.add(10, log((1, 1), (2, 1), (1, 2), (1, 2), rolled=False))
    made.add(11, log((2, 2), (2, 3), (2, 4), (2, 5)))
    made.ledgers({encode_ledger_key(1): row(), encode_ledger_key(2): row(True, explicit_lac=LAC)})
    made.locations({(1, 0): (0, 9999)})
    return made


@pytest.fixture
def rebuild(run_cli: Cli) -> Callable[..., Any]:
    def run(bookie: Bookie, *options: str, code: int | None = None) -> Any:
        result = run_cli("index", "rebuild", bookie.root, "--yes", "-o", "json", *options)
        answer = json.loads(result.stdout) if result.stdout else result.stderr
        kinds = {d["kind"] for d in answer["differences"]}
        alarming = kinds - {"rebuilt_key_collapsed", "explicit_lac_from_journal", "note"}
        expected = 3 if "not_proved" in kinds else int(bool(alarming))
        assert result.exit_code == (expected if code is None else code), result
        return answer

    return run


@pytest.fixture
def found(run_cli: Cli) -> Callable[[Bookie], Rows]:
    def read(bookie: Bookie) -> Rows:
        result = run_cli("index", "scan", bookie.root, "-o", "json")
        assert result.exit_code == 0, result
        rows = json.loads(result.stdout)
        return {(r["ledger"], r["entry"]): (r["log_id"], r["offset"]) for r in rows}

    return read


def damage(bookie: Bookie, log_id: int, ledger: int, entry: int) -> None:
    """Flip a byte of an entry's payload."""
    built = next(e for e in bookie.logs[log_id].entries if (e.ledger, e.entry) == (ledger, entry))
    data = bytearray(bookie.logs[log_id].data)
    data[built.end - 1] ^= 1
    (bookie.current / f"{log_id:x}.log").write_bytes(data)


def assert_refused(result: Any, text: str) -> None:
    assert result.exit_code == 4, result
    assert text in result.stderr


# --- locations ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_locations_are_those_of_live_entries_and_the_last_copy_wins(
    bookie: Bookie, rebuild: Any, found: Any, jobs: str
) -> None:
    answer = rebuild(bookie, "--jobs", jobs)
    assert found(bookie) == bookie.expected(1, 2)
    assert (answer["rows"], answer["ledgers"], answer["differences"]) == (9, 2, [])
    assert len(answer["backup"]) == 2
    assert all(Path(path).is_dir() for path in answer["backup"])
    assert bookie.leftovers() == []
    assert not list(bookie.current.rglob("rocksdict-config.json"))


def test_old_indexes_are_dropped_at_once_or_later(
    bookie: Bookie, rebuild: Any, found: Any, run_cli: Cli
) -> None:
    assert rebuild(bookie, "--all", "--drop-old")["backup"] == []
    assert not list(bookie.current.glob("*BACKUP*"))
    rebuild(bookie)
    foreign = bookie.current / "locations.BACKUP-2026-11-21T12:01:34.525+0000"
    foreign.mkdir()
    assert len(list(bookie.current.glob("*BACKUP*"))) == 3
    assert run_cli("index", "rebuild", bookie.root, "--drop-old", "--yes").exit_code == 0
    assert list(bookie.current.glob("*BACKUP*")) == [foreign]
    assert found(bookie) == bookie.expected(1, 2)


def test_a_dry_run_changes_nothing(bookie: Bookie, rebuild: Any) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in bookie.root.rglob("*"))
    assert rebuild(bookie, "--dry-run")["rows"] is None
    assert sorted((path, path.stat().st_mtime_ns) for path in bookie.root.rglob("*")) == before


def test_without_yes_nothing_is_done(bookie: Bookie, run_cli: Cli) -> None:
    assert_refused(run_cli("index", "rebuild", bookie.root), "--yes")


def test_locations_alone_need_readable_ledger_rows(bookie: Bookie, run_cli: Cli) -> None:
    shutil.rmtree(bookie.current / "ledgers")
    assert_refused(run_cli("index", "rebuild", bookie.root, "--locations", "--yes"), "--all")


def test_a_held_database_is_refused(bookie: Bookie, run_cli: Cli) -> None:
    import subprocess
    import sys

    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(bookie.current / "locations")],
        stdout=subprocess.PIPE,
        stdin=-1,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert_refused(run_cli("index", "rebuild", bookie.root, "--yes"), str(holder.pid))
    finally:
        holder.communicate("")
    assert bookie.leftovers() == []


HOLD = """
import sys
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.kvstore.profile import LOCATIONS_PROFILE
store = open_store(sys.argv[1], LOCATIONS_PROFILE, create=False)
print("held", flush=True)
sys.stdin.read()
store.close()
"""


# --- verification -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["offset", "entry", "missing"])
def test_verification_catches_a_row_that_is_wrong(
    bookie: Bookie, run_cli: Cli, found: Any, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    original = db_rebuild.build_locations

    def sabotage(work: Any, *arguments: Any) -> Any:
        tables = original(work, *arguments)
        with open_store(work.at("database"), LOCATIONS_PROFILE, create=False) as store:
            key = encode_key(2, 3)
            value = store.get(key)
            assert value is not None
            if change == "offset":
                store.write([Put(key, value[:-1] + bytes([value[-1] + 1]))], sync=True)
            elif change == "entry":
                store.write([Put(encode_key(2, 99), value)], sync=True)
            else:
                from bkctl.kvstore.base import Delete

                store.write([Delete(key)], sync=True)
        return tables

    monkeypatch.setattr(db_rebuild, "build_locations", sabotage)
    result = run_cli("index", "rebuild", bookie.root, "--yes", "--jobs", "1")
    assert result.exit_code == 7
    assert "new locations" in result.stderr
    assert found(bookie) == {(1, 0): (0, 9999)}  # the old index is in place
    monkeypatch.setattr(db_rebuild, "build_locations", original)
    assert run_cli("index", "rebuild", bookie.root, "--yes").exit_code == 0
    assert found(bookie) == bookie.expected(1, 2)


# --- resumption ---------------------------------------------------------------------------------------------


def test_a_rerun_reads_only_logs_that_changed(
    bookie: Bookie, run_cli: Cli, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = log_scan._read_clean

    def noting(task: Any, *arguments: Any) -> Any:
        read.append(task.log.log_id)
        return original(task, *arguments)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log_scan, "_read_clean", noting)
    with monkeypatch.context() as patch:
        patch.setattr(db_rebuild, "build_locations", stop)
        run_cli("index", "rebuild", bookie.root, "--yes")
    assert sorted(read) == [0, 10, 11]
    bookie.add(11, log((2, 2), (2, 3)))
    run = next((bookie.current / "locations.bkctl-rebuild/logs").glob("a-*.run"))
    run.write_bytes(run.read_bytes()[:-1] + b"\xff")
    read.clear()
    assert run_cli("index", "rebuild", bookie.root, "--yes").exit_code == 0
    assert sorted(read) == [10, 11]
    assert found(bookie) == bookie.expected(1, 2)


@pytest.mark.parametrize("unsupported", [False, True])
@pytest.mark.parametrize("stop_after", range(8))
def test_a_stop_at_any_step_of_the_swap_leaves_an_index_and_the_rerun_ends(
    bookie: Bookie,
    run_cli: Cli,
    found: Any,
    monkeypatch: pytest.MonkeyPatch,
    stop_after: int,
    unsupported: bool,
) -> None:
    steps = 0

    class StoppedError(Exception):
        pass

    def counted(call: Any) -> Any:
        def step(*arguments: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps > stop_after:
                raise StoppedError
            return call(*arguments)

        return step

    if unsupported:
        monkeypatch.setattr(swap, "_exchange_names", lambda *_: False)
    with monkeypatch.context() as patch:
        for name in ("sync_directory", "write_json", "_exchange_names"):
            patch.setattr(swap, name, counted(getattr(swap, name)))
        stopped = run_cli("index", "rebuild", bookie.root, "--yes", "--locations", "--jobs", "1")
    assert stopped.exit_code == (7 if steps > stop_after else 0)
    if not (unsupported and not (bookie.current / "locations").exists()):
        assert found(bookie) in ({(1, 0): (0, 9999)}, bookie.expected(1, 2))
    if not stopped.exit_code:
        return
    result = run_cli("index", "rebuild", bookie.root, "--yes", "--locations", "--jobs", "1", "-o", "json")
    assert result.exit_code == 0
    assert found(bookie) == bookie.expected(1, 2)
    assert bookie.leftovers() == []
    assert json.loads(result.stdout)["rows"] == 9
    assert list(bookie.current.glob("locations.BACKUP-*"))


def test_a_swap_that_waited_while_a_bookie_wrote_is_not_done(
    bookie: Bookie, run_cli: Cli, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(db_rebuild, "exchange", stop)
        run_cli("index", "rebuild", bookie.root, "--yes", "--locations")
    bookie.add(12, log((1, 50)))
    assert run_cli("index", "rebuild", bookie.root, "--yes", "--locations").exit_code == 0
    assert found(bookie) == bookie.expected(1, 2)


# --- damage -------------------------------------------------------------------------------------------------


def test_damage_is_refused_and_named(bookie: Bookie, run_cli: Cli, found: Any) -> None:
    damage(bookie, 0, 2, 0)
    result = run_cli("index", "rebuild", bookie.root, "--yes")
    assert_refused(result, "0.log")
    assert_refused(result, "ledger 2: entries 0 to 0")
    assert found(bookie) == {(1, 0): (0, 9999)}


def test_accepted_loss_sets_limbo_on_the_ledgers_that_the_map_misses(
    bookie: Bookie, rebuild: Any, found: Any
) -> None:
    damage(bookie, 0, 2, 0)
    answer = rebuild(bookie, "--accept-loss", code=1)
    expected = bookie.expected(1, 2)
    del expected[2, 0]
    assert found(bookie) == expected
    assert (bool(bookie.data(1).limbo), bool(bookie.data(2).limbo)) == (False, True)
    assert [(d["kind"], d["ledger"]) for d in answer["differences"]] == [("limbo_set", 2)]


def test_without_a_map_every_ledger_may_have_lost_entries(bookie: Bookie, rebuild: Any) -> None:
    damage(bookie, 10, 1, 1)
    rebuild(bookie, "--locations", "--accept-loss", code=1)
    assert bookie.data(1).limbo
    assert bookie.data(2).limbo


def test_compaction_files_do_not_count_unless_they_are_the_only_copy(
    bookie: Bookie, rebuild: Any, run_cli: Cli, found: Any
) -> None:
    (bookie.current / "c.log.compacting").write_bytes(b"half")
    (bookie.current / "d.log.b.compacted").write_bytes(log((2, 2)).data)
    rebuild(bookie)
    assert found(bookie) == bookie.expected(1, 2)
    (bookie.current / "d.log.f.compacted").write_bytes(log((2, 7)).data)
    assert_refused(run_cli("index", "rebuild", bookie.root, "--yes"), "only copy")


# --- ledger rows --------------------------------------------------------------------------------------------


def test_readable_rows_are_kept_and_16_byte_ones_collapse(bookie: Bookie, rebuild: Any) -> None:
    shutil.rmtree(bookie.current / "ledgers")
    first, second, third = (encode_ledger_key(ledger) for ledger in (1, 2, 3))
    flags = (bytes.fromhex("ffffffffffff1103"), bytes(7) + b"\x01")
    kept = {first: row(limbo=True), third: row(True, explicit_lac=LAC)}
    bookie.ledgers({**kept, first + bytes(8): row(True), second + bytes(8): row(True), flags[0]: flags[1]})
    answer = rebuild(bookie, "--ledgers")
    assert bookie.ledger_rows() == {**kept, second: row(True), flags[0]: flags[1]}
    assert {d["kind"] for d in answer["differences"]} == {"rebuilt_key_collapsed"}
    assert (answer["rows"], answer["ledgers"]) == (None, 3)


@pytest.mark.usefixtures("alone")
def test_lost_rows_come_from_logs_and_journals_and_are_fenced_and_in_limbo(
    bookie: Bookie, rebuild: Any, found: Any
) -> None:
    (bookie.current / "ledgers/CURRENT").write_bytes(b"junk\n")
    bookie.journal(
        master_key_record(1, KEY), master_key_record(7, KEY), fence_record(7), explicit_lac_record(1, LAC)
    )
    answer = rebuild(bookie)
    assert found(bookie) == bookie.expected(1, 2, 3)
    assert bookie.data(1) == LedgerData(True, KEY, LAC, True)
    assert bookie.data(7) == LedgerData(True, KEY, None, True)
    assert bookie.data(3) == LedgerData(True, b"", None, True)
    assert all(len(key) == 8 for key in bookie.ledger_rows())
    kinds = {(d["kind"], d["ledger"]) for d in answer["differences"]}
    assert {("explicit_lac_lost", 2), ("master_key_unknown", 3), ("fenced", 1), ("limbo_set", 1)} <= kinds
    assert ("explicit_lac_lost", 1) not in kinds


def test_a_torn_set_of_rows_is_not_swapped_in_after_a_stop(
    bookie: Bookie, run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(db_rebuild, "exchange", stop)
        run_cli("index", "rebuild", bookie.root, "--yes", "--ledgers")
    with open_store(str(bookie.current / "ledgers"), LEDGERS_PROFILE, create=False) as store:
        store.write([Put(encode_ledger_key(1), row(True))], sync=True)  # a bookie fenced it meanwhile
    assert run_cli("index", "rebuild", bookie.root, "--yes", "--ledgers").exit_code == 0
    assert bookie.data(1).fenced


# --- .idx files ---------------------------------------------------------------------------------------------


@pytest.fixture
def idx_bookie(bookie: Bookie) -> Bookie:
    for name in ("locations", "ledgers"):
        shutil.rmtree(bookie.current / name)
    for ledger in (1, 2):
        path = bookie.current / index_path(ledger)
        path.parent.mkdir(parents=True)
        header = FileInfoHeader(1, KEY, ledger - 1, LAC if ledger == 1 else None)
        path.write_bytes(
            encode_header(header) + b"".join(page for _, page in encode_slots([(0, 1 << 32 | 1028)]))
        )
    return bookie


def test_idx_files_are_rebuilt_with_their_headers(idx_bookie: Bookie, rebuild: Any, found: Any) -> None:
    before = {ledger: (idx_bookie.current / index_path(ledger)).read_bytes()[:1024] for ledger in (1, 2)}
    answer = rebuild(idx_bookie)
    assert found(idx_bookie) == idx_bookie.expected(1, 2)
    after = {ledger: (idx_bookie.current / index_path(ledger)).read_bytes() for ledger in (1, 2)}
    assert {ledger: data[:1024] for ledger, data in after.items()} == before
    assert all((len(data) - 1024) % 8192 == 0 for data in after.values())
    assert (answer["rows"], len(answer["backup"])) == (9, 1)
    assert idx_bookie.leftovers() == []


@pytest.mark.parametrize("stop_after", range(6))
def test_a_stop_between_idx_files_leaves_whole_files(
    idx_bookie: Bookie, run_cli: Cli, found: Any, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    class StoppedError(Exception):
        pass

    steps = 0
    original = idx_rebuild.sync_directory

    def step(path: str) -> None:
        nonlocal steps
        steps += 1
        if steps > stop_after:
            raise StoppedError
        original(path)

    with monkeypatch.context() as patch:
        patch.setattr(idx_rebuild, "sync_directory", step)
        patch.setattr(idx_swap, "sync_directory", step)
        result = run_cli("index", "rebuild", idx_bookie.root, "--yes", "--jobs", "1")
        assert result.exit_code == 7
        assert "StoppedError" in result.stderr
    rows = found(idx_bookie)
    for ledger in (1, 2):
        mine = {key: place for key, place in rows.items() if key[0] == ledger}
        assert mine in ({(ledger, 0): (1, 1028)}, idx_bookie.expected(ledger))
    assert run_cli("index", "rebuild", idx_bookie.root, "--yes").exit_code == 0
    assert found(idx_bookie) == idx_bookie.expected(1, 2)
    assert idx_bookie.leftovers() == []


def test_loss_in_idx_files_fences(idx_bookie: Bookie, rebuild: Any) -> None:
    damage(idx_bookie, 0, 1, 0)
    answer = rebuild(idx_bookie, "--accept-loss", code=1)
    assert [(d["kind"], d["ledger"]) for d in answer["differences"]] == [
        ("locations_lost", 1),
        ("entries_lost", 1),
    ]
    assert (idx_bookie.current / index_path(1)).read_bytes()[32:36] == struct.pack(">i", FENCED | LIMBO)


@pytest.mark.usefixtures("alone")
def test_idx_files_that_are_gone_need_the_kind_and_come_from_the_logs(
    idx_bookie: Bookie, rebuild: Any, found: Any
) -> None:
    for ledger in (1, 2):
        os.unlink(idx_bookie.current / index_path(ledger))
    idx_bookie.journal(master_key_record(1, KEY))
    rebuild(idx_bookie, "--storage", "idx", code=3)
    assert found(idx_bookie) == idx_bookie.expected(1, 2, 3)


def test_runs_that_are_merged_in_groups_make_the_same_index(
    bookie: Bookie, rebuild: Any, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for log_id in range(20, 40):
        bookie.add(log_id, log((1, log_id), (2, log_id), (2, 3), (1, 100 - log_id)))
    monkeypatch.setattr(run_merging, "GROUP_RUNS", 4)
    monkeypatch.setattr(db_rebuild, "RUNS_MAX", 3)
    monkeypatch.setattr(verification, "_SEARCHES_MAX", 1)
    monkeypatch.setattr(verification, "_RUNS_MIN", 1)
    merged: list[bool] = []
    merge = run_merging.merge_group

    def counted(task: Any, advance: Any) -> Any:
        merged.append(task.by_location)
        return merge(task, advance)

    monkeypatch.setattr(run_merging, "merge_group", counted)
    answer = rebuild(bookie, "--jobs", "1")
    expected = bookie.expected(1, 2)
    assert found(bookie) == expected
    assert answer["rows"] == len(expected)
    assert merged.count(False) == 8  # 23 runs, 6, 2
    assert bookie.leftovers() == []


def test_idx_files_from_runs_that_are_merged_in_groups(
    idx_bookie: Bookie, rebuild: Any, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_merging, "GROUP_RUNS", 2)
    monkeypatch.setattr(idx_rebuild, "RUNS_MAX", 1)
    rebuild(idx_bookie)
    assert found(idx_bookie) == idx_bookie.expected(1, 2)
    assert idx_bookie.leftovers() == []


def test_an_old_database_whose_identity_is_damaged_is_replaced(run_cli: Cli, tmp_path: Path) -> None:
    bookie = Bookie(tmp_path / "b")
    bookie.add(0, log((1, 0), (1, 1)))
    bookie.ledgers({encode_ledger_key(1): encode_ledger_data(LedgerData(fenced=False, master_key=KEY))})
    bookie.locations({(1, 0): (0, 99)})
    (bookie.current / "locations" / "IDENTITY").write_bytes(b"\xa5" * 36)
    result = run_cli("index", "rebuild", bookie.current, "--locations", "--yes")
    assert result.exit_code in (0, 1), result.stderr
    assert run_cli("index", "get", bookie.current, 1, 1).exit_code == 0


@pytest.mark.parametrize("planted", ["work directory", "logs", "ledgers.column", "writable for others"])
def test_what_is_planted_in_a_work_directory_is_not_written_through(tmp_path: Path, planted: str) -> None:
    """The directory's owner may prepare one; root, who rebuilds there, would write where its links lead."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("keep me")
    work = WorkDirectory(str(tmp_path / "locations.bkctl-rebuild"))
    if planted == "work directory":
        Path(work.path).symlink_to(victim)
    else:
        Path(work.path).mkdir(mode=0o700)
    if planted == "logs":
        Path(work.at("logs")).symlink_to(victim)
    elif planted == "ledgers.column":
        Path(work.at("ledgers.column")).symlink_to(victim / "file")
    elif planted == "writable for others":
        Path(work.path).chmod(0o777)

    def fill() -> None:
        work.prepare("logs")
        work.write_ledgers([1, 2, 3])

    with pytest.raises((RefusedError, StorageError), match=r"bkctl-rebuild"):
        fill()
    assert [path.name for path in victim.iterdir()] == ["file"]
    assert (victim / "file").read_text() == "keep me"


@pytest.mark.parametrize("kind", ["link", "fifo", "writable for others"])
def test_a_planted_marker_is_not_acted_on(tmp_path: Path, kind: str) -> None:
    """It says which directory is renamed to which name."""
    work = WorkDirectory(str(tmp_path / "locations.bkctl-rebuild"))
    Path(work.path).mkdir(mode=0o700)
    marker = Path(work.at("swap.json"))
    content = json.dumps({"backup": "../elsewhere", "identity": None, "fingerprint": "", "result": {}})
    if kind == "link":
        (tmp_path / "marker").write_text(content)
        marker.symlink_to(tmp_path / "marker")
    elif kind == "fifo":
        os.mkfifo(marker)
    else:
        marker.write_text(content)
        Path(work.path).chmod(0o777)
    with pytest.raises((RefusedError, StorageError), match=r"bkctl-rebuild"):
        swap.finish_exchange(swap.Swap(str(tmp_path), "locations", work))
    assert not (tmp_path.parent / "elsewhere").exists()


def test_an_exchange_goes_on_by_one_reading_of_its_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked, and what is renamed then, is of one marker."""
    work = WorkDirectory(str(tmp_path / "locations.bkctl-rebuild"))
    work.prepare("database")
    (tmp_path / "old").mkdir()
    Path(work.at("database/IDENTITY")).write_text("new")
    found = {"backup": "old", "identity": "new", "fingerprint": "", "result": {}}
    Path(work.at("swap.json")).write_text(json.dumps(found))
    reads: list[str] = []

    def noted(path: str) -> dict[str, Any] | None:
        reads.append(path)
        return read_json(path)

    monkeypatch.setattr(swap, "read_json", noted)
    swap.finish_exchange(swap.Swap(str(tmp_path), "locations", work))
    assert (tmp_path / "locations").is_dir(), "between the two renames: the new one is put in place"
    assert reads == [work.at("swap.json")]


def test_a_work_directory_is_its_users_alone(tmp_path: Path) -> None:
    work = WorkDirectory(str(tmp_path / "locations.bkctl-rebuild"))
    work.prepare("logs", "tables")
    work.prepare("logs")
    modes = {Path(path).stat().st_mode & 0o777 for path in (work.path, work.at("logs"), work.at("tables"))}
    assert modes == {0o700}
