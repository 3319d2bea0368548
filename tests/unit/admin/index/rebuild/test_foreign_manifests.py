"""Manifests of a rebuild that a kill, or somebody else, has left: they do not count, whatever is in them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bkctl.admin.index.rebuild.state import WorkDirectory, read_json
from bkctl.scan.directory import LogFile

RUN = {"path": "x", "rows": 0, "checksum": 0}


@pytest.mark.parametrize(
    "runs", [[{**RUN, "rows": None}], [{**RUN, "rows": {}}], [5], {"a": 1}, None], ids=lambda runs: str(runs)
)
def test_a_manifest_with_values_of_other_kinds_does_not_count(tmp_path: Path, runs: object) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(b"BKLO")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/0-0.run").touch()
    facts = os.stat(log)
    fields = ("log_id", "entries", "unchecked")
    content = {
        **dict.fromkeys(fields, 0),
        "size_bytes": facts.st_size,
        "mtime_ns": facts.st_mtime_ns,
        "mode": "auto",
        "ledgers": [],
        "format": 2,
    }
    work = WorkDirectory(str(tmp_path))
    (tmp_path / "logs/0.json").write_text(json.dumps({**content, "runs": [RUN]}))
    assert work.manifest(LogFile(str(log), 0, 4), "auto") is not None
    (tmp_path / "logs/0.json").write_text(json.dumps({**content, "runs": runs}))
    assert work.manifest(LogFile(str(log), 0, 4), "auto") is None


def test_json_that_is_nested_too_deeply_is_none(tmp_path: Path) -> None:
    path = tmp_path / "0.json"
    path.write_text("[" * 100_000)
    assert read_json(str(path)) is None
