"""Tables over entry logs: the rows of the command line, whatever way a log is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.codec.digest import Digester
from bkctl.errors import CorruptionError, NotFoundError, UsageError
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.registry import TABLES
from bkctl.types import DigestType
from bkctl.vfs import PosixFileSystem
from bkctl.vfs.posix import PosixFile
from tests.support.log_builder import (
    ALL_DIGESTERS,
    CRC32,
    CRC32C,
    DUMMY,
    MAC,
    PASSWORD,
    EntryLogBuilder,
    entry_body,
    simple_log,
)
from tests.support.table_rows import ROWS, command_line_rows, in_pieces, small_windows, table_rows

COMMON = ("ledger", "entry", "lac", "ledger_length", "payload_bytes", "digest", "digest_ok", "offset", "size")


def written(tmp_path: Path, data: bytes, log_id: int = 7) -> Path:
    current = tmp_path / "current"
    current.mkdir(exist_ok=True)
    (current / "lastMark").write_bytes(bytes(16))
    path = current / f"{log_id:x}.log"
    path.write_bytes(data)
    return path


def same(found: list[dict[str, object]], expected: list[dict[str, object]]) -> None:
    assert [{key: row[key] for key in COMMON} for row in found] == [
        {key: row[key] for key in COMMON} for row in expected
    ]


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("digester", ALL_DIGESTERS, ids=lambda digester: digester.type.value)
def test_rows_are_those_of_the_command_line(
    tmp_path: Path, digester: Digester, direct: bool, rolled: bool
) -> None:
    log = simple_log(entries=30, digester=digester, rolled=rolled, direct=direct)
    path = written(tmp_path, log.data)
    options = TableOptions(password=PASSWORD)
    found = table_rows("entries", [tmp_path], options)
    same(found, command_line_rows(path, password=PASSWORD))
    assert {(row["dir"], row["log_id"]) for row in found} == {(str(path.parent), 7)}
    with small_windows():
        assert table_rows("entries", [tmp_path], options) == found


def test_digests_of_mixed_types_are_learnt_for_each_ledger(tmp_path: Path) -> None:
    log = EntryLogBuilder()
    kinds = {1: CRC32C, 2: CRC32, 3: MAC, 4: DUMMY}
    for entry in range(40):
        for ledger, digester in kinds.items():
            log.add(entry_body(ledger, entry, bytes(20), digester))
    path = written(tmp_path, log.build().data)
    with small_windows():
        rows = table_rows("entries", [path])
    same(rows, command_line_rows(path))
    assert {row["ledger"]: row["digest"] for row in rows} == {1: "crc32c", 2: "crc32", 3: None, 4: None}
    assert all(row["payload_bytes"] == 20 for row in rows if row["ledger"] < 3)


def test_a_ledger_whose_entries_come_late_is_learnt_by_looking_ahead(tmp_path: Path) -> None:
    log = EntryLogBuilder()
    log.add(entry_body(9, 0, b"early", CRC32))
    for entry in range(60):
        log.add(entry_body(1, entry, bytes(30)))
    log.add(entry_body(9, 1, b"late", CRC32))
    path = written(tmp_path, log.build().data)
    with small_windows():
        rows = table_rows("entries", [path], ROWS)
    assert [row["digest"] for row in rows if row["ledger"] == 9] == ["crc32", "crc32"]
    same(rows, command_line_rows(path))


def test_payloads_are_the_clients_bytes_and_their_checksum_is_of_them_alone(tmp_path: Path) -> None:
    from crc32c import crc32c

    log = EntryLogBuilder()
    payloads = {(1, entry): bytes([entry]) * entry for entry in range(12)} | {(2, 0): b""}
    for (ledger, entry), data in payloads.items():
        log.add(entry_body(ledger, entry, data, CRC32 if ledger == 2 else CRC32C))
    written(tmp_path, log.build().data)
    rows = table_rows("entries", [tmp_path], columns=["payload", "payload_crc", "entry", "ledger"])
    assert {(row["ledger"], row["entry"]): row["payload"] for row in rows} == payloads
    assert all(row["payload_crc"] == crc32c(row["payload"]) for row in rows)


def test_bodies_without_a_whole_header_have_ids_and_nulls(tmp_path: Path) -> None:
    log = EntryLogBuilder()
    log.add(entry_body(1, 0))
    log.add(entry_body(1, 1)[:24])
    log.add(entry_body(1, 2))
    log.add(entry_body(1, 3))
    path = written(tmp_path, log.build().data)
    rows = table_rows("entries", [path], columns=[*COMMON, "payload"])
    same(rows, command_line_rows(path))
    assert [row["digest_ok"] for row in rows] == [True, False, True, True]
    assert rows[1]["lac"] is None
    assert rows[1]["payload"] is None


@pytest.mark.parametrize("place", ["size", "payload", "header", "ledger"])
def test_damage_is_an_error_or_passed_and_told_by_its_table(tmp_path: Path, place: str) -> None:
    log = simple_log(entries=60, rolled=True)
    data = bytearray(log.data)
    victim = log.entries[100]
    at = victim.offset + {"size": 0, "payload": 60, "header": 30, "ledger": 5}[place]
    data[at] ^= 0x55
    path = written(tmp_path, bytes(data))
    with small_windows():
        rows = table_rows("entries", [path], ROWS)
        damage = table_rows("damage", [path], ROWS)
    same(rows, command_line_rows(path))
    bad = [row["entry"] for row in rows if row["digest_ok"] is False]
    assert damage
    assert all(row["kind"] == "entry_log" and row["id"] == 7 and row["path"] == str(path) for row in damage)
    if place in ("payload", "header"):
        assert bad == [victim.entry]
        skipped = table_rows("entries", [path], TableOptions(damage="skip"))
        assert len(skipped) == len(rows) - 1
        only_bad = table_rows("entries", [path], TableOptions(damage="rows", only_bad=True))
        assert [row["offset"] for row in only_bad] == [victim.offset + 4]
    if place == "size":
        with pytest.raises(CorruptionError, match="record size") as told:
            table_rows("entries", [path], TableOptions())
        assert told.value.path == str(path)


def test_a_torn_tail_is_no_damage_but_a_cut_rolled_log_is(tmp_path: Path) -> None:
    log = simple_log(entries=20)
    path = written(tmp_path, log.data[:-30])
    assert len(table_rows("entries", [path], TableOptions())) == len(log.entries) - 1
    assert table_rows("damage", [path]) == []
    rolled = simple_log(rolled=True)
    (damage,) = table_rows("damage", [written(tmp_path, rolled.data[:1500])])
    assert "ledgers map offset" in damage["reason"]
    assert damage["offset"] == 8


def test_pieces_of_a_log_are_together_the_whole(tmp_path: Path) -> None:
    log = simple_log(entries=80, rolled=True)
    path = written(tmp_path, log.data)
    whole = table_rows("entries", [path])
    for number in (1, 17, 100, len(log.entries) - 1):
        cut = log.entries[number].offset
        with small_windows():
            assert in_pieces([path], [cut]) == whole
    cuts = [log.entries[number].offset for number in range(20, 200, 37)]
    with small_windows():
        assert in_pieces([path], cuts) == whole
    with pytest.raises(CorruptionError, match="piece of an entry log"):
        in_pieces([path], [log.entries[50].offset + 8])


def test_pieces_of_a_damaged_log_are_together_the_whole(tmp_path: Path) -> None:
    log = simple_log(entries=80)
    data = bytearray(log.data)
    data[log.entries[90].offset] ^= 0x7F
    path = written(tmp_path, bytes(data))
    whole = table_rows("entries", [path])
    for number in (30, 140, 200):
        with small_windows():
            assert in_pieces([path], [log.entries[number].offset]) == whole


@pytest.mark.parametrize("cores", [0, 1, 4])
def test_large_logs_are_cut_at_records_that_prove_themselves(tmp_path: Path, cores: int) -> None:
    """Into as many pieces as their size asks for: a driver's cores are not those of a cluster's executors."""
    log = EntryLogBuilder()
    for entry in range(3000):
        log.add(entry_body(3 + entry % 2, entry // 2, bytes(100)))
    path = written(tmp_path, log.roll().data)
    options = TableOptions(cores=cores, large_log_bytes=100_000, split_bytes=50_000)
    splits = TABLES["entries"].plan([str(path)], options)
    pieces = [file for split in splits for file in split.files]
    assert len(pieces) == -(-path.stat().st_size // 50_000) > 8
    assert max(piece.size_bytes for piece in pieces) < 51_000
    starts = {built.offset for built in log.build().entries}
    assert all(piece.start in starts for piece in pieces[1:])
    assert table_rows("entries", [path], options) == table_rows("entries", [path])
    runs = table_rows("runs", [path], options)
    assert sum(row["entries"] for row in runs) == 3000


def test_a_large_log_is_cut_among_however_many_small_ones(tmp_path: Path) -> None:
    """A share of a core's work that is not too large today is a task of hours on a fleet."""
    for log_id in range(40):
        log = EntryLogBuilder()
        for entry in range(1500 if log_id == 7 else 150):
            log.add(entry_body(3, entry, bytes(100)))
        written(tmp_path, log.roll().data, log_id)
    options = TableOptions(cores=2, large_log_bytes=100_000, split_bytes=50_000)
    splits = TABLES["entries"].plan([str(tmp_path)], options)
    assert max(split.bytes for split in splits) < 51_000
    assert {file.id for split in splits for file in split.files if file.start} == {7}


