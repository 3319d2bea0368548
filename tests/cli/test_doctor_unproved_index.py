"""The doctor on an index whose rebuild could not prove that no log was missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bkctl.scan.directory import NOT_PROVED_NAME
from tests.support.checked_bookie import CheckedBookie


def test_what_a_rebuild_could_not_prove_is_a_warning(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    bookie = CheckedBookie(tmp_path / "bookie")
    bookie.fill([4, 5])
    bookie.write()
    (bookie.current() / NOT_PROVED_NAME).write_text('{"doubts": ["lastId is not there"]}')
    done = run_cli("doctor", bookie.root, "--only", "index", "-o", "json")
    (found,) = json.loads(done.stdout)
    assert (found["kind"], found["severity"], found["dir"]) == (
        "not_proved",
        "warning",
        str(bookie.current()),
    )
    assert "lastId is not there" in found["found"]
    assert f"bkctl index check {bookie.current()}" in done.stderr + json.dumps(found)
