"""How long work reports while it goes on: callbacks that a verb is given."""

from __future__ import annotations

from collections.abc import Callable

from bkctl.errors import StorageError

#: Told how many bytes were done since it was told last.
Advance = Callable[[int], None]

#: Told of a file that cannot be opened, so that the others are done all the same.
Failed = Callable[[StorageError], None]


def nobody(_: int) -> None:
    """Progress that nobody follows."""


def fail(error: StorageError) -> None:
    """A file that cannot be opened ends the work."""
    raise error
