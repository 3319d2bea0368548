import pytest

from bkctl.codec.ledger_path import LedgerLayout, ledger_id, ledger_path, split_ledger_path
from bkctl.errors import CorruptionError, UsageError

HIERARCHICAL = [
    (2, "/00/0000/L0002"),
    (2147483646, "/21/4748/L3646"),
    (2147483647, "/000/0000/0021/4748/L3647"),
    (4294967296, "/000/0000/0042/9496/L7296"),
    (1234567890123456789, "/123/4567/8901/2345/L6789"),
    (9223372036854775807, "/922/3372/0368/5477/L5807"),
]
OTHERS = [
    (LedgerLayout.FLAT, 4, "/L0000000004"),
    (LedgerLayout.LEGACY, 2, "/00/0000/L0002"),
    (LedgerLayout.LEGACY, 9999999999, "/99/9999/L9999"),
    (LedgerLayout.LONG, 0, "/000/0000/0000/0000/L0000"),
    (LedgerLayout.LONG, 98765432109, "/000/0000/0987/6543/L2109"),
]


@pytest.mark.parametrize(("ledger", "path"), HIERARCHICAL)
def test_hierarchical_both_ways(ledger: int, path: str) -> None:
    assert ledger_path(ledger) == path
    assert ledger_id(path) == ledger


@pytest.mark.parametrize(("layout", "ledger", "path"), OTHERS)
def test_other_layouts_both_ways(layout: LedgerLayout, ledger: int, path: str) -> None:
    assert ledger_path(ledger, layout) == path
    assert ledger_id(path) == ledger


def test_flat_path_that_java_wrote_too_long_is_read() -> None:
    assert ledger_id("/L98765432109") == 98765432109


@pytest.mark.parametrize("layout", [LedgerLayout.FLAT, LedgerLayout.LEGACY])
def test_ids_beyond_ten_digits_are_refused(layout: LedgerLayout) -> None:
    with pytest.raises(UsageError):
        ledger_path(10**10, layout)


@pytest.mark.parametrize("ledger", [-1, 2**63])
def test_ids_out_of_range(ledger: int) -> None:
    with pytest.raises(UsageError):
        ledger_path(ledger)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/00/0000",
        "/00/0000/L002",
        "/x/00/0000/L0002",
        "/999/9999/9999/9999/L9999",
        "/L\u0660000000000",
    ],
)
def test_other_paths(path: str) -> None:
    with pytest.raises(CorruptionError):
        ledger_id(path)


def test_split_finds_the_root() -> None:
    assert split_ledger_path("/a/ledgers/00/0000/L0002") == ("/a/ledgers", 2)
    assert split_ledger_path("/ledgers/underreplication/ledgers/0000/0000/0000/0002/urL0000000002") is None
    assert split_ledger_path("/ledgers/cookies/b:1") is None
