"""A trend as a page and for Prometheus: what is not known is never shown as 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bkctl.errors import StorageError
from bkctl.pipeline.locations import located
from bkctl.pipeline.sets.store import SetStore
from bkctl.pipeline.trend.points import Problem, TrendWish
from bkctl.pipeline.trend.set_series import set_points
from bkctl.pipeline.trend.trend_report import trend_page, write_trend_report
from bkctl.pipeline.trend.trend_textfile import trend_textfile, write_trend_textfile
from tests.support.trend_places import night, publish

STRANGE = 'b"<\\1>:3181'


@pytest.fixture
def trend(tmp_path: Path) -> Any:
    store = tmp_path / "sets"
    for day in range(3):
        publish(store, "b1:3181", day, 1 << 20, damages=day)
    publish(store, STRANGE, 0, 1 << 20)
    found = set_points([SetStore(located(str(store)))], TrendWish(night(2.6), points=3))
    found.problems.append(Problem("/runs/<cut>", "no run is finished there"))
    return found


def samples(text: str) -> dict[tuple[str, str, str], float]:
    return {
        (sample.name, sample.labels.get("measure", ""), sample.labels.get("subject", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_newest_points_are_gauges_and_an_unknown_one_has_no_value(trend: Any, tmp_path: Path) -> None:
    found = samples(trend_textfile(trend, night(3)))
    assert found["bkctl_trend_value", "damages", "b1:3181"] == 2
    assert found["bkctl_trend_change_per_day", "damages", "b1:3181"] == pytest.approx(1)
    assert found["bkctl_trend_judged", "damages", "b1:3181"] == 1
    assert found["bkctl_trend_read_seconds", "damages", "b1:3181"] == night(2) / 1000
    for unknown in (STRANGE, ""):
        assert found["bkctl_trend_judged", "damages", unknown] == 0
        assert ("bkctl_trend_value", "damages", unknown) not in found
        assert ("bkctl_trend_change_per_day", "damages", unknown) not in found
    assert found["bkctl_trend_problems", "", ""] == 1
    assert found["bkctl_trend_exit_code", "", ""] == 3
    path = tmp_path / "trend.prom"
    write_trend_textfile(trend, night(3), str(path))
    assert samples(path.read_text()) == found
    assert [entry.name for entry in tmp_path.iterdir() if "writing" in entry.name] == []


def test_a_file_that_cannot_be_written_leaves_the_one_before(trend: Any, tmp_path: Path) -> None:
    folder = tmp_path / "textfiles"
    folder.mkdir()
    (folder / "trend.prom").mkdir()
    with pytest.raises(StorageError):
        write_trend_textfile(trend, night(3), str(folder / "trend.prom"))
    assert [entry.name for entry in folder.iterdir()] == ["trend.prom"]


def test_the_page_draws_what_is_known_and_names_the_rest(trend: Any, tmp_path: Path) -> None:
    page = trend_page(trend, ["s3://audits/sets"])
    assert page.count("<svg") == 3
    assert "Bytes of entry logs in the sets" in page
    assert "2.0 MiB" in page
    bars = page.split("<title>Damages in the sets</title>")[1].partition("</svg>")[0]
    assert bars.count(">stale</text>") == 2
    assert bars.count(">0</text>") == 1
    assert "/runs/&lt;cut&gt;: no run is finished there" in page
    assert "<\\1>" not in page
    write_trend_report(trend, ["s3://audits/sets"], str(tmp_path / "trend.html"))
    assert (tmp_path / "trend.html").read_text() == page
    trend.problems.clear()
    trend.points = [point for point in trend.points if point.time_ms == night(0.6)]
    assert "Every point is judged" in trend_page(trend, [])
