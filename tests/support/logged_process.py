"""A process of another program, with a session and a log of its own, from its start to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_LAST_WORDS = 3000


class LoggedProcess:
    """Runs ``command``; its output goes to the file ``log``.

    With ``has_stdin`` the process gets a pipe, and is one that ends when the pipe is closed.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        has_stdin: bool = False,
    ) -> None:
        self._log = log
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if has_stdin else subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                cwd=cwd,
                env=env,
                start_new_session=True,
            )

    def log(self) -> str:
        """Return what it has said."""
        return self._log.read_text(errors="replace")

    def await_log(self, is_there: Callable[[str], bool], seconds: float) -> str:
        """Return the log when it is as wanted; fail when that takes too long, or the process ends before."""
        until = time.monotonic() + seconds
        while not is_there(text := self.log()):
            assert self._process.poll() is None, text[-_LAST_WORDS:]
            assert time.monotonic() < until, text[-_LAST_WORDS:]
            time.sleep(0.1)
        return text

    def ask_to_end(self) -> None:
        """Close its stdin, or without one send SIGTERM to all of its session."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        elif self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)

    def await_end(self, seconds: float) -> None:
        """Wait for the end that was asked for; kill all of its session when that takes too long."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(seconds)
