"""The ledgers that get the most entries as rows: of one bookie, or of all of them together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bkctl.admin.top.sample import BookieSample
from bkctl.tui import figures
from bkctl.tui.glyphs import Glyphs
from bkctl.tui.lines import Line, Span, Tone, fit

_LEDGER_CELLS = 19
_RATE_CELLS = 7
_BAR_CELLS = 16
_SHARE_CELLS = 5
#: Columns and the blanks between them in front of the bookies.
_FRONT_CELLS = 1 + _LEDGER_CELLS + 2 * (_RATE_CELLS + 1) + _BAR_CELLS + _SHARE_CELLS + 3


@dataclass(slots=True)
class LedgerTotal:
    """A ledger over several bookies: each copy of an entry that a bookie took counts."""

    ledger: int
    adds_per_s: float = 0.0
    add_mb_per_s: float = 0.0
    bookies: list[tuple[str, float]] = field(default_factory=list)
    """Ids of the bookies, and the entries that each took in a second."""


def ledger_totals(bookies: Iterable[BookieSample], *, by_bytes: bool) -> list[LedgerTotal]:
    """Add up the ledgers of bookies; the busiest first, by entries or by bytes."""
    totals: dict[int, LedgerTotal] = {}
    for bookie in bookies:
        for rate in bookie.busiest_ledgers:
            total = totals.setdefault(rate.ledger, LedgerTotal(rate.ledger))
            total.adds_per_s += rate.adds_per_s
            total.add_mb_per_s += rate.add_mb_per_s
            total.bookies.append((bookie.bookie, rate.adds_per_s))
    for total in totals.values():
        total.bookies.sort(key=lambda each: (-each[1], each[0]))
    return sorted(totals.values(), key=lambda each: (-_amount(each, by_bytes=by_bytes), each.ledger))


def ledger_heading(width: int, glyphs: Glyphs, *, by_bytes: bool) -> Line:
    """Return the titles over :func:`ledger_rows`; the one that the rows are sorted by has a mark."""
    adds, megabytes = "ADD/S", "MB/S"
    if by_bytes:
        megabytes += glyphs.descending
    else:
        adds += glyphs.descending
    text = (
        f" {'LEDGER':>{_LEDGER_CELLS}} {adds:>{_RATE_CELLS}} {megabytes:>{_RATE_CELLS}}"
        f" {'SHARE':<{_BAR_CELLS + _SHARE_CELLS + 1}} BOOKIES"
    )
    return (Span(fit(text, width, mark=glyphs.cut), Tone.HEADING),)


def ledger_rows(
    totals: list[LedgerTotal], all_per_s: float, width: int, glyphs: Glyphs, *, by_bytes: bool
) -> list[tuple[str, Line]]:
    """Return a row for each ledger; its share is of ``all_per_s``, what the bookies take of all ledgers."""
    rows: list[tuple[str, Line]] = []
    for total in totals:
        share = min(_amount(total, by_bytes=by_bytes) / all_per_s, 1.0) if all_per_s > 0 else None
        names = ", ".join(name for name, _ in total.bookies)
        line = (
            Span(" "),
            Span(f"{total.ledger:>{_LEDGER_CELLS}}", Tone.STRONG),
            Span(
                f" {figures.count(total.adds_per_s):>{_RATE_CELLS}}"
                f" {figures.megabytes(total.add_mb_per_s):>{_RATE_CELLS}} "
            ),
            Span(glyphs.bar(share, _BAR_CELLS)),
            Span(f" {figures.percent(share):>{_SHARE_CELLS - 1}}  "),
            Span(fit(names, max(width - _FRONT_CELLS, 0), mark=glyphs.cut), Tone.DIM),
        )
        rows.append((str(total.ledger), line))
    return rows


def all_per_second(bookies: Iterable[BookieSample], *, by_bytes: bool) -> float:
    """Return the rate of all bookies that report ledgers, per second: entries, or 10^6 bytes."""
    rates = ((bookie.add_mb_per_s if by_bytes else bookie.adds_per_s) or 0.0 for bookie in bookies)
    return sum(rates)


def _amount(total: LedgerTotal, *, by_bytes: bool) -> float:
    return total.add_mb_per_s if by_bytes else total.adds_per_s
