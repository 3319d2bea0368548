"""What ``gc explain`` says of logs: eligible or exactly why not, and who decides what is alive."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bkctl.admin.gc.run import RunOptions
from bkctl.admin.ledgers.known_ledgers import Cluster, DumpedCluster, KnownLedgers, NoCluster, StoredCluster
from bkctl.codec import ledger_data
from bkctl.codec.cookie import Cookie
from bkctl.codec.entry_log_metadata import EntryLogMetadata, encode_entry_log_metadata, encode_log_key
from bkctl.errors import ConnectionFailedError, CorruptionError, RefusedError
from bkctl.kvstore.base import Put
from bkctl.kvstore.profile import LEDGERS_PROFILE
from bkctl.kvstore.rocksdb_store import open_store
from bkctl.metadata.api import LedgerRange
from bkctl.metadata.uri import open_metadata_store
from tests.support import cluster_dumps
from tests.unit.admin.gc.stopped_bookie import RECORD_BYTES, Stopped, cluster_of, on_bookie, some_metadata

HOST = "bookie:3181"


def dump_of(ledgers: dict[int, str | None], *, trusted: bool = False) -> DumpedCluster:
    """A dump in which ledgers are kept on these bookies."""
    metadata = {ledger: on_bookie(some_metadata(), bookie) for ledger, bookie in ledgers.items()}
    return DumpedCluster(cluster_dumps.dump_of(metadata), trusted=trusted)


@pytest.fixture
def bookie(tmp_path: Path) -> Stopped:
    return Stopped(tmp_path).build()


def verdicts(bookie: Stopped, **options: object) -> dict[int, str]:
    return {log_id: row.eligible for log_id, row in bookie.explain(**options).items()}  # type: ignore[arg-type]


def test_each_log_has_its_numbers_and_a_reason(bookie: Stopped) -> None:
    rows = bookie.explain()
    assert {log_id: row.eligible for log_id, row in rows.items()} == {
        0: "major",
        1: "garbage",
        2: "minor",
        3: "no",
    }
    half = rows[0]
    assert (half.record_bytes, half.live_bytes, half.live_ratio) == (
        40 * RECORD_BYTES,
        20 * RECORD_BYTES,
        0.5,
    )
    assert (half.ledgers, half.live_ledgers) == (2, ((1, 20 * RECORD_BYTES),))
    assert half.why == "50.0% of its entries' bytes are live, below 80%"
    assert rows[1].why == "none of its ledgers is alive (1 in it)"
    assert rows[3].why == "100.0% of its entries' bytes are live, 20.0% above the threshold of 80%"
    assert not any(row.alarming for row in rows.values())


def test_age_is_counted_from_the_last_write(bookie: Stopped) -> None:
    os.utime(bookie.current() / "1.log", (4_000_000_000 - 90, 4_000_000_000 - 90))
    assert bookie.explain()[1].age_s == 90


def test_an_entry_whose_row_names_another_log_is_a_copy(tmp_path: Path) -> None:
    made = Stopped(tmp_path)
    made.ledger(1)
    for entry in range(10):
        made.store(1, entry, log_id=0)
        made.add(1, entry, log_id=1)
    made.write()
    rows = made.explain()
    assert (rows[0].live_bytes, rows[0].counted_bytes) == (0, 10 * RECORD_BYTES)
    assert rows[0].eligible == "minor"
    assert "a running bookie counts 100.0%" in rows[0].why
    assert rows[1].live_bytes == 10 * RECORD_BYTES


def test_an_entry_without_a_row_holds_its_log(tmp_path: Path) -> None:
    """A location index that was lost or half built must not make live entries look dead."""
    made = Stopped(tmp_path)
    made.ledger(1)
    made.store(1, 0)
    made.add(1, 1)
    for entry in range(20):
        made.store(9, entry)
    made.write()
    row = made.explain()[0]
    assert row.eligible == "no"
    assert row.alarming
    assert "1 entry of live ledgers has no row in the location index" in row.why


def test_a_ledger_without_a_row_lives_as_long_as_it_has_locations(tmp_path: Path) -> None:
    made = Stopped(tmp_path)
    made.ledger(1)
    made.add(1, 0)
    made.add(7, 0, log_id=1)  # its ledger row is lost
    made.write()
    assert verdicts(made) == {0: "no", 1: "no"}


def test_no_ledger_row_at_all_is_no_garbage(tmp_path: Path) -> None:
    made = Stopped(tmp_path)
    made.store(1, 0)
    made.write()
    row = made.explain()[0]
    assert row.eligible == "no"
    assert row.alarming
    assert "index rebuild" in row.why


def test_a_damaged_log_is_named_and_the_others_go_on(bookie: Stopped) -> None:
    path = bookie.current() / "1.log"
    data = bytearray(path.read_bytes())
    data[1024 + 2 * RECORD_BYTES : 1024 + 2 * RECORD_BYTES + 40] = b"\xee" * 40
    path.write_bytes(data)
    rows = bookie.explain()
    assert (rows[1].eligible, rows[1].damaged, rows[1].live_bytes) == ("no", True, None)
    assert rows[1].why.startswith("damaged, set aside: ")
    assert {log_id: row.eligible for log_id, row in rows.items() if log_id != 1} == {
        0: "major",
        2: "minor",
        3: "no",
    }


def test_a_torn_end_is_no_damage(bookie: Stopped) -> None:
    path = bookie.current() / "1.log"
    path.write_bytes(path.read_bytes()[:-30])
    assert bookie.explain()[1].eligible == "garbage"


def test_an_empty_log_is_garbage(bookie: Stopped) -> None:
    (bookie.current() / "4.log").touch()
    row = bookie.explain()[4]
    assert (row.eligible, row.why) == ("garbage", "no entry in it")


def test_the_newest_log_waits_for_the_journals(tmp_path: Path) -> None:
    made = Stopped(tmp_path)
    made.journaled(5, range(3))
    made.build()
    made.store(5, 0, log_id=1)
    rows = made.explain()
    assert rows[3].eligible == "no"
    assert "the journals hold 5 records behind the last mark" in rows[3].why
    assert rows[1].eligible == "garbage"


def test_ledgers_that_a_replay_brings_back_are_alive(tmp_path: Path) -> None:
    made = Stopped(tmp_path)
    made.journaled(2, range(3))
    made.build()
    assert verdicts(made)[1] == "no"


def test_a_compaction_that_is_not_finished_holds_both_logs(bookie: Stopped) -> None:
    os.link(bookie.current() / "2.log", bookie.current() / "2.log.1.compacted")
    rows = bookie.explain()
    assert [rows[log_id].eligible for log_id in (1, 2)] == ["no", "no"]
    assert "2.log.1.compacted" in rows[1].why


def test_a_log_that_may_be_written_is_left(bookie: Stopped) -> None:
    """This very process holds the database, as a bookie would."""
    with open_store(str(bookie.current() / "ledgers"), LEDGERS_PROFILE, create=False):
        rows = bookie.explain()
    assert "may be writing it" in rows[3].why
    assert rows[1].eligible == "garbage"


def test_idx_files_are_read_too(tmp_path: Path) -> None:
    made = Stopped(tmp_path, storage="idx").build()
    assert verdicts(made) == {0: "major", 1: "garbage", 2: "minor", 3: "no"}


def test_a_row_that_does_not_decode_speaks_for_its_ledger(tmp_path: Path) -> None:
    made = Stopped(tmp_path)
    made.raw_rows.append((0, "ledgers", ledger_data.encode_ledger_key(2), b"\xff\xff"))
    assert verdicts(made.build())[1] == "no"


# --- quick ----------------------------------------------------------------------------------------------


def test_quick_believes_the_cache_where_there_is_no_map(bookie: Stopped) -> None:
    row = EntryLogMetadata(0, 4000, 1500, ((1, 1500),))
    with open_store(str(bookie.current() / "metadata-cache"), LEDGERS_PROFILE, create=True) as store:
        store.write([Put(encode_log_key(0), encode_entry_log_metadata(row))], sync=True)
        wrong = EntryLogMetadata(1, 1, 1500, ((1, 1500),))
        store.write([Put(encode_log_key(1), encode_entry_log_metadata(wrong))], sync=True)
    rows = bookie.explain(quick=True)
    assert (rows[0].source, rows[0].live_bytes, rows[0].live_ratio) == ("cache", 1500, 0.375)
    assert (rows[1].source, rows[1].eligible) == ("walk", "garbage")


@pytest.mark.parametrize(
    "row",
    [
        encode_entry_log_metadata(EntryLogMetadata(1, 1000, 1000, ((1, 1000),))),
        encode_entry_log_metadata(EntryLogMetadata(7, 20 * RECORD_BYTES, 1000, ((1, 1000),))),
        b"no row",
    ],
    ids=["leaves ledgers out", "of another log", "damaged"],
)
def test_quick_reads_a_log_whose_cached_row_is_not_to_be_believed(bookie: Stopped, row: bytes) -> None:
    with open_store(str(bookie.current() / "metadata-cache"), LEDGERS_PROFILE, create=True) as store:
        store.write([Put(encode_log_key(1), row)], sync=True)
    explained = bookie.explain(quick=True)[1]
    assert (explained.source, explained.eligible) == ("walk", "garbage")
    assert explained.record_bytes == 20 * RECORD_BYTES


def test_quick_believes_a_map_that_accounts_for_all(bookie: Stopped) -> None:
    log = bookie.logs[0, 0]
    (bookie.current() / "0.log").write_bytes(log.roll().data)
    quick, exact = bookie.explain(quick=True)[0], bookie.explain()[0]
    assert (quick.source, exact.source) == ("map", "walk")
    assert quick.live_bytes == exact.live_bytes
    assert quick.eligible == exact.eligible


# --- who says what lives --------------------------------------------------------------------------------


def test_a_dump_tells_deleted_ledgers_but_not_newer_ones(bookie: Stopped) -> None:
    assert verdicts(bookie, cluster=dump_of({1: HOST, 5: HOST})) == {
        0: "major",
        1: "garbage",
        2: "minor",
        3: "garbage",
    }
    assert verdicts(bookie, cluster=dump_of({1: HOST, 2: "other:3181"}))[3] == "no"


def test_an_index_that_forgot_a_ledger_does_not_kill_it(bookie: Stopped) -> None:
    """Ledger 2 has no row, but the cluster keeps it here."""
    rows = bookie.explain(dump_of({1: HOST, 2: HOST, 3: HOST}))
    assert rows[1].eligible == "no"
    assert "have no row in the location index" in rows[1].why
    assert verdicts(bookie, cluster=dump_of({1: HOST, 2: "other:3181", 3: HOST}))[1] == "garbage"


def known_by(cluster: Cluster, instance_id: str | None, bookie: str | None = HOST) -> KnownLedgers:
    """What a bookie with this instance id in its cookie knows by a cluster."""
    return KnownLedgers.of(cluster, Cookie(5, HOST, "/j", "1\t/l", instance_id), bookie)


def test_a_store_gives_two_proofs() -> None:
    with open_metadata_store("memory://gc-two-proofs") as store:
        store.layout.initialise_cluster()
        cluster = cluster_of(store, [1, 3], HOST)
        known = known_by(cluster, cluster.instance_id)
        assert known.gone([3, 2, 1]) == {2}
        assert known.keeps_each([1, 2]) == {1: True, 2: False}
        assert known_by(cluster, None, None).keeps_each([1]) == {1: True}
        assert known_by(cluster, cluster.instance_id, "other:3181").keeps_each([1]) == {1: False}
        with pytest.raises(RefusedError, match="instance"):
            known_by(cluster, "instance")


def test_a_store_that_was_brought_back_from_an_older_copy_proves_nothing(bookie: Stopped) -> None:
    """Its id generator would give an id that a ledger has here already."""
    with open_metadata_store("memory://gc-older-copy") as store:
        store.layout.initialise_cluster()
        cluster = cluster_of(store, [1], HOST, issued=3)
        known = known_by(cluster, cluster.instance_id)
        assert known.gone([1, 2]) == {2}
        assert (known.gone([1, 2, 3]), known.keeps_each([2, 3])) == (set(), {2: None, 3: None})
        assert known.rolled_back is not None
        assert "brought back from an older copy" in known.rolled_back
        cookie = bookie.current() / "VERSION"
        cookie.write_bytes(cookie.read_bytes().replace(b'"instance"', f'"{cluster.instance_id}"'.encode()))
        assert {log_id: row.eligible for log_id, row in bookie.explain(cluster).items()}[3] == "no"
        with pytest.raises(RefusedError, match="brought back from an older copy"):
            bookie.prepare(cluster, RunOptions(delete_ledgers=True))
        work = bookie.prepare(cluster, RunOptions(delete_ledgers=True, confirmed=True))
        assert work.gone == [3]


def test_whose_metadata_these_are_is_not_guessed_past_a_damaged_cookie(bookie: Stopped) -> None:
    cookie = bookie.current() / "VERSION"
    cookie.write_bytes(b"5\nbookieHost")
    assert verdicts(bookie) == {0: "major", 1: "garbage", 2: "minor", 3: "no"}
    with open_metadata_store("memory://gc-damaged-cookie") as store:
        store.layout.initialise_cluster()
        cluster = cluster_of(store, [1, 3], HOST)
        with pytest.raises(CorruptionError, match=str(cookie)):
            bookie.explain(cluster)


@pytest.mark.parametrize("kind", ["store", "dump"])
def test_without_a_cookie_no_metadata_prove_that_a_ledger_is_gone(bookie: Stopped, kind: str) -> None:
    """They may be another cluster's, and none of these ledgers would be left."""
    with open_metadata_store(f"memory://gc-lost-cookie-{kind}") as store:
        store.layout.initialise_cluster()
        stored = cluster_of(store, [1], HOST, issued=10)
        cluster = stored if kind == "store" else dump_of({1: HOST, 9: HOST}, trusted=True)
        cookie = bookie.current() / "VERSION"
        cookie.write_bytes(cookie.read_bytes().replace(b'"instance"', f'"{cluster.instance_id}"'.encode()))
        assert bookie.explain(cluster)[3].eligible == "garbage"
        cookie.unlink()
        assert bookie.explain(cluster)[3].eligible == "no"
        with pytest.raises(RefusedError, match="no cookie says which cluster's bookie this is"):
            bookie.prepare(cluster, RunOptions(delete_ledgers=True, confirmed=True))


