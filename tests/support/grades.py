"""Two grades of tests: the quick ones, which every run has, and the thorough ones of ``make thorough``.

A test with the marker ``thorough`` is left out unless ``--thorough`` or ``BKCTL_THOROUGH=1`` asks for it, or
the command line names it. A test that repeats itself asks `times` how often.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import combinations, product
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


def times(quick: int, thorough: int, soak: str = "") -> int:
    """Return how often a test repeats itself; the variable *soak* says it for `make soak`."""
    return int(os.environ.get(soak) or (thorough if is_thorough() else quick))


def one_kept(reason: str, kept: Any, *others: Any) -> list[Any]:
    """Return parameters, of several names as tuples: one is for each run, and the others are thorough."""
    return [kept, *(_thorough(reason, *(each if isinstance(each, tuple) else (each,))) for each in others)]


def every_pair(reason: str, **axes: Sequence[Any]) -> pytest.MarkDecorator:
    """Cross parameters: cases in which each pair of values stands are for each run, the others thorough."""
    return _crossed(reason, axes, pairs_cover(list(product(*axes.values()))))


def every_value(reason: str, **axes: Sequence[Any]) -> pytest.MarkDecorator:
    """Cross parameters: cases in which each value stands are for each run, the others thorough."""
    longest = max(map(len, axes.values()))
    kept = [tuple(values[number % len(values)] for values in axes.values()) for number in range(longest)]
    return _crossed(reason, axes, kept)


def _crossed(
    reason: str, axes: Mapping[str, Sequence[Any]], kept: Sequence[tuple[Any, ...]]
) -> pytest.MarkDecorator:
    cases = [
        case if case in kept else _thorough(reason, *case, id="-".join(map(_id_of, case)))
        for case in product(*axes.values())
    ]
    return pytest.mark.parametrize(tuple(axes), cases, ids=_id_of)


def pairs_cover(crossed: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Choose cases until each pair of values of two axes is in one: always the one with most new pairs."""
    pairs = {case: set(combinations(enumerate(case), 2)) for case in crossed}
    missing = set().union(*pairs.values())
    kept = []
    while missing:
        best = max(crossed, key=lambda case: len(pairs[case] & missing))
        kept.append(best)
        missing -= pairs[best]
    return kept


def _thorough(reason: str, *values: Any, id: str | None = None) -> Any:
    return pytest.param(*values, marks=pytest.mark.thorough(reason), id=id)


def _id_of(value: Any) -> str:
    return str(value.value if isinstance(value, Enum) else value)


def steps(limit: int) -> range:
    """Return the steps at which something is stopped: every third one in each run."""
    return range(0, limit, times(3, 1))


class Grades:
    """Leaves the thorough tests out, and says at the end how many."""

    def __init__(self) -> None:
        self.left_out = 0

    # Behind -k and -m: what is counted would have run.
    @pytest.hookimpl(trylast=True)
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
