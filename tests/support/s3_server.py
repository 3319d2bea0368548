"""An S3 server on the loopback for tests: moto's, whose buckets are in memory, in a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest

_TIMEOUT_S = 60


@contextmanager
def s3_bucket(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give the parameters of URLs of a server that has an empty bucket."""
    from moto.server import ThreadedMotoServer

    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        # The buckets are the process's: those of the test before are still there.
        _ask(host, port, "POST", ["/moto-api/reset"])
        _ask(host, port, "PUT", [f"/{name}"])
        yield f"endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    finally:
        server.stop()


def put_objects(parameters: str, paths: Iterable[str], data: bytes) -> None:
    """Put many objects of one content, /BUCKET/KEY, over one connection."""
    host, port = parameters.partition("=")[2].partition("&")[0].rsplit(":", 1)
    _ask(host, int(port), "PUT", paths, data)


def _ask(host: str, port: int, method: str, paths: Iterable[str], data: bytes = b"") -> None:
    connection = HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        for path in paths:
            connection.request(method, path, data)
            answer = connection.getresponse()
            assert answer.status == 200, (path, answer.status, answer.read())
            answer.read()
    finally:
        connection.close()
