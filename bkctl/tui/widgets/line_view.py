"""Lines that scroll, with or without a cursor; only what changed is drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.style import Style

from bkctl.tui.lines import EMPTY, Line, Span, Tone, line_width, width_of


class LineView(ScrollView):
    """A block of lines.

    The new rows are compared with those on the screen, and the terminal is sent the rows that differ, up to
    the last piece that does. Scroll bars are not drawn, they would need colours: the last line says how many
    are below.
    """

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"line-view--{tone.value}" for tone in Tone} | {
        "line-view--cursor"
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "edge(-1)", "First", show=False),
        Binding("end", "edge(1)", "Last", show=False),
    ]

    class Clicked(Message):
        """The mouse chose a line; ``column`` is the cell in it."""

        def __init__(self, view: LineView, line: int, column: int) -> None:
            super().__init__()
            self.view = view
            self.line = line
            self.column = column

        @property
        def control(self) -> LineView:
            return self.view

    def __init__(self, *, id: str, focusable: bool = False, more_below: bool = False) -> None:
        super().__init__(id=id)
        self.can_focus = focusable
        self._more_below = more_below
        self._lines: tuple[Line, ...] = ()
        self._styles: dict[Tone, Style] = {}

    @property
    def lines(self) -> tuple[Line, ...]:
        """All lines, drawn or not."""
        return self._lines

    def show(self, lines: Sequence[Line]) -> None:
        """Have these lines instead of those before."""
        old, new = self._lines, tuple(lines)
        self._lines = new
        if len(old) != len(new):
            self.virtual_size = Size(self.size.width, len(new))
            if self.scroll_offset.y > max(len(new) - self.size.height, 0):
                self.scroll_to(y=len(new) - self.size.height, animate=False, force=True)
            self.refresh()
            return
        for at, (before, after) in enumerate(zip(old, new, strict=True)):
            if before != after:
                self._redraw(at, before, after)

    def render_line(self, y: int) -> Strip:
        at = self.scroll_offset.y + y
        line = self._line_at(at, y)
        width = self.size.width
        content = Content.assemble(*((text, self._style(tone)) for text, tone in joined(line)))
        style = self._style(Tone.PLAIN)
        cells = line_width(line)
        return Strip(content.render_segments(style), cells).adjust_cell_length(width, style.rich_style)

    def notify_style_update(self) -> None:
        self._styles.clear()
        super().notify_style_update()

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self._lines))

    def on_click(self, event: events.Click) -> None:
        line = self.scroll_offset.y + event.y
        if line < len(self._lines):
            self.post_message(self.Clicked(self, line, event.x))

    def action_move(self, by: int) -> None:
        self.scroll_to(y=self.scroll_offset.y + by, animate=False, force=True)
        self.refresh()

    def action_page(self, by: int) -> None:
        self.action_move(by * max(self.size.height - 1, 1))

    def action_edge(self, direction: int) -> None:
        self.action_move(direction * len(self._lines))

    def _line_at(self, at: int, y: int) -> Line:
        """Return a line; at the bottom, how many are hidden below."""
        below = len(self._lines) - at
        if self._more_below and y == self.size.height - 1 and below > 1:
            return (Span(f" {below} more lines below (Down, PgDn)", Tone.DIM),)
        return self._lines[at] if at < len(self._lines) else EMPTY

    def _style(self, tone: Tone) -> Style:
        style = self._styles.get(tone)
        if style is None:
            name = f"line-view--{tone.value}"
            style = self.get_visual_style(name)
            if self.get_component_styles(name).text_style.reverse:
                # The library leaves it out.
                style += Style(reverse=True)
            self._styles[tone] = style
        return style

    def _redraw(self, at: int, before: Line, after: Line) -> None:
        y = at - self.scroll_offset.y
        height = self.size.height
        if not 0 <= y < height:
            return
        start, width = changed_cells(before, after)
        self.refresh(Region(start, y, width, 1))


class RowView(LineView):
    """Lines of which one is chosen; the cursor stays with its row when the order changes.

    The cursor is a mark in the first cell, and a style.
    """

    class Chosen(Message):
        """Enter was pressed on a row, or the mouse chose the row that has the cursor."""

        def __init__(self, view: RowView, key: str) -> None:
            super().__init__()
            self.view = view
            self.key = key

        @property
        def control(self) -> RowView:
            return self.view

    class Moved(Message):
        """The cursor is on another row."""

        def __init__(self, view: RowView) -> None:
            super().__init__()
            self.view = view

        @property
        def control(self) -> RowView:
            return self.view

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "Open", key_display="Enter")]

    def __init__(self, *, id: str, cursor: str) -> None:
        super().__init__(id=id, focusable=True)
        self._keys: tuple[str, ...] = ()
        self._mark = cursor
        self._at = 0

    @property
    def chosen(self) -> str | None:
        """Key of the row with the cursor."""
        return self._keys[self._at] if self._keys else None

    def show_rows(self, rows: Sequence[tuple[str, Line]]) -> None:
        """Have these rows, each with the key that it is known by. Their first cell is the cursor's."""
        before = self.chosen
        self._keys = tuple(key for key, _ in rows)
        if before in self._keys:
            self._at = self._keys.index(before)
        else:
            self._at = max(min(self._at, len(rows) - 1), 0)
        self.show([self._marked(line, at == self._at) for at, (_, line) in enumerate(rows)])
        self._keep_visible()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        event.prevent_default()
        self.action_move(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        event.prevent_default()
        self.action_move(-1)

    def on_click(self, event: events.Click) -> None:
        event.prevent_default()
        at = self.scroll_offset.y + event.y
        if at == self._at and self._keys:
            self.action_choose()
        elif at < len(self._keys):
            self.action_move(at - self._at)

    def on_resize(self) -> None:
        # The library calls the handler of the class above as well.
        self._keep_visible()

    def action_move(self, by: int) -> None:
        if not self._keys:
            return
        old, self._at = self._at, max(min(self._at + by, len(self._keys) - 1), 0)
        if old == self._at:
            return
        lines = list(self._lines)
        for at in (old, self._at):
            lines[at] = self._marked(lines[at], at == self._at)
            self.refresh(Region(0, at - self.scroll_offset.y, self.size.width, 1))
        self._lines = tuple(lines)
        self._keep_visible()
        self.post_message(self.Moved(self))

    def action_choose(self) -> None:
        if self.chosen is not None:
            self.post_message(self.Chosen(self, self.chosen))

    def _marked(self, line: Line, marked: bool) -> Line:
        return (Span(self._mark if marked else " "), *line[1:])

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        if self._keys and self.scroll_offset.y + y == self._at:
            return strip.apply_style(self.get_component_rich_style("line-view--cursor"))
        return strip

    def _keep_visible(self) -> None:
        height = self.size.height
        top = self.scroll_offset.y
        if height and self._at < top:
            self.scroll_to(y=self._at, animate=False, force=True)
        elif height and self._at >= top + height:
            self.scroll_to(y=self._at - height + 1, animate=False, force=True)


def changed_cells(before: Line, after: Line) -> tuple[int, int]:
    """Return where two lines differ, as (first cell, cells), from the first piece to the last one that do.

    The whole line when their pieces do not match. One region for a line: the library sends each region from
    the widget's left edge on.
    """
    widths = [width_of(span.text) for span in after]
    if len(before) != len(after) or any(
        old.text != new.text and width_of(old.text) != width
        for old, new, width in zip(before, after, widths, strict=True)
    ):
        return 0, max(line_width(before), sum(widths), 1)
    differ = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    if not differ:
        return 0, 0
    start = sum(widths[: differ[0]])
    return start, sum(widths[differ[0] : differ[-1] + 1])


def joined(line: Line) -> list[Span]:
    """Join the pieces of a line into few: each has codes of its own, which go over the wire.

    Blanks look the same in every tone but the reversed one.
    """
    found: list[Span] = []
    for span in line:
        last = found[-1] if found else None
        blank = span.tone is Tone.PLAIN and not span.text.strip(" ")
        if last is not None and last.tone is not Tone.ACTIVE and (span.tone is last.tone or blank):
            found[-1] = Span(last.text + span.text, last.tone)
        else:
            found.append(span)
    return found
