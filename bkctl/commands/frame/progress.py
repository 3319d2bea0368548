"""Progress of long work on stderr: how much, rate, time left; nothing at all where stderr is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bkctl.commands.frame.quiet import is_quiet
from bkctl.commands.frame.terminal_text import unescaped

if TYPE_CHECKING:
    from rich.progress import Progress

# Work that ends sooner never shows a bar, and never pays for importing what draws it.
QUIET_S = 0.5

#: Cells of the bar, of a shorter one on a terminal that is not wide, and of the numbers behind it.
_BAR_CELLS, _SHORT_BAR_CELLS, _NUMBERS_CELLS = 40, 10, 42
_WIDE_CELLS = 110

Advance = Callable[[int], None]


@contextmanager
def progress(
    what: str, total: int | None = None, *, counts: str | None = None, streams_rows: bool = False
) -> Iterator[Advance]:
    """Yield a function to be called with the number of bytes done since the last call.

    ``counts`` names what is counted instead of bytes (``"ledgers"``); ``total`` None is not known.
    ``streams_rows`` says that the command writes rows while it works: when those go to a terminal they are
    the progress, and a bar would only tear them. The bar is removed on the way out, Ctrl-C included.
    """
    if is_quiet() or not sys.stderr.isatty() or (streams_rows and sys.stdout.isatty()):
        yield _ignore
        return
    bar = _LateBar(what, total, counts)
    try:
        yield bar.advance
    finally:
        bar.stop()


def _ignore(count: int) -> None:
    """Ignore progress that nobody watches."""


class _LateBar:
    """Counts at once, draws from :data:`QUIET_S` on."""

    def __init__(self, what: str, total: int | None, counts: str | None) -> None:
        self._what = what
        self._total = total
        self._counts = counts
        self._done = 0
        self._show_at = time.monotonic() + QUIET_S
        self._bar: Progress | None = None

    def advance(self, count: int) -> None:
        self._done += count
        if self._bar is not None:
            task = self._bar.tasks[0]
            rate = "" if task.speed is None else f", {task.speed:.0f}/s"
            self._bar.update(task.id, advance=count, rate=rate)
        elif time.monotonic() >= self._show_at:
            self._bar = self._start()

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _start(self) -> Progress:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.table import Column

        # The bar draws with control characters of its own; texts in it are this program's.
        console = Console(file=unescaped(sys.stderr))
        bar_cells = _BAR_CELLS if console.width >= _WIDE_CELLS else _SHORT_BAR_CELLS
        words_max = max(1, console.width - bar_cells - _NUMBERS_CELLS)

        def column(max_width: int | None = None) -> Column:
            return Column(no_wrap=True, overflow="ellipsis", max_width=max_width)

        amount: tuple[ProgressColumn, ...] = (
            DownloadColumn(binary_units=True, table_column=column()),
            TransferSpeedColumn(table_column=column()),
        )
        if self._counts is not None:
            amount = (
                MofNCompleteColumn(table_column=column()),
                TextColumn(self._counts + "{task.fields[rate]}", table_column=column()),
            )
        bar = Progress(
            TextColumn("{task.description}", markup=False, table_column=column(words_max)),
            BarColumn(bar_cells, table_column=column()),
            *amount,
            TimeRemainingColumn(table_column=column()),
            console=console,
            transient=True,
            refresh_per_second=5,
        )
        bar.add_task(self._what, total=self._total, completed=self._done, rate="")
        bar.start()
        return bar
