"""Stripes stand for the entries of the runs that they were made of, and are few where ensembles stripe."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bkctl.pipeline.sets.stripes import Stripes, concatenated_stripes, joined_stripes, striped
from bkctl.pipeline.tables.run_lengths import Runs


def runs_of(entries: list[tuple[int, int]]) -> Runs:
    """Runs of entries (ledger, id) in their order, each of 10 bytes."""
    columns = [np.array(column, np.int64) for column in zip(*entries, strict=True)]
    ones = np.ones(len(entries), np.int64)
    single = Runs.of_entries(columns[0], columns[1], 10 * ones, ones, None, 0 * ones, columns[1] + 1)
    return single.merged()[0]


def entries_of(stripes: Stripes) -> list[tuple[int, int]]:
    found = []
    columns = (stripes.ledgers, stripes.first, stripes.last, stripes.step, stripes.width, stripes.phase)
    for ledger, first, last, step, width, phase in zip(*(c.tolist() for c in columns), strict=True):
        found += [(ledger, e) for e in range(first, last + 1) if (e - phase) % step < width]
    return found


@pytest.mark.parametrize(("ensemble", "quorum"), [(2, 1), (3, 1), (3, 2), (5, 3), (5, 4), (7, 2), (3, 3)])
def test_what_a_bookie_has_of_a_striped_ledger_is_one_row(ensemble: int, quorum: int) -> None:
    for slot in range(ensemble):
        entries = [(7, e) for e in range(3, 400) if (slot - e) % ensemble < quorum]
        stripes = striped(runs_of(entries))
        assert entries_of(stripes) == entries
        assert len(stripes) == 1, (slot, stripes)
        assert int(stripes.entries.sum()) == len(entries)
        assert int(stripes.bytes.sum()) == 10 * len(entries)


def test_stripes_of_windows_join() -> None:
    entries = [(ledger, e) for ledger in (1, 2) for e in range(5000) if (1 - e) % 3 < 2]
    parts = [striped(runs_of([pair for pair in entries if pair[1] // 700 == part])) for part in range(8)]
    rows = concatenated_stripes(parts)
    joined = joined_stripes(rows.select(np.argsort(rows.ledgers, kind="stable")))
    assert sorted(entries_of(joined)) == entries
    assert len(joined) == 2


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_lost_and_nothing_is_added_whatever_the_order(seed: int) -> None:
    """Holes, several ensembles, entries that stand twice."""
    rng = random.Random(seed)
    entries: list[tuple[int, int]] = []
    for ledger in range(rng.randint(1, 4)):
        at = 0
        for _ in range(rng.randint(1, 6)):
            ensemble = rng.randint(1, 6)
            quorum, slot = rng.randint(1, ensemble), rng.randrange(ensemble)
            last = at + rng.randint(1, 60)
            entries += [(ledger, e) for e in range(at, last) if (slot - e) % ensemble < quorum]
            at = last if rng.random() < 0.8 else max(0, last - 20)
    kept = [pair for pair in entries if rng.random() < rng.choice((0.9, 0.99, 1.0))]
    if rng.random() < 0.3:
        rng.shuffle(kept)
    runs = runs_of(kept or [(1, 1)])
    stripes = striped(runs)
    assert sorted(entries_of(stripes)) == sorted(kept or [(1, 1)])
    assert int(stripes.entries.sum()) == len(kept or [1])
    assert len(stripes) <= len(runs)
