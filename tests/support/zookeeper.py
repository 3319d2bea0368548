"""A real ZooKeeper for tests: the released server, standalone, on a loopback port, in a temporary directory.

It runs from the jars that BookKeeper itself uses (``tests/support/java_bookkeeper.py``); without them tests
are skipped with the reason, or fail where ``BKCTL_REQUIRE_INTEROP=1``. One server is shared by all tests of a
session, each with a root of its own::

    def test(zookeeper_server: ZooKeeperServer) -> None:
        uri = f"zk+hierarchical://{zookeeper_server.address}/{unique}/ledgers"

A module gets the fixture by importing it: ``from tests.support.zookeeper import zookeeper_server``.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.java_bookkeeper import Jars, require_jars

_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
_OPTIONS = (
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.forceSync=no",  # sessions must not end because the tests' disk is busy
)
_START_SECONDS = 60
_STOP_SECONDS = 20
_PORT_ATTEMPTS = 3

#: Sessions may be as short as two ticks.
TICK_MS = 500


class ZooKeeperServer:
    """One server process. It can be stopped and started again on the same port and data."""

    def __init__(self, jars: Jars, folder: Path) -> None:
        self._jars = jars
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start and wait until it serves; on a free port the first time."""
        if self.port:
            self._launch()
            return
        for attempt in range(_PORT_ATTEMPTS):
            self.port = _free_port()
            try:
                self._launch()
            except RuntimeError:  # somebody else took the port in between
                if attempt + 1 == _PORT_ATTEMPTS:
                    raise
                continue
            return

    def _launch(self) -> None:
        conf = self._folder / "zoo.cfg"
        settings = {
            "tickTime": TICK_MS,
            "dataDir": self._folder / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "ruok,srvr",
            "admin.enableServer": "false",
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        words = (*_OPTIONS, _MAIN, str(conf))
        command = self._jars.quick_command(*words, log_level="ERROR", memory_mb=128)
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until = time.monotonic() + _START_SECONDS
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > until:
                words = (self._folder / "server.log").read_text(errors="replace")[-2000:]
                self.stop()
                raise RuntimeError(f"ZooKeeper did not start on port {self.port}: {words}")
            time.sleep(0.02)

    def _serves(self) -> bool:
        """``ruok`` is answered before the server serves; ``srvr`` tells its mode only when it does."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), 2) as connection,
        ):
            connection.sendall(b"srvr")
            connection.settimeout(2)
            answer = b""
            while part := connection.recv(4096):
                answer += part
            return b"Mode:" in answer
        return False

    def pause(self) -> None:
        """SIGSTOP: it answers nothing, and sessions do not end."""
        assert self._process is not None, "the server does not run"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None, "the server does not run"
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the process; its data stays."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running_zookeeper() -> Iterator[ZooKeeperServer]:
    """A server of one's own, for tests that stop it."""
    jars = require_jars()
    with tempfile.TemporaryDirectory(prefix="bkctl-zookeeper-") as folder:
        server = ZooKeeperServer(jars, Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


class _SharedServer:
    """Every module that imports the fixture has a fixture of its own; the server behind them is one."""

    def __init__(self) -> None:
        self._users = 0
        self._running = contextlib.ExitStack()
        self._server: ZooKeeperServer | None = None

    def take(self) -> ZooKeeperServer:
        if self._server is None:
            self._server = self._running.enter_context(running_zookeeper())
        self._users += 1
        return self._server

    def give_back(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._server = None
            self._running.close()


_SHARED = _SharedServer()


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZooKeeperServer]:
    """The server that the tests of a session share."""
    yield _SHARED.take()
    _SHARED.give_back()
