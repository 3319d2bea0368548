"""Trends of past runs: by summaries and tables, with a name for each run that nobody can read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bkctl.errors import NotFoundError
from bkctl.pipeline.job import Parameters
from bkctl.pipeline.trend.past_runs import find_sources
from bkctl.pipeline.trend.points import TrendWish
from bkctl.pipeline.trend.run_series import run_points
from tests.support.trend_places import night, write_run

MEMORY_BYTES = 256 << 20


def followed(folder: Path, points: int = 3, until: float = 2.6, **wish: Any) -> Any:
    sources = find_sources([str(folder)])
    trend = run_points(sources.runs, TrendWish(night(until), points=points, **wish), MEMORY_BYTES)
    trend.problems += sources.problems
    return trend


def values(trend: Any, *series: Any) -> list[tuple[Any, str]]:
    return [(point.value, point.state) for point in trend.series(*series)]


def owners(**bytes_of: int) -> dict[str, Any]:
    rows = [
        {"application": name, "topic": f"t-{name}", "bytes": size, "disk_bytes": 2 * size, "ledgers": 1}
        for name, size in bytes_of.items()
    ]
    return {"ledger_owners": [*rows, {**rows[0], "application": None, "topic": None, "bytes": 1}]}


def stats(folder: Path, day: float, **bytes_of: int) -> Path:
    counts = {"ledgers": 3, "ledgers_not_closed": 0, "bytes": sum(bytes_of.values()), "log_bytes": 0}
    return write_run(folder, "stats", day, counts, owners(**bytes_of))


def garbage(folder: Path, day: float, dead: dict[str, int], **changes: Any) -> Path:
    rows = [
        {"bookie": name, "dir": side, "live_bytes": 10, "unknown_bytes": 0, "dead_bytes": size}
        for name, size in dead.items()
        for side in "ab"
    ]
    total = 2 * sum(dead.values())
    counts = {"bytes": 100, "live_bytes": 20, "unknown_bytes": 0, "dead_bytes": total, "removable_bytes": 0}
    return write_run(
        folder, "garbage", day, {**counts, "damaged_logs": 0}, {"bookie_garbage": rows}, **changes
    )


def test_the_applications_and_topics_that_grew_most_are_followed(tmp_path: Path) -> None:
    stats(tmp_path, 0, pulsar=100, flink=900, old=50)
    stats(tmp_path, 1, pulsar=400, flink=900, old=40)
    stats(tmp_path, 2, pulsar=900, flink=901)
    trend = followed(tmp_path, top=2)
    assert trend.exit_code == 0
    assert values(trend, "stats", "bytes", "application", "pulsar") == [
        (100, "judged"),
        (400, "judged"),
        (900, "judged"),
    ]
    # An application that has no ledgers any more has none: that is a value.
    assert [value for value, _ in values(trend, "stats", "bytes", "application", "old")] == [50, 40, 0]
    assert values(trend, "stats", "disk_bytes", "topic", "t-pulsar")[-1] == (1800, "judged")
    assert not values(trend, "stats", "bytes", "application", "flink")
    last = trend.series("stats", "bytes", "application", "pulsar")[-1]
    assert (last.change, last.per_day) == (500, pytest.approx(500))
    everything = followed(tmp_path)
    assert [value for value, _ in values(everything, "stats", "bytes", "application", "(none)")] == [1, 1, 1]
    assert values(everything, "stats", "bytes", "cluster")[-1] == (1801, "judged")


def test_garbage_is_followed_by_bookie(tmp_path: Path) -> None:
    garbage(tmp_path, 0, {"b1": 1, "b2": 5})
    garbage(tmp_path, 1, {"b1": 2})
    garbage(tmp_path, 2, {"b1": 3, "b3": 1})
    trend = followed(tmp_path)
    assert [value for value, _ in values(trend, "garbage", "dead_bytes", "bookie", "b1")] == [2, 4, 6]
    gone = values(trend, "garbage", "dead_bytes", "bookie", "b2")
    assert gone == [(10, "judged"), (None, "missing"), (None, "missing")]
    assert values(trend, "garbage", "dead_bytes", "bookie", "b3") == [(2, "judged")]
    assert trend.exit_code == 3


def test_a_run_of_last_week_is_stale(tmp_path: Path) -> None:
    garbage(tmp_path, 0, {"b1": 1})
    trend = followed(tmp_path)
    assert values(trend, "garbage", "dead_bytes", "cluster") == [
        (2, "judged"),
        (None, "stale"),
        (None, "stale"),
    ]
    assert values(trend, "garbage", "dead_bytes", "bookie", "b1")[-1] == (None, "stale")
    assert trend.exit_code == 3
    assert followed(tmp_path, max_age_ms=0).exit_code == 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"verdict": "unexamined", "found": ["sets_missing"]}, "could not judge sets_missing"),
        ({"paths": ["/backup/1/bookies", "/backup/1/more"]}, "other paths"),
        ({"metadata": None}, "other paths"),
        ({"parameters": {"threshold": 0.1}}, "other options"),
    ],
)
def test_a_run_that_could_not_judge_or_asked_something_else_is_a_bound(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    garbage(tmp_path, 0, {"b1": 1})
    garbage(tmp_path, 1, {"b1": 0}, **changes)
    garbage(tmp_path, 2, {"b1": 1})
    trend = followed(tmp_path)
    points = trend.series("garbage", "dead_bytes", "cluster")
    assert [point.state for point in points] == ["judged", "unexamined", "judged"]
    assert why in points[1].why
    assert [point.change for point in points] == [None, None, 0]
    assert trend.series("garbage", "dead_bytes", "bookie", "b1")[1].state == "unexamined"


def test_results_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    whole = stats(tmp_path, 0, pulsar=5)
    cut = stats(tmp_path, 1, pulsar=6)
    file = cut / "ledger_owners" / "part-00000.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    lacking = stats(tmp_path, 2, pulsar=7)
    shutil.rmtree(lacking / "ledger_owners")
    trend = followed(tmp_path)
    mine = trend.series("stats", "bytes", "application", "pulsar")
    assert [(point.value, point.state) for point in mine] == [
        (5, "judged"),
        (None, "unreadable"),
        (None, "unreadable"),
    ]
    assert [Path(point.source).name for point in mine] == [whole.name, cut.name, lacking.name]
    assert "ledger_owners" in mine[1].why
    assert [value for value, _ in values(trend, "stats", "bytes", "cluster")] == [5, 6, 7]


def test_runs_without_a_whole_summary_are_problems(tmp_path: Path) -> None:
    garbage(tmp_path, 0, {"b1": 1})
    harmed = {day: garbage(tmp_path, day, {"b1": 1}) / "summary.json" for day in (1, 2, 3, 4)}
    harmed[1].unlink()
    harmed[2].write_text('{"job": "garbage"')
    harmed[3].write_text('{"job": "no-such-job", "started_ms": 1}')
    harmed[4].write_text("[]")
    (tmp_path / "upload" / "garbage").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "report.html").touch()
    trend = followed(tmp_path, points=1, until=0.5)
    assert {Path(problem.source).name for problem in trend.problems} == {
        *(path.parent.name for path in harmed.values()),
        "upload",
    }
    assert trend.exit_code == 3


def test_a_repair_has_nothing_to_follow_and_a_strange_folder_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "index-rebuild", 1, {})
    assert find_sources([str(tmp_path / "runs")]).runs == ()
    (tmp_path / "bookie" / "current").mkdir(parents=True)
    for strange in (tmp_path / "bookie", tmp_path / "nowhere"):
        with pytest.raises(NotFoundError, match="holds no sets"):
            find_sources([str(strange)])


def test_a_run_counts_once_it_has_ended(tmp_path: Path) -> None:
    garbage(tmp_path, 1, {"b1": 1})
    garbage(tmp_path, 2, {"b1": 9}, seconds=0.4 * 86_400)
    for until, dead in ((2.3, 2), (2.5, 18)):
        trend = followed(tmp_path, points=1, until=until, max_age_ms=0)
        assert values(trend, "garbage", "dead_bytes", "cluster") == [(dead, "judged")]
    assert not followed(tmp_path, points=1, until=0.5).points


def test_parameters_of_the_run_are_those_of_the_pipeline() -> None:
    """What ``asked`` leaves out is there."""
    assert {"now_ms", "two_snapshots", "top"} <= set(Parameters.__dataclass_fields__)
