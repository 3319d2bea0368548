"""The socket of a client: keepalive, and the bytes that wait in it."""

from __future__ import annotations

import fcntl
import socket
import sys
import termios

_NUMBER_BYTES = 4


def keep_alive(connected: socket.socket | None) -> None:
    """Have the system notice that a client's machine is gone, within some minutes."""
    if connected is None:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 8)):
        # Other systems than Linux have other names, and keep their own times.
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def unread_bytes(connected: socket.socket | None) -> int:
    """Return how many bytes have come and were not read; 0 for a socket that is closed."""
    return _asked(connected, termios.FIONREAD)


def unsent_bytes(connected: socket.socket | None) -> int:
    """Return how many bytes the system holds of what was sent, because the client has not acknowledged them.

    The system takes some megabytes for a client that does not read, and all sockets of a machine share one
    bound (``net.ipv4.tcp_mem``): at it every connection of the machine waits. A socket that is closed, or a
    system that does not answer (Linux does), has 0.
    """
    return _asked(connected, termios.TIOCOUTQ)


def _asked(connected: socket.socket | None, request: int) -> int:
    if connected is None:
        return 0
    try:
        answer = fcntl.ioctl(connected.fileno(), request, bytes(_NUMBER_BYTES))
    except (OSError, ValueError):
        return 0
    return int.from_bytes(answer, sys.byteorder)
