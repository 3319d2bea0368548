"""``bkctl bookie start`` as a process of its own: started, killed, started again on what is left."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support import ready_process
from tests.support.any_disk import ANY_DISK

START_S = 60.0

#: Small files and caches: rolls, swaps and flushes come several times a second.
SMALL = {
    "bookieId": "victim",
    "bookiePort": "0",
    "allowEphemeralPorts": "true",
    "httpServerEnabled": "false",
    "journalMaxSizeMB": "1",
    "journalPreAllocSizeMB": "1",
    "journalMaxBackups": "1",
    "dbStorage_writeCacheMaxSizeMb": "2",
    "dbStorage_readAheadCacheMaxSizeMb": "4",
    "logSizeLimit": "2097152",
    "flushInterval": "150",
    **ANY_DISK,
    # The lease of a bookie that was killed runs out before its successor may register.
    "zkTimeout": "600",
}


class BookieProcess:
    """One bookie below ``directory``, its stderr in ``directory/log``; a context manager that kills."""

    def __init__(
        self, directory: Path, keys: Mapping[str, str] | None = None, *, inside: tuple[str, ...] = ()
    ) -> None:
        """``inside`` is a command that runs the one it is given in surroundings of its making."""
        self.directory = directory
        self._inside = inside
        self.log = directory / "log"
        self._keys = {**SMALL, **(keys or {})}
        self._process: ready_process.Process | None = None

    def spawn(self) -> None:
        """Start the process, and wait for nothing."""
        command = [
            *self._inside,
            *ready_process.BKCTL,
            "bookie",
            "start",
            "-o",
            "json",
            "--log-format",
            "text",
        ]
        for key, value in self._keys.items():
            command += ["-X", f"{key}={value}"]
        with self.log.open("ab") as log:
            self._process = ready_process.start(
                command, cwd=self.directory, stdout=subprocess.PIPE, stderr=log
            )

    def start(self) -> dict[str, object]:
        """Start and wait until it serves: the row that it prints."""
        self.spawn()
        process = self._running()
        assert process.stdout is not None
        late = threading.Timer(START_S, process.kill)
        late.start()
        try:
            text = b""
            while not text.rstrip().endswith(b"}"):
                line = process.stdout.readline()
                assert line, f"the bookie has not started:\n{self.log.read_text()[-3000:]}"
                text += line
        finally:
            late.cancel()
            late.join()
        row = json.loads(text)
        assert isinstance(row, dict)
        return row

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int:
        """Of the running process."""
        return self._running().pid

    @property
    def resident_bytes(self) -> int:
        """Its memory at this moment."""
        for line in Path(f"/proc/{self._running().pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        process.send_signal(number)
        code = process.wait(START_S)
        assert process.stdout is not None
        process.stdout.close()
        self._process = None
        return code

    def _running(self) -> ready_process.Process:
        assert self._process is not None, "it was not started"
        return self._process

    def __enter__(self) -> BookieProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
