"""``make demo`` tells its story to the end, in a screenful."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[1] / "demo.py"
SCREEN_LINES = 40


@pytest.mark.thorough("CI tells the same story from the wheel (make wheel-demo)")
def test_the_demo_kills_replays_breaks_finds_and_mends(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, DEMO, tmp_path], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for said in (
        "acknowledged entries are there",
        "the crc32c digest of ledger 0 entry 2500",
        "5000 of 5000 entries are on all of their bookies",
        "Nothing is missing",
    ):
        assert said in done.stdout
    assert done.stdout.count("\n") <= SCREEN_LINES
