"""The common part of all screens: a status line above, the keys below, and lines in between."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer

from bkctl.tui.glyphs import Glyphs
from bkctl.tui.lines import Line, Tone, remark
from bkctl.tui.models.status_line import status_line
from bkctl.tui.watch import Watch
from bkctl.tui.widgets.line_view import LineView


class WatchScreen(Screen[None]):
    """A screen over a :class:`Watch`; it is drawn again whenever the watch has something new."""

    def __init__(self, watch: Watch, glyphs: Glyphs) -> None:
        super().__init__()
        self.watched = watch
        self.glyphs = glyphs

    def compose(self) -> ComposeResult:
        yield LineView(id="status")
        yield from self.body()
        yield LineView(id="notice")
        yield from self.foot()
        yield Footer(compact=True, show_command_palette=False)

    def body(self) -> ComposeResult:
        """Yield the widgets between status line and notice."""
        raise NotImplementedError

    def foot(self) -> ComposeResult:
        """Yield the widgets between notice and keys."""
        yield from ()

    def where(self) -> str:
        """Return the way down to this screen."""
        raise NotImplementedError

    def lines_changed(self) -> None:
        """Draw the body for the watch as it is."""
        raise NotImplementedError

    def notices(self) -> list[str]:
        """Return the notices of this screen."""
        return []

    def note(self) -> str:
        """Return the rest of the status line."""
        return ""

    def draw(self) -> None:
        """Draw everything that has changed."""
        if not self.is_mounted or not self.size.width:
            return
        line = status_line(
            self.watched, self.where(), self.size.width, note=self.note(), mark=self.glyphs.cut
        )
        self.show_one("status", line)
        self.lines_changed()
        notices = [*self.watched.notices(), *self.notices()]
        notice = self.lines_of("notice")
        notice.display = bool(notices)
        notice.show(remark("; ".join(notices), Tone.WARNING, self.size.width, self.glyphs.cut))

    def chosen_bookie(self) -> str | None:
        """Return the bookie that an order would go to; None where the screen is of none."""
        return None

    def gone_notices(self, bookie: str) -> list[str]:
        """Return the notices about a bookie that was watched and is gone."""
        gone = self.watched.shown is not None and self.watched.bookie(bookie) is None
        return [f"{bookie} is not among the bookies that are watched any more"] if gone else []

    def lines_of(self, view_id: str) -> LineView:
        """Return a block of this screen by its id."""
        return self.query_one(f"#{view_id}", LineView)

    def show_one(self, view_id: str, line: Line) -> None:
        """Have one line in a block."""
        self.lines_of(view_id).show([line])

    def on_mount(self) -> None:
        self.draw()

    def on_screen_resume(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)
