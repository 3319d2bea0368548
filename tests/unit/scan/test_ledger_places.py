"""Which directories hold another one's ledgers, by how many ledgers of which position each of them has."""

from __future__ import annotations

import pytest

from bkctl.scan.ledger_places import copied_places, exchanged_places, place_of

Counts = list[list[int]]


def counts(directories: int, *held: range | list[int]) -> Counts:
    """The ledgers of each directory, counted by the directory that they belong to."""
    return [
        [sum(place_of(ledger, directories) == place for ledger in ledgers) for place in range(directories)]
        for ledgers in held
    ]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(counts(2, [1], [2]), {0: 1, 1: 0}, id="one ledger each"),
        pytest.param(counts(2, range(1, 400, 2), range(0, 400, 2)), {0: 1, 1: 0}, id="many ledgers"),
        pytest.param(counts(2, [], [2, 4]), {1: 0}, id="of which one is empty"),
        pytest.param(
            counts(3, [1, 4], [2, 5], [3, 6]), {0: 1, 1: 2, 2: 0}, id="three, each at the next place"
        ),
        pytest.param(counts(3, [1, 4], [3, 6], [2, 5]), {0: 1, 1: 0}, id="two of three"),
        pytest.param([[10, 100], [100, 9]], {0: 1, 1: 0}, id="a bookie has run on them for a while"),
    ],
)
def test_directories_in_each_others_place(found: Counts, expected: dict[int, int]) -> None:
    assert exchanged_places(found) == expected


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(counts(1, range(9)), id="one directory"),
        pytest.param(counts(2, [], []), id="nothing yet"),
        pytest.param(counts(2, [2], []), id="one ledger"),
        pytest.param(counts(2, range(0, 90, 2), range(1, 90, 2)), id="all at home"),
        pytest.param(counts(2, [1, *range(0, 90, 2)], range(1, 90, 2)), id="one that is not"),
        pytest.param(counts(2, [1], range(1, 90, 2)), id="one that is not, and no other"),
        pytest.param(counts(2, range(90), []), id="one directory became two"),
        pytest.param(counts(4, range(0, 90, 2), range(1, 90, 2), [], []), id="two became four"),
        pytest.param(counts(3, range(0, 90, 2), range(1, 90, 2), []), id="two became three"),
        pytest.param(counts(2, range(0, 90, 2), range(0, 90, 2)), id="a copy of another disk"),
        pytest.param([[100, 100], [100, 100]], id="as many at home as not"),
        pytest.param([[100, 900], [400, 600]], id="one of which nobody knows"),
    ],
)
def test_what_proves_no_exchange(found: Counts) -> None:
    assert exchanged_places(found) == {}


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        pytest.param([range(0, 90, 2), range(0, 90, 2)], {1: 0}, id="a copy"),
        pytest.param([range(0, 90, 2), range(0, 60, 2)], {1: 0}, id="an older copy"),
        pytest.param([range(1, 90, 2), [*range(1, 90, 2), 2]], {0: 1}, id="a copy in the first place"),
        pytest.param([range(0, 90, 2), range(1, 90, 2)], {}, id="all at home"),
        pytest.param([range(0, 90, 2), [4, 6]], {}, id="some that were left"),
        pytest.param([range(0, 90, 2), range(100, 190, 2)], {}, id="others"),
        pytest.param([range(90), range(1, 90, 2)], {}, id="one directory became two"),
    ],
)
def test_copies_of_another_ones_disk(held: list[range | list[int]], expected: dict[int, int]) -> None:
    sets = [set(ledgers) for ledgers in held]
    found = copied_places(counts(2, *held), lambda position, other: len(sets[position] & sets[other]))
    assert found == expected
