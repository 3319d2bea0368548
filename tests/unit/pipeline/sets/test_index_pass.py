"""Of an index a pass reads what changed, and the set says what one that reads everything says."""

from __future__ import annotations

import random
import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bkctl.codec.cookie import Cookie, encode_cookie, join_dirs
from bkctl.kvstore.base import Delete, DeleteRange, Operation, Put
from bkctl.kvstore.profile import LOCATIONS_PROFILE
from bkctl.kvstore.rocksdb_store import RocksStore, open_store
from bkctl.pipeline.sets import collection
from bkctl.pipeline.sets.collection import Collected
from bkctl.pipeline.sets.index_pass import changed_ledgers, merged_stretches
from bkctl.pipeline.sets.manifest import IndexState, IndexTable
from bkctl.scan.location_index import LocationIndex
from tests.support.sets import collected


def key(ledger: int, entry: int) -> bytes:
    return struct.pack(">qq", ledger, entry)


def puts(ledger: int, first: int, last: int, log: int = 1) -> list[Operation]:
    return [
        Put(key(ledger, entry), struct.pack(">q", log << 32 | entry + 1024)) for entry in range(first, last)
    ]


def runs_of(one: Collected) -> Counter[tuple[Any, ...]]:
    """The entries of ``index_runs`` by ledger and log, with the sum over their places."""
    found: Counter[tuple[Any, ...]] = Counter()
    for file in one.complete.files("index_runs"):
        for row in pq.read_table(file).to_pylist():
            name = row["dir"], row["ledger"], row["log_id"]
            found[*name, "entries"] += row["entries"]
            found[*name, "hash"] = (found[*name, "hash"] + row["ids_hash"]) % (1 << 44)
    return +found


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    """A bookie's directory with nothing but an index of ledgers 1 to 5, a table each."""
    current = tmp_path / "bookie" / "ledgers" / "current"
    current.mkdir(parents=True)
    cookie = Cookie(5, "10.0.0.1:3181", "/journal", join_dirs([str(current.parent)]), "cluster")
    (current / "VERSION").write_bytes(encode_cookie(cookie))
    (current / "0.log").write_bytes(b"BKLO" + struct.pack(">iqi", 1, 0, 0) + bytes(1004))
    with open_store(str(current / "ledgers"), LOCATIONS_PROFILE, create=True):
        pass
    with locations(tmp_path / "bookie") as store:
        for ledger in range(1, 6):
            store.write(puts(ledger, 0, 100), sync=True)
            store.flush()
    return tmp_path / "bookie"


