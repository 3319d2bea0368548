"""The application: it takes samples, and has whichever screen is on top drawn."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import LineFilter, NoColor
from textual.screen import Screen

from bkctl.admin.top.sample import ClusterSample
from bkctl.admin.top.source import SampleSource
from bkctl.errors import BkctlError, UsageError
from bkctl.tui import orders as asked
from bkctl.tui import seek_text
from bkctl.tui.alarm_screen import AlarmScreen
from bkctl.tui.bookie_screen import BookieScreen
from bkctl.tui.cluster_screen import ClusterScreen
from bkctl.tui.glyphs import ASCII, UNICODE, Glyphs
from bkctl.tui.hang_up import end_with
from bkctl.tui.help_screen import HelpScreen
from bkctl.tui.ledger_screen import LedgerScreen
from bkctl.tui.orders import Orders
from bkctl.tui.prompt_screen import PromptScreen
from bkctl.tui.themes import TERMINAL, library_theme, theme_after
from bkctl.tui.watch import Watch
from bkctl.tui.watch_screen import WatchScreen

#: Rest between two samples, however long one takes.
_REST_S = 0.05
#: Values of TERM that promise nothing.
_DUMB = ("dumb", "unknown")


class TopApp(App[None], inherit_bindings=False):
    """``bkctl top``'s screens over one source of samples.

    Samples are taken by one task of the event loop; there is nothing else that waits. ``failure`` is what
    ended it, where that was not the operator.
    """

    CSS_PATH = "top.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p,space", "pause", "Pause", key_display="p"),
        Binding("plus,equals_sign", "interval(1)", "Pace", key_display="+ -"),
        Binding("minus", "interval(-1)", "Shorter interval", show=False),
        Binding("u", "update", "Update", show=False),
        Binding("full_stop", "step(1)", "Step", key_display=". ,"),
        Binding("comma", "step(-1)", "Step back", show=False),
        Binding("greater_than_sign", "step(10)", "Ten on", show=False),
        Binding("less_than_sign", "step(-10)", "Ten back", show=False),
        Binding("g", "go_to", "Go"),
        Binding("a", "alarms", "Alarms", show=False),
        Binding("l", "ledgers", "Ledgers", show=False),
        Binding("t", "theme", "Theme", show=False),
        Binding("G", "order('collect')", "Collect garbage", show=False),
        Binding("C", "order('compact')", "Compact", show=False),
        Binding("O", "order('mode')", "Read-only or writable", show=False),
        Binding("ctrl+z", "suspend_process", show=False),
        Binding("question_mark,h", "help", "Help", key_display="?"),
        Binding("q,ctrl+c", "quit", "Quit", key_display="q"),
    ]

    def __init__(
        self,
        watch: Watch,
        glyphs: Glyphs,
        *,
        no_color: bool = False,
        orders: Orders | None = None,
        theme: str = TERMINAL,
    ) -> None:
        super().__init__()
        # With the terminal's own colours a code is two bytes, not nineteen.
        self.theme = library_theme(theme)
        self.theme_name = theme
        self.no_color = self.no_color or no_color
        self.animation_level = "none"
        self.watched = watch
        self.glyphs = glyphs
        self.failure: BkctlError | None = None
        self._orders = orders
        self._uncoloured = NoColor()
        self._wake = asyncio.Event()
        self._now = False

    def get_default_screen(self) -> Screen[None]:
        return ClusterScreen(self.watched, self.glyphs)

    def get_line_filters(self) -> list[LineFilter]:
        filters = list(super().get_line_filters())
        return [*filters, self._uncoloured] if self.no_color else filters

    def on_mount(self) -> None:
        self.run_worker(self._take_samples(), name="samples")
        if not self.is_headless:
            end_with(sys.__stdin__)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key is there: only a recording can be moved in, and it is given no orders."""
        if action == "order":
            return self._orders is not None and self.watched.replay is None
        if action in ("step", "go_to"):
            return self.watched.replay is not None
        return True

    def draw(self) -> None:
        """Draw what the operator sees: the screen on top, and the one below a prompt."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, WatchScreen):
                screen.draw()
                return

    def action_pause(self) -> None:
        self.watched.pause(not self.watched.paused)
        self._wake.set()
        self.draw()

    def action_interval(self, direction: int) -> None:
        self.watched.change_interval(direction)
        self._wake.set()
        self.draw()

    def action_update(self) -> None:
        if self.watched.replay is not None:
            return
        self._now = True
        self._wake.set()

    def action_step(self, by: int) -> None:
        self.watched.pause(True)
        self._move(lambda: self.watched.step(by))

    def action_go_to(self) -> None:
        self.push_screen(PromptScreen(f"go to ({seek_text.EXAMPLES})"), self._go_to)

    def action_alarms(self) -> None:
        self.push_screen(AlarmScreen(self.watched, self.glyphs))

    def action_ledgers(self) -> None:
        """Open the ledgers by rate: of the bookie whose screen this is, or of all."""
        screen = self.screen
        if isinstance(screen, WatchScreen):
            bookie = None if isinstance(screen, ClusterScreen) else screen.chosen_bookie()
            self.push_screen(LedgerScreen(self.watched, self.glyphs, bookie))

    def action_theme(self) -> None:
        """Take the next theme, and say how to keep it."""
        self.theme_name = theme_after(self.theme_name)
        self.theme = library_theme(self.theme_name)
        said = f"theme {self.theme_name}: --theme {self.theme_name}, or BKCTL_TOP_THEME, keeps it"
        asked.say(self, self.watched, said)

    def action_order(self, name: str) -> None:
        """Ask whether the bookie at the cursor shall do this, and have it done."""
        screen = self.screen
        if self._orders is None or not isinstance(screen, WatchScreen):
            return
        chosen = screen.chosen_bookie()
        bookie = None if chosen is None else self.watched.bookie(chosen)
        if bookie is not None and bookie.error is None:
            asked.ask(self, self.watched, self._orders, name, bookie)

    def action_help(self) -> None:
        can_order = self._orders is not None and self.watched.replay is None
        self.push_screen(HelpScreen(replay=self.watched.replay is not None, orders=can_order))

    async def action_quit(self) -> None:
        self.exit()

    async def on_unmount(self) -> None:
        await self.watched.source.close()

    def _go_to(self, text: str | None) -> None:
        replay = self.watched.replay
        if not text or replay is None:
            return
        self.watched.pause(True)

        def move() -> None:
            position = seek_text.position_of(text, replay)
            if position is None:
                self.watched.problem = f"go to {text}: expected {seek_text.EXAMPLES}"
            else:
                self.watched.seek(position)

        self._move(move)

    def _move(self, move: Callable[[], None]) -> None:
        """Move in the recording; a damaged sample is named, and the one before stays."""
        try:
            move()
        except BkctlError as error:
            self.watched.problem = str(error)
        self.draw()

    async def _take_samples(self) -> None:
        """Take one sample an interval, until the end."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                began_s = loop.time()
                if not self._stands_still():
                    await self._take_one()
                await self._rest(began_s)
        except BkctlError as error:
            self.failure = error
            self.exit()

    async def _take_one(self) -> None:
        try:
            sample = await self.watched.source.sample()
        except BkctlError as error:
            if self.watched.replay is None or self.watched.shown is None:
                raise
            # The samples behind a damaged one can still be reached by hand.
            self.watched.problem = str(error)
            self.watched.pause(True)
            self.draw()
            return
        self._taken(sample)

    def _stands_still(self) -> bool:
        """Return whether there is nothing new to ask for: a recording that is paused or at its end."""
        replay = self.watched.replay
        return (
            replay is not None and self.watched.shown is not None and (self.watched.paused or replay.at_end)
        )

    def _taken(self, sample: ClusterSample) -> None:
        first = self.watched.samples_taken == 0
        if self.watched.take(sample):
            self.draw()
        if first and len(sample.bookies) == 1 and isinstance(self.screen, ClusterScreen):
            # A table of one row says less than the bookie's own screen.
            self.push_screen(BookieScreen(self.watched, self.glyphs, sample.bookies[0].bookie))

    async def _rest(self, began_s: float) -> None:
        """Wait until the next sample is due, or until somebody asks for an update.

        The interval may be changed during the wait, and the new one counts.
        """
        loop = asyncio.get_running_loop()
        ended_s = loop.time()
        while not self._now:
            standing = self._stands_still()
            left_s = max(began_s + self.watched.interval_s, ended_s + _REST_S) - loop.time()
            if left_s <= 0 and not standing:
                return
            self._wake.clear()
            try:
                async with asyncio.timeout(None if standing else left_s):
                    await self._wake.wait()
            except TimeoutError:
                return
        self._now = False


