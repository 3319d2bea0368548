"""Output of the command line as values."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

Row = dict[str, Any]


def from_ndjson(text: str) -> list[Row]:
    """One object per line."""
    return [json.loads(line) for line in text.splitlines()]


def from_csv(text: str) -> list[dict[str, str]]:
    """Rows under a header, all values as text."""
    return list(csv.DictReader(io.StringIO(text)))


def as_csv(value: Any) -> str:
    """How a JSON value stands in a CSV cell or in a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else json.dumps(value, separators=(",", ":"))


def same_in_every_format(run: Any, *command: object) -> list[Row]:
    """Run a command about many rows in all four formats, check that they agree, return the rows."""
    rows = from_ndjson(run(*command, "-o", "ndjson").stdout)
    assert rows == json.loads(run(*command, "-o", "json").stdout)
    assert rows == from_ndjson(run(*command).stdout), "a pipe gets NDJSON without being asked"
    names = list(rows[0])
    cells = [[as_csv(row.get(name)) for name in names] for row in rows]
    assert [list(row.values())[: len(names)] for row in from_csv(run(*command, "-o", "csv").stdout)] == cells
    return rows
