"""The scalar functions of jobs' SQL, against counting one by one."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from bkctl.pipeline.portable_sql import FUNCTIONS

ENSEMBLES = [(e, w) for e in range(1, 6) for w in range(1, e + 1)]


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as found:
        for function in FUNCTIONS:
            found.execute(function.for_duckdb())
        yield found


def on_slot(entry: int, slot: int, e: int, w: int) -> bool:
    return slot in [(entry + replica) % e for replica in range(w)]


@pytest.mark.parametrize(("e", "w"), ENSEMBLES)
def test_entries_on_a_slot_are_what_the_distribution_puts_there(
    connection: duckdb.DuckDBPyConnection, e: int, w: int
) -> None:
    rows = connection.execute(
        f"""
        SELECT n, s, entries_on_slot(n, s, {e}, {w}), next_on_slot(n, s, {e}, {w}), last_on_slot(n + {e}, s,
               {e}, {w})
        FROM range(0, 23) a(n), range(0, {e}) b(s)
        """
    ).fetchall()
    assert len(rows) == 23 * e
    for n, slot, count, following, preceding in rows:
        assert count == sum(on_slot(entry, slot, e, w) for entry in range(n)), (n, slot)
        assert following == next(entry for entry in range(n, n + 99) if on_slot(entry, slot, e, w))
        assert preceding == next(entry for entry in range(n + e, -1, -1) if on_slot(entry, slot, e, w))


def test_entries_of_a_residue(connection: duckdb.DuckDBPyConnection) -> None:
    rows = connection.execute(
        """
        SELECT a, b, r, e, entries_of_residue(a, b, r, e)
        FROM range(0, 9) x(a), range(0, 14) y(b), range(1, 5) z(e), range(0, 4) w(r) WHERE b >= a - 1 AND r
        < e
        """
    ).fetchall()
    for a, b, residue, e, count in rows:
        assert count == sum(entry % e == residue for entry in range(a, b + 1)), (a, b, residue, e)


def test_quotient_and_remainder_are_exact_for_packed_locations(connection: duckdb.DuckDBPyConnection) -> None:
    location = (2**20 - 1) << 32 | 123_456_789
    found = connection.execute(
        f"SELECT quotient({location}, 4294967296), remainder({location}, 4294967296), remainder(-1, 3)"
    ).fetchone()
    assert found == (2**20 - 1, 123_456_789, 2)


def test_a_count_beyond_32_bits_does_not_overflow(connection: duckdb.DuckDBPyConnection) -> None:
    (count,) = connection.execute("SELECT entries_on_slot(3000000000000, 1, 3, 2)").fetchone() or ()
    assert count == 2_000_000_000_000
