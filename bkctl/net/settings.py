"""Bounds of the connections to bookies, with BookKeeper's keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from bkctl.errors import UsageError
from bkctl.net.authentication import AuthProvider
from bkctl.net.tls import TlsSettings
from bkctl.protocol.framing import FRAME_BYTES_MAX
from bkctl.protocol.messages import Wire

_BOUNDS = "bkctl.bounds"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the most of a field, and the key that fills it, in units of ``factor``."""

    least: int
    most: int
    key: str = ""
    factor: int = 1


def bounded(default: int, least: int, most: int, *, key: str = "", factor: int = 1) -> Any:
    """Declare a number of settings with its bounds, and the key that fills it where there is one."""
    return field(default=default, metadata={_BOUNDS: Bounds(least, most, key, factor)})


def bounds_of(kind: type[Any]) -> Iterator[tuple[str, Bounds]]:
    """Yield the fields of ``kind`` that have bounds."""
    for one in fields(kind):
        if _BOUNDS in one.metadata:
            yield one.name, one.metadata[_BOUNDS]


@dataclass(frozen=True, slots=True)
class NetSettings:
    """How a client talks to bookies.

    ``wire`` is the protocol's version (``useV2WireProtocol``). A connection has at most
    ``outstanding_max`` requests without an answer and hands at most about ``write_buffer_bytes_max`` to
    the socket ahead of it (``clientWriteBufferHighWaterMark``); the next ``waiting_max`` requests wait,
    their time running, and further ones are refused as not connected. With ``tls``
    (``tlsProviderFactoryClass``) nothing but START_TLS is ever sent in clear; with ``authentication``
    (``clientAuthProviderFactoryClass``) nothing but that before it is over. ``connect_timeout_ms`` bounds
    both, too. A bookie that wants no authentication has not shown who it is: the client goes on with it
    only with ``allow_unauthenticated_bookies`` (``bkctlAllowUnauthenticatedBookies``).
    """

    wire: Wire = Wire.V3
    connect_timeout_ms: int = bounded(5_000, 1, 3_600_000, key="clientConnectTimeoutMillis")
    connections_per_bookie: int = bounded(1, 1, 64, key="numChannelsPerBookie")
    outstanding_max: int = bounded(10_000, 1, 1_000_000)
    waiting_max: int = bounded(10_000, 1, 1_000_000)
    frame_bytes_max: int = bounded(FRAME_BYTES_MAX, 1024, 1 << 30, key="nettyMaxFrameSizeBytes")
    write_buffer_bytes_max: int = bounded(1 << 20, 1 << 16, 1 << 30)
    tls: TlsSettings | None = None
    authentication: AuthProvider | None = field(default=None, repr=False)
    allow_unauthenticated_bookies: bool = False

    def __post_init__(self) -> None:
        check_bounds(self)


def check_bounds(settings: object) -> None:
    """Raise UsageError naming the first setting that is outside of its bounds."""
    for name, bounds in bounds_of(type(settings)):
        if not bounds.least <= getattr(settings, name) <= bounds.most:
            raise UsageError(f"{name} must be {bounds.least} to {bounds.most}")
