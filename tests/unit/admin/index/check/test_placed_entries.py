"""Entries that the metadata place on a bookie are counted as the client stripes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.admin.index.check.check import CheckOptions, check_spaces
from bkctl.admin.index.check.finding import Kind, Severity
from bkctl.admin.index.check.placed_entries import Stripe, stripes_on
from bkctl.admin.logs.digests import digest_book
from bkctl.codec.ledger_metadata import Segment
from bkctl.directories.index_spaces import index_spaces
from bkctl.replication.replica_survey import placed_on
from bkctl.reporting import nobody
from bkctl.scan.files.paths import directories
from bkctl.types import LedgerState
from tests.support.checked_bookie import FILES, CheckedBookie
from tests.support.machine_rig import metadata

BOOKIES = ("a", "b", "c", "d")


@given(st.data())
def test_as_many_as_a_repair_would_look_for(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 4))
    quorum = data.draw(st.integers(1, size))
    last = data.draw(st.integers(-1, 60))
    firsts = [0, *sorted(data.draw(st.sets(st.integers(1, 70), max_size=3)))]
    members = [tuple(data.draw(st.permutations(BOOKIES))[:size]) for _ in firsts]
    found = metadata(
        size,
        quorum,
        quorum,
        state=LedgerState.CLOSED,
        last_entry=last,
        segments=tuple(map(Segment, firsts, members)),
    )
    wanted = list(placed_on(found, "a"))
    stripes = stripes_on(found, "a")
    assert sum(stripe.entries for stripe in stripes) == len(wanted)
    assert [entry for entry in range(80) if any(stripe.holds(entry) for stripe in stripes)] == wanted
    some = data.draw(st.sets(st.integers(0, 80)))
    column = np.array(sorted(some), np.int64)
    assert sum(stripe.count(column) for stripe in stripes) == len(some & set(wanted))


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_a_ledger_that_is_not_closed_promises_nothing(state: LedgerState) -> None:
    assert stripes_on(metadata(state=state, segments=(Segment(0, ("a", "b", "c")),)), "a") == ()


@pytest.mark.parametrize("storage", ["db", "idx"])
def test_a_ledger_that_is_placed_here_and_has_no_row_is_missing_and_not_deleted(
    tmp_path: Path, storage: str
) -> None:
    bookie = CheckedBookie(tmp_path, storage)
    bookie.fill([1])
    for entry in range(5):
        bookie.store(2, entry)
    bookie.journaled(1, [20])
    bookie.write()
    spaces = index_spaces(FILES, directories(FILES, [str(tmp_path)]))

    def found(placed: Mapping[int, Sequence[Stripe]]) -> list[tuple[Kind, int | None]]:
        options = CheckOptions(digest_book(FILES), None, 1 << 20, placed=placed)
        findings = check_spaces(FILES, spaces, options, nobody)
        return [(each.kind, each.ledger) for each in findings if each.severity is Severity.DAMAGE]

    assert found({}) == []
    assert found({1: (), 2: ()}) == [(Kind.MISSING_LEDGER, 2)]
