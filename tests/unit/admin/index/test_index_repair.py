"""Collapsing the 16-byte rows of Java's index rebuild."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from bkctl.admin.index.repair import RepairRow, plan_repair, repair
from bkctl.admin.ledgers.known_ledgers import DumpedCluster, KnownLedgers
from bkctl.client.ops.create import NewLedger
from bkctl.codec.cookie import Cookie
from bkctl.codec.digest import master_key
from bkctl.codec.file_info import FENCED, FileInfoHeader, encode_header, index_path
from bkctl.codec.ledger_data import FLAGS_ID, LedgerData, encode_flags, encode_ledger_data, encode_ledger_key
from bkctl.codec.location import Location, encode_key, encode_value
from bkctl.errors import RefusedError, StorageError
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LEDGERS_PROFILE, LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb import open_read_only
from bkctl.kvstore.rocksdb_store import RocksStore, open_store
from bkctl.types import DigestType
from bkctl.vfs import PosixFileSystem
from tests.support import cluster_dumps

DATA = Path(__file__).parents[3] / "data" / "index"
FS = PosixFileSystem()
KEY = bytes(range(20))
REBUILT = LedgerData(fenced=True, master_key=b"")
NORMAL = LedgerData(fenced=False, master_key=KEY, explicit_lac=bytes(20), limbo=True)
Rows = dict[bytes, bytes]


METADATA = NewLedger(1, 1, 1, DigestType.CRC32C, b"pw").metadata(("bookie:3181",))


def known_of(*ledgers: int) -> KnownLedgers:
    """What a dump of an older tool, which an operator trusts, says to a bookie of an old cookie."""
    dump = cluster_dumps.dump_of(dict.fromkeys(ledgers, METADATA), marked=False, instance_id=None)
    return KnownLedgers.of(
        DumpedCluster(dump, trusted=True), Cookie(5, "bookie:3181", "/j", "1\t/l", None), None
    )


def eight(ledger: int) -> bytes:
    return encode_ledger_key(ledger)


def sixteen(ledger: int) -> bytes:
    return encode_ledger_key(ledger) + bytes(8)


def rows_in(path: Path) -> Rows:
    reader = open_read_only(str(path))
    try:
        return dict(reader.iterate())
    finally:
        reader.close()


def make(path: Path, ledgers: Rows, locations: Rows | None = None) -> str:
    current = path / "current"
    current.mkdir(parents=True)
    for name, profile, rows in (
        ("ledgers", LEDGERS_PROFILE, ledgers),
        ("locations", LOCATIONS_PROFILE, locations or {}),
    ):
        with open_store(str(current / name), profile, create=True) as store:
            store.write([Put(*row) for row in rows.items()], sync=True)
    return str(current)


MIXED = {
    eight(1): encode_ledger_data(NORMAL),
    sixteen(1): encode_ledger_data(REBUILT),
    eight(2): encode_ledger_data(LedgerData(fenced=True, master_key=KEY)),
    sixteen(2): encode_ledger_data(REBUILT),
    sixteen(3): encode_ledger_data(REBUILT),
    eight(4): encode_ledger_data(NORMAL),
    sixteen(9): encode_ledger_data(REBUILT),
    eight(FLAGS_ID): encode_flags(1),
}


def test_the_8_byte_row_stays_and_is_never_unfenced(tmp_path: Path) -> None:
    current = make(tmp_path, MIXED)
    planned = plan_repair(FS, current)
    assert rows_in(tmp_path / "current/ledgers") == MIXED
    assert repair(FS, current) == planned
    assert rows_in(tmp_path / "current/ledgers") == {
        eight(1): encode_ledger_data(LedgerData(True, KEY, bytes(20), True)),
        eight(2): MIXED[eight(2)],
        eight(3): MIXED[sixteen(3)],
        eight(4): MIXED[eight(4)],
        eight(9): MIXED[sixteen(9)],
        eight(FLAGS_ID): encode_flags(1),
    }
    assert [(row.kind, row.ledger) for row in planned.rows] == [
        ("collapsed", 1),
        ("collapsed", 2),
        ("converted", 3),
        ("converted", 9),
    ]
    assert "now fenced" in planned.rows[0].detail
    assert "may have been deleted" in planned.rows[2].detail
    assert repair(FS, current).rows == []


def test_ledgers_that_do_not_exist_go_with_their_locations(tmp_path: Path) -> None:
    locations = {
        encode_key(ledger, entry): encode_value(Location(1, 1028))
        for ledger in (2, 3, 4, 9)
        for entry in (0, 5, 2**63 - 1, -1)
    }
    current = make(tmp_path, MIXED, locations)
    plan = repair(FS, current, known=known_of(1, 4, 5))
    assert [(row.kind, row.ledger) for row in plan.rows] == [
        ("collapsed", 1),
        ("collapsed", 2),  # its own row is GC's business
        ("deleted", 3),
        ("converted", 9),
    ]
    assert "newer than the metadata" in plan.rows[3].detail
    assert rows_in(tmp_path / "current/ledgers").keys() == {eight(n) for n in (1, 2, 4, 9, FLAGS_ID)}
    left = {key: value for key, value in locations.items() if not key.startswith(eight(3))}
    assert rows_in(tmp_path / "current/locations") == left


def test_metadata_of_another_cluster_delete_nothing(tmp_path: Path) -> None:
    known = known_of(100, 200)
    current = make(tmp_path, MIXED)
    for act in (plan_repair, repair):
        with pytest.raises(RefusedError, match="another cluster"):
            act(FS, current, known)
    assert rows_in(tmp_path / "current/ledgers") == MIXED


def test_metadata_without_ledgers_delete_nothing(tmp_path: Path) -> None:
    plan = repair(FS, make(tmp_path, MIXED), known=known_of())
    assert {row.kind for row in plan.rows} == {"collapsed", "converted"}


def test_damaged_rows_are_told_and_left_with_their_ledger(tmp_path: Path) -> None:
    rows = {
        eight(1): b"damaged",
        sixteen(1): encode_ledger_data(REBUILT),
        eight(2): encode_ledger_data(NORMAL),
        sixteen(2): b"\x08",
        eight(3) + b"12345678": encode_ledger_data(REBUILT),
        b"odd": b"",
        sixteen(5): encode_ledger_data(REBUILT),
    }
    plan = repair(FS, make(tmp_path, rows))
    damaged = [row for row in plan.rows if row.kind == "damaged"]
    assert [row.ledger for row in damaged] == [1, 2, 3, None]
    assert plan.changes == 1
    expected = {key: value for key, value in rows.items() if key != sixteen(5)}
    assert rows_in(tmp_path / "current/ledgers") == expected | {eight(5): rows[sixteen(5)]}


def test_killed_between_the_databases_a_rerun_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = make(tmp_path, MIXED, {encode_key(3, 0): encode_value(Location(1, 1028))})
    original = RocksStore.write

    def fail_on_ledgers(store: RocksStore, operations: object, *, sync: bool) -> None:
        assert sync
        if store.path.endswith("ledgers"):
            raise StorageError("the disk failed")
        original(store, operations, sync=sync)  # type: ignore[arg-type]

    monkeypatch.setattr(RocksStore, "write", fail_on_ledgers)
    with pytest.raises(StorageError):
        repair(FS, current, known=known_of(1, 4, 5))
    monkeypatch.undo()
    assert rows_in(tmp_path / "current/ledgers") == MIXED
    assert rows_in(tmp_path / "current/locations") == {}
    assert [row.kind for row in repair(FS, current, known=known_of(1, 4, 5)).rows].count("deleted") == 1


def test_a_real_bookies_rows(tmp_path: Path) -> None:
    """Sample b: Java's LedgersIndexRebuildOp ran on it, then ledger 7 was made."""
    shutil.copytree(DATA / "b/l", tmp_path / "l")
    current = str(tmp_path / "l/current")
    detail = "fenced, no master key, may have been deleted (--metadata shows it)"
    assert repair(FS, current).rows == [
        RepairRow(current, "converted", 5, detail),
        RepairRow(current, "converted", 6, detail),
    ]
    assert {len(key) for key in rows_in(tmp_path / "l/current/ledgers")} == {8}


