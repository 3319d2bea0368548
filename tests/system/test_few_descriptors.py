"""A bookie with few file descriptors and very many idle clients goes on writing journals and entry logs."""

from __future__ import annotations

import resource
import signal
import socket
from pathlib import Path

from tests.demo_client import DemoClient, body_of
from tests.support.bookie_command import BookieCommand

DESCRIPTORS = 256
IDLE = 400
SIZE = 4000
ENTRIES = 2000


def test_idle_connections_leave_files_their_descriptors(tmp_path: Path) -> None:
    keys = {
        "journalMaxSizeMB": "1",
        "journalPreAllocSizeMB": "1",
        "logSizeLimit": "1048576",
        "flushInterval": "200",
        "dbStorage_writeCacheMaxSizeMb": "2",
    }
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}", "--"]
    idle: list[socket.socket] = []
    with BookieCommand(tmp_path, inside=limits, **keys) as bookie, DemoClient(bookie.port) as client:
        try:
            assert client.add(1, range(1), size_bytes=SIZE).done == [0]
            for number in range(IDLE):
                port = bookie.port if number % 2 else bookie.row["http_port"]
                connection = socket.socket()
                connection.setblocking(False)
                connection.connect_ex(("127.0.0.1", port))
                idle.append(connection)
            # Many journals and entry logs are begun meanwhile, each of which needs a descriptor.
            for first in range(1, ENTRIES, 100):
                numbers = range(first, first + 100)
                assert client.add(1, numbers, size_bytes=SIZE).done == list(numbers)
            assert client.read(1, range(5)).bodies == {n: body_of(1, n, SIZE) for n in range(5)}
            assert len(list(tmp_path.rglob("*.txn"))) > 3
        finally:
            for connection in idle:
                connection.close()
        assert bookie.end(signal.SIGTERM) == 0
    assert (soft, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)
    assert not [line for line in bookie.log if line["level"] == "critical"]
