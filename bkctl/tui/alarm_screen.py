"""All alarms that are remembered, on a screen of their own."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from bkctl.tui.models.alarm_lines import alarm_lines
from bkctl.tui.watch_screen import WatchScreen
from bkctl.tui.widgets.line_view import LineView


class AlarmScreen(WatchScreen):
    """Follows the watch, as the screens below it do."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace,a", "app.pop_screen", "Back", key_display="Esc"),
    ]

    def body(self) -> ComposeResult:
        yield LineView(id="detail", focusable=True, more_below=True)

    def on_mount(self) -> None:
        self.query_one("#detail").focus()
        self.draw()

    def where(self) -> str:
        return "alarms"

    def lines_changed(self) -> None:
        shown = self.watched.shown
        now_ms = None if shown is None else shown.taken_at_ms
        lines = alarm_lines(self.watched.alarms, now_ms, self.size.width, None, self.glyphs)
        self.lines_of("detail").show(lines)
