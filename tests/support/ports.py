"""TCP ports of this machine."""

from __future__ import annotations

import socket


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), 2).close()
    except OSError:
        return False
    return True
