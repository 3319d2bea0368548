"""Tables that a run writes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bkctl.pipeline.kept_tables import KeptTables


def test_a_table_is_in_its_place_only_when_it_is_finished(tmp_path: Path) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()
    out.mkdir()
    tables = KeptTables(str(work), str(out))
    making = tables.fresh("logs")
    pq.write_table(pa.table({"ledger": [1, 2]}), f"{making}/part-00000.parquet")
    assert not (out / "logs").exists()
    assert tables.keep("logs", making, "result") == str(out / "logs")
    assert pq.read_table(str(out / "logs")).num_rows == 2
    assert (tables.written["logs"].name, tables.written["logs"].rows) == ("logs", 2)
    assert list(work.iterdir()) == []


def test_a_table_is_made_once(tmp_path: Path) -> None:
    tables = KeptTables(str(tmp_path), str(tmp_path / "out"))
    tables.fresh("logs")
    with pytest.raises(FileExistsError):
        tables.fresh("logs")
