"""Bounds of the connections to bookies, with BookKeeper's keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any

from bkctl.config.keys import Setting, field_of, settings_of
from bkctl.config.server_keys import SERVER_KEYS
from bkctl.config.server_keys.client import NetKeys
from bkctl.errors import UsageError
from bkctl.net.authentication import AuthProvider
from bkctl.net.tls import ClientTlsSettings
from bkctl.protocol.messages import Wire

_BOUNDS = "bkctl.bounds"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the most of a field."""

    least: float
    most: float


def bounded(default: int, least: int, most: int) -> Any:
    """Declare a number of settings that no key fills, with its bounds."""
    return field(default=default, metadata={_BOUNDS: Bounds(least, most)})


def bounds_of(kind: type[Any]) -> Iterator[tuple[str, Bounds]]:
    """Yield the fields of ``kind`` that have bounds: their own, or those of the keys that fill them."""
    for one in fields(kind):
        if _BOUNDS in one.metadata:
            yield one.name, one.metadata[_BOUNDS]
    for name, setting in settings_of(kind):
        if isinstance(setting, Setting) and (lower := setting.key.lower) is not None:
            upper = inf if setting.key.upper is None else setting.key.upper
            yield name, Bounds(lower * setting.factor, upper * setting.factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetSettings(NetKeys):
    """How a client talks to bookies.

    ``wire`` is the protocol's version (``useV2WireProtocol``). A connection has at most
    ``outstanding_max`` requests without an answer and hands at most about ``write_buffer_bytes_max`` to
    the socket ahead of it (``clientWriteBufferHighWaterMark``); the next ``waiting_max`` requests wait,
    their time running, and further ones are refused as not connected. With ``tls``
    (``tlsProviderFactoryClass``) nothing but START_TLS is ever sent in clear; with ``authentication``
    (``clientAuthProviderFactoryClass``) nothing but that before it is over. ``connect_timeout_ms`` bounds
    both, too. The fields with keys of the client are those of :class:`NetKeys`.
    """

    wire: Wire = field_of(  # noqa: RUF009 - a field, not a value
        SERVER_KEYS["useV2WireProtocol"], meaning={False: Wire.V3, True: Wire.V2}
    )
    outstanding_max: int = bounded(10_000, 1, 1_000_000)
    waiting_max: int = bounded(10_000, 1, 1_000_000)
    frame_bytes_max: int = field_of(SERVER_KEYS["nettyMaxFrameSizeBytes"])
    write_buffer_bytes_max: int = bounded(1 << 20, 1 << 16, 1 << 30)
    tls: ClientTlsSettings | None = None
    authentication: AuthProvider | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_bounds(self)


def check_bounds(settings: object) -> None:
    """Raise UsageError naming the first setting that is outside of its bounds."""
    for name, bounds in bounds_of(type(settings)):
        if not bounds.least <= getattr(settings, name) <= bounds.most:
            raise UsageError(f"{name} must be {bounds.least} to {bounds.most}")
