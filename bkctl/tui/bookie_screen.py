"""One bookie: an overview, a tab for each part, and its directories to go into."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from bkctl.admin.top.sample import BookieSample, Source
from bkctl.tui import figures
from bkctl.tui.directory_screen import DirectoryScreen
from bkctl.tui.glyphs import Glyphs
from bkctl.tui.lines import EMPTY, Line, Span, Tone
from bkctl.tui.models import bookie_lines, cluster_lines, detail_lines, directory_rows, health
from bkctl.tui.models.bookie_lines import Tab
from bkctl.tui.watch import Watch
from bkctl.tui.watch_screen import WatchScreen
from bkctl.tui.widgets.line_view import LineView, RowView

#: Titles and contents; the last tab is the table of directories.
TABS: tuple[tuple[str, Tab | None], ...] = (
    ("Overview", bookie_lines.overview),
    ("Queues", bookie_lines.queue_tab),
    ("Caches", detail_lines.caches_tab),
    ("Journals", detail_lines.journals_tab),
    ("Entry logs", detail_lines.entry_logs_tab),
    ("GC", detail_lines.gc_tab),
    ("Directories", None),
)

#: Rows of status, tabs, bottleneck and keys.
_FRAME_ROWS = 5

_SOURCES = {Source.BKCTL: "bkctl bookie", Source.JAVA: "Java bookie", None: ""}


class BookieScreen(WatchScreen):
    """A bookie that is lost shows what it said last, and that it is lost."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.pop_screen", "Back", key_display="Esc"),
        Binding("left", "turn(-1)", "Tab before", show=False),
        Binding("right", "turn(1)", "Next tab", show=False),
        *(
            Binding(str(number), f"tab({number - 1})", title, show=False)
            for number, (title, _) in enumerate(TABS, 1)
        ),
    ]

    def __init__(self, watch: Watch, glyphs: Glyphs, bookie: str) -> None:
        super().__init__(watch, glyphs)
        self._bookie = bookie
        self.tab = 0

    def body(self) -> ComposeResult:
        yield LineView(id="tabs")
        yield LineView(id="detail", focusable=True, more_below=True)
        yield LineView(id="columns")
        yield RowView(id="directories", cursor=self.glyphs.cursor)

    def foot(self) -> ComposeResult:
        yield LineView(id="why")

    def on_mount(self) -> None:
        self._turn_to(0)

    def where(self) -> str:
        return self._bookie

    def chosen_bookie(self) -> str | None:
        return self._bookie

    def note(self) -> str:
        bookie = self.watched.bookie(self._bookie)
        if bookie is None:
            return "GONE"
        kind = _SOURCES[self.watched.last_answer(bookie).source]
        age_ms = self.watched.quantiles_age_ms(bookie)
        age = "" if age_ms is None else f"  p99 {figures.age(age_ms)} old"
        return f"{kind}  {health.mode(bookie)[0]}{age}"

    def notices(self) -> list[str]:
        return self.gone_notices(self._bookie)

    def lines_changed(self) -> None:
        width = self.size.width
        bookie = self.watched.bookie(self._bookie)
        self.show_one("tabs", tab_line(self.tab))
        if bookie is None:
            # The last answer stays on the screen; the notice says that the bookie is gone.
            self.lines_of("why").show([EMPTY, EMPTY])
            return
        told = self.watched.last_answer(bookie)
        self._show_tab(told, width)
        self.lines_of("why").show(
            cluster_lines.bottleneck_lines(self.watched, bookie, width, self.glyphs.cut)
        )

    def _show_tab(self, bookie: BookieSample, width: int) -> None:
        content = TABS[self.tab][1]
        if content is not None:
            history = self.watched.history
            lines = content(bookie, history, width, self.glyphs)
            if self.tab == 0 and width < bookie_lines.TWO_COLUMNS_WIDTH:
                left = self.size.height - _FRAME_ROWS - len(lines)
                lines += bookie_lines.further_parts(bookie, history, width, left, self.glyphs)
            self.lines_of("detail").show(lines)
            return
        self.show_one("columns", directory_rows.directory_heading(width))
        rows = directory_rows.directory_rows(bookie, width, self.glyphs)
        self.query_one("#directories", RowView).show_rows(rows)

    def action_turn(self, by: int) -> None:
        self._turn_to((self.tab + by) % len(TABS))

    def action_tab(self, tab: int) -> None:
        self._turn_to(tab)

    def _turn_to(self, tab: int) -> None:
        self.tab = tab
        table = TABS[tab][1] is None
        detail = self.query_one("#detail", LineView)
        detail.display = not table
        detail.scroll_to(y=0, animate=False, force=True)
        self.query_one("#columns").display = table
        self.query_one("#directories").display = table
        self.query_one("#directories" if table else "#detail").focus()
        self.draw()

    @on(LineView.Clicked, "#tabs")
    def choose_tab(self, event: LineView.Clicked) -> None:
        """Follow a click on a title."""
        start = 0
        for number, span in enumerate(tab_line(self.tab)[1:]):
            if start <= event.column - 1 < start + len(span.text):
                self._turn_to(number)
            start += len(span.text)

    @on(RowView.Chosen)
    def open_directory(self, event: RowView.Chosen) -> None:
        """Open a journal or a ledger directory on a screen of its own."""
        kind, name = directory_rows.directory_of(event.key)
        self.app.push_screen(DirectoryScreen(self.watched, self.glyphs, self._bookie, kind, name))


def tab_line(active: int) -> Line:
    """Return all titles with their keys; the one that is shown in brackets."""
    return (
        Span(" "),
        *(
            Span(f"[{number + 1} {title}]", Tone.ACTIVE)
            if number == active
            else Span(f" {number + 1} {title} ")
            for number, (title, _) in enumerate(TABS)
        ),
    )
