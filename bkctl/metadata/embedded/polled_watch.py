"""A watch that reads something of a node again and again, because SQLite does not report changes."""

from __future__ import annotations

from collections.abc import Callable

from bkctl.errors import ConnectionFailedError
from bkctl.metadata.notices import NoticeThread


class PolledWatch:
    """Calls ``changed`` when ``look`` returns something else than before; :meth:`begin` comes first."""

    def __init__(
        self,
        look: Callable[[], object],
        notices: NoticeThread,
        changed: Callable[[], None],
        period_s: float,
    ) -> None:
        self._see = look
        self._notices = notices
        self._changed = changed
        self._period_s = period_s
        self._last: object = None
        self._looked = False
        self._closed = False

    def begin(self) -> None:
        """Read for the first time soon, which counts as a change."""
        self._notices.post(self, self._look)

    def _look(self) -> None:
        if self._closed:
            return
        try:
            seen = self._see()
            if not self._looked or seen != self._last:
                self._looked, self._last = True, seen
                self._changed()
        except ConnectionFailedError:
            self._looked = False  # the callback could not read the store: report the change again
            raise
        finally:
            if not self._closed:
                self._notices.post(self, self._look, delay_s=self._period_s)

    def close(self) -> None:
        """End the watch; a second call does nothing."""
        self._closed = True
        self._notices.cancel(self)
