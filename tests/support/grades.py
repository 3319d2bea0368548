"""Two grades of tests: the quick ones, which every run has, and the thorough ones of ``make thorough``.

A test with the marker ``thorough`` is left out unless ``--thorough`` or ``BKCTL_THOROUGH=1`` asks for it, or
the command line names it. A test that repeats itself asks `times` how often.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "BKCTL_THOROUGH"
MARKER = "thorough"
#: What a worker of pytest-xdist tells the process that prints.
_LEFT_OUT = "left_to_thorough"


def is_thorough() -> bool:
    """Whether everything runs."""
    return os.environ.get(VARIABLE, "0") not in ("", "0")


def times(quick: int, thorough: int, soak: str = "BKCTL_SOAK") -> int:
    """Return how often a test repeats itself; the variable *soak* says it for `make soak`."""
    return int(os.environ.get(soak) or (thorough if is_thorough() else quick))


class Grades:
    """Leaves the thorough tests out, and says at the end how many."""

    def __init__(self) -> None:
        self.left_out = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if is_thorough():
            return
        named = names(config.args, config.invocation_params.dir)
        left_out = [item for item in items if is_left_out(item, named)]
        if not left_out:
            return
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=left_out)
        self.left_out = len(left_out)
        if hasattr(config, "workeroutput"):
            config.workeroutput[_LEFT_OUT] = self.left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.left_out = max(self.left_out, getattr(node, "workeroutput", {}).get(_LEFT_OUT, 0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left_out:
            terminalreporter.write_line(
                f"{self.left_out} thorough tests are left out: `make thorough` runs them"
            )


def names(arguments: Iterable[str], directory: Path) -> set[tuple[Path, str]]:
    """Return the tests that a command line names, by file and name."""
    parts = (argument.partition("::") for argument in arguments)
    return {((directory / path).resolve(), name) for path, _, name in parts if name}


def is_left_out(item: pytest.Item, named: set[tuple[Path, str]]) -> bool:
    """Whether a test is thorough and nobody asks for it, neither with its parameters nor without."""
    if item.get_closest_marker(MARKER) is None:
        return False
    name = item.nodeid.partition("::")[2]
    return not {(item.path, name), (item.path, name.partition("[")[0])} & named
