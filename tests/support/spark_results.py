"""What a job on a cluster came to, beside what it comes to on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bkctl.pipeline.locations import opened_file
from bkctl.pipeline.results import parquet_files
from tests.support.sets import ran


def same_as_here(job: str, told: Mapping[str, Any], path: Path, folder: Path) -> None:
    """Assert that a job came to what it comes to on this machine."""
    local = ran(job, [path], folder / "o").as_row()
    assert told["engine"] == "spark"
    for key in ("verdict", "counts", "found", "exit_code"):
        assert told[key] == json.loads(json.dumps(local[key])), key
    assert rows(told["tables"]) == rows(local["tables"])


def rows(tables: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the rows of all results."""
    found: dict[str, list[str]] = {}
    for table in tables:
        if table["role"] == "result":
            files = [opened_file(path) for path in parquet_files(table["path"])]
            read = [pq.read_table(path, filesystem=where).to_pylist() for where, path in files]
            found[table["name"]] = sorted(str(row) for part in read for row in part)
    return found
