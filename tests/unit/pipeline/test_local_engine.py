"""DuckDB behind the engine: what does not fit goes to the run's own disk, errors are ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.errors import StorageError
from bkctl.pipeline.local_engine import LocalEngine

#: More rows than fit into the least memory that the engine takes.
WIDE = "SELECT hash(r) AS h, r, repeat('x', 30) || r AS text FROM range(4000000) t(r)"


def test_what_exceeds_the_memory_goes_to_the_directory_that_was_named(tmp_path: Path) -> None:
    work_dir = tmp_path / "made" / "later"
    with LocalEngine(str(work_dir), jobs=1, memory_bytes=0) as engine:
        work_dir.mkdir(parents=True)
        engine.step("wide", WIDE)
        assert any(path.stat().st_size for path in work_dir.rglob("*") if path.is_file())
        (row,) = engine.rows("SELECT count(*) AS rows, sum(r) AS total FROM wide")
        assert row == {"rows": 4_000_000, "total": sum(range(4_000_000))}
    assert list(work_dir.iterdir()) == []


def test_what_cannot_be_spilled_says_which_option_gives_more(tmp_path: Path) -> None:
    with LocalEngine(str(tmp_path), jobs=1, memory_bytes=0) as engine:
        with pytest.raises(StorageError, match="--memory"):
            engine.rows("SELECT list(r) AS all_of_them FROM range(20000000) t(r)")
        assert engine.rows("SELECT 1 AS one") == [{"one": 1}]