def test_a_cookie_without_an_instance_id_proves_no_store_to_be_its_own(bookie: Stopped) -> None:
    """No bookie starts with such a cookie on a store that has an instance id, or the other way round."""
    with open_metadata_store("memory://gc-cookie-without-instance") as store:
        store.layout.initialise_cluster()
        cluster = cluster_of(store, [1], HOST, issued=10)
        cookie = bookie.current() / "VERSION"
        lines = cookie.read_bytes().splitlines(keepends=True)
        cookie.write_bytes(b"".join(line for line in lines if not line.startswith(b"instanceId")))
        assert bookie.explain(cluster)[3].eligible == "no"
        with pytest.raises(RefusedError, match="the cookie has no instance id"):
            bookie.prepare(cluster, RunOptions(delete_ledgers=True, confirmed=True))


class Forgetful:
    """A ledger manager whose listing leaves out what it has."""

    def __init__(self, inner: object, ranges: list[LedgerRange]) -> None:
        self._inner = inner
        self._ranges = ranges

    def ledger_ranges(self) -> object:
        return iter(self._ranges)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def test_one_proof_is_not_enough() -> None:
    with open_metadata_store("memory://gc-one-proof") as store:
        store.layout.initialise_cluster()
        own = cluster_of(store, [1], HOST).instance_id
        empty = Forgetful(store.ledgers, [LedgerRange(0, (1 << 63) - 1, ())])
        assert known_by(StoredCluster(store.layout, empty), own).gone([1, 2]) == {2}  # type: ignore[arg-type]
        short = Forgetful(store.ledgers, [LedgerRange(0, 99, ())])
        with pytest.raises(RefusedError, match="ends before"):
            known_by(StoredCluster(store.layout, short), own).gone([1, 2])  # type: ignore[arg-type]


def test_an_error_is_no_answer(bookie: Stopped) -> None:
    class Down(NoCluster):
        is_asked = True

        def unproved(self, instance_id: str | None) -> str | None:
            return None

        def missing(self, ledgers: object) -> set[int]:
            raise ConnectionFailedError("down")

    with pytest.raises(ConnectionFailedError):
        bookie.explain(Down())
