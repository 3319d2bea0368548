"""The entry point.

``bkctl --help`` and ``bkctl --version`` are answered from a table, before typer is loaded (importing it
costs about 90 ms); everything else is handed to :mod:`bkctl.commands.frame.root`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from bkctl.commands.frame.nouns import FAILED, READER_GONE, top_level_help, version_line

_AT_ONCE: dict[tuple[str, ...], Callable[[], str]] = {
    ("--help",): top_level_help,
    ("-h",): top_level_help,
    ("help",): top_level_help,
    ("--version",): version_line,
}


def main() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    _open_closed_streams()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run ``arguments`` (without the program's name) and return the exit code."""
    answer = None if "_BKCTL_COMPLETE" in os.environ else _AT_ONCE.get(tuple(arguments))
    try:
        if answer is not None:
            sys.stdout.write(answer() + "\n")
            sys.stdout.flush()
            return 0
        from bkctl.commands.frame import root

        code = root.run(arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        code = READER_GONE
    except OSError as error:
        sys.stderr.write(f"bkctl: error: the output: {error.strerror}\n")
        code = FAILED
    if code == READER_GONE or (code == FAILED and not _is_written()):
        _drop_output()
    return code


def _open_closed_streams() -> None:
    """Give a standard stream that came closed (``>&-``) to /dev/null.

    Its number would else go to the next file that is opened, and what is said would be written into that.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _is_written() -> bool:
    """Return whether all output was written, which is attempted once more."""
    try:
        sys.stdout.flush()
    except OSError:
        return False
    return True


def _drop_output() -> None:
    """Give what could not be written a reader, or the interpreter fails to flush it on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
