"""A journal, or a ledger directory with its entry logs; and one entry log."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from bkctl.admin.top.sample import EntryLogState
from bkctl.codec.entrylog import log_name
from bkctl.errors import BkctlError
from bkctl.reporting import counted
from bkctl.tui import figures
from bkctl.tui.glyphs import Glyphs
from bkctl.tui.lines import Line, Span, Tone, fit, remark
from bkctl.tui.models import cluster_lines, detail_lines, directory_rows, health
from bkctl.tui.watch import Watch
from bkctl.tui.watch_screen import WatchScreen
from bkctl.tui.widgets.line_view import LineView, RowView

#: The bookie walks its table of logs to answer: it is asked on entering, on ``u`` and this often.
LOGS_INTERVAL_S = 10.0


def path_line(path: str, width: int, mark: str) -> Line:
    """Return a path that loses its beginning where there is no room."""
    return (Span(" "), Span(fit(path, width - 2, keep_end=True, mark=mark), Tone.STRONG))


class DirectoryScreen(WatchScreen):
    """The figures of one directory; for a ledger directory the table of its logs below."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.pop_screen", "Back", key_display="Esc"),
        Binding("u", "ask_logs", "Update", show=False),
    ]

    def __init__(self, watch: Watch, glyphs: Glyphs, bookie: str, kind: str, directory: str) -> None:
        super().__init__(watch, glyphs)
        self._bookie = bookie
        self._kind = kind
        self._directory = directory
        self._logs: tuple[EntryLogState, ...] = ()
        self._logs_error: str | None = None
        self._logs_asked = False
        self._asking: asyncio.Lock = asyncio.Lock()

    def body(self) -> ComposeResult:
        yield LineView(id="path")
        yield LineView(id="detail", focusable=self._kind == directory_rows.JOURNAL, more_below=True)
        if self._kind == directory_rows.LEDGERS:
            yield LineView(id="columns")
            yield RowView(id="logs", cursor=self.glyphs.cursor)
            yield LineView(id="logs-note")

    def foot(self) -> ComposeResult:
        yield LineView(id="why")

    def on_mount(self) -> None:
        if self._kind == directory_rows.LEDGERS:
            self.add_class("ledgers")
            self.query_one("#logs").focus()
            self.set_interval(LOGS_INTERVAL_S, self.action_ask_logs)
            self.action_ask_logs()
        else:
            self.query_one("#detail").focus()

    def where(self) -> str:
        return f"{self._bookie} > {self._kind}"

    def note(self) -> str:
        bookie = self.watched.bookie(self._bookie)
        return "GONE" if bookie is None else health.mode(bookie)[0]

    def notices(self) -> list[str]:
        return self.gone_notices(self._bookie)

    def lines_changed(self) -> None:
        width = self.size.width
        self.show_one("path", path_line(self._directory, width, self.glyphs.cut))
        bookie = self.watched.bookie(self._bookie)
        if bookie is not None:
            self.lines_of("detail").show(self._detail(width))
            self.lines_of("why").show(
                cluster_lines.bottleneck_lines(self.watched, bookie, width, self.glyphs.cut)
            )
        if self._kind == directory_rows.LEDGERS:
            self._show_logs(width)

    def _detail(self, width: int) -> list[Line]:
        bookie = self.watched.bookie(self._bookie)
        assert bookie is not None, "asked for only while it is watched"
        told = self.watched.last_answer(bookie)
        history = self.watched.history
        if self._kind == directory_rows.LEDGERS:
            return detail_lines.ledger_directory(told, self._directory, history, width, self.glyphs)
        for state in told.journals:
            if state.dir == self._directory:
                return detail_lines.journal(told, state, history, width, self.glyphs)
        return [(Span(" The bookie does not tell of this journal any more.", Tone.WARNING),)]

    def _show_logs(self, width: int) -> None:
        self.show_one("columns", directory_rows.log_heading(width))
        rows = directory_rows.log_rows(self._logs, width, self.glyphs)
        self.query_one("#logs", RowView).show_rows(rows)
        if self._logs_error is not None:
            text, tone = self._logs_error, Tone.WARNING
        elif not self._logs_asked:
            text, tone = "asking for the logs", Tone.DIM
        else:
            total = sum(log.bytes for log in self._logs)
            text, tone = (
                f"{counted(len(self._logs), 'log')}, {figures.size(total)}, as the last collection saw them",
                Tone.DIM,
            )
        self.lines_of("logs-note").show(remark(text, tone, width, self.glyphs.cut))

    def action_ask_logs(self) -> None:
        """Ask for the table of logs; one question at a time."""
        if self._kind == directory_rows.LEDGERS and not self._asking.locked():
            self.run_worker(self._ask_logs(), exclusive=False)

    async def _ask_logs(self) -> None:
        async with self._asking:
            try:
                self._logs = await self.watched.source.logs(self._bookie, self._directory)
                self._logs_error = None
            except BkctlError as error:
                self._logs_error = str(error)
            self._logs_asked = True
        self.draw()

    @on(RowView.Chosen)
    def open_log(self, event: RowView.Chosen) -> None:
        """Open one log on a screen of its own."""
        log = next((log for log in self._logs if str(log.log_id) == event.key), None)
        if log is not None:
            self.app.push_screen(LogScreen(self.watched, self.glyphs, self._bookie, self._directory, log))


class LogScreen(WatchScreen):
    """One entry log, as it was when it was opened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.pop_screen", "Back", key_display="Esc"),
    ]

    def __init__(self, watch: Watch, glyphs: Glyphs, bookie: str, directory: str, log: EntryLogState) -> None:
        super().__init__(watch, glyphs)
        self._bookie = bookie
        self._directory = directory
        self._log = log

    def body(self) -> ComposeResult:
        yield LineView(id="path")
        yield LineView(id="detail", focusable=True, more_below=True)

    def on_mount(self) -> None:
        self.query_one("#detail").focus()

    def where(self) -> str:
        return f"{self._bookie} > ledgers > {log_name(self._log.log_id)}"

    def lines_changed(self) -> None:
        width = self.size.width
        self.show_one("path", path_line(self._directory, width, self.glyphs.cut))
        self.lines_of("detail").show(detail_lines.log(self._log, width, self.glyphs))
