"""The endpoints of a bookie that the cluster knows (Java: ``BookieServiceInfo``)."""

from __future__ import annotations

from dataclasses import replace

from bkctl.codec.bookie_service_info import BookieServiceInfo, Endpoint, encode_bookie_service_info
from bkctl.config.bookie import BookieConfig
from bkctl.server.life.identity import SystemHostNames, bookie_id


def advertised_endpoints(config: BookieConfig, port: int, http_port: int | None) -> bytes:
    """Return the ports of a bookie and of its HTTP, encoded for its registration."""
    extensions = () if config.tls is None else ("tls",)
    endpoints = [Endpoint("bookie", port, _host(config, port), "bookie-rpc", extensions=extensions)]
    if http_port is not None:
        endpoints.insert(0, Endpoint("httpserver", http_port, config.http.host, "http"))
    return encode_bookie_service_info(BookieServiceInfo(tuple(endpoints)))


def _host(config: BookieConfig, port: int) -> str:
    """Return the address that clients are given: that of an id made of address and port."""
    identity = replace(config.identity, bookie_id=None, allow_loopback=True)
    return bookie_id(identity, port, SystemHostNames()).rpartition(":")[0]