def says_utf8(environ: Mapping[str, str]) -> bool:
    """Return whether the locale's encoding is UTF-8, as the operator has set it.

    Python itself takes UTF-8 in the C locale and says so in LC_CTYPE (PEP 538), which says nothing about the
    terminal.
    """
    language = environ.get("LANG", "")
    name = environ.get("LC_ALL") or environ.get("LC_CTYPE") or language
    if name == "C.UTF-8" and not environ.get("LC_ALL") and language in ("", "C", "POSIX"):
        return False
    return name.lower().replace("-", "").partition("@")[0].endswith("utf8")


def run_top(
    source: SampleSource,
    interval_s: float,
    *,
    no_color: bool = False,
    ascii_only: bool = False,
    orders: Orders | None = None,
    theme: str = TERMINAL,
) -> int:
    """Show the screens on this terminal until the operator quits; return the exit code.

    Colours are left out with ``no_color``, with NO_COLOR set to anything and on a terminal that says it is
    dumb; bars and sparklines are ASCII with ``ascii_only`` and where the locale's encoding is not UTF-8.
    Raises what the source raises, and UsageError for a theme that there is not.
    """
    if sys.__stderr__ is None or not sys.__stderr__.isatty():
        raise UsageError("the screen is drawn on stderr, which is not a terminal here")
    dumb = os.environ.get("TERM", "").lower() in _DUMB
    if dumb:
        # The library takes such a terminal to be 80 by 25 whatever it is, and is never done with its layout.
        os.environ["TERM"] = "vt100"
    plain = no_color or dumb or "NO_COLOR" in os.environ
    glyphs = ASCII if ascii_only or not says_utf8(os.environ) else UNICODE
    app = TopApp(Watch(source, interval_s), glyphs, no_color=plain, orders=orders, theme=theme)
    app.run()
    if app.failure is not None:
        raise app.failure
    # The library has shown what went wrong; only a bug does.
    return BkctlError.exit_code if app.return_code else 0
