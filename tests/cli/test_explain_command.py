"""``bkctl explain``: every code of BookKeeper's, by number and by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bkctl.protocol.codes import V2_NUMBERS, V3_NUMBERS
from tests.support.rows import from_ndjson, same_in_every_format

Run = Callable[..., Any]


def places(run_cli: Run, *codes: str) -> dict[tuple[str, int], str]:
    """What is said, by place and number."""
    rows = from_ndjson(run_cli("explain", *codes, "-o", "ndjson").stdout)
    return {(row["place"], row["code"]): row["name"] for row in rows}


def test_without_a_code_everything_the_wire_knows_is_there(run_cli: Run) -> None:
    told = places(run_cli)
    for place, numbers in (("wire_v2", V2_NUMBERS), ("wire_v3", V3_NUMBERS)):
        assert {code: name for (where, code), name in told.items() if where == place} == {
            number: code.value for number, code in numbers.items()
        }


def test_nothing_is_left_without_an_explanation(run_cli: Run) -> None:
    for row in same_in_every_format(run_cli, "explain"):
        assert row["meaning"].endswith("."), row
        assert row["next"].endswith("."), row
