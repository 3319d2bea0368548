"""Choose what of its rows a command shows: ``--columns``, ``--sort``, ``--limit``, ``--no-headers``.

Every command that lists rows takes these options. They change what is written, never what is examined: a
command that checks files checks all of them, and its exit code is that of all rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

import typer

from bkctl.errors import UsageError

#: Rows that are held to be sorted when no --limit says how many are shown.
SORT_ROWS_MAX = 1_000_000


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise ValueError(f"{text!r} is not a number of rows.")
    return int(text)


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """Which columns and rows are written, and in which order."""

    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="KEY[,...]", help="Show only these keys, in this order."),
    ] = None
    sort: Annotated[
        str | None,
        typer.Option("--sort", metavar="[-]KEY", help="Sort the rows by this key; with - the largest first."),
    ] = None
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", parser=_count, help="Show at most N rows; all of them are still examined."
        ),
    ] = None
    no_headers: Annotated[
        bool, typer.Option("--no-headers", help="Leave out the heading line of a table or CSV.")
    ] = False

    @property
    def is_given(self) -> bool:
        """Return whether the command line chooses anything."""
        return self.no_headers or not self.is_plain

    @property
    def is_plain(self) -> bool:
        """Return whether every row is written as it comes, with all its keys."""
        return self.columns is None and self.sort is None and self.limit is None

    def check(self, known: Sequence[str]) -> None:
        """Raise UsageError for a key that the rows do not have, with the one that may be meant."""
        import difflib

        for option, names in (("--columns", self.names() or ()), ("--sort", (self._sort_key(),))):
            for name in names:
                if name is not None and name not in known:
                    close = difflib.get_close_matches(name, known, n=1)
                    meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
                    raise UsageError(f"{option}: no key {name!r}; {meant}")

    def names(self) -> list[str] | None:
        """Return the keys of --columns."""
        if self.columns is None:
            return None
        return [name.strip() for name in self.columns.split(",") if name.strip()]

    def rows(self, rows: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield the rows that are shown, in their order; all are taken from ``rows``."""
        if self.sort is not None:
            shown = iter(self._sorted(rows))
        elif self.limit is not None:
            shown = islice(rows, self.limit)
        else:
            shown = rows
        names = self.names()
        for row in shown:
            yield row if names is None else {name: row[name] for name in names if name in row}
        for _ in rows:  # what is not shown is examined too
            pass

    def _sort_key(self) -> str | None:
        return None if self.sort is None else self.sort.removeprefix("-")

    def _sorted(self, rows: Iterator[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        key, largest_first = self._sort_key(), (self.sort or "").startswith("-")

        def rank(row: Mapping[str, Any]) -> tuple[int, Any]:
            value = None if key is None else row.get(key)
            if value is None:
                return (0, 0)
            if isinstance(value, bool | int | float):
                return (1, value)
            return (2, str(value))

        if self.limit is not None:
            choose = heapq.nlargest if largest_first else heapq.nsmallest
            return choose(self.limit, rows, key=rank)
        held = list(islice(rows, SORT_ROWS_MAX + 1))
        if len(held) > SORT_ROWS_MAX:
            raise UsageError(f"--sort: more than {SORT_ROWS_MAX} rows; add --limit N")
        return sorted(held, key=rank, reverse=largest_first)


_VIEW: ContextVar[ViewOptions] = ContextVar("view", default=ViewOptions())  # noqa: B039 - it is frozen


def current_view() -> ViewOptions:
    """Return what the command that runs shows of its rows."""
    return _VIEW.get()


@contextmanager
def showing(view: ViewOptions) -> Iterator[None]:
    """Let the rows that are written inside be shown so."""
    before = _VIEW.set(view)
    try:
        yield
    finally:
        _VIEW.reset(before)
