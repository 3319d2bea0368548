"""The cluster: a row a bookie, totals with their past, and why the chosen bookie is held back."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical

from bkctl.admin.top.sample import BookieSample
from bkctl.tui.bookie_screen import BookieScreen
from bkctl.tui.glyphs import Glyphs
from bkctl.tui.lines import Line
from bkctl.tui.models import cluster_lines, cluster_rows
from bkctl.tui.models.alarm_lines import alarm_lines
from bkctl.tui.models.cluster_rows import View
from bkctl.tui.models.room import ALARMS_FROM_HEIGHT, alarm_rows, detail, room_for
from bkctl.tui.prompt_screen import PromptScreen
from bkctl.tui.watch import Watch
from bkctl.tui.watch_screen import WatchScreen
from bkctl.tui.widgets.line_view import LineView, RowView

#: Rows that are neither the list's nor the detail's: status, heading, totals, recovery, why, keys.
_FRAME_ROWS = 10
#: Rows of the detail below the list, at least.
_DETAIL_ROWS = 20


class ClusterScreen(WatchScreen):
    """Sorts, filters and opens bookies; on a large terminal it shows the chosen one and alarms as well."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort(1)", "Sort", key_display="s"),
        Binding("S", "sort(-1)", "Sort by the column before", show=False),
        Binding("r", "reverse", "Reverse", show=False),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "clear_filter", "Clear filter", show=False),
    ]

    def __init__(self, watch: Watch, glyphs: Glyphs) -> None:
        super().__init__(watch, glyphs)
        self.view = View()

    def body(self) -> ComposeResult:
        with Container(id="main"):
            with Vertical(id="list"):
                yield LineView(id="columns")
                yield RowView(id="bookies", cursor=self.glyphs.cursor)
                yield LineView(id="alarms")
            yield LineView(id="beside")

    def foot(self) -> ComposeResult:
        yield LineView(id="totals")
        yield LineView(id="recovery")
        yield LineView(id="why")

    def on_mount(self) -> None:
        self.query_one("#bookies").focus()

    def chosen_bookie(self) -> str | None:
        return self.query_one("#bookies", RowView).chosen

    def note(self) -> str:
        return self.watched.source.title

    def where(self) -> str:
        shown = self.watched.shown
        bookies = () if shown is None else shown.bookies
        visible = len(cluster_rows.visible(bookies, self.view) if self.view.filter else bookies)
        text = cluster_lines.headline(shown, visible)
        return f"{text}, filter {self.view.filter}" if self.view.filter else text

    def lines_changed(self) -> None:
        width = self.size.width
        list_cells = self._divide()
        columns = cluster_rows.columns_for(list_cells)
        self.show_one("columns", cluster_rows.heading(columns, self.view, self.glyphs))
        table = self.query_one("#bookies", RowView)
        table.show_rows(cluster_rows.rows(self.watched, self.view, columns, list_cells, self.glyphs))
        self.lines_of("totals").show(cluster_lines.totals(self.watched, width, self.glyphs))
        recovery = self.lines_of("recovery")
        line = cluster_lines.recovery(self.watched.shown, width, self.glyphs.cut)
        recovery.display = line is not None
        recovery.show([] if line is None else [line])
        self._show_chosen()

    def notices(self) -> list[str]:
        if self.view.filter and self.watched.shown and not self.query_one("#bookies", RowView).chosen:
            return [f"no bookie has {self.view.filter} in its name, mode or bottleneck (Esc: no filter)"]
        return []

    def _divide(self) -> int:
        """Give the list and the detail their places; return the cells of the list."""
        room = room_for(self.size.width, self.size.height)
        self.query_one("#main").set_class(room.beside, "beside")
        detail = self.query_one("#beside")
        detail.display = bool(room.detail_cells)
        if room.beside:
            detail.styles.width = room.detail_cells
        else:
            detail.styles.width = "1fr"
        return room.list_cells

    def _show_alarms(self, rows_below: int) -> None:
        """Show alarms below the list where the rows of the bookies leave room."""
        alarms, shown, size = self.query_one("#alarms", LineView), self.watched.shown, self.size
        now_ms = None if shown is None else shown.taken_at_ms
        cells = room_for(size.width, size.height).list_cells
        lines = alarm_lines(self.watched.alarms, now_ms, cells, None, self.glyphs)
        rows = 0
        if size.height >= ALARMS_FROM_HEIGHT:
            bookies = 0 if shown is None else len(shown.bookies)
            rows = alarm_rows(size.height - rows_below - _FRAME_ROWS, bookies, len(lines))
        alarms.display = bool(rows)
        if rows:
            alarms.styles.height = rows
            alarms.show(alarm_lines(self.watched.alarms, now_ms, cells, rows, self.glyphs))

    def _show_chosen(self) -> None:
        """Show the chosen bookie's figures where there is room, and why it is held back."""
        chosen = self.query_one("#bookies", RowView).chosen
        bookie = self.watched.bookie(chosen) if chosen is not None else None
        room = room_for(self.size.width, self.size.height)
        lines: list[Line] = []
        if bookie is not None and room.detail_cells:
            rows = self.size.height - _FRAME_ROWS if room.beside else None
            told = self.watched.last_answer(bookie)
            lines = detail(bookie, told, self.watched.history, room.detail_cells, rows, self.glyphs)
        if not room.beside:
            # A few rows to spare, so that the list does not move with the number of queues.
            self.query_one("#beside").styles.height = max(len(lines), _DETAIL_ROWS)
        else:
            self.query_one("#beside").styles.height = "1fr"
        self.lines_of("beside").show(lines)
        below = max(len(lines), _DETAIL_ROWS) if room.detail_cells and not room.beside else 0
        self._show_alarms(below)
        self._show_why(bookie)

    def _show_why(self, bookie: BookieSample | None) -> None:
        why = self.lines_of("why")
        why.show(
            cluster_lines.explanation(
                self.watched, bookie, self.size.width, max(why.size.height, 1), self.glyphs.cut
            )
        )

    @on(RowView.Moved)
    def follow(self) -> None:
        """Say why the bookie that is chosen now is held back."""
        self._show_chosen()

    @on(LineView.Clicked, "#beside")
    def open_detail(self) -> None:
        """Open the bookie whose figures were clicked."""
        self.query_one("#bookies", RowView).action_choose()

    @on(RowView.Chosen)
    def open_bookie(self, event: RowView.Chosen) -> None:
        """Open one bookie on a screen of its own."""
        self.app.push_screen(BookieScreen(self.watched, self.glyphs, event.key))

    @on(LineView.Clicked, "#columns")
    def sort_by_column(self, event: LineView.Clicked) -> None:
        """Sort by the title that was clicked; one more click turns the order round."""
        start = cluster_rows.CURSOR_CELLS
        for column in cluster_rows.columns_for(self._list_cells()):
            if start <= event.column <= start + column.cells:
                same = column.key == self.view.sort
                descending = not self.view.descending if same else column.descending
                self.view = replace(self.view, sort=column.key, descending=descending)
                self.draw()
            start += column.cells + 1

    def _list_cells(self) -> int:
        return room_for(self.size.width, self.size.height).list_cells

    def action_sort(self, direction: int) -> None:
        self.view = self.view.sorted_by_next(cluster_rows.columns_for(self._list_cells()), direction)
        self.draw()

    def action_reverse(self) -> None:
        self.view = replace(self.view, descending=not self.view.descending)
        self.draw()

    def action_filter(self) -> None:
        before = self.view.filter

        def end(text: str | None) -> None:
            self._filter_by(before if text is None else text)

        self.app.push_screen(PromptScreen("filter", before, self._filter_by), end)

    def action_clear_filter(self) -> None:
        self._filter_by("")

    def _filter_by(self, text: str) -> None:
        self.view = replace(self.view, filter=text.strip())
        self.draw()
