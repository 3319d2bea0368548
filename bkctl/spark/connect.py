"""Sessions on a Spark Connect server: the client speaks gRPC, nothing of Spark runs in this process."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bkctl.errors import ConnectionFailedError, UsageError
from bkctl.extras import incomplete

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The beginning of an address of a Connect server.
SCHEME = "sc://"
#: The port of a server unless it is configured otherwise.
DEFAULT_PORT = 15002
#: Spark's client tries again for minutes; a server that is there takes a connection at once.
CONNECT_TIMEOUT_S = 10.0


def connect(address: str, app_name: str) -> SparkSession:
    """Return a session of the server at ``sc://host[:port][/;parameters]``.

    Raises UsageError for an address that is none, ConnectionFailedError when nobody listens there,
    MissingPackageError when packages of the client are missing.
    """
    host, port = _host_and_port(address)
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        # Parameters of an address can be secrets (token=...): only the server is named.
        raise ConnectionFailedError(f"no Spark Connect server at {SCHEME}{host}:{port} ({error})") from None
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.appName(app_name).remote(address).getOrCreate()
    except ImportError as error:
        # Which packages the client needs is a matter of its version: it says which one is missing.
        raise incomplete("the client of Spark Connect", "spark-connect", error) from None


def _host_and_port(address: str) -> tuple[str, int]:
    try:
        parts = urlsplit("http://" + address.removeprefix(SCHEME))
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"{_without_parameters(address)!r}: {error}") from None
    if not host:
        raise UsageError(f"{_without_parameters(address)!r}: expected sc://host[:port]")
    return host, port or DEFAULT_PORT


def _without_parameters(address: str) -> str:
    """Return an address as far as its server goes: what stands behind it can hold a token."""
    return address.partition("/;")[0].partition(";")[0]
