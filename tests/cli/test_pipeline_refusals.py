"""What ``bkctl pipeline run`` refuses before it touches anything."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(__file__).parents[1] / "data" / "demo"

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("option", "named"),
    [
        (("--report", "r.html"), "--report"),
        (("--complete",), "--complete"),
        (("--budget", "1MiB"), "--budget"),
        (("--bookie", "other:3181"), "--bookie"),
        (("--password", "x"), "--password"),
        (("--metadata-after", "zk.json"), "--metadata-after"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_rebuild_refuses_what_it_does_not_heed_and_leaves_the_index(
    run_cli: Run, tmp_path: Path, option: tuple[str, ...], named: str
) -> None:
    bookie = Path(shutil.copytree(DEMO / "bookie1", tmp_path / "bookie1"))
    before = sorted(bookie.rglob("*"))
    result = run_cli("pipeline", "run", "index-rebuild", bookie, "--out", tmp_path / "o", "--yes", *option)
    assert result.exit_code == 2, result.stderr
    assert named in result.stderr
    assert sorted(bookie.rglob("*")) == before
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("option", ["--dry-run", "--accept-loss"])
def test_a_job_that_only_reads_refuses_what_is_a_rebuilds(run_cli: Run, tmp_path: Path, option: str) -> None:
    result = run_cli("pipeline", "run", "verify", DEMO, "--out", tmp_path / "o", "--yes", option)
    assert (result.exit_code, f"verify does not heed {option}" in result.stderr) == (2, True)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("table", ["runs", "bookies"])
def test_a_table_that_is_no_parquet_file_any_more_is_named(run_cli: Run, tmp_path: Path, table: str) -> None:
    tables = tmp_path / "tables"
    run_cli("pipeline", "run", "inventory", DEMO, "--out", tables, "--jobs", "1")
    broken = next((tables / table).glob("*.parquet"))
    broken.write_bytes(b"not what it was")
    result = run_cli(
        "pipeline",
        "run",
        "replication-audit",
        tables,
        "--metadata",
        DEMO / "zk.json",
        "--out",
        tmp_path / "o",
    )
    assert result.exit_code == 7
    assert str(broken) in result.stderr


def test_a_url_is_refused_by_name(run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words, named in (
        (("inventory", DEMO, "--out", "ftp://host/inv"), "--out ftp://host/inv: no ftp:// URLs"),
        (("inventory", "ftp://host/bookie1", "--out", "out"), "PATH ftp://host/bookie1: no ftp:// URLs"),
        (("stats", DEMO, "--out", "out", "--report", "ftp://h/r.html"), "--report ftp://h/r.html: no ftp"),
        (
            ("index-rebuild", DEMO, "--out", "s3://bucket/inv", "--yes"),
            "--out s3://bucket/inv: this works on mounted directories only, no s3:// URLs",
        ),
    ):
        result = run_cli("pipeline", "run", *words)
        assert result.exit_code == 2
        assert named in result.stderr
    assert list(tmp_path.iterdir()) == []


WITHOUT_THE_EXTRA = """
import sys
sys.modules["pyarrow"] = sys.modules["duckdb"] = None
from bkctl.commands.frame.root import run
sys.exit(run(sys.argv[1:]))
"""


def without_the_extra(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_EXTRA, *words], capture_output=True, text=True, check=False
    )


def test_without_the_extra_a_job_says_which_one_to_install(tmp_path: Path) -> None:
    for job in ("inventory", "stats", "index-rebuild"):
        result = without_the_extra("pipeline", "run", job, str(DEMO), "--out", str(tmp_path / "o"))
        assert (result.returncode, result.stdout) == (2, "")
        assert 'needs the packages pyarrow and duckdb: install "bkctl[pipeline]"' in result.stderr
        assert "bug" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_list_of_jobs_needs_no_extra() -> None:
    result = without_the_extra("pipeline", "list", "-o", "ndjson")
    assert (result.returncode, result.stderr) == (0, "")
    assert "replication-audit" in result.stdout
    assert "index-rebuild" in result.stdout
