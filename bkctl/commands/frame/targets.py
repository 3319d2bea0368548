"""Arguments that may be a path or an id."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from bkctl.errors import NotFoundError, UsageError

DEFAULT_DATA = "./bkctl-data"
#: The id of a log or journal, in each form that the options for it take.
_ID = re.compile(r"(0x)?[0-9a-fA-F]+(\.log|\.txn)?")


def split_targets(arguments: list[str], parse: Callable[[str], int]) -> tuple[list[str], list[int]]:
    """Return the paths and ids among ``arguments``: what exists is a path, what ``parse`` takes is an id.

    Raises UsageError for what is neither.
    """
    paths: list[str] = []
    ids: list[int] = []
    for argument in arguments:
        if os.path.lexists(argument):
            paths.append(argument)
            continue
        try:
            ids.append(parse(argument))
        except ValueError:
            paths.append(argument)  # the command says that there is no such path
    return paths, ids


def no_ids(paths: list[str], option: str) -> None:
    """Raise NotFoundError for a path that is not there and looks like an id, which ``option`` takes."""
    for path in paths:
        if _ID.fullmatch(path) and not os.path.lexists(path):
            raise NotFoundError(
                f"{path}: no such file or directory; an id goes behind {option}: {option} {path}"
            )


def paths_or_default(paths: list[str]) -> list[str]:
    """Return ``paths``, or ``./bkctl-data`` when there are none and it exists, else raise UsageError."""
    return paths or default_paths()


def default_paths(otherwise: str = "") -> list[str]:
    """Return ``./bkctl-data`` where it exists: what every command over files takes when it names no path.

    Raises UsageError where it does not; ``otherwise`` says what could be given instead of a path.
    """
    # A shell that completes a line asks for the default as well, before there is a path.
    if os.path.isdir(DEFAULT_DATA) or "_BKCTL_COMPLETE" in os.environ:
        return [DEFAULT_DATA]
    raise UsageError(
        "name a PATH: a file, a ledger or journal directory, or a folder that holds several"
        f"{otherwise}; there is no {DEFAULT_DATA} here"
    )