def test_idx_files_have_nothing_to_repair() -> None:
    assert plan_repair(FS, str(DATA / "i/l/current")).rows == []


def damaged(key: bytes) -> bytes:
    """The key with one byte changed."""
    return bytes([key[0] ^ 0x80]) + key[1:]


def test_a_damaged_master_key_becomes_that_of_the_metadata(tmp_path: Path) -> None:
    right = master_key(b"pw")
    row = LedgerData(fenced=True, master_key=damaged(right), explicit_lac=bytes(20), limbo=True)
    other = LedgerData(fenced=False, master_key=KEY)
    ledgers = {eight(5): encode_ledger_data(row), eight(6): encode_ledger_data(other)}
    ledgers |= {eight(7): encode_ledger_data(LedgerData(False, b"")), sixteen(5): encode_ledger_data(REBUILT)}
    current = make(tmp_path, ledgers)
    assert [found.kind for found in repair(FS, current).rows] == ["collapsed"]
    for _ in range(2):
        found = repair(FS, current, known_of(5, 6, 7))
        assert rows_in(tmp_path / "current" / "ledgers") == ledgers_with(right, row, other)
    assert found.rows == []


def ledgers_with(right: bytes, row: LedgerData, other: LedgerData) -> Rows:
    return {
        eight(5): encode_ledger_data(dataclasses.replace(row, master_key=right)),
        eight(6): encode_ledger_data(other),
        eight(7): encode_ledger_data(LedgerData(False, b"")),
    }


@pytest.mark.parametrize("version", [0, 1])
def test_the_key_of_an_idx_file_is_written_over_the_damaged_one(tmp_path: Path, version: int) -> None:
    right = master_key(b"pw")
    content = bytearray(encode_header(FileInfoHeader(version, right, FENCED)) + bytes(range(8)) * 1024)
    path = tmp_path / index_path(5)
    path.parent.mkdir(parents=True)
    path.write_bytes(content[:12] + damaged(right) + content[32:])
    assert [row.kind for row in plan_repair(FS, str(tmp_path), known_of(5)).rows] == ["rekeyed"]
    assert path.read_bytes() != content
    assert [row.kind for row in repair(FS, str(tmp_path), known_of(5)).rows] == ["rekeyed"]
    assert path.read_bytes() == content
    assert repair(FS, str(tmp_path), known_of(5)).rows == []