def locations(bookie: Path) -> RocksStore:
    return open_store(str(bookie / "ledgers" / "current" / "locations"), LOCATIONS_PROFILE, create=True)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The stretches of ledgers that were read; "all" for a whole index."""
    seen: list[Any] = []
    rows, ledger_rows = LocationIndex.rows, LocationIndex.ledger_rows

    def all_rows(self: LocationIndex, *words: Any) -> Any:
        seen.append("all")
        return rows(self, *words)

    def some_rows(self: LocationIndex, first: int, last: int) -> Any:
        seen.append((first, last))
        return ledger_rows(self, first, last)

    # The logs have nothing of all this, which would be looked into.
    monkeypatch.setattr(collection, "read_suspects", lambda *_: None)
    monkeypatch.setattr(LocationIndex, "rows", all_rows)
    monkeypatch.setattr(LocationIndex, "ledger_rows", some_rows)
    return seen


def test_an_index_that_did_not_change_is_not_read_again(
    bookie: Path, tmp_path: Path, read: list[Any]
) -> None:
    first = collected(bookie, tmp_path / "sets")
    assert sum(part.rows for part in first.complete.manifest.tables["index_runs"]) == 5
    second = collected(bookie, tmp_path / "sets")
    assert read == ["all"]
    assert runs_of(second) == runs_of(first)
    third = collected(bookie, tmp_path / "sets", full=True)
    assert read == ["all", "all"]
    assert runs_of(third) == runs_of(first)


@pytest.mark.parametrize(
    ("changes", "stretches"),
    [
        (puts(3, 100, 101), [(3, 3)]),
        ([Delete(key(2, 7)), *puts(4, 0, 3, log=9)], [(2, 4)]),
        ([DeleteRange(key(2, 0), key(3, 1))], [(2, 3)]),
        (puts(9, 0, 5), [(9, 9)]),
    ],
)
@pytest.mark.parametrize("flushed", [True, False])
def test_ledgers_around_which_tables_or_logs_changed_are_read(
    bookie: Path, tmp_path: Path, read: list[Any], changes: list[Operation], stretches: Any, flushed: bool
) -> None:
    collected(bookie, tmp_path / "sets")
    read.clear()
    with locations(bookie) as store:
        store.write(changes, sync=True)
        if flushed:
            store.flush()
        # As beside a bookie at work.
        second = collected(bookie, tmp_path / "sets")
        expected = collected(bookie, tmp_path / "other")
    assert read[-1] == "all"
    wanted = {ledger for first, last in stretches for ledger in range(first, last + 1)}
    found = {ledger for first, last in read[:-1] for ledger in range(first, last + 1)}
    assert found <= wanted
    assert {1, 5} & found == set()
    assert runs_of(second) == runs_of(expected)
    # What was in a log at the time of that set is read again when it is in a table.
    third = collected(bookie, tmp_path / "sets")
    assert runs_of(third) == runs_of(expected)


@pytest.mark.parametrize("seed", range(4))
def test_set_after_set_says_what_reading_everything_says(bookie: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for step in range(6):
        with locations(bookie) as store:
            for _ in range(rng.randrange(4)):
                ledger, first = rng.randrange(1, 12), rng.randrange(80)
                choices: list[list[Operation]] = [
                    puts(ledger, first, first + rng.randrange(60), log=step + 2),
                    [Delete(key(ledger, first))],
                    [DeleteRange(key(ledger, 0), key(ledger, 1 << 60))],
                ]
                store.write(rng.choice(choices), sync=True)
                if rng.random() < 0.5:
                    store.flush()
            if rng.random() < 0.3:
                store.compact()
        one = collected(bookie, tmp_path / "sets")
        shutil.rmtree(tmp_path / "other", ignore_errors=True)
        assert runs_of(one) == runs_of(collected(bookie, tmp_path / "other"))


def test_an_index_with_damage_is_read_again_as_a_whole(bookie: Path, tmp_path: Path, read: list[Any]) -> None:
    with locations(bookie) as store:
        store.write([Put(key(3, 200), b"short")], sync=True)
        store.flush()
    for _ in range(2):
        one = collected(bookie, tmp_path / "sets")
        assert one.complete.manifest.verdict == "found"
        assert not one.complete.manifest.indexes
    assert read.count("all") == 2
    with locations(bookie) as store:
        store.write([Delete(key(3, 200))], sync=True)
    one = collected(bookie, tmp_path / "sets")
    assert (one.complete.manifest.verdict, len(one.complete.manifest.indexes)) == ("clean", 1)
    # Damage in what is read alone.
    with locations(bookie) as store:
        store.write([Put(key(4, 200), b"short")], sync=True)
    read.clear()
    one = collected(bookie, tmp_path / "sets")
    assert "all" not in read
    assert (one.complete.manifest.verdict, one.complete.manifest.indexes) == ("found", ())


def test_another_database_of_the_same_names_is_read(bookie: Path, tmp_path: Path, read: list[Any]) -> None:
    collected(bookie, tmp_path / "sets")
    shutil.rmtree(bookie / "ledgers" / "current" / "locations")
    with locations(bookie) as store:
        for ledger in range(1, 6):
            store.write(puts(ledger, 0, 100, log=2), sync=True)
            store.flush()
    second = collected(bookie, tmp_path / "sets")
    assert runs_of(second) == runs_of(collected(bookie, tmp_path / "other"))


def table(name: str, first: int, last: int, size: int = 10) -> IndexTable:
    return IndexTable(name, size, 1, 2, 3, first, last)


def test_a_table_that_was_gone_when_it_was_looked_at_is_no_evidence() -> None:
    before = IndexState("d", (table("1", 1, 2, -1), table("2", 5, 6)), ((20, 21),))
    now = IndexState("d", (table("1", 1, 2, -1), table("2", 5, 6), table("3", 9, 9)), ((22, 25),))
    assert changed_ledgers(before, now) == [(1, 2), (9, 9), (20, 25)]


def test_stretches_are_joined_where_there_would_be_too_many() -> None:
    stretches = [(1, 2), (2, 4), (5, 5), (8, 9), (20, 30), (29, 40), (43, 44)]
    assert merged_stretches(stretches, 9) == [(1, 5), (8, 9), (20, 40), (43, 44)]
    assert merged_stretches(stretches, 3) in ([(1, 9), (20, 40), (43, 44)], [(1, 5), (8, 9), (20, 44)])
    assert merged_stretches(stretches, 2) == [(1, 9), (20, 44)]
    assert merged_stretches(stretches, 1) == [(1, 44)]
    assert merged_stretches([], 1) == []
