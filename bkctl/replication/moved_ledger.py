"""The outcome for a ledger that bookies leave: a row of a drain, or of its rehearsal."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class MoveOutcome(enum.Enum):
    """The outcome for a ledger; the value is the JSON form.

    ``MOVABLE`` is what a rehearsal says of one that can be moved. ``BUSY``: a replication worker is at it.
    ``FAILED`` may succeed when it is tried again.
    """

    MOVED = "moved"
    MOVABLE = "movable"
    NOT_NAMED = "not_named"
    LEDGER_GONE = "ledger_gone"
    WAITING_FOR_WRITER = "waiting_for_writer"
    BUSY = "busy"
    FAILED = "failed"
    BLOCKED_NO_TARGET = "blocked_no_target"
    BLOCKED_RECOVERY = "blocked_recovery"
    BLOCKED_METADATA = "blocked_metadata"
    LOST_NO_SOURCE = "lost_no_source"

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self in (MoveOutcome.MOVED, MoveOutcome.NOT_NAMED, MoveOutcome.LEDGER_GONE)

    @property
    def may_pass(self) -> bool:
        """Whether time alone may change it."""
        return self in (MoveOutcome.WAITING_FOR_WRITER, MoveOutcome.BUSY, MoveOutcome.FAILED)


#: Entries without a source that a row names.
LOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class MovedLedger:
    """One ledger: what became of it, or would.

    ``bookies`` are those that left it and ``targets`` those that came, as far as that is done; in a
    rehearsal, those that would. ``entries`` and ``bytes`` were written, in a rehearsal an estimate.
    ``lost`` are entries without any source, the first :data:`LOST_SHOWN`, of ``lost_count``; ``accepted``
    says that they were given up. ``off_policy`` segments do not keep to the placement policy any more.
    """

    ledger: int
    outcome: MoveOutcome
    reason: str = ""
    bookies: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    entries: int = 0
    bytes: int = 0
    lost: tuple[int, ...] = ()
    lost_count: int = 0
    accepted: bool = False
    off_policy: int = 0
