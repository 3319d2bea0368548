"""``bkctl index`` on a damaged database; what it says of sound ones is in ``tests/transcripts/index.txt``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CURRENT = Path(__file__).parents[1] / "data/demo/bookie1/ledgers/current"

Run = Callable[..., Any]


@pytest.mark.parametrize("verb", ["scan", "ledgers"])
def test_a_damaged_database_never_reads_as_an_empty_one(run_cli: Run, tmp_path: Path, verb: str) -> None:
    current = shutil.copytree(CURRENT, tmp_path / "current")
    for name in ("locations", "ledgers"):
        (manifest,) = (current / name).glob("MANIFEST-*")
        manifest.write_bytes(b"\xff" * 66)
    result = run_cli("index", verb, tmp_path)
    assert (result.exit_code, result.stdout) in ((1, ""), (7, ""))
    assert str(current) in result.stderr
    assert run_cli("index", "get", "0", "2", tmp_path).exit_code in (1, 7)
