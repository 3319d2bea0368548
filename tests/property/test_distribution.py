"""Write sets and quorum coverage against their definitions, for every small ensemble."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.client.distribution import Distribution, segment_of
from bkctl.codec.ledger_metadata import LedgerMetadata, Segment
from bkctl.errors import UsageError
from bkctl.types import LedgerState

QUORUMS = [(e, w, a) for e in range(1, 8) for w in range(1, e + 1) for a in range(1, w + 1)]


@pytest.mark.parametrize(("size", "write", "ack"), QUORUMS)
def test_coverage_is_that_no_ack_quorum_could_be_silent(size: int, write: int, ack: int) -> None:
    """From the definition: no entry has Aq bookies in its write set of which nothing is known."""
    distribution = Distribution(size, write, ack)
    for known in itertools.chain.from_iterable(
        itertools.combinations(range(size), n) for n in range(size + 1)
    ):
        silent = set(range(size)) - set(known)
        possible = any(
            set(quorum) <= silent
            for entry in range(size)
            for quorum in itertools.combinations([(entry + w) % size for w in range(write)], ack)
        )
        assert distribution.covered(set(known)) is not possible


@pytest.mark.parametrize(("size", "write", "ack"), QUORUMS)
def test_the_missing_quorum_meets_every_ack_quorum(size: int, write: int, ack: int) -> None:
    distribution = Distribution(size, write, ack)
    indices = distribution.write_set(5)
    for acked in itertools.combinations(indices, ack):
        assert len(set(indices) - set(acked)) == distribution.missing_quorum - 1


@given(st.integers(1, 9), st.data(), st.integers(0, 2**63 - 1))
def test_a_write_set_is_where_the_formula_says(size: int, data: st.DataObject, entry: int) -> None:
    write = data.draw(st.integers(1, size))
    distribution = Distribution(size, write, 1)
    write_set = distribution.write_set(entry)
    assert write_set == tuple((entry + w) % size for w in range(write))
    assert len(set(write_set)) == write
    assert {index for index in range(size) if distribution.holds(index, entry)} == set(write_set)
    everyone = distribution.ensemble_set(entry)
    assert everyone[:write] == write_set
    assert sorted(everyone) == list(range(size))


def test_ids_beyond_32_bits_follow_the_same_formula() -> None:
    """Java casts to 32 bits before the modulo: at 2^31 its first index of three would be -2."""
    distribution = Distribution(3, 2, 2)
    assert distribution.write_set(2**31 - 1) == (1, 2)
    assert distribution.write_set(2**31) == (2, 0)
    assert distribution.write_set(2**63 - 1) == ((2**63 - 1) % 3, (2**63) % 3)


@pytest.mark.parametrize("quorums", [(3, 4, 1), (3, 2, 3), (3, 2, 0), (0, 0, 0)])
def test_quorums_that_do_not_go_together_are_refused(quorums: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError):
        Distribution(*quorums)


def ledger(*first_entries: int) -> LedgerMetadata:
    segments = tuple(Segment(first, (f"a{first}", f"b{first}", f"c{first}")) for first in first_entries)
    return LedgerMetadata(
        metadata_version=3,
        write_quorum=2,
        ensemble_size=3,
        ack_quorum=2,
        length=0,
        last_entry=-1,
        state=LedgerState.OPEN,
        segments=segments,
    )


def test_an_entry_belongs_to_the_last_segment_that_begins_at_or_before_it() -> None:
    metadata = ledger(0, 3, 10)
    assert [segment_of(metadata, entry).first_entry for entry in (0, 2, 3, 9, 10, 10**12)] == [
        0,
        0,
        3,
        3,
        10,
        10,
    ]
    # The index counts from entry 0, not from the segment's first entry.
    bookies = segment_of(metadata, 4).bookies
    assert [bookies[slot] for slot in Distribution.of(metadata).write_set(4)] == ["b3", "c3"]
    with pytest.raises(UsageError):
        segment_of(metadata, -1)
