"""Find the HTTP admins of bookies as they registered them, and whether one is on this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from bkctl.codec.bookie_service_info import BookieServiceInfo, bookie_address, decode_bookie_service_info
from bkctl.errors import CorruptionError
from bkctl.metadata.api import MetadataStore

#: Addresses that a bookie which listens on every interface registers.
_EVERYWHERE = ("", "0.0.0.0", "::", "0:0:0:0:0:0:0:0", "[::]")  # noqa: S104 - compared with, not bound


def is_loopback(host: str) -> bool:
    """Return whether only the machine itself reaches a host, by the host's name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def http_url(host: str, port: int) -> str:
    """Return the base URL of a server."""
    bracketed = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"http://{bracketed}:{port}"


def http_urls(bookie: str, info: BookieServiceInfo) -> list[str]:
    """Return the base URLs of the HTTP servers that a bookie registered, in its order.

    One that listens on every interface is where clients connect to; where nobody knows that it is left out.
    """
    address = bookie_address(bookie, info)
    urls = []
    for endpoint in info.endpoints:
        host = endpoint.host
        if host in _EVERYWHERE:
            host = "" if address is None else address[0]
        if endpoint.protocol == "http" and host:
            urls.append(http_url(host, endpoint.port))
    return urls


def registered_infos(store: MetadataStore) -> Iterator[tuple[str, BookieServiceInfo | CorruptionError]]:
    """Yield every bookie that is up, ascending by id, with what it registered, or why that cannot be read.

    Raises what the store raises.
    """
    for bookie in store.registration.bookies().everyone:
        registration = store.registration.registration(bookie)
        if registration is None:
            continue  # it went in between
        try:
            yield bookie, decode_bookie_service_info(registration.service_info)
        except CorruptionError as error:
            yield bookie, error.located(f"registration of bookie {bookie}")
