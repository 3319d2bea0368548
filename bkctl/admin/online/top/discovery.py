"""Which bookies to ask, and where: those that are registered, at the HTTP endpoints that they registered."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from bkctl.codec.bookie_service_info import BOOKIE_RPC, Endpoint, decode_bookie_service_info
from bkctl.errors import CorruptionError, UsageError
from bkctl.metadata.api import MetadataStore

#: Bookies watched at once; more are named in ``ClusterSample.discovery_error``.
BOOKIES_MAX = 512
#: What a bookie that listens on every interface registers.
_EVERYWHERE = ("", "0.0.0.0", "::", "0:0:0:0:0:0:0:0", "[::]")  # noqa: S104 - compared with, not bound
_METRICS = "/metrics"


@dataclass(frozen=True, slots=True)
class Target:
    """A bookie to ask: its id as far as it is known, and base URLs, the first of which that answers counts.

    Without a URL ``reason`` says why. ``here_only``: it has registered a loopback address for HTTP and
    another one for clients, so on any machine but its own something else answers there.
    """

    bookie: str | None
    urls: tuple[str, ...]
    reason: str | None = None
    here_only: bool = False

    @property
    def name(self) -> str:
        """What to call it: its id, else host and port."""
        return self.bookie or self.urls[0].partition("://")[2]


def target_of_url(url: str) -> Target:
    """What ``--url`` names: the HTTP admin of a bookie, or a Java bookie's Prometheus port.

    Raises UsageError.
    """
    if not url.startswith(("http://", "https://")) or not url.partition("://")[2].strip("/"):
        raise UsageError(f"--url {url}: expected http://host:port")
    return Target(None, (url.rstrip("/").removesuffix(_METRICS),))


def is_loopback(host: str) -> bool:
    """Whether a host is the machine that asks, by its name or address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def registered_targets(store: MetadataStore, metrics_port: int | None) -> list[Target]:
    """The registered bookies, ascending by id, and where each tells how it is.

    First what it registered as its HTTP server; then ``metrics_port`` of the host that clients connect to,
    for Java bookies whose metrics have a port of their own or that registered none. A registration that does
    not decode is that bookie's reason and nobody else's. Raises what the store raises.
    """
    registered = store.registration.bookies()
    targets = []
    for bookie in sorted({*registered.writable, *registered.read_only}):
        registration = store.registration.registration(bookie)
        if registration is None:
            continue  # it went in between
        try:
            info = decode_bookie_service_info(registration.service_info)
        except CorruptionError as error:
            targets.append(Target(bookie, (), str(error.located(f"registration of bookie {bookie}"))))
        else:
            targets.append(target_of_registration(bookie, info.endpoints, metrics_port))
    return targets


def target_of_registration(bookie: str, endpoints: Sequence[Endpoint], metrics_port: int | None) -> Target:
    """Where a bookie with these endpoints is asked; see :func:`registered_targets`."""
    host = _client_host(bookie, endpoints)
    http = [each for each in endpoints if each.protocol == "http"]
    urls = [_url(each, host) for each in http]
    if metrics_port is not None and host:
        urls.append(f"http://{_bracketed(host)}:{metrics_port}")
    urls = [url for url in urls if url]
    if not urls:
        return Target(bookie, (), "it has registered no HTTP endpoint: name its port with --metrics-port")
    loopback = any(is_loopback(each.host) for each in http)
    return Target(bookie, tuple(dict.fromkeys(urls)), here_only=loopback and not is_loopback(host))


def _client_host(bookie: str, endpoints: Sequence[Endpoint]) -> str:
    rpc = next((each for each in endpoints if each.protocol == BOOKIE_RPC), None)
    if rpc is not None:
        return rpc.host
    # A bookie older than service info is registered under its address.
    host, colon, port = bookie.rpartition(":")
    return host if colon and port.isdigit() else ""


def _url(endpoint: Endpoint, client_host: str) -> str:
    host = client_host if endpoint.host in _EVERYWHERE else endpoint.host
    return f"http://{_bracketed(host)}:{endpoint.port}" if host else ""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
