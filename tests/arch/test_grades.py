"""The two grades of tests: what is marked thorough says why, and runs where somebody asks for it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path

import pytest

from tests.support.grades import VARIABLE, every_pair, every_value, is_thorough, one_kept, times

TESTS = Path(__file__).resolve().parents[1]
MODULE = "tests/arch/test_grades.py"
THOROUGH = "test_that_takes_long"
SUPPORT = TESTS / "support" / "grades.py"
#: Calls that make such marks, the reason first.
MAKERS = (one_kept.__name__, every_pair.__name__, every_value.__name__)


@pytest.mark.thorough("not at all; the tests below look for it")
@pytest.mark.parametrize("number", [1, 2])
def test_that_takes_long(number: int) -> None:
    assert number


def marks(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the reason of each marker; the reason is a text, or the name of one in the module."""
    texts = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = [call for call in calls if is_mark(call.func) or is_maker(call.func)]
    called = {id(call.func) for call in calls}
    for node in ast.walk(tree):
        if is_mark(node) and id(node) not in called:
            yield node.lineno, ""  # type: ignore[attr-defined]
    for call in calls:
        reason = call.args[0] if len(call.args) == 1 or (call.args and is_maker(call.func)) else None
        if isinstance(reason, ast.Name):
            yield call.lineno, str(texts.get(reason.id, ""))
        else:
            yield call.lineno, str(reason.value) if isinstance(reason, ast.Constant) else ""


def is_maker(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in MAKERS


def is_mark(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "thorough"
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "mark"
    )


def test_each_mark_says_why() -> None:
    without = [
        f"{path.relative_to(TESTS)}:{line}: {reason!r}"
        for path in sorted(set(TESTS.rglob("*.py")) - {SUPPORT})
        if any(word in (text := path.read_text()) for word in ("mark.thorough", *MAKERS))
        for line, reason in marks(ast.parse(text))
        if len(reason.split()) < 3
    ]
    assert without == []


def test_a_mark_without_a_reason_is_found() -> None:
    tree = ast.parse(
        "WHY = 'there is a shorter one'\n"
        "pytestmark = [pytest.mark.slow, pytest.mark.thorough]\n"
        "a = pytest.mark.thorough()\n"
        "b = pytest.mark.thorough('as test_a_kill holds')\n"
        "c = pytest.mark.thorough(WHY)\n"
        "d = one_kept('as the first of them', 1, 2)\n"
        "e = every_pair(wire=(2, 3))\n"
    )
    assert sorted(marks(tree)) == [
        (2, ""),
        (3, ""),
        (4, "as test_a_kill holds"),
        (5, "there is a shorter one"),
        (6, "as the first of them"),
        (7, ""),
    ]


@pytest.mark.parametrize(
    ("words", "ran"),
    [
        ([MODULE, "-n", "1"], 0),
        ([MODULE, "-n", "1", "--thorough"], 2),
        ([f"{MODULE}::{THOROUGH}[2]", "-n", "1"], 1),
        *one_kept("all of it without processes", ([f"{MODULE}::{THOROUGH}"], 2), ([MODULE], 0)),
    ],
)
def test_what_is_thorough_runs_where_somebody_asks_for_it(words: list[str], ran: int) -> None:
    environment = {key: value for key, value in os.environ.items() if "PYTEST" not in key and key != VARIABLE}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", THOROUGH, *words],
        cwd=TESTS.parent, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (f"{ran} passed" in done.stdout) == bool(ran), done.stdout
    assert ("2 thorough tests are left out: `make thorough` runs them" in done.stdout) == (not ran)
    assert done.returncode == (0 if ran else pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout


def test_how_often_a_test_repeats_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BKCTL_SOAK", raising=False)
    monkeypatch.setenv(VARIABLE, "0")
    assert not is_thorough()
    assert times(2, 9, "BKCTL_SOAK") == 2
    monkeypatch.setenv(VARIABLE, "1")
    assert is_thorough()
    assert times(2, 9) == 9
    monkeypatch.setenv("BKCTL_SOAK", "100")
    assert times(2, 9) == 9
    assert times(2, 9, "BKCTL_SOAK") == 100


def test_each_pair_of_values_is_in_a_case_that_always_runs() -> None:
    axes = {"wire": ("v2", "v3"), "digest": ("a", "b", "c"), "size": (1, 2, 3, 4), "fenced": (False, True)}
    mark = every_pair("the pairs are there", **axes)
    names, cases = mark.args
    assert names == tuple(axes)
    assert len(cases) == 2 * 3 * 4 * 2
    always = [case for case in cases if isinstance(case, tuple) and not hasattr(case, "marks")]
    assert len(always) == 12
    for (one, ones), (other, others) in combinations(enumerate(axes.values()), 2):
        assert {(case[one], case[other]) for case in always} == set(product(ones, others))
    left = next(case for case in cases if hasattr(case, "marks"))
    assert left.id == "-".join(map(str, left.values))


def test_each_value_is_in_a_case_that_always_runs() -> None:
    mark = every_value("the values are there", corpus=("db", "idx", "both"), state=("clean", "crash"))
    _, cases = mark.args
    assert [case for case in cases if not hasattr(case, "marks")] == [
        ("db", "clean"),
        ("idx", "crash"),
        ("both", "clean"),
    ]
    assert len(cases) == 3 * 2


def test_one_parameter_of_some_always_runs() -> None:
    kept, *others = one_kept("the first one is there", "a", "b", "c")
    assert kept == "a"
    assert [(other.values, [mark.name for mark in other.marks]) for other in others] == [
        (("b",), ["thorough"]),
        (("c",), ["thorough"]),
    ]
