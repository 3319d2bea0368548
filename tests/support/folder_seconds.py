"""Seconds of each folder of tests at the end of a run: ``--folder-seconds``.

Only the process that prints takes part, to which the workers of pytest-xdist send their reports; so the
seconds of several workers add up to more than the run took.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePosixPath

import pytest

#: Folders below tests that are told apart, such as tests/unit/engine.
_DEPTH = 3


class FolderSeconds:
    """Adds up what setup, call and teardown of tests took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.tests: dict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folder = folder_of(report.nodeid)
        self.seconds[folder] += report.duration
        self.tests[folder].add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("seconds of each folder")
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> list[str]:
        """Return a line for each folder, the longest first, and one for all of them."""
        rows = sorted(self.seconds.items(), key=lambda row: (-row[1], row[0]))
        lines = [_line(seconds, len(self.tests[folder]), folder) for folder, seconds in rows]
        total = sum(self.seconds.values()), sum(map(len, self.tests.values()))
        return [*lines, _line(*total, "all")]


def folder_of(nodeid: str) -> str:
    """Return the folder that a test counts for."""
    return "/".join(PurePosixPath(nodeid.partition("::")[0]).parent.parts[:_DEPTH])


def _line(seconds: float, tests: int, folder: str) -> str:
    return f"{seconds:8.1f} s {tests:6} tests  {folder}"
