"""Tables in folders, counted by the footers of their files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bkctl.errors import CorruptionError, StorageError
from bkctl.pipeline.results import WrittenTable


def test_rows_and_bytes_of_all_files_count(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(pa.table({"a": list(range(number))}), tmp_path / f"part-{number}.parquet")
    (tmp_path / "_SUCCESS").write_bytes(b"x")
    found = WrittenTable.of("mine", "input", str(tmp_path))
    size = sum(path.stat().st_size for path in tmp_path.glob("*.parquet"))
    assert (found.rows, found.bytes) == (3, size)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "part-0.parquet")
    broken = tmp_path / "part-1.parquet"
    broken.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(CorruptionError, match="expected a Parquet file") as caught:
        WrittenTable.of("mine", "input", str(tmp_path))
    assert str(broken) in str(caught.value)
    with pytest.raises(StorageError, match="No such file"):
        WrittenTable.of("mine", "input", str(tmp_path / "none"))
