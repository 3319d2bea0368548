"""The port of a bookie: bound early, because the id of the bookie has its number."""

from __future__ import annotations

import errno
import socket

from bkctl.config.bookie import BookieConfig
from bkctl.config.server_keys.identity import IdentitySettings
from bkctl.errors import BkctlError, RefusedError, StorageError
from bkctl.server.life.identity import SystemHostNames
from bkctl.server.life.new_bookie import port_of_before
from bkctl.server.life.port_holder import port_holder
from bkctl.server.wire.bookie_server import bind


def listening_host(identity: IdentitySettings) -> str:
    """Return the address to bind; empty for every interface."""
    if identity.loopback_only:
        return "127.0.0.1"
    if identity.listening_interface is None:
        return ""
    return SystemHostNames().address_of(identity.listening_interface)


def bind_port(config: BookieConfig, host: str) -> socket.socket:
    """Bind a socket. Raises RefusedError naming the process that has the port, and StorageError."""
    port = config.identity.port or port_of_before(config)
    try:
        return bind(host, port)
    except StorageError as error:
        raise naming_the_holder(error, port) from error.__cause__


def naming_the_holder(error: StorageError, port: int) -> BkctlError:
    """Return a refusal that names the process that has the port; the error itself if it has another cause."""
    cause = error.__cause__
    if not isinstance(cause, OSError) or cause.errno != errno.EADDRINUSE:
        return error
    holder = port_holder(port) or "another process"
    return RefusedError(
        f"port {port} is in use by {holder}. Stop that process; or, only for a new bookie, set another "
        "bookiePort, because the port is part of the bookie's id"
    )
