"""Bookies as processes of their own, for benchmarks: BookKeeper 4.17.3 and ours, on the same configuration.

The Java bookie has the options of its release's start script (``bin/common.sh``): 1 GiB of heap, 2 GiB of
direct memory, G1. Both register in the same ZooKeeper and keep their files below a folder of their own.

Our code is compiled to bytecode first, as that of an installed package is: a process that compiles it itself
keeps a megabyte more of memory.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.java_bookkeeper import find_jars

_JAVA_MAIN = "org.apache.bookkeeper.server.Main"
#: Of the release's start script.
JAVA_OPTIONS = (
    # BOOKIE_MEM_OPTS
    "-Xms1g",
    "-Xmx1g",
    "-XX:MaxDirectMemorySize=2g",
    # BOOKIE_GC_OPTS
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=10",
    "-XX:+ParallelRefProcEnabled",
    "-XX:+DisableExplicitGC",
    # build_netty_opts
    "-Dio.netty.leakDetectionLevel=disabled",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    # build_bookie_opts
    "-Djava.net.preferIPv4Stack=true",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.util.zip=ALL-UNNAMED",
    "-Dorg.apache.logging.log4j.level=WARN",
)
_START_S_MAX = 60
_STOP_S_MAX = 40
_LAST_WORDS = 3000


class BookieProcess:
    """A bookie that runs until the context ends. ``name`` is ``java``; any other is one of ours.

    ``kernels`` are those of ours: ``python``, which run everywhere, or ``native``. ``tree`` is the work tree
    whose code of ours runs; None is this one. ``conf`` may name the ledger directories. ``homes`` is how many
    ledger directories there are, and how many journals, all on one disk.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        conf: Mapping[str, str],
        kernels: str = "python",
        tree: Path | None = None,
        homes: int = 1,
    ) -> None:
        """Start it and wait until its port is open. Raises RuntimeError with its last words."""
        folder = folder.resolve()
        folder.mkdir(parents=True)
        # `python -m` looks into the working directory first.
        tree = (tree or Path(__file__).parent.parent).resolve()
        self.name = name
        self.port = free_port()
        self._log = folder / "log"
        lines = {
            "ledgerDirectories": _numbered(folder / "ledgers", homes),
            **conf,
            "bookieId": f"bench-{name}-{self.port}",
            "bookiePort": str(self.port),
            "journalDirectories": _numbered(folder / "journal", homes),
        }
        path = folder / "bookie.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        if name != "java":
            compileall.compile_dir(tree / "bkctl", quiet=1)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                _java_command(path) if name == "java" else _our_command(path),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=tree,
                env={**os.environ, "BKCTL_KERNELS": kernels, "PYTHONPATH": str(tree)},
            )
        self._await_port()

    def __enter__(self) -> BookieProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """Of the process, for its usage."""
        return self._process.pid

    def _await_port(self) -> None:
        until = time.monotonic() + _START_S_MAX
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if self._process.poll() is not None or time.monotonic() > until:
                self._process.kill()
                self._process.wait()
                words = self._log.read_text(errors="replace")[-_LAST_WORDS:]
                raise RuntimeError(f"the bookie ({self.name}) did not start: {words}")
            time.sleep(0.05)


def _numbered(path: Path, count: int) -> str:
    """Return so many directories as a configuration names them; the first one has no number."""
    return ",".join([f"{path}{number or ''}" for number in range(count)])


def _java_command(conf: Path) -> list[str]:
    jars = find_jars()
    return [jars.java, *JAVA_OPTIONS, "-cp", jars.classpath, _JAVA_MAIN, "--conf", str(conf)]


def _our_command(conf: Path) -> list[str]:
    return [sys.executable, "-m", "bkctl", "bookie", "start", "--conf", str(conf)]


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
