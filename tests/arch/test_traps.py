"""docs/traps.md: every known trap stands there once, with a test that exists or why it has none."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "traps.md"
ROW = re.compile(r"^\| ([PFSECKOLX]-[A-Z]?[0-9.]+) \| (.+) \| (.+) \| (.+) \|$")
TEST = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")
FUNCTION = re.compile(r"^ *def (\w+)\(", re.MULTILINE)
REASONS = {"not a bookie's in Python"}

EXPECTED = {
    *(f"P-9.1.{number}" for number in range(1, 14)),
    *(f"P-9.2.{number}" for number in range(1, 13)),
    *(f"P-9.3.{number}" for number in range(1, 6)),
    *(f"P-9.4.{number}" for number in range(1, 9)),
    *(f"F-9.{number}" for number in range(1, 26)),
    "S-1",
}


def rows() -> list[tuple[str, str, str, str]]:
    lines = PAGE.read_text().splitlines()
    found = [ROW.match(line) for line in lines if re.match(r"\| [A-Z]-", line)]
    assert None not in found, "a row has not four cells"
    return [match.groups() for match in found if match is not None]  # type: ignore[misc]


@cache
def functions(path: Path) -> frozenset[str]:
    return frozenset(FUNCTION.findall(path.read_text()))


def test_every_trap_is_listed_once() -> None:
    numbers = [row[0] for row in rows()]
    assert len(numbers) == len(set(numbers))
    assert {number for number in numbers if number[0] in "PFS"} == EXPECTED


def test_a_trap_names_tests_that_exist() -> None:
    for number, _, _, cell in rows():
        named = TEST.findall(cell)
        assert named or cell in REASONS, number
        assert not named or not TEST.sub("", cell).strip(), f"{number}: something beside the names of tests"
        for path, name in named:
            assert (REPOSITORY / path).is_file(), (number, path)
            assert name in functions(REPOSITORY / path), f"{number}: {path}::{name}"
