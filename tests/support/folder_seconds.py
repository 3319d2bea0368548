"""Print the seconds of each folder and of the longest modules at the end of a run: ``--folder-seconds``.

Only the process that prints takes part, to which the workers of pytest-xdist send their reports; so the
seconds of several workers add up to more than the run took.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePosixPath

import pytest

#: Folders below tests that are told apart, such as tests/unit/engine.
_DEPTH = 3
#: How many modules are named; the others are short.
MODULES = 60


class FolderSeconds:
    """Adds up what setup, call and teardown of tests took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.tests: dict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for place in (folder_of(report.nodeid), module_of(report.nodeid)):
            self.seconds[place] += report.duration
            self.tests[place].add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("seconds of each folder")
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> list[str]:
        """Return a line for each folder, one for all of them, and one for each of the longest modules."""
        places = sorted(self.seconds, key=lambda place: (-self.seconds[place], place))
        modules = [place for place in places if place.endswith(".py")]
        folders = [place for place in places if not place.endswith(".py")]
        total = (
            sum(self.seconds[place] for place in folders),
            sum(len(self.tests[place]) for place in folders),
        )
        return [*map(self._line_of, folders), _line(*total, "all"), *map(self._line_of, modules[:MODULES])]

    def _line_of(self, place: str) -> str:
        return _line(self.seconds[place], len(self.tests[place]), place)


def folder_of(nodeid: str) -> str:
    """Return the folder that a test counts for."""
    return "/".join(PurePosixPath(nodeid.partition("::")[0]).parent.parts[:_DEPTH])


def module_of(nodeid: str) -> str:
    """Return the path of the module that a test stands in."""
    return nodeid.partition("::")[0]


def _line(seconds: float, tests: int, place: str) -> str:
    return f"{seconds:8.1f} s {tests:6} tests  {place}"
