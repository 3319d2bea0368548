"""Another command of this program, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

#: The descriptor: stdout is for the rows of the command that runs others.
_STDERR = 2
_KILLED = 128


def run_own_command(words: Sequence[str], directory: str | None = None) -> int:
    """Run a command line that begins with the program's name; return its exit code, as a shell gives it.

    Its output goes to stderr. It runs in ``directory``, by default in that of this process.
    """
    line = [sys.executable, "-m", *words]
    return _exit_code(subprocess.run(line, stdout=_STDERR, cwd=directory, check=False))  # noqa: S603


def read_own_command(words: Sequence[str]) -> tuple[int, bytes]:
    """Run a command line that begins with the program's name; return its exit code and its stdout."""
    done = subprocess.run([sys.executable, "-m", *words], stdout=subprocess.PIPE, check=False)  # noqa: S603
    return _exit_code(done), done.stdout


def _exit_code(done: subprocess.CompletedProcess[bytes]) -> int:
    """Return how a process ended; one that a signal killed as 128 and the signal's number."""
    return done.returncode if done.returncode >= 0 else _KILLED - done.returncode
