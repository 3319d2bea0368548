"""Conditions of a query as conditions of a scan.

Only conditions on ids that are never null are taken; what is taken is applied exactly, so that Spark need not
apply it again.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from bkctl.pipeline.tables.options import Range, TableOptions

#: Columns whose conditions a table's reader applies.
PUSHED_COLUMNS: dict[str, frozenset[str]] = {
    "entries": frozenset({"ledger", "entry", "log_id"}),
    "runs": frozenset({"ledger", "log_id"}),
    "checks": frozenset({"ledger", "log_id"}),
    "logs": frozenset({"log_id"}),
    "log_ledgers": frozenset({"ledger", "log_id"}),
    "journal": frozenset(),
    "index_locations": frozenset({"ledger", "entry", "log_id"}),
    "index_runs": frozenset({"ledger"}),
    "index_ledgers": frozenset({"ledger"}),
    "ledgers": frozenset({"ledger"}),
    "fragments": frozenset({"ledger"}),
    "damage": frozenset(),
    "verification": frozenset(),
}
_ID_MAX = (1 << 63) - 1


def push(
    table: str, filters: Iterable[Filter], options: TableOptions
) -> tuple[TableOptions | None, list[Filter]]:
    """Return the options with the conditions in them, None when no row can satisfy them; and what is left to
    Spark."""
    left: list[Filter] = []
    narrowed: TableOptions | None = options
    for condition in filters:
        pushed = _ranges(condition, PUSHED_COLUMNS[table])
        if pushed is None:
            left.append(condition)
            continue
        column, ranges = pushed
        if ranges is not None and narrowed is not None:
            narrowed = _narrowed(narrowed, column, ranges)
    return narrowed, left


def _narrowed(options: TableOptions, column: str, ranges: tuple[Range, ...]) -> TableOptions | None:
    if column == "ledger":
        return options.narrowed(ledgers=ranges)
    if column == "entry":
        return options.narrowed(entries=ranges)
    return options.narrowed(log_ids=frozenset(log_id for log_id, _ in ranges))


def _ranges(condition: Filter, columns: frozenset[str]) -> tuple[str, tuple[Range, ...] | None] | None:
    """Return the column and the ranges of ids that satisfy a condition, None for all ids.

    Returns None when the condition cannot be taken.
    """
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in columns:
        return None
    column = attribute[0]
    if isinstance(condition, IsNotNull):
        return column, None
    value = getattr(condition, "value", None)
    if isinstance(condition, EqualTo | EqualNullSafe):
        return (column, _ids([value])) if isinstance(value, int) else None
    if isinstance(condition, In):
        values = [item for item in condition.value if item is not None]
        return (column, _ids(values)) if all(isinstance(item, int) for item in values) else None
    if column == "log_id" or not isinstance(value, int):
        return None
    return _bounds(condition, column, value)


def _bounds(condition: Filter, column: str, value: int) -> tuple[str, tuple[Range, ...]] | None:
    bounds: dict[type[Filter], Range] = {
        GreaterThan: (value + 1, _ID_MAX),
        GreaterThanOrEqual: (value, _ID_MAX),
        LessThan: (0, value - 1),
        LessThanOrEqual: (0, value),
    }
    found = bounds.get(type(condition))
    if found is None:
        return None
    first, last = max(found[0], 0), min(found[1], _ID_MAX)
    return column, ((first, last),) if first <= last else ()


def _ids(values: Iterable[int]) -> tuple[Range, ...]:
    return tuple(sorted({(value, value) for value in values if 0 <= value <= _ID_MAX}))
