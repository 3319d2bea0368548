"""BookieServiceInfo: where a bookie can be reached, as it registers it.

Binary protobuf without header or length, in the ephemeral node ``available/<bookie id>`` (or
``available/readonly/<bookie id>``):

====== ======= ==================================================================================
number type    field
====== ======= ==================================================================================
6      message endpoints, repeated: 1 id (string), 2 port (int32), 3 host (string),
               4 protocol (string), 5 auth (repeated string), 6 extensions (repeated string)
7      message properties, repeated: 1 key (string), 2 value (string)
====== ======= ==================================================================================

A bookie older than 4.12 registers empty data; its id is then its address. Endpoints keep their order,
properties are written in the order of their keys (Java's order is that of a hash map).

Source: ``org.apache.bookkeeper.discover.ZKRegistrationManager.serializeBookieServiceInfo``,
``DataFormats.proto``.
"""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.errors import CorruptionError, UsageError
from bkctl.reporting import counted

#: Protocol of the endpoint that clients connect to.
BOOKIE_RPC = "bookie-rpc"

#: Bound on the message; real ones have some hundred bytes. A znode holds 1 MiB at most.
SERVICE_INFO_BYTES_MAX = 1 << 20

_PORT_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address; ``id`` is ``bookie`` or ``httpserver``, ``protocol`` ``bookie-rpc`` or ``http``."""

    id: str
    port: int
    host: str
    protocol: str
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BookieServiceInfo:
    """The description that a bookie registers of itself; ``properties`` are (name, value) pairs."""

    endpoints: tuple[Endpoint, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def rpc_endpoint(self) -> Endpoint | None:
        """The first endpoint for clients, or None."""
        return next((found for found in self.endpoints if found.protocol == BOOKIE_RPC), None)


def encode_bookie_service_info(info: BookieServiceInfo) -> bytes:
    """Return the bytes to register. Raises UsageError when a text is no Unicode or a port no i32."""
    from bkctl.codec.proto.bookkeeper_pb2 import BookieServiceInfoFormat

    message = BookieServiceInfoFormat()
    try:
        for endpoint in info.endpoints:
            message.endpoints.add(
                id=endpoint.id,
                port=endpoint.port,
                host=endpoint.host,
                protocol=endpoint.protocol,
                auth=endpoint.auth,
                extensions=endpoint.extensions,
            )
        for name, value in info.properties:
            message.properties[name] = value
    except (ValueError, UnicodeEncodeError) as error:
        raise UsageError(f"bookie service info cannot be stored: {error}") from None
    return message.SerializeToString(deterministic=True)


def decode_bookie_service_info(data: bytes) -> BookieServiceInfo:
    """Return what a bookie registered; empty data gives no endpoints. Raises CorruptionError."""
    if len(data) > SERVICE_INFO_BYTES_MAX:
        raise CorruptionError(
            "bookie service info",
            offset=SERVICE_INFO_BYTES_MAX,
            expected=f"at most {SERVICE_INFO_BYTES_MAX} bytes",
        )
    from google.protobuf.message import DecodeError

    from bkctl.codec.proto.bookkeeper_pb2 import BookieServiceInfoFormat

    try:
        message = BookieServiceInfoFormat.FromString(data)
        whole = message.IsInitialized()  # the runtime does not look for required fields by itself
        endpoints = tuple(
            Endpoint(
                _text(found.id),
                found.port,
                _text(found.host),
                _text(found.protocol),
                tuple(map(_text, found.auth)),
                tuple(map(_text, found.extensions)),
            )
            for found in message.endpoints
        )
        properties = tuple(sorted((_text(name), _text(value)) for name, value in message.properties.items()))
    except (DecodeError, UnicodeDecodeError):
        whole = False
    if not whole:
        raise CorruptionError(
            "bookie service info",
            expected="protobuf BookieServiceInfoFormat",
            found=counted(len(data), "byte"),
        )
    return BookieServiceInfo(endpoints, properties)


def _text(value: str | bytes) -> str:
    """Return a string field; protobuf's C runtime hands out the bytes of one that is not UTF-8.

    Raises UnicodeDecodeError.
    """
    return value.decode("utf-8") if isinstance(value, bytes) else value


def bookie_address(bookie: str, info: BookieServiceInfo | None) -> tuple[str, int] | None:
    """Return (host, port) of a bookie's service for clients.

    Taken from what it registered, else from an id of the form ``host:port``; None when neither names it (a
    bookie with a custom id that is not registered).
    """
    endpoint = info.rpc_endpoint if info is not None else None
    if endpoint is not None:
        return endpoint.host, endpoint.port
    host, colon, port = bookie.partition(":")
    if host and colon and port.isascii() and port.isdigit() and int(port[:6]) < _PORT_LIMIT:
        return host, int(port)
    return None
