"""Bookies of both kinds with their HTTP admin on, and requests to it."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any


def http_conf(port: int) -> dict[str, str]:
    """What a bookie of either kind needs to serve HTTP and metrics on this port of the loopback."""
    return {
        "httpServerEnabled": "true",
        "httpServerPort": str(port),
        "httpServerHost": "127.0.0.1",
        "httpServerClass": "org.apache.bookkeeper.http.vertx.VertxHttpServer",
        "enableStatistics": "true",
        "statsProviderClass": "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider",
    }


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status and text of an answer."""

    status: int
    text: str

    @property
    def json(self) -> Any:
        """The text as JSON; fails when it is none."""
        return json.loads(self.text)


def request(
    port: int, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
) -> HttpAnswer:
    """Ask; ``body`` is sent as JSON unless it is a text."""
    data = None if body is None else body if isinstance(body, str) else json.dumps(body)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, data, headers or {})
        answer = connection.getresponse()
        return HttpAnswer(answer.status, answer.read().decode(errors="replace"))
    finally:
        connection.close()
