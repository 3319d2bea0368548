"""Asking before something is written: ``--dry-run``, ``--yes``, a question on a terminal."""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import Annotated

import typer

from bkctl.errors import RefusedError

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]

YesOption = Annotated[bool, typer.Option("--yes", help="Do it without asking; scripts need this.")]


def ask(what: str, *, yes: bool, has_dry_run: bool = True) -> None:
    """Return when ``what`` (``change 3 rows in 2 directories``) may be done.

    Raises RefusedError when the answer is no, and where nobody can be asked and there is no ``--yes``;
    KeyboardInterrupt when the question is answered with Ctrl-C or Ctrl-D.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        look = ", or --dry-run to see it" if has_dry_run else ""
        raise RefusedError(f"would {what}; add --yes to do it{look}")
    if not _agreed(f"{what[:1].upper()}{what[1:]}? [y/N]: "):
        raise RefusedError("nothing was changed")


def _agreed(question: str) -> bool:
    """Ask a question on the terminal until the answer is yes, no or nothing, which is no."""
    while True:
        try:
            sys.stderr.write(question)
            sys.stderr.flush()
            answer = _line_of_terminal()
        except KeyboardInterrupt:
            answer = ""
        if not answer:  # Ctrl-C or Ctrl-D: the terminal is left in the middle of a line
            sys.stderr.write("\n")
            raise KeyboardInterrupt
        answer = answer.strip().lower()
        if answer in ("y", "yes"):
            return True
        if answer in ("n", "no", ""):
            return False
        sys.stderr.write("Error: invalid input\n")


def _line_of_terminal() -> str:
    """Return the line that is typed, with its end; nothing for Ctrl-D. Raises KeyboardInterrupt for Ctrl-C.

    ``input`` loses a Ctrl-C that arrives between Python's last look for signals and the system call that
    reads: the call then waits for a line all the same. Here a signal also leaves a byte in a pipe, and the
    wait is for the pipe and the terminal together, so a signal that came before the wait ends it, too.
    """
    terminal = sys.stdin.fileno()
    wakeup, writing = os.pipe()
    os.set_blocking(writing, False)  # as `signal.set_wakeup_fd` demands
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        line = b""
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([terminal, wakeup], [], [])
            if wakeup in readable:
                os.read(wakeup, 4096)  # Python calls the handler of the signal before its next instruction
            elif piece := os.read(terminal, 4096):
                line += piece
            else:
                break
        return line.decode(errors="replace")
    finally:
        signal.set_wakeup_fd(before)
        os.close(wakeup)
        os.close(writing)