def test_only_logs_that_may_hold_a_wanted_ledger_are_read(tmp_path: Path) -> None:
    for log_id, ledger in ((1, 10), (2, 20), (3, 30)):
        log = EntryLogBuilder()
        for entry in range(5):
            log.add(entry_body(ledger, entry))
        written(tmp_path, log.roll().data, log_id)
    (tmp_path / "current" / "2.log").write_bytes(
        (tmp_path / "current" / "2.log").read_bytes().replace(b"payload", b"damaged", 2)
    )
    options = TableOptions(ledgers=((30, 30),), damage="fail")
    splits = TABLES["entries"].plan([str(tmp_path)], options)
    assert [file.id for split in splits for file in split.files] == [3]
    assert {row["ledger"] for row in table_rows("entries", [tmp_path], options)} == {30}
    assert TABLES["entries"].plan([str(tmp_path)], TableOptions(ledgers=((31, 99),))) == []
    chosen = TableOptions(ledgers=((10, 10), (20, 20)), entries=((3, 9),), log_ids=frozenset({2}))
    assert [(row["ledger"], row["entry"]) for row in table_rows("entries", [tmp_path], chosen)] == [
        (20, 3),
        (20, 4),
    ]


def test_runs_are_the_entries_in_order_of_ledgers(tmp_path: Path) -> None:
    log = EntryLogBuilder()
    plan = [(1, 0), (1, 1), (2, 5), (1, 2), (1, 4), (2, 6), (1, 3), (1, 4)]
    for ledger, entry in plan:
        log.add(entry_body(ledger, entry, bytes(10)))
    path = written(tmp_path, log.build().data)
    with small_windows():
        runs = table_rows("runs", [path])
    assert [(row["ledger"], row["first"], row["last"], row["entries"]) for row in runs] == [
        (1, 0, 2, 3),
        (1, 4, 4, 1),
        (1, 3, 4, 2),
        (2, 5, 6, 2),
    ]
    assert [(row["min_lac"], row["max_lac"]) for row in runs] == [(-1, 1), (3, 3), (2, 3), (4, 5)]
    assert {row["bytes"] // row["entries"] for row in runs} == {4 + 32 + 4 + 10}
    assert {row["bad_digests"] for row in runs} == {0}
    unchecked = table_rows("runs", [path], TableOptions(digest="off"))
    assert {row["bad_digests"] for row in unchecked} == {None}
    assert [row["ids_hash"] for row in unchecked] == [row["ids_hash"] for row in runs]


def test_ledgers_of_a_log_come_from_its_map_or_from_a_walk(tmp_path: Path) -> None:
    for log_id, rolled in ((1, True), (2, False)):
        written(tmp_path, simple_log(rolled=rolled).data, log_id)
    rows = table_rows("log_ledgers", [tmp_path])
    by_log = {
        log_id: [(row["ledger"], row["bytes"]) for row in rows if row["log_id"] == log_id]
        for log_id in (1, 2)
    }
    assert by_log[1] == by_log[2]
    assert {(row["log_id"], row["source"]) for row in rows} == {(1, "map"), (2, "walk")}
    logs = table_rows("logs", [tmp_path])
    assert [(row["log_id"], row["has_ledgers_map"], row["ledgers"], row["damaged"]) for row in logs] == [
        (1, True, 3, False),
        (2, False, None, False),
    ]


def test_a_log_that_goes_away_between_looking_and_opening_has_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, there = (written(tmp_path, simple_log(rolled=True).data, log_id) for log_id in (1, 2))
    real = PosixFileSystem.open

    def open_after_removal(self: PosixFileSystem, path: str) -> PosixFile:
        gone.unlink(missing_ok=True)
        return real(self, path)

    (split,) = TABLES["logs"].plan([str(tmp_path)], ROWS)
    monkeypatch.setattr(PosixFileSystem, "open", open_after_removal)
    (batch,) = TABLES["logs"].read(split, ["path"], ROWS)
    assert batch.to_pylist() == [{"path": str(there)}]


def test_wrong_names_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, simple_log().data)
    with pytest.raises(UsageError, match="no column pay"):
        table_rows("entries", [path], columns=["pay"])
    with pytest.raises(NotFoundError):
        table_rows("entries", [tmp_path / "nowhere"])
    with pytest.raises(NotFoundError, match="no index"):
        table_rows("index_locations", [tmp_path])


def test_an_empty_log_and_one_with_a_cut_header_have_no_rows(tmp_path: Path) -> None:
    written(tmp_path, b"", 1)
    written(tmp_path, b"BKLO", 2)
    assert table_rows("entries", [tmp_path], TableOptions()) == []
    assert len(table_rows("logs", [tmp_path])) == 2


def test_a_forced_type_and_no_digests_at_all(tmp_path: Path) -> None:
    path = written(tmp_path, simple_log(digester=CRC32).data)
    forced = table_rows("entries", [path], TableOptions(digest="crc32c", damage="rows"))
    assert {row["digest_ok"] for row in forced} == {False}
    assert {row["digest"] for row in forced} == {DigestType.CRC32C.value}
    off = table_rows("entries", [path], TableOptions(digest="off"))
    assert {(row["digest"], row["digest_ok"], row["payload_bytes"]) for row in off} == {(None, None, None)}


@pytest.mark.parametrize("table", ["entries", "runs", "logs", "log_ledgers", "journal", "index_runs"])
def test_without_a_path_there_is_nothing_to_read(table: str) -> None:
    assert TABLES[table].plan([], ROWS) == []
