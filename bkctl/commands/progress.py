"""Progress of long work on stderr: bytes, rate, time left; nothing at all where stderr is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

# Work that ends sooner never shows a bar, and never pays for importing what draws it.
QUIET_S = 0.5

Advance = Callable[[int], None]


@contextmanager
def progress(what: str, bytes_total: int | None = None, *, streams_rows: bool = False) -> Iterator[Advance]:
    """Yield a function to be called with the number of bytes done since the last call.

    ``streams_rows`` says that the command writes rows while it works: when those go to a terminal they are
    the progress, and a bar would only tear them. The bar is removed on the way out, Ctrl-C included.
    """
    if not sys.stderr.isatty() or (streams_rows and sys.stdout.isatty()):
        yield _ignore
        return
    bar = _LateBar(what, bytes_total)
    try:
        yield bar.advance
    finally:
        bar.stop()


def _ignore(count: int) -> None:
    """Progress that nobody watches."""


class _LateBar:
    """Counts at once, draws from :data:`QUIET_S` on."""

    def __init__(self, what: str, bytes_total: int | None) -> None:
        self._what = what
        self._bytes_total = bytes_total
        self._bytes_done = 0
        self._show_at = time.monotonic() + QUIET_S
        self._bar: Progress | None = None

    def advance(self, count: int) -> None:
        self._bytes_done += count
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0], count)
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
            Progress,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        bar = Progress(
            "{task.description}",
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=5,
        )
        bar.add_task(self._what, total=self._bytes_total, completed=self._bytes_done)
        bar.start()
        return bar
