"""The command ``bkctl bookie start`` with everything it says collected: its row, its log, its exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import ready_process
from tests.support.any_disk import ANY_DISK

WAIT_S = 60
#: Ports that nobody else has, a lease after which the next start does not wait for a dead bookie, any disk.
TEST_KEYS = {
    "bookiePort": "0",
    "allowEphemeralPorts": "true",
    "httpServerPort": "0",
    "zkTimeout": "1000",
    **ANY_DISK,
}


def command(*words: str, **keys: str) -> list[str]:
    """The command line of a start; ``keys`` are those of bk_server.conf."""
    line = [*ready_process.BKCTL, "bookie", "start", "-o", "ndjson", *words]
    for key, value in {**TEST_KEYS, **keys}.items():
        line += ["-X", f"{key}={value}"]
    return line


def refused_start(directory: Path, *words: str, **keys: str) -> tuple[int, str]:
    """A start that is to fail: its exit code and the error that the log ends with.

    Nothing is on stdout, every line on stderr is one of JSON, and the error is said once.
    """
    done = subprocess.run(
        command(*words, **keys), cwd=directory, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.stdout == ""
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    (ended,) = [line for line in lines if line.get("event") == "ended_by_error"]
    assert lines[-1] is ended
    assert "trace" not in ended
    assert ended["exit_code"] == done.returncode
    assert not [line for line in lines[:-1] if ended["message"] in line["message"]]
    message: str = ended["message"]
    return done.returncode, message


class BookieCommand:
    """Starts in ``directory`` and waits for its row; a context manager that leaves nothing running."""

    def __init__(self, directory: Path, *words: str, inside: Sequence[str] = (), **keys: str) -> None:
        """``inside`` is a command that runs the one it is given in surroundings of its making."""
        self.directory = directory
        self._stderr: list[str] = []
        self.process = ready_process.start(
            [*inside, *command(*words, **keys)],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        # stderr is read all the time: a full pipe would stop the bookie.
        self._reader = threading.Thread(target=self._read_stderr)
        self._reader.start()
        watchdog = threading.Timer(WAIT_S, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        watchdog.join()
        if not line:
            self.end(signal.SIGKILL)
        assert line, self.stderr
        self.row: dict[str, Any] = json.loads(line)
        self.port: int = self.row["port"]

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        self._stderr += self.process.stderr

    @property
    def stderr(self) -> str:
        """What it said, complete once it has ended."""
        return "".join(self._stderr)

    @property
    def log(self) -> list[dict[str, str]]:
        """The lines of its log."""
        return [json.loads(line) for line in self._stderr]

    def end(self, *signals: signal.Signals) -> int:
        """Send signals, wait, and give back the exit code (negative: the signal that killed it)."""
        for number in signals:
            self.process.send_signal(number)
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(WAIT_S)
            raise
        finally:
            self._reader.join(WAIT_S)
            for stream in (self.process.stdout, self.process.stderr):
                assert stream is not None
                stream.close()
        return self.process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGKILL)
        elif self._reader.is_alive():
            self.end()
