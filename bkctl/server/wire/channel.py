"""A client's connection, as far as those that count, watch and answer need it."""

from __future__ import annotations

from typing import Protocol

from bkctl.protocol.runs import AddRun
from bkctl.server.wire.read_turns import ReadTurns
from bkctl.server.wire.untaken_answers import UntakenAnswers


class Channel(Protocol):
    """One connection; everything is used on the event loop's thread only."""

    #: Whether the transport's write buffer is above its high-water mark.
    write_paused: bool
    #: The reads of the connection that wait for their turn.
    turns: ReadTurns
    #: The account of the answers that the client has not taken.
    untaken: UntakenAnswers

    @property
    def peer(self) -> str:
        """Return the client's address, for the log."""

    @property
    def is_paused(self) -> bool:
        """Return whether the socket is not read, for a reason of this bookie's own."""

    @property
    def gone(self) -> bool:
        """Return whether no client gets an answer here any more."""

    @property
    def unread_since_s(self) -> float | None:
        """Return since when, as far as looks have shown, the client has left answers untaken."""

    def count_unread(self, now_s: float) -> int:
        """Return an upper bound of the bytes in answers that the client has not taken."""

    def free_descriptor(self) -> int:
        """Return the descriptor by which frames may go past the transport; -1 when they may not."""

    def write(self, data: bytes, sent_bytes: int = 0, spent_s: float = 0.0) -> None:
        """Send frames, of which so many bytes were sent before, or drop them when the connection is gone."""

    def pause_adds(self, paused: bool) -> None:
        """Stop reading, or go on, because of the adds in progress."""

    def add_one_by_one(self, run: AddRun) -> None:
        """Hand the adds of a run to the engine one at a time."""

    def drain(self) -> None:
        """Read no more; what was asked for is still answered."""

    def close(self) -> None:
        """Send what is left and close."""

    def stop_reading(self) -> None:
        """Read no more: the connection is about to be closed."""

    def abort(self) -> None:
        """Close without sending anything more."""
