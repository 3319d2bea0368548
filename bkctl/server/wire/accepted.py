"""Protocols for accepted connections: a listener goes on whatever becomes of one of them.

uvloop closes a listener for good when the protocol of a connection cannot be made, for lack of memory for
instance. The process would go on, and nobody could connect to it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from bkctl.engine.engine_thread import report


def or_closed(make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
    """Return a factory of what ``make`` makes; a connection for which that raises is closed."""

    def made() -> asyncio.Protocol:
        try:
            return make()
        except Exception as error:  # noqa: BLE001 - clients that come later must be served
            report("taking in a connection", error)
            return _CLOSED

    return made


class _Closed(asyncio.Protocol):
    """Closes its connections."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()


#: Made beforehand, as it may be memory that is missing; it keeps nothing of a connection.
_CLOSED = _Closed()
