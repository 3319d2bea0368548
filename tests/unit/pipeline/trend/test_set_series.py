"""Trends of sets: what is missing or cannot be read leaves a hole with a name, never a smaller sum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkctl.errors import RefusedError
from bkctl.pipeline.locations import located
from bkctl.pipeline.sets.store import SetStore
from bkctl.pipeline.trend.points import TrendWish
from bkctl.pipeline.trend.set_series import BookieHistory, set_points
from tests.support.trend_places import night, publish


def followed(*folders: Path, points: int = 3, until: float = 2.6, **wish: Any) -> Any:
    stores = [SetStore(located(str(folder))) for folder in folders]
    return set_points(stores, TrendWish(night(until), points=points, **wish))


def values(trend: Any, measure: str, bookie: str | None = None) -> list[tuple[Any, str]]:
    scope = "cluster" if bookie is None else "bookie"
    return [(point.value, point.state) for point in trend.series("collect", measure, scope, bookie)]


def test_bytes_and_damage_are_followed_by_bookie_and_summed(tmp_path: Path) -> None:
    for day in range(3):
        publish(tmp_path, "b1:3181", day, 1000 + 100 * day, damages=day, bad=5 * day)
        publish(tmp_path, "b2:3181", day, 500)
    trend = followed(tmp_path)
    assert trend.exit_code == 0
    assert values(trend, "log_bytes", "b1:3181") == [(1000, "judged"), (1100, "judged"), (1200, "judged")]
    assert values(trend, "log_bytes") == [(1500, "judged"), (1600, "judged"), (1700, "judged")]
    assert values(trend, "damages") == [(0, "judged"), (1, "judged"), (2, "judged")]
    assert values(trend, "bad_entries") == [(0, "judged"), (5, "judged"), (10, "judged")]
    last = trend.series("collect", "log_bytes", "cluster")[-1]
    assert (last.change, last.per_day) == (100, pytest.approx(100))


def test_a_bookie_without_a_set_leaves_the_sum_unknown(tmp_path: Path) -> None:
    for day in range(3):
        publish(tmp_path, "b1:3181", day)
    publish(tmp_path, "b2:3181", 0, damages=7)
    trend = followed(tmp_path, max_age_ms=36 * 3_600_000)
    assert values(trend, "damages", "b2:3181") == [(7, "judged"), (None, "stale"), (None, "stale")]
    assert values(trend, "damages") == [(7, "judged"), (None, "stale"), (None, "stale")]
    last = trend.series("collect", "damages", "cluster")[-1]
    assert "b2:3181" in last.why
    assert last.change is None
    assert trend.exit_code == 3


def test_a_bookie_that_joins_is_no_hole_before(tmp_path: Path) -> None:
    for day in range(3):
        publish(tmp_path, "b1:3181", day)
    publish(tmp_path, "b2:3181", 2, 50)
    trend = followed(tmp_path)
    assert values(trend, "log_bytes") == [(1000, "judged"), (1000, "judged"), (1050, "judged")]
    assert values(trend, "log_bytes", "b2:3181") == [(50, "judged")]


@pytest.mark.parametrize("harm", ["cut", "gone", "swapped"])
def test_a_set_that_cannot_be_read_is_named(tmp_path: Path, harm: str) -> None:
    """Its older sisters are read, as a run would; where there is none young enough, nothing is said."""
    publish(tmp_path, "b1:3181", 0, damages=3)
    newest = publish(tmp_path, "b1:3181", 2)
    table, manifest = newest / "verification" / "part-1.parquet", newest / "manifest.json"
    if harm == "cut":
        manifest.write_bytes(manifest.read_bytes()[:-9])
    elif harm == "gone":
        table.unlink()
    else:
        table.write_bytes(b"x" * table.stat().st_size)
    trend = followed(tmp_path)
    first, _, last = values(trend, "damages")
    assert first == (3, "judged")
    assert last == (None, "unreadable" if harm == "swapped" else "stale")
    said = [*trend.notes, *(point.why for point in trend.points if point.why)]
    assert any(newest.name in text for text in said)
    assert trend.exit_code == 3
    old_enough = followed(tmp_path, max_age_ms=0)
    assert values(old_enough, "damages")[-1] == ((None, "unreadable") if harm == "swapped" else (3, "judged"))


def test_a_pass_that_never_finished_is_missing(tmp_path: Path) -> None:
    (publish(tmp_path, "b1:3181", 1) / "manifest.json").unlink()
    publish(tmp_path, "b2:3181", 1)
    trend = followed(tmp_path, points=1)
    assert values(trend, "log_bytes", "b1:3181") == [(None, "missing")]
    assert values(trend, "log_bytes") == [(None, "missing")]
    assert "no manifest" in trend.series("collect", "log_bytes", "cluster")[0].why


@pytest.mark.parametrize(
    ("changes", "measures"),
    [
        ({"not_read": {"verification": "a log went away"}}, ("damages", "bad_entries")),
        ({"not_read": {"logs": "a log is not readable"}}, ("log_bytes",)),
        ({"unchecked": 4}, ("bad_entries",)),
    ],
)
def test_what_a_set_could_not_judge_is_a_bound_and_no_value(
    tmp_path: Path, changes: dict[str, Any], measures: tuple[str, ...]
) -> None:
    publish(tmp_path, "b1:3181", 1, damages=2)
    publish(tmp_path, "b1:3181", 2, **changes)
    trend = followed(tmp_path, points=2)
    for measure in ("log_bytes", "damages", "bad_entries"):
        last = trend.series("collect", measure, "cluster")[-1]
        assert last.state == ("unexamined" if measure in measures else "judged"), measure
        assert (last.change is None) == (measure in measures)


def test_twins_and_other_clusters_are_not_judged(tmp_path: Path) -> None:
    for day in (0, 1, 2):
        publish(tmp_path / "twins", "b1:3181", day, host=f"host-{day % 2}")
        publish(tmp_path / "two", "b1:3181", day)
        publish(tmp_path / "two", "b2:3181", day, instance_id="other")
    assert values(followed(tmp_path / "twins"), "log_bytes")[-1] == (1000, "unexamined")
    trend = followed(tmp_path / "two")
    assert values(trend, "log_bytes") == [(2000, "unexamined")] * 3
    assert "2 clusters" in trend.series("collect", "log_bytes", "cluster")[0].why
    with pytest.raises(RefusedError, match="both hold bookie b1:3181"):
        followed(tmp_path / "twins", tmp_path / "two")


def test_a_point_reads_what_was_complete_then(tmp_path: Path) -> None:
    publish(tmp_path, "b1:3181", 1, 10)
    publish(tmp_path, "b1:3181", 2, 20, ended_ms=night(2.4))
    assert values(followed(tmp_path, points=1, until=2.3), "log_bytes") == [(10, "judged")]
    assert values(followed(tmp_path, points=1, until=2.5), "log_bytes") == [(20, "judged")]


def test_each_manifest_is_read_once_and_its_files_are_not_kept(tmp_path: Path, monkeypatch: Any) -> None:
    for day in range(4):
        publish(tmp_path, "b1:3181", day)
    read: list[str] = []
    plain = SetStore.read
    monkeypatch.setattr(SetStore, "read", lambda store, *name: read.append(name[1]) or plain(store, *name))
    assert len(values(followed(tmp_path, points=8, until=3.9, every_ms=6 * 3_600_000), "log_bytes")) == 8
    assert len(read) == len(set(read)) == 4
    history = BookieHistory(SetStore(located(str(tmp_path))), "b1:3181")
    history.at_ms = night(5)
    assert all(not one.manifest.files for one in history.sets_of("b1:3181"))
