"""Requests to a bookie's HTTP admin."""

from __future__ import annotations

import http.client
import json
from typing import Any

from bkctl.server.life.embedded import EmbeddedBookie


def ask(bookie: EmbeddedBookie, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
    """Status and text of an answer."""
    assert bookie.http_port is not None
    connection = http.client.HTTPConnection("127.0.0.1", bookie.http_port, timeout=20)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def ask_json(bookie: EmbeddedBookie, method: str, path: str, body: bytes | None = None) -> Any:
    """The JSON of an answer with status 200."""
    status, text = ask(bookie, method, path, body)
    assert status == 200, (status, text)
    return json.loads(text)
