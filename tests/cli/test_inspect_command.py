"""``bkctl inspect`` of a node of metadata; everything else is in ``tests/transcripts/inspect.txt``."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.rows import from_ndjson

DEMO = Path(__file__).parents[1] / "data" / "demo"

Run = Callable[..., Any]


def test_a_node_of_metadata_is_shown_without_its_password(run_cli: Run, tmp_path: Path) -> None:
    node = json.loads((DEMO / "zk.json").read_text())["/ledgers/00/0000/L0002"]["data"]
    (tmp_path / "L0002").write_bytes(base64.b64decode(node))
    result = run_cli("inspect", tmp_path / "L0002")
    (row,) = from_ndjson(result.stdout)
    assert (row["kind"], row["facts"]["digest"], row["facts"]["last_entry"]) == (
        "ledger_metadata",
        "mac",
        199,
    )
    password = json.loads((DEMO / "manifest.json").read_text())["ledgers"]["2"]["password_hex"]
    assert "password" not in result.stdout
    assert password not in result.stdout
