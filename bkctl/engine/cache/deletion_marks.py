"""Which ledgers of a directory were deleted, until nothing of them is left in index and read cache.

Marks are kept in *rounds*, in the order of their making. A flush takes whole rounds, without looking at a
single mark while others wait for the engine lock, removes what they hide, and lifts them. A ledger that is
deleted once more during the flush has another mark in a later round, and stays hidden.
"""

from __future__ import annotations

from bkctl.engine.cache.entry_table import empty_in_pieces

#: Marks in one round at most: a dict of this size grows and goes within two milliseconds.
ROUND_MARKS_MAX = 40_000

#: Ledgers (ids as 8 bytes) in the order in which they were marked. A dict without values is used because
#: Python's cyclic garbage collector passes over it.
Round = dict[bytes, None]
Rounds = tuple[Round, ...]


class DeletionMarks:
    """Marks by ledger. Methods that change marks need the engine lock; any thread may ask ``in``."""

    def __init__(self) -> None:
        # Replaced whole, so that a reader sees one state of it; new marks go into the last one if it is open.
        self._rounds: Rounds = ()
        self._open = False

    def __contains__(self, ledger: bytes) -> bool:
        return any(ledger in marked for marked in self._rounds)

    def __bool__(self) -> bool:
        return bool(self._rounds)

    def __len__(self) -> int:
        return sum(map(len, self._rounds))

    def add(self, ledger: bytes) -> None:
        """Mark a ledger."""
        if not self._open or len(self._rounds[-1]) >= ROUND_MARKS_MAX:
            self._rounds = (*self._rounds, {})
            self._open = True
        self._rounds[-1][ledger] = None

    def until_now(self, but: Rounds = ()) -> Rounds:
        """Return the rounds of all marks there are, except ``but``; a mark made later is in none of them."""
        self._open = False
        return tuple([marked for marked in self._rounds if not _is_one_of(marked, but)])

    def still_there(self, rounds: Rounds) -> Rounds:
        """Return those of the rounds that were not lifted."""
        return tuple([marked for marked in rounds if _is_one_of(marked, self._rounds)])

    def lift(self, rounds: Rounds) -> None:
        """Remove the marks of these rounds."""
        self._rounds = tuple([marked for marked in self._rounds if not _is_one_of(marked, rounds)])
        self._open = False

    def go_on(self, apart_from: Rounds) -> None:
        """Let the last round take marks again, unless it is one of these: nobody lifts it after all."""
        self._open = bool(self._rounds) and not _is_one_of(self._rounds[-1], apart_from)


def empty(rounds: Rounds) -> None:
    """Free the marks of rounds that were lifted, some at a time."""
    for marked in rounds:
        empty_in_pieces(marked)


def _is_one_of(marked: Round, rounds: Rounds) -> bool:
    return any(marked is each for each in rounds)
