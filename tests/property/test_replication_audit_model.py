"""The audit's closed form and its gaps against placing every entry one by one, on random clusters."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.audit_cases import AuditCase, random_case
from tests.support.grades import times
from tests.support.pipeline_tables import rows_of, run_over


def check_audit(case: AuditCase, folder: Path) -> None:
    """Run the audit over a case and compare every table with counting."""
    outcome = run_over(case.write(folder / "t"), "replication-audit", folder / "o", bookies_gone=case.gone)
    truth = case.truth()
    found: Counter[tuple[int, int, str]] = Counter()
    columns = ("ledger", "bookie", "slot", "first_missing", "last_missing", "missing")
    for ledger, bookie, slot, first, last, count in rows_of(outcome, "missing", *columns):
        keys = [
            (ledger, entry, bookie)
            for entry in range(first, last + 1)
            if case.slot_holds(ledger, entry, slot, bookie)
        ]
        assert len(keys) == count
        assert keys[0][1] == first
        assert keys[-1][1] == last
        found.update(keys)
    assert found == truth.missing
    short: Counter[tuple[int, int, int]] = Counter()
    for copies, missing, unknown, entries in rows_of(
        outcome, "short_entries", "copies", "missing", "unknown_copies", "entries"
    ):
        short[copies, missing, unknown] += entries
    assert short == truth.short
    assert outcome.counts["slots_unknown"] == truth.open_slots
    assert outcome.counts["slots_not_judged"] == truth.not_judged
    assert outcome.counts["bookies_not_examined"] == truth.bookies_not_examined


@settings(max_examples=times(5, 12))
@given(seed=st.integers(0, 2**32))
def test_the_audit_is_what_counting_gives(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_audit(random_case(random.Random(seed), ledgers=12), Path(folder))
