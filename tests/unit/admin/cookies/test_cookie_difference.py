"""How cookies differ, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkctl.admin.cookies.difference import differences
from bkctl.codec.cookie import Cookie

WANTED = Cookie(5, "10.0.0.1:3181", "/j", "2\t/l1\t/l2", "cluster")


def test_equal_cookies() -> None:
    assert differences(WANTED, WANTED) == []
    assert differences(WANTED, replace(WANTED, layout_version=4)) == []
    assert differences(WANTED, replace(WANTED, index_dirs=" ")) == []
    assert differences(WANTED, replace(WANTED, index_dirs="2\t/l1\t/l2")) == []


@pytest.mark.parametrize(
    ("fields", "field", "cause"),
    [
        ({"bookie_host": "10.0.0.1:3182"}, "bookie_host", "bookiePort was 3182"),
        ({"bookie_host": "10.0.0.2:3181"}, "bookie_host", "the address changed"),
        ({"bookie_host": "named"}, "bookie_host", "bookieId was set, changed or removed"),
        ({"bookie_host": "10.0.0.2:3182"}, "bookie_host", "the directory is that of another bookie"),
        ({"journal_dirs": "/old/j"}, "journal_dirs", "moved or mounted elsewhere: /old/j is /j now"),
        ({"journal_dirs": "/a,/b"}, "journal_dirs", "added: /j; left out: /a, /b"),
        ({"index_dirs": "1\t/i"}, "index_dirs", "added: /l1, /l2; left out: /i"),
        ({"instance_id": None}, "instance_id", "the cookie is of a time when the cluster had no instance id"),
        ({"instance_id": "x"}, "instance_id", "the cluster was formatted since"),
    ],
)
def test_one_field(fields: dict[str, str | None], field: str, cause: str) -> None:
    (difference,) = differences(WANTED, replace(WANTED, **fields))  # type: ignore[arg-type]
    assert difference.field == field
    assert cause in difference.cause


@pytest.mark.parametrize(
    ("stored", "cause"),
    [
        ("2\t/l2\t/l1", "the same directories in another order"),
        ("1\t/l1", "added since: /l2"),
        ("3\t/l1\t/l2\t/l3", "left out: /l3"),
    ],
)
def test_ledger_directories_are_told_once(stored: str, cause: str) -> None:
    """Index directories that are not configured follow the ledger directories."""
    (difference,) = differences(WANTED, replace(WANTED, ledger_dirs=stored))
    assert difference.field == "ledger_dirs"
    assert cause in difference.cause


def test_a_cluster_without_an_instance_id() -> None:
    (difference,) = differences(replace(WANTED, instance_id=None), WANTED)
    assert (difference.expected, difference.found) == (None, "cluster")


def test_a_cookie_without_fields() -> None:
    (difference,) = differences(WANTED, Cookie(2, "", "", ""))
    assert (difference.field, difference.expected, difference.found) == ("layout_version", "5", "2")


def test_directories_that_do_not_split() -> None:
    (difference,) = differences(WANTED, replace(WANTED, ledger_dirs="3\t/l1"))
    assert difference.found == "3\t/l1"
