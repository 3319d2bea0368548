"""Bounds of the connections to bookies, with BookKeeper's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bkctl.errors import UsageError
from bkctl.net.authentication import AuthProvider
from bkctl.net.tls import TlsSettings
from bkctl.protocol.framing import FRAME_BYTES_MAX
from bkctl.protocol.messages import Wire

#: Least and most of each.
LIMITS = {
    "connect_timeout_ms": (1, 3_600_000),
    "connections_per_bookie": (1, 64),
    "outstanding_max": (1, 1_000_000),
    "waiting_max": (1, 1_000_000),
    "frame_bytes_max": (1024, 1 << 30),
    "write_buffer_bytes_max": (1 << 16, 1 << 30),
}


@dataclass(frozen=True, slots=True)
class NetSettings:
    """How a client talks to bookies.

    ``wire`` is the protocol's version (``useV2WireProtocol``). ``connect_timeout_ms`` is
    ``clientConnectTimeoutMillis``, ``connections_per_bookie`` ``numChannelsPerBookie``, ``frame_bytes_max``
    ``nettyMaxFrameSizeBytes``. A connection has at most ``outstanding_max`` requests without an answer and
    hands at most about ``write_buffer_bytes_max`` to the socket ahead of it
    (``clientWriteBufferHighWaterMark``); the next ``waiting_max`` requests wait, their time running, and
    further ones are refused as not connected. With ``tls`` (``tlsProviderFactoryClass``) nothing but
    START_TLS is ever sent in clear; with ``authentication`` (``clientAuthProviderFactoryClass``) nothing but
    that before it is over. ``connect_timeout_ms`` bounds both, too. A bookie that wants no authentication has
    not shown who it is: the client goes on with it only with ``allow_unauthenticated_bookies``
    (``bkctlAllowUnauthenticatedBookies``).
    """

    wire: Wire = Wire.V3
    connect_timeout_ms: int = 5_000
    connections_per_bookie: int = 1
    outstanding_max: int = 10_000
    waiting_max: int = 10_000
    frame_bytes_max: int = FRAME_BYTES_MAX
    write_buffer_bytes_max: int = 1 << 20
    tls: TlsSettings | None = None
    authentication: AuthProvider | None = field(default=None, repr=False)
    allow_unauthenticated_bookies: bool = False

    def __post_init__(self) -> None:
        check_limits(self, LIMITS)


def check_limits(settings: object, limits: Mapping[str, tuple[int, int]]) -> None:
    """Raise UsageError naming the first setting that is outside of its limits."""
    for name, (least, most) in limits.items():
        if not least <= getattr(settings, name) <= most:
            raise UsageError(f"{name} must be {least} to {most}")
