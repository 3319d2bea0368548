"""``bkctl explain``: every code of BookKeeper's, by number and by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bkctl.protocol.codes import V2_NUMBERS, V3_NUMBERS
from tests.support.rows import from_ndjson, same_in_every_format

Run = Callable[..., Any]


def places(run_cli: Run, *codes: str) -> dict[tuple[str, int], str]:
    """What is said, by place and number."""
    rows = from_ndjson(run_cli("explain", *codes, "-o", "ndjson").stdout)
    return {(row["place"], row["code"]): row["name"] for row in rows}


def test_a_negative_number_is_an_argument_and_has_two_meanings(run_cli: Run) -> None:
    assert places(run_cli, "-102") == {
        ("client", -102): "UnauthorizedAccessException",
        ("bookie", -102): "InvalidCookieException",
    }


@pytest.mark.parametrize(
    "name",
    [
        "LedgerFencedException", "LedgerFenced", "ledgerfenced", "BKLedgerFencedException",
        "org.apache.bookkeeper.client.BKException$BKLedgerFencedException",
    ],
)  # fmt: skip
def test_a_name_is_found_however_a_log_writes_it(run_cli: Run, name: str) -> None:
    assert places(run_cli, name) == {
        ("client", -101): "LedgerFencedException",
        ("bookie", -101): "LedgerFencedException",
    }


def test_a_code_of_the_wire_has_a_number_in_each_version(run_cli: Run) -> None:
    assert places(run_cli, "EFENCED") == {("wire_v2", 104): "EFENCED", ("wire_v3", 504): "EFENCED"}
    assert places(run_cli, "107", "507") == {
        ("wire_v2", 107): "EUNKNOWNLEDGERSTATE",
        ("wire_v3", 507): "EUNKNOWNLEDGERSTATE",
    }


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


def test_an_unknown_code_says_what_is_like_it(run_cli: Run) -> None:
    done = run_cli("explain", "fence")
    assert done.exit_code == 6
    assert "fence: no code of BookKeeper's has this number or name; did you mean EFENCED" in done.stderr
    assert run_cli("explain", "4711").exit_code == 6


def test_a_table_for_a_person_is_a_block_each(run_cli: Run) -> None:
    lines = run_cli("explain", "-13", "-o", "table").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["place", "code", "name", "meaning", "next"]
