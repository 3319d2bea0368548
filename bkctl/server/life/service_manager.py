"""Reports to the service manager that started this process how the bookie is.

Lines ``KEY=value`` in a datagram to the socket that ``$NOTIFY_SOCKET`` names: a path or, with ``@`` before
it, an abstract name. Without the variable nothing is sent, so a bookie in a terminal or a container needs no
setting.

========================== ===============================================================
message                    sent
========================== ===============================================================
EXTEND_TIMEOUT_USEC, STATUS again and again while the start replays journals
READY=1, STATUS            when the bookie serves
WATCHDOG=1                 twice in each ``$WATCHDOG_USEC``, by the event loop, while it serves
STOPPING=1, STATUS         when it begins to leave, and with EXTEND_TIMEOUT_USEC while it flushes
========================== ===============================================================

Source: sd_notify(3).
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

_log = logging.getLogger(__name__)

#: How much longer a start or a stop may take with each message; sent twice in that time.
EXTENSION_S = 30.0
#: A watchdog that wants to hear more often than this would cost the hot path.
_WATCHDOG_S_MIN = 0.1


class ServiceManager:
    """The service manager behind ``$NOTIFY_SOCKET`` of ``environment``; silent where there is none."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self.watchdog_interval_s = _watchdog_s(environment)

    @property
    def listens(self) -> bool:
        """Whether a service manager wants reports."""
        return bool(self._address)

    def starting(self, status: str) -> None:
        """Report that the start goes on; it may take a while longer."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(EXTENSION_S * 1_000_000)}\nSTATUS={status}")

    def ready(self, status: str) -> None:
        """Report that the bookie serves."""
        self._send(f"READY=1\nSTATUS={status}")

    def alive(self) -> None:
        """Report that the event loop turns."""
        self._send("WATCHDOG=1")

    def stopping(self, status: str) -> None:
        """Report that the bookie leaves; its flush may take a while."""
        self._send(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={int(EXTENSION_S * 1_000_000)}\nSTATUS={status}")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        # An abstract name begins with a zero byte, written as @.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)
                channel.sendto(text.encode(), address)
        except OSError as error:
            # The bookie is worth more than the word about it.
            _log.debug("the service manager does not listen on %s: %s", self._address, error)


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    """Return the seconds between two signs of life: half of what the manager waits; None when it does not."""
    try:
        asked_s = int(environment.get("WATCHDOG_USEC", "")) / 1_000_000
        for_us = int(environment.get("WATCHDOG_PID", os.getpid())) == os.getpid()
    except ValueError:
        return None
    return max(asked_s / 2, _WATCHDOG_S_MIN) if for_us and asked_s > 0 else None
