"""Another command of this program, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

#: The descriptor: stdout is for the rows of the command that runs others.
_STDERR = 2


def run_own_command(words: Sequence[str], directory: str | None = None) -> int:
    """Run a command line that begins with the program's name; return its exit code.

    Its output goes to stderr. It runs in ``directory``, by default in that of this process.
    """
    line = [sys.executable, "-m", *words]
    return subprocess.run(line, stdout=_STDERR, cwd=directory, check=False).returncode  # noqa: S603


def read_own_command(words: Sequence[str]) -> tuple[int, bytes]:
    """Run a command line that begins with the program's name; return its exit code and its stdout."""
    done = subprocess.run([sys.executable, "-m", *words], stdout=subprocess.PIPE, check=False)  # noqa: S603
    return done.returncode, done.stdout
