"""``bkctl pipeline export`` over sets that ``pipeline collect`` has made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bkctl.clock import SystemClock
from bkctl.pipeline.locations import located
from bkctl.pipeline.sets.export_turn import ExportTurn
from tests.support.sets import DEMO, ZK

Run = Callable[..., Any]


@pytest.fixture
def sets(run_cli: Run, tmp_path: Path) -> Path:
    result = run_cli("pipeline", "collect", DEMO, "--to", tmp_path / "sets", "--metadata", ZK)
    assert result.exit_code == 0, result.stderr
    return tmp_path / "sets"


def export(run_cli: Run, *words: object) -> tuple[int, list[dict[str, Any]], str]:
    result = run_cli("pipeline", "export", *words, "-o", "json")
    return result.exit_code, json.loads(result.stdout or "[]"), result.stderr


def test_the_tables_that_are_asked_for_are_written_once(run_cli: Run, sets: Path, tmp_path: Path) -> None:
    to = tmp_path / "tables"
    words = (sets, "--to", to, "--table", "logs", "--table", "log_ledgers")
    code, (row,), _ = export(run_cli, *words)
    files = sorted(to.glob("*/bookie=127.0.0.1%3A4100/day=*/*.parquet"))
    assert [path.relative_to(to).parts[0] for path in files] == ["log_ledgers", "logs", "sets"]
    written = [path for path in files if "sets" not in path.relative_to(to).parts]
    assert (code, row["state"], row["tables"]) == (0, "exported", ["logs", "log_ledgers"])
    assert row["rows"] == sum(pq.read_metadata(path).num_rows for path in written)
    assert row["bytes"] == sum(path.stat().st_size for path in written)
    assert [path.parts[-2] for path in files] == [f"day={row['day']}"] * 3
    code, (row,), _ = export(run_cli, *words)
    assert (code, row["state"], row["rows"]) == (0, "unchanged", 0)


def test_a_set_without_a_manifest_or_too_old_is_named_and_the_exit_code_is_3(
    run_cli: Run, sets: Path, tmp_path: Path
) -> None:
    code, (row,), notes = export(run_cli, sets, "--to", tmp_path / "a", "--max-age", "1ms")
    assert (code, row["state"], "sets_stale" in notes) == (3, "exported", True)
    (manifest,) = sets.glob("*/*/manifest.json")
    manifest.unlink()
    code, rows, notes = export(run_cli, sets, "--to", tmp_path / "b")
    assert (code, rows, "sets_missing" in notes) == (3, [], True)


def test_a_file_of_a_set_that_does_not_decode_is_named(run_cli: Run, sets: Path, tmp_path: Path) -> None:
    (part,) = sets.glob("*/*/logs/*.parquet")
    part.write_bytes(b"\0" * part.stat().st_size)
    code, (row,), _ = export(run_cli, sets, "--to", tmp_path / "tables")
    assert (code, row["state"], str(part) in row["why"]) == (3, "failed", True)
    assert not (tmp_path / "tables" / "sets").exists()


def test_a_table_that_the_set_that_stays_does_not_have_ends_with_3(
    run_cli: Run, sets: Path, tmp_path: Path
) -> None:
    to = tmp_path / "tables"
    assert export(run_cli, sets, "--to", to, "--table", "logs")[0] == 0
    assert run_cli("pipeline", "collect", DEMO, "--to", sets, "--metadata", ZK).exit_code == 0
    assert export(run_cli, sets, "--to", to, "--table", "logs")[0] == 0
    code, (row,), _ = export(run_cli, sets, "--to", to, "--table", "logs", "--table", "runs")
    assert (code, row["state"], row["why"].endswith(", without runs")) == (3, "kept", True)


def test_a_second_export_is_refused_while_one_goes_on(run_cli: Run, sets: Path, tmp_path: Path) -> None:
    to = tmp_path / "tables"
    with ExportTurn(located(str(to)), SystemClock()):
        (to / "_bkctl-tables.json").write_text('{"format":1}\n')
        code, rows, words = export(run_cli, sets, "--to", to)
    assert (code, rows, f"{to}/_exports: an export of process" in words) == (4, [], True)
    assert export(run_cli, sets, "--to", to)[0] == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["{sets}", "--to", "{free}", "--table", "nothing"], "--table nothing: sets have tables runs, "),
        (["{sets}", "--to", "{free}", "--jobs", "0"], "--jobs 0: from 1 to 64"),
        (["{empty}", "--to", "{free}"], "holds no sets ('bkctl pipeline collect')"),
        (["{sets}", "--to", "{sets}"], "but no exported tables; choose another directory"),
        (["{sets}", "--to", "{sets}/tables"], "is in a store of sets"),
        (["{sets}", "--to", "ftp://here/t"], "no ftp:// URLs"),
    ],
)
def test_what_cannot_be_exported_is_refused_and_nothing_is_written(
    run_cli: Run, sets: Path, tmp_path: Path, words: list[str], why: str
) -> None:
    (tmp_path / "empty").mkdir()
    named = {"sets": sets, "free": tmp_path / "free", "empty": tmp_path / "empty"}
    before = sorted(sets.rglob("*"))
    result = run_cli("pipeline", "export", *(word.format(**named) for word in words))
    assert result.exit_code not in (0, 1, 3)
    assert why in result.stderr
    assert sorted(sets.rglob("*")) == before
    assert not (tmp_path / "free").exists()


def test_two_stores_with_sets_of_one_bookie_are_refused(run_cli: Run, sets: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert run_cli("pipeline", "collect", DEMO, "--to", other, "--metadata", ZK).exit_code == 0
    result = run_cli("pipeline", "export", sets, other, "--to", tmp_path / "tables")
    assert result.exit_code == 2
    assert "bookie 127.0.0.1:4100" in result.stderr
