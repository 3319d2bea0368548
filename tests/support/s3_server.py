"""An S3 server on the loopback for tests: moto's, in a thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def s3_bucket(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give the parameters of URLs of a server that has an empty bucket; skips where moto is not installed."""
    server_module = pytest.importorskip("moto.server", reason="moto is no part of the pinned environment")
    from pyarrow import fs

    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        client = fs.S3FileSystem(
            endpoint_override=f"{host}:{port}", scheme="http", region="us-east-1", allow_bucket_creation=True
        )
        client.create_dir(name)
        yield f"endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    finally:
        server.stop()
