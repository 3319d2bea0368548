"""A watch on a node, set again each time that it has fired."""

from __future__ import annotations

import logging
from collections.abc import Callable

from bkctl.errors import BkctlError, ConnectionFailedError
from bkctl.metadata.notices import NoticeThread

_LOG = logging.getLogger(__name__)

#: When a watch is set again that the server refused.
_REFUSED_DELAY_S = 30.0


class ZooKeeperWatch:
    """ZooKeeper's watches fire once, so each report begins with setting the next one by ``arm``."""

    def __init__(
        self,
        disarm: Callable[[ZooKeeperWatch], None],
        notices: NoticeThread,
        path: str,
        arm: Callable[[Callable[[], None]], object],
        changed: Callable[[], None],
    ) -> None:
        self._disarm = disarm
        self._notices = notices
        self._path = path
        self._arm = arm
        self._changed = changed
        self._closed = False

    def post(self) -> None:
        self._notices.post(self, self._look)

    def _fired(self) -> None:
        if not self._closed:
            self.post()

    def _look(self) -> None:
        if self._closed:
            return
        try:
            self._arm(self._fired)
            self._changed()
        except ConnectionFailedError:
            raise  # the notice thread tries again
        except BkctlError as error:
            # There is no permission, for now: the server does not report when it is given.
            _LOG.warning("%s is not watched, again in %g s: %s", self._path, _REFUSED_DELAY_S, error)
            self._notices.post(self, self._look, delay_s=_REFUSED_DELAY_S)

    def close(self) -> None:
        self._closed = True
        self._disarm(self)
        self._notices.cancel(self)
