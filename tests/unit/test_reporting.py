"""Numbers and their nouns."""

from __future__ import annotations

import pytest

from bkctl.pipeline.sentences import number
from bkctl.reporting import counted, noun_of
from bkctl.tui import figures


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0 entries"), (1, "1 entry"), (2, "2 entries"), (1000, "1000 entries")]
)
def test_a_noun_agrees_with_its_number(count: int, expected: str) -> None:
    assert counted(count, "entry", "entries") == expected
    assert number(count, "entry", "entries").replace(",", "") == expected


def test_a_noun_without_a_plural_gets_an_s() -> None:
    assert (counted(1, "ledger"), counted(2, "ledger")) == ("1 ledger", "2 ledgers")


def test_a_number_that_is_not_known_or_not_whole_has_the_plural() -> None:
    assert (noun_of(None, "add"), noun_of(1.5, "add"), noun_of(1.0, "add")) == ("adds", "adds", "add")
    assert figures.counted(None, "log") == "- logs"
    assert figures.counted(1, "log") == "1 log"
    assert figures.counted(12_300, "log") == "12.3k logs"
