"""A ZooKeeper that does not answer: one error says so, and nothing else is written."""

from __future__ import annotations

import logging
import socket
import threading

import pytest

from bkctl.errors import ConnectionFailedError
from bkctl.metadata.settings import MetadataSettings
from bkctl.metadata.uri import open_metadata_store
from bkctl.metadata.zookeeper.connection import Connection, ConnectionLostError


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


def test_two_threads_close_a_connection_to_a_server_that_is_silent() -> None:
    """As a start does that is told to leave, and the end of it."""
    failed: list[BaseException] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = MetadataSettings(session_timeout_ms=3000, connect_timeout_ms=200)
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        connection = Connection([server], settings, lambda: None, lambda: None)
        with pytest.raises(ConnectionLostError):
            connection.start(0.2)

        def close() -> None:
            try:
                connection.close()
            except BaseException as error:  # noqa: BLE001 - none is expected
                failed.append(error)

        threads = [threading.Thread(target=close) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed
