"""The ledgers by rate: of one bookie, or of all bookies that report theirs."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from bkctl.admin.top.sample import BookieSample, Source
from bkctl.tui import figures
from bkctl.tui.bookie_screen import BookieScreen
from bkctl.tui.glyphs import Glyphs
from bkctl.tui.lines import EMPTY, Line, Tone, remark
from bkctl.tui.models import ledger_rows
from bkctl.tui.models.ledger_rows import LedgerTotal
from bkctl.tui.watch import Watch
from bkctl.tui.watch_screen import WatchScreen
from bkctl.tui.widgets.line_view import LineView, RowView


class LedgerScreen(WatchScreen):
    """A row for each ledger; below, what the bookies take of the one at the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace,l", "app.pop_screen", "Back", key_display="Esc"),
        Binding("s", "sort", "Sort", key_display="s"),
    ]

    def __init__(self, watch: Watch, glyphs: Glyphs, bookie: str | None) -> None:
        super().__init__(watch, glyphs)
        self._bookie = bookie
        self._by_bytes = False
        self._totals: dict[str, LedgerTotal] = {}

    def body(self) -> ComposeResult:
        yield LineView(id="columns")
        yield RowView(id="ledgers", cursor=self.glyphs.cursor)

    def foot(self) -> ComposeResult:
        yield LineView(id="why")

    def on_mount(self) -> None:
        self.query_one("#ledgers").focus()
        self.draw()

    def where(self) -> str:
        return "ledgers by rate" if self._bookie is None else f"{self._bookie} > ledgers by rate"

    def notices(self) -> list[str]:
        found = [] if self._bookie is None else self.gone_notices(self._bookie)
        if self._totals or self.watched.shown is None:
            return found
        answering = self._answering()
        if answering and all(bookie.source is Source.JAVA for bookie in answering):
            return [*found, "Java's bookies do not tell of ledgers"]
        return [*found, "no ledger got an entry between the last two samples"]

    def lines_changed(self) -> None:
        bookies, width, by_bytes = self._answering(), self.size.width, self._by_bytes
        totals = ledger_rows.ledger_totals(bookies, by_bytes=by_bytes)
        self._totals = {str(total.ledger): total for total in totals}
        told = [bookie for bookie in bookies if bookie.busiest_ledgers]
        all_per_s = ledger_rows.all_per_second(told, by_bytes=by_bytes)
        self.show_one("columns", ledger_rows.ledger_heading(width, self.glyphs, by_bytes=by_bytes))
        self.query_one("#ledgers", RowView).show_rows(
            ledger_rows.ledger_rows(totals, all_per_s, width, self.glyphs, by_bytes=by_bytes)
        )
        self._show_why()

    def _answering(self) -> list[BookieSample]:
        shown = self.watched.shown
        bookies = () if shown is None else shown.bookies
        return [each for each in bookies if self._bookie in (None, each.bookie) and each.error is None]

    def _show_why(self) -> None:
        chosen = self.query_one("#ledgers", RowView).chosen
        total = self._totals.get(chosen or "")
        lines: list[Line] = [EMPTY]
        if total is not None:
            parts = ", ".join(f"{name} {figures.count(adds)}/s" for name, adds in total.bookies)
            text = f"ledger {total.ledger}: {parts}; whose it is: bkctl ledger show {total.ledger}"
            lines = remark(text, Tone.PLAIN, self.size.width, self.glyphs.cut)
        self.lines_of("why").show(lines)

    def action_sort(self) -> None:
        self._by_bytes = not self._by_bytes
        self.draw()

    @on(RowView.Moved)
    def follow(self) -> None:
        """Say what the bookies take of the ledger that is chosen now."""
        self._show_why()

    @on(RowView.Chosen)
    def open_bookie(self, event: RowView.Chosen) -> None:
        """Open the bookie that takes most of the ledger."""
        total = self._totals.get(event.key)
        if total is not None:
            self.app.push_screen(BookieScreen(self.watched, self.glyphs, total.bookies[0][0]))

    @on(LineView.Clicked, "#columns")
    def sort_by_column(self) -> None:
        """Sort the ledgers by the other figure."""
        self.action_sort()
