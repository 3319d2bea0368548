"""Asking before something is written: ``--dry-run``, ``--yes``, a question on a terminal."""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import Annotated

import typer

from bkctl.commands.frame.contexts import CONFIRM_VARIABLE, protected_context
from bkctl.commands.frame.terminal_text import escaped, unescaped
from bkctl.errors import RefusedError

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]

YesOption = Annotated[bool, typer.Option("--yes", help="Do it without asking; scripts need this.")]


def ask(what: str, *, yes: bool, has_dry_run: bool = True) -> None:
    """Return when ``what`` (``change 3 rows in 2 directories``) may be done.

    Raises RefusedError when the answer is no, and where nobody can be asked and there is no ``--yes``;
    KeyboardInterrupt when the question is answered with Ctrl-C or Ctrl-D.
    """
    if (name := protected_context()) is not None:
        ask_for_name(name, what)
        return
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        look = ", or --dry-run to see it" if has_dry_run else ""
        raise RefusedError(f"would {what}; add --yes to do it{look}")
    if not _agreed(f"{what[:1].upper()}{what[1:]}? [y/N]: "):
        raise RefusedError("nothing was changed")


def ask_for_name(name: str, what: str) -> None:
    """Return when ``what`` may be done to the cluster of a protected context, whose name has to be typed.

    --yes is not enough there: it stands in many a line that was copied. Raises RefusedError, and
    KeyboardInterrupt as :func:`ask` does.
    """
    if os.environ.get(CONFIRM_VARIABLE) == name:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise RefusedError(
            f"would {what}, and the context {name} is protected: a script sets {CONFIRM_VARIABLE}={name}"
        )
    terminal = unescaped(sys.stderr)
    terminal.write(escaped(f"{what[:1].upper()}{what[1:]}? Type the name of the context ({name}): "))
    terminal.flush()
    try:
        answer = _line_of_terminal()
    except KeyboardInterrupt:
        answer = ""
    if not answer:
        terminal.write("\n")
        raise KeyboardInterrupt
    if answer.strip() != name:
        raise RefusedError("nothing was changed")


def _agreed(question: str) -> bool:
    """Ask a question on the terminal until the answer is yes, no or nothing, which is no."""
    while True:
        try:
            terminal = unescaped(sys.stderr)  # also with --quiet
            terminal.write(escaped(question))
            terminal.flush()
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

    ``input`` loses a Ctrl-C that arrives between Python's last check for signals and the system call that
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
