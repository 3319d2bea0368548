"""Which sets an audit reads; what is wrong with a store never makes an answer better."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkctl.errors import NotFoundError
from bkctl.pipeline.locations import located
from bkctl.pipeline.sets.choice import Cluster, SetWish, choose_sets, parse_time, read_cluster
from bkctl.pipeline.sets.manifest import Manifest, PartFile, decode_manifest, encode_manifest
from bkctl.pipeline.sets.store import SetStore
from bkctl.vfs import PosixFileSystem
from tests.support.sets import DEMO, ZK, collected, ran
from tests.support.two_directories import split_in_two

HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS


def manifest(bookie: str = "b1:3181", hour: int = 90, **changes: Any) -> Manifest:
    made = Manifest(
        bookie=bookie,
        set_id=f"hour-{hour:03d}",
        instance_id="one",
        host=f"host-of-{bookie}",
        cookie=None,
        dirs=("/data/current",),
        started_ms=hour * HOUR_MS,
        ended_ms=hour * HOUR_MS + 1000,
        version="1",
        kernel="k",
        digest_known="auto",
        verdict="clean",
        guards=(),
        unread_indexes=(),
        logs_gone=0,
        not_read={},
        last_marks=(),
        tables={},
        files=(),
        bookies=(),
    )
    return replace(made, **changes)


def store_of(folder: Path, *manifests: Manifest) -> SetStore:
    store = SetStore(located(str(folder)))
    store.claim()
    for one in manifests:
        store.publish(one)
    return store


def chosen(store: SetStore, wish: SetWish | None = None, cluster: Cluster | None = None) -> Any:
    return choose_sets([store], wish or SetWish(), NOW_MS, cluster or Cluster())


def unknowns(choice: Any) -> list[str]:
    return [problem.unknown for problem in choice.problems]


def test_the_newest_complete_set_of_each_bookie_is_read(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s", manifest(hour=90), manifest(hour=95), manifest("b2:3181", 80))
    choice = chosen(store)
    assert [one.manifest.set_id for one in choice.sets] == ["hour-095", "hour-080"]
    assert not choice.problems
    earlier = chosen(store, SetWish(as_of_ms=91 * HOUR_MS))
    assert [one.manifest.set_id for one in earlier.sets] == ["hour-090", "hour-080"]


def test_a_set_that_was_cut_short_is_named_and_an_older_one_is_read(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s", manifest(hour=90), manifest(hour=95))
    newest = store.place_of("b1:3181", "hour-095")
    path = Path(newest.path) / "manifest.json"
    path.write_bytes(path.read_bytes()[:-30])
    choice = chosen(store)
    assert [one.manifest.set_id for one in choice.sets] == ["hour-090"]
    assert "hour-095" in choice.notes[0]
    assert unknowns(choice) == ["sets_cut_short"]
    path.unlink()
    assert [one.manifest.set_id for one in chosen(store).sets] == ["hour-090"]
    shutil.rmtree(store.place_of("b1:3181", "hour-090").path)
    assert unknowns(chosen(store)) == ["sets_missing"]


def test_a_pass_that_began_later_than_what_is_asked_for_does_not_count(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s", manifest(hour=90))
    store.place_of("b1:3181", "19700105T010000000Z-00000000").write("runs/part-1.parquet", b"")
    assert unknowns(chosen(store)) == []  # names are in the order of their times: it is older than the other
    late = store_of(tmp_path / "t", manifest(set_id="19700104T180000000Z-00000000"))
    late.place_of("b1:3181", "19700105T010000000Z-00000000").write("runs/part-1.parquet", b"")
    assert unknowns(chosen(late)) == ["sets_cut_short"]
    assert unknowns(chosen(late, SetWish(as_of_ms=96 * HOUR_MS))) == []
    assert unknowns(chosen(late, SetWish(as_of_ms=97 * HOUR_MS))) == ["sets_cut_short"]


def test_a_set_whose_file_is_not_what_its_manifest_says_is_not_complete(tmp_path: Path) -> None:
    part = PartFile("runs/part-1.parquet", 1, 100)
    store = store_of(tmp_path / "s", manifest(hour=95, tables={"runs": (part,)}))
    assert unknowns(chosen(store)) == ["sets_missing"]
    store.place_of("b1:3181", "hour-095").write(part.name, b"x" * 99)
    assert "99 bytes" in chosen(store).problems[0].why


def test_a_set_that_is_too_old_is_named(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s", manifest(hour=60))
    assert unknowns(chosen(store, SetWish(max_age_ms=36 * HOUR_MS))) == ["sets_stale"]
    assert not chosen(store, SetWish(max_age_ms=41 * HOUR_MS)).problems
    assert not chosen(store, SetWish(as_of_ms=70 * HOUR_MS, max_age_ms=36 * HOUR_MS)).problems


def test_a_set_of_a_time_that_has_not_come_is_named(tmp_path: Path) -> None:
    """Its clock was wrong; what was collected since is never the newest."""
    store = store_of(tmp_path / "s", manifest(hour=150), manifest(hour=99))
    choice = chosen(store, SetWish(max_age_ms=36 * HOUR_MS))
    assert [one.manifest.set_id for one in choice.sets] == ["hour-150"]
    (problem,) = choice.problems
    assert (problem.unknown, "50.0 h from now" in problem.why) == ("sets_ahead", True)
    assert unknowns(chosen(store_of(tmp_path / "t", manifest(started_ms=NOW_MS + 1000)))) == []
    assert unknowns(chosen(store, SetWish(as_of_ms=100 * HOUR_MS))) == []


def test_sets_of_two_machines_under_one_name_are_twins(tmp_path: Path) -> None:
    moved = [manifest(hour=hour, host="old" if hour < 93 else "new") for hour in (90, 92, 94, 96)]
    assert not chosen(store_of(tmp_path / "moved", *moved)).problems
    both = [manifest(hour=hour, host="old" if hour % 4 else "new") for hour in (90, 92, 94, 96)]
    assert unknowns(chosen(store_of(tmp_path / "both", *both))) == ["sets_twin"]


def test_a_set_of_another_cluster_is_left_out(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s", manifest(), manifest("b2:3181", instance_id="two"))
    choice = chosen(store, cluster=Cluster("one", frozenset({"b1:3181"})))
    assert [one.manifest.bookie for one in choice.sets] == ["b1:3181"]
    assert unknowns(choice) == ["sets_foreign"]
    assert unknowns(chosen(store)) == ["sets_foreign"]


def test_a_bookie_that_metadata_knows_and_no_set_is_of_is_missing(tmp_path: Path) -> None:
    choice = chosen(
        store_of(tmp_path / "s", manifest()), cluster=Cluster("one", frozenset({"b1:3181", "b2:3181"}))
    )
    assert unknowns(choice) == ["sets_missing"]
    assert "b2:3181" in choice.problems[0].why


def test_a_dump_says_whose_it_is() -> None:
    cluster = read_cluster(PosixFileSystem(), str(ZK))
    assert cluster.instance_id
    assert cluster.bookies is not None
    assert "127.0.0.1:4100" in cluster.bookies


def test_two_sets_of_one_bookie_never_make_a_loss_clean(tmp_path: Path) -> None:
    """The newest counts, alone: what it lacks is not taken from the one before."""
    bookie = Path(shutil.copytree(DEMO, tmp_path / "bookie"))
    collected(bookie, tmp_path / "sets")
    before = ran("replication-audit", [tmp_path / "sets"], tmp_path / "a", wish=SetWish(max_age_ms=HOUR_MS))
    assert before.counts["slots_missing"] == 0
    max(bookie.glob("ledgers/current/*.log"), key=lambda path: path.stat().st_size).unlink()
    collected(bookie, tmp_path / "sets")
    after = ran("replication-audit", [tmp_path / "sets"], tmp_path / "b")
    direct = ran("replication-audit", [bookie], tmp_path / "c")
    assert after.counts == direct.counts
    assert after.counts["slots_missing"] > 0


def test_a_place_without_sets_is_named(tmp_path: Path) -> None:
    store_of(tmp_path / "s")
    with pytest.raises(NotFoundError, match="no complete set"):
        ran("orphans", [tmp_path / "s"], tmp_path / "o")


def test_a_manifest_survives_its_text_and_nothing_else() -> None:
    one = manifest(tables={"runs": (PartFile("runs/p", 1, 2),)})
    data = encode_manifest(one)
    assert decode_manifest(data, "m") == one
    for at in range(0, len(data) - 1, 7):
        broken = bytearray(data)
        broken[at] ^= 4
        with pytest.raises(Exception, match="manifest of a set"):
            decode_manifest(bytes(broken), "m")


def test_times_are_iso_or_milliseconds() -> None:
    assert parse_time("1700000000000") == 1_700_000_000_000
    assert parse_time("2023-11-14T22:13:20") == parse_time("2023-11-14T23:13:20+01:00") == 1_700_000_000_000


def test_a_set_that_has_lost_a_directory_is_named(tmp_path: Path) -> None:
    """As a disk that is not mounted any more leaves one."""
    bookie, sets = tmp_path / "bookie", tmp_path / "sets"
    split_in_two(DEMO, bookie)
    whole = collected(bookie, sets)

    def problems() -> Any:
        store = SetStore(located(str(sets)))
        return choose_sets([store], SetWish(), whole.complete.manifest.ended_ms, Cluster()).problems

    assert (whole.complete.manifest.verdict, problems()) == ("clean", ())
    shutil.rmtree(bookie / "ledgers2")
    for _ in range(2):
        partial = collected(bookie, sets)
    (guard,) = partial.complete.manifest.guards
    assert "of the 2 ledger directories that its cookie names 1 was given" in guard
    assert (partial.complete.manifest.verdict, partial.exit_code) == ("unexamined", 3)
    (problem,) = problems()
    assert (problem.unknown, "ledgers2" in problem.why) == ("sets_partial", True)
    # The files themselves do not show what there was before: what the cookie says is told.
    assert guard in ran("verify", [bookie], tmp_path / "o").guards
