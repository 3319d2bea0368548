"""``bkctl pipeline trend`` over sets and runs that the other commands have made."""

from __future__ import annotations

import csv
import io
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.pipeline.locations import located
from tests.support.s3_server import s3_bucket
from tests.support.sets import DEMO, ZK

Run = Callable[..., Any]


def trend(run_cli: Run, *words: object) -> tuple[int, list[dict[str, Any]], str]:
    result = run_cli("pipeline", "trend", *words, "-o", "json")
    assert result.stdout, result.stderr
    return result.exit_code, json.loads(result.stdout), result.stderr


def series(rows: list[dict[str, Any]], *of: Any) -> list[dict[str, Any]]:
    return [row for row in rows if (row["job"], row["measure"], row["scope"], row["subject"]) == of]


def test_sets_and_runs_are_followed_and_what_is_lost_is_named(run_cli: Run, tmp_path: Path) -> None:
    sets, runs = tmp_path / "sets", tmp_path / "runs"
    counts = {}
    assert run_cli("pipeline", "collect", DEMO, "--to", sets, "--metadata", ZK).exit_code == 0
    for job in ("stats", "garbage"):
        words = ("pipeline", "run", job, DEMO, "--metadata", ZK, "--out", runs / job, "--jobs", "1")
        result = run_cli(*words, "-o", "json")
        assert result.exit_code == 0, result.stderr
        counts[job] = json.loads(result.stdout)["counts"]
    page, textfile = tmp_path / "trend.html", tmp_path / "trend.prom"
    code, rows, _ = trend(run_cli, sets, runs, "--points", 3, "--report", page, "--textfile", textfile)
    assert code == 0
    assert {row["state"] for row in rows} == {"judged"}
    (point,) = series(rows, "garbage", "dead_bytes", "cluster", None)
    assert point["value"] == counts["garbage"]["dead_bytes"]
    assert point["source"] == str(runs / "garbage")
    (point,) = series(rows, "stats", "bytes", "cluster", None)
    assert point["value"] == counts["stats"]["bytes"]
    (point,) = series(rows, "collect", "log_bytes", "cluster", None)
    assert point["value"] == counts["stats"]["log_bytes"]
    applications = [row for row in rows if row["scope"] == "application" and row["measure"] == "bytes"]
    assert sum(row["value"] for row in applications) == counts["stats"]["bytes"]
    assert "Garbage" in page.read_text()
    assert 'bkctl_trend_judged{job="garbage",measure="dead_bytes"' in textfile.read_text()

    (manifest,) = sets.glob("*/*/manifest.json")
    manifest.write_bytes(manifest.read_bytes()[:-5])
    (runs / "garbage" / "summary.json").unlink()
    code, rows, _ = trend(run_cli, sets, runs, "--points", 1)
    assert code == 3
    (point,) = series(rows, "collect", "damages", "cluster", None)
    assert (point["value"], point["state"]) == (None, "missing")
    assert [row["source"] for row in rows if row["job"] is None] == [str(runs / "garbage")]
    assert not series(rows, "garbage", "dead_bytes", "cluster", None)
    assert trend(run_cli, runs / "stats", "--points", 1)[0] == 0


def test_csv_has_the_keys_that_are_asked_for(run_cli: Run, tmp_path: Path) -> None:
    assert run_cli("pipeline", "collect", DEMO, "--to", tmp_path, "--metadata", ZK).exit_code == 0
    result = run_cli("pipeline", "trend", tmp_path, "-o", "csv", "--columns", "measure,scope,value")
    rows = list(csv.reader(io.StringIO(result.stdout)))
    assert rows[0] == ["measure", "scope", "value"]
    assert [row[:2] for row in rows[-3:]] == [
        ["log_bytes", "cluster"],
        ["damages", "cluster"],
        ["bad_entries", "cluster"],
    ]
    (one,) = (path.parent for path in tmp_path.glob("*/*/manifest.json"))
    earlier = run_cli("pipeline", "trend", tmp_path, "--as-of", "2020-01-01", "-o", "json")
    assert (earlier.exit_code, json.loads(earlier.stdout)) == (0, [])
    later = int(time.time() * 1000) + 3 * 86_400_000
    code, rows_then, _ = trend(run_cli, tmp_path, "--as-of", later, "--points", 1)
    assert code == 3
    assert {row["state"] for row in rows_then} == {"stale"}
    shutil.rmtree(one)
    assert trend(run_cli, tmp_path)[0] == 3


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--points", "0"], 2),
        (["--points", "367"], 2),
        (["--top", "0"], 2),
        (["--every", "0s"], 2),
        (["--as-of", "yesterday"], 2),
        (["--report", "/dev/null/all.html"], 2),
        ([], 6),
    ],
)
def test_what_has_no_meaning_is_refused(run_cli: Run, tmp_path: Path, words: list[str], code: int) -> None:
    result = run_cli("pipeline", "trend", tmp_path, *words)
    assert result.exit_code == code
    assert result.stderr.startswith("bkctl: ")


@pytest.mark.thorough("starts an object store; the next tests have it on disks")
def test_sets_runs_report_and_textfile_may_be_at_an_object_store(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_bucket("audits", monkeypatch) as parameters:
        sets, runs = f"s3://audits/sets?{parameters}", f"s3://audits/runs?{parameters}"
        assert run_cli("pipeline", "collect", DEMO, "--to", sets, "--metadata", ZK).exit_code == 0
        out = f"s3://audits/runs/stats-1?{parameters}"
        words = ("pipeline", "run", "stats", DEMO, "--metadata", ZK, "--jobs", "1", "--out", out)
        assert run_cli(*words).exit_code == 0
        textfile = tmp_path / "trend.prom"
        page = f"s3://audits/trend.html?{parameters}"
        code, rows, _ = trend(run_cli, sets, runs, "--points", 1, "--report", page, "--textfile", textfile)
        assert code == 0
        html = located(f"s3://audits?{parameters}").read("trend.html", 1 << 22).decode()
    assert "<svg" in html
    (point,) = series(rows, "collect", "log_bytes", "cluster", None)
    assert point["value"] == sum(path.stat().st_size for path in DEMO.glob("ledgers/current/*.log"))
    (from_run,) = series(rows, "stats", "log_bytes", "cluster", None)
    assert (from_run["value"], from_run["state"]) == (point["value"], "judged")
    front = 'bkctl_trend_value{job="collect",measure="log_bytes",scope="cluster"'
    (line,) = (line for line in textfile.read_text().splitlines() if line.startswith(front))
    assert float(line.split()[-1]) == point["value"]
