"""Tables over journals and indexes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bkctl.client.sync import BookKeeperSync
from bkctl.codec.explicit_lac import ExplicitLac, encode_explicit_lac
from bkctl.codec.journal import ENTRY_IDS, JournalRecord, RecordKind
from bkctl.codec.last_mark import LastMark, encode_last_mark
from bkctl.errors import CorruptionError
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.pipeline.tables.options import TableOptions
from bkctl.pipeline.tables.registry import TABLES
from bkctl.pipeline.tables.run_lengths import HASH_MASK
from bkctl.server.life.embedded import LocalCluster
from tests.support.log_builder import JournalBuilder, entry_body
from tests.support.table_rows import table_rows


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster")
    with (
        LocalCluster(1, folder, overrides={"httpServerEnabled": "false"}) as cluster,
        BookKeeperSync(cluster.metadata_uri) as client,
    ):
        for count in (30, 1, 12):
            with client.create(1, 1, 1) as ledger:
                ledger.append_all(bytes([entry]) * 50 for entry in range(count))
    return folder / "bookie0"


def test_index_rows_and_their_runs_are_those_of_the_logs(bookie: Path) -> None:
    entries = table_rows("entries", [bookie])
    rows = table_rows("index_locations", [bookie])
    names = ("bookie", "dir", "ledger", "entry", "log_id", "offset")
    assert [{name: row[name] for name in names} for row in entries] == rows
    assert len(rows) == 43
    runs = table_rows("runs", [bookie])
    index_runs = table_rows("index_runs", [bookie])
    shared = ("bookie", "dir", "ledger", "log_id", "first", "last", "entries", "ids_hash")
    assert [{name: run[name] for name in shared} for run in runs] == [
        {name: run[name] for name in shared} for run in index_runs
    ]
    assert all(0 <= run["ids_hash"] <= HASH_MASK for run in runs)
    ledgers = table_rows("index_ledgers", [bookie])
    assert [row["ledger"] for row in ledgers] == sorted({row["ledger"] for row in rows})
    assert {row["master_key"] for row in ledgers} == {None}
    shown = table_rows("index_ledgers", [bookie], TableOptions(secrets=True))
    assert all(len(row["master_key"]) == 40 for row in shown)


def test_index_rows_can_be_chosen(bookie: Path) -> None:
    everything = table_rows("index_locations", [bookie])
    ledger = everything[0]["ledger"]
    for options in (
        TableOptions(ledgers=((ledger, ledger),), entries=((5, 8),)),
        TableOptions(ledgers=((0, ledger),), entries=((5, 6), (7, 8))),
    ):
        rows = table_rows("index_locations", [bookie], options)
        assert [row["entry"] for row in rows if row["ledger"] == ledger] == [5, 6, 7, 8]
    assert table_rows("index_locations", [bookie], TableOptions(log_ids=frozenset({999}))) == []
    (split,) = TABLES["index_runs"].plan([str(bookie)], TableOptions())
    assert split.files[0].bookie == everything[0]["bookie"]


def test_damaged_index_rows_are_damage(bookie: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(bookie, tmp_path / "copy"))
    store = open_store(str(copy / "ledgers/current/locations"), LOCATIONS_PROFILE, create=False)
    store.write([Put(b"short", b"row")], sync=True)
    store.close()
    with pytest.raises(CorruptionError, match="row"):
        table_rows("index_locations", [copy], TableOptions())
    assert len(table_rows("index_locations", [copy])) == 43
    (damage,) = table_rows("damage", [copy])
    assert damage["kind"] == "index"
    assert b"short".hex() in damage["reason"]
    assert damage["id"] is None


def test_an_index_that_goes_away_is_damage(bookie: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(bookie, tmp_path / "copy"))
    table = TABLES["damage"]
    options = TableOptions(damage="rows")
    splits = table.plan([str(copy)], options)
    for name in ("locations", "ledgers"):
        shutil.rmtree(copy / "ledgers/current" / name)
    for journal in copy.glob("journal/current/*.txn"):
        journal.unlink()
    rows = [
        row
        for split in splits
        for batch in table.read(split, table.schema.names, options)
        for row in batch.to_pylist()
    ]
    assert [(row["kind"], "index that was here is gone" in row["reason"]) for row in rows] == [
        ("index", True)
    ]


def special(kind: RecordKind, ledger: int, inner: bytes | None = None) -> JournalRecord:
    entry = ENTRY_IDS[kind]
    body = ledger.to_bytes(8, "big") + entry.to_bytes(8, "big", signed=True)
    if inner is not None:
        body += len(inner).to_bytes(4, "big") + inner
    return JournalRecord(kind, len(body), ledger, entry, body)


def test_journal_records_know_whether_a_start_would_replay_them(tmp_path: Path) -> None:
    journal = JournalBuilder()
    journal.special(special(RecordKind.MASTER_KEY, 5, b"k" * 20))
    entries = [journal.add(entry_body(5, entry, bytes([entry]) * 9)) for entry in range(8)]
    journal.special(special(RecordKind.FENCE, 5))
    journal.special(special(RecordKind.EXPLICIT_LAC, 5, encode_explicit_lac(ExplicitLac(5, 6))))
    journal.flush()
    for name in ("journal", "ledgers"):
        (tmp_path / name / "current").mkdir(parents=True)
    (tmp_path / "journal/current/a.txn").write_bytes(journal.build().data)
    (tmp_path / "ledgers/current/lastMark").write_bytes(encode_last_mark(LastMark(10, entries[3].offset)))
    rows = table_rows("journal", [tmp_path], columns=[*TABLES["journal"].schema.names])
    assert [row["kind"] for row in rows] == ["master_key", *["entry"] * 8, "fence", "explicit_lac"]
    assert [row["lac"] for row in rows] == [None, *range(-1, 7), None, 6]
    data = [row for row in rows if row["kind"] == "entry"]
    assert [row["after_mark"] for row in data] == [False] * 3 + [True] * 5
    assert [row["offset"] for row in data] == [built.offset for built in entries]
    assert [row["payload"] for row in data] == [bytes([entry]) * 9 for entry in range(8)]
    assert {row["digest_ok"] for row in data} == {True}
    assert {row["journal_id"] for row in rows} == {10}
    assert rows[0]["payload"] is None
    chosen = table_rows("journal", [tmp_path], TableOptions(ledgers=((6, 6),), damage="rows"))
    assert chosen == []
    few = table_rows("journal", [tmp_path], TableOptions(batch_rows=1), columns=[*rows[0]])
    assert few == rows
    shutil.rmtree(tmp_path / "ledgers")
    assert {row["after_mark"] for row in table_rows("journal", [tmp_path])} == {None}


def test_records_that_are_no_entries_are_held_a_batch_at_a_time(tmp_path: Path) -> None:
    journal = JournalBuilder()
    for ledger in range(500):
        journal.special(special(RecordKind.FENCE, ledger))
    journal.flush()
    path = tmp_path / "bookie" / "journal" / "a.txn"
    path.parent.mkdir(parents=True)
    path.write_bytes(journal.build().data)
    table = TABLES["journal"]
    options = TableOptions(batch_rows=40)
    (split,) = table.plan([str(path)], options)
    batches = [batch.num_rows for batch in table.read(split, ["ledger"], options)]
    assert batches == [40] * 12 + [20]


def test_damage_of_a_journal_in_front_of_the_mark_is_an_error_or_told(tmp_path: Path) -> None:
    journal = JournalBuilder()
    entries = [journal.add(entry_body(5, entry, bytes(40))) for entry in range(8)]
    data = bytearray(journal.build().data)
    data[entries[4].offset] ^= 0x40
    # A last mark is looked for beside the journal's directory, so that it must not be pytest's.
    path = tmp_path / "bookie" / "journal" / "1.txn"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with pytest.raises(CorruptionError):
        table_rows("journal", [path], TableOptions())
    assert len(table_rows("journal", [path])) >= 7
    (damage,) = table_rows("damage", [path])
    assert (damage["kind"], damage["id"], damage["offset"]) == ("journal", 1, entries[4].offset)
