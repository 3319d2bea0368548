"""The plugin that adds up seconds of folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.folder_seconds import FolderSeconds, folder_of

REPOSITORY = Path(__file__).resolve().parents[2]


def test_phases_and_tests_of_a_folder_add_up() -> None:
    plugin = FolderSeconds()
    for nodeid, duration in (
        ("tests/unit/engine/gc/test_a.py::test_1", 0.5),
        ("tests/unit/engine/gc/test_a.py::test_1", 1.5),
        ("tests/unit/engine/test_b.py::test_2[a/b]", 2.0),
        ("tests/cli/test_c.py::test_3", 7.0),
    ):
        report: Any = SimpleNamespace(nodeid=nodeid, duration=duration)
        plugin.pytest_runtest_logreport(report)
    assert [line.split() for line in plugin.lines()] == [
        ["7.0", "s", "1", "tests", "tests/cli"],
        ["4.0", "s", "2", "tests", "tests/unit/engine"],
        ["11.0", "s", "3", "tests", "all"],
        ["7.0", "s", "1", "tests", "tests/cli/test_c.py"],
        ["2.0", "s", "1", "tests", "tests/unit/engine/gc/test_a.py"],
        ["2.0", "s", "1", "tests", "tests/unit/engine/test_b.py"],
    ]
    assert folder_of("tests/test_x.py::test") == "tests"


def test_a_run_of_several_processes_ends_with_the_seconds() -> None:
    name = "tests/arch/test_folder_seconds.py::test_phases_and_tests_of_a_folder_add_up"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--folder-seconds", "-n", "1", name],
        cwd=REPOSITORY, env={key: value for key, value in os.environ.items() if "PYTEST" not in key},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    _, rows = done.stdout.split("seconds of each folder")
    assert [line.split()[-1] for line in rows.splitlines()[1:3]] == ["tests/arch", "all"]
    assert " 1 tests" in rows
