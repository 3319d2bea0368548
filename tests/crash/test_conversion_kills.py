"""Conversions killed at their steps: the next run ends them, or takes them back, and nothing is lost.

``BKCTL_SOAK`` (``make soak``) kills at every step, ``make thorough`` at each of the change of names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.grades import times

STRIDE = 1 if os.environ.get("BKCTL_SOAK") else 41
#: At the change of names.
NEAR = min(STRIDE, times(6, 1))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900 if STRIDE == 1 else 600)]


@pytest.mark.parametrize(("source", "target"), [("db", "idx"), ("idx", "db")])
def test_a_kill_at_any_step_is_made_good(tmp_path: Path, source: str, target: str) -> None:
    run = [
        sys.executable,
        "-m",
        "tests.support.killed_conversions",
        str(tmp_path),
        source,
        target,
        "2",
        str(STRIDE),
        str(NEAR),
    ]
    ended = subprocess.run(run, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    words = ended.stdout.split()
    assert words[0] == "kills", ended.stdout
    before, within, _ = map(int, words[1:])
    assert before > 2
    assert within * NEAR > 12
