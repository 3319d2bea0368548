"""How long work reports while it goes on: callbacks that a verb is given, and numbers with their nouns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from bkctl.errors import StorageError

#: Called with the number of bytes done since the last call.
Advance = Callable[[int], None]

#: Called for a file that cannot be opened, so that the others are done all the same.
Failed = Callable[[StorageError], None]

#: ``phase(name, bytes)``: a context in which progress is reported as bytes done.
Phase = Callable[[str, int], AbstractContextManager[Advance]]


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 entry``, ``2 entries``; without a plural the noun gets an s."""
    return f"{count} {noun_of(count, noun, plural)}"


def noun_of(count: float | None, noun: str, plural: str | None = None) -> str:
    """Return the noun of a number that is written in another form, None being a number not known."""
    return noun if count == 1 else plural or noun + "s"


def listed(names: Sequence[str], most: int, total: int | None = None) -> str:
    """Return the first ``most`` names, and how many more there are of ``total``: ``a, b and 3 more``.

    Without ``total`` the names are all that there are.
    """
    more = (len(names) if total is None else total) - min(most, len(names))
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def nobody(_: int) -> None:
    """Ignore progress that nobody follows."""


def fail(error: StorageError) -> None:
    """Raise the error: a file that cannot be opened ends the work."""
    raise error


def silent_phase(_: str, __: int) -> AbstractContextManager[Advance]:
    """Ignore a phase."""
    return nullcontext(nobody)
