"""Scalar functions that a job's SQL uses beside the common subset of DuckDB and Spark SQL.

Both engines define them from the same expression before a job runs: DuckDB as macros, Spark as temporary
functions. Every argument and every result is a BIGINT. Division of integers goes through a double in both, so
it is done on a multiple of the divisor, which is exact below 2**53; entry ids are far below.

``each_of(steps_between(a, b, c))`` gives a row for a, a + c and so on up to b, which is not below a; each
engine has its own names for the two words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """``name(parameters)`` is ``expression``."""

    name: str
    parameters: tuple[str, ...]
    expression: str

    def for_duckdb(self) -> str:
        """Return the statement that defines the function in DuckDB."""
        return f"CREATE OR REPLACE TEMP MACRO {self.name}({', '.join(self.parameters)}) AS {self.expression}"

    def for_spark(self) -> str:
        """Return the statement that defines the function in Spark."""
        parameters = ", ".join(f"{name} BIGINT" for name in self.parameters)
        return (
            f"CREATE OR REPLACE TEMPORARY FUNCTION {self.name}({parameters}) RETURNS BIGINT "
            f"RETURN {self.expression}"
        )


#: Whole quotient of a number that is not negative.
QUOTIENT = ScalarFunction("quotient", ("a", "b"), "CAST((a - a % b) / b AS BIGINT)")

#: Remainder in 0..b-1, also of a negative number.
REMAINDER = ScalarFunction("remainder", ("a", "b"), "((a % b) + b) % b")

#: How many of the entries 0..n-1 stand on slot ``s`` of an ensemble of ``e`` with write quorum ``w``: entry i
#: does when (s - i) mod e < w (``RoundRobinDistributionSchedule``). Whole rounds give w each; of the rest
#: those residues count that lie in s-w+1..s, around the end.
ENTRIES_ON_SLOT = ScalarFunction(
    "entries_on_slot",
    ("n", "s", "e", "w"),
    "CAST((n - n % e) / e AS BIGINT) * w"
    " + greatest(0, least(s, n % e - 1) - greatest(0, s - w + 1) + 1)"
    " + greatest(0, n % e - (s - w + 1 + e))",
)

#: The first entry from ``i`` on that stands on slot ``s``.
NEXT_ON_SLOT = ScalarFunction(
    "next_on_slot",
    ("i", "s", "e", "w"),
    "i + greatest(0, (((s - i) % e) + e) % e - w + 1)",
)

#: The last entry up to ``i`` that stands on slot ``s``.
LAST_ON_SLOT = ScalarFunction(
    "last_on_slot",
    ("i", "s", "e", "w"),
    "CASE WHEN (((s - i) % e) + e) % e < w THEN i ELSE i - (e - (((s - i) % e) + e) % e) END",
)

#: How many of the entries a..b have remainder ``r`` modulo ``e``.
ENTRIES_OF_RESIDUE = ScalarFunction(
    "entries_of_residue",
    ("a", "b", "r", "e"),
    "CAST(((b - r + e) - (b - r + e) % e) / e AS BIGINT)"
    " - CAST(((a - 1 - r + e) - (a - 1 - r + e) % e) / e AS BIGINT)",
)

FUNCTIONS = (QUOTIENT, REMAINDER, ENTRIES_ON_SLOT, NEXT_ON_SLOT, LAST_ON_SLOT, ENTRIES_OF_RESIDUE)


_GENERATORS = re.compile(r"\b(each_of|steps_between)\(")
_IN_DUCKDB = {"each_of": "unnest(", "steps_between": "generate_series("}
_IN_SPARK = {"each_of": "explode(", "steps_between": "sequence("}


def for_duckdb(query: str) -> str:
    """Return a query with what DuckDB calls its generators."""
    return _GENERATORS.sub(lambda found: _IN_DUCKDB[found[1]], query)


def for_spark(query: str) -> str:
    """Return a query with what Spark calls its generators."""
    return _GENERATORS.sub(lambda found: _IN_SPARK[found[1]], query)
