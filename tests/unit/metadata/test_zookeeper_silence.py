"""A ZooKeeper that does not answer: one error says so, and nothing else is written."""

from __future__ import annotations

import logging
import socket

import pytest

from bkctl.errors import ConnectionFailedError
from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.uri import open_metadata_store


def test_attempts_to_connect_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="kazoo")
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        port = nobody_listens.getsockname()[1]
        settings = MetadataSettings(
            session_timeout_ms=500, connect_timeout_ms=500, retry_backoff_start_ms=100
        )
        with pytest.raises(ConnectionFailedError, match=f"127.0.0.1:{port}: no answer within"):
            open_metadata_store(f"zk://127.0.0.1:{port}/ledgers", settings)
    assert caplog.messages == []
