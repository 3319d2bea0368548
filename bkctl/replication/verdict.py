"""The verdict on a marked ledger: a word for programs and a sentence for people."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from bkctl.client.errors import NoSuchEntryError
from bkctl.replication.fragment_copy import CopyFailure, FailedIndex


class VerdictKind(enum.Enum):
    """The kinds of verdicts; the value is the JSON form.

    ``WHOLE`` and ``LEDGER_GONE`` end the work on a ledger. ``REPAIRABLE``: copies can be made, or the next
    try may succeed. Blocked ones wait for a bookie, a person or the ledger's writer. Of the lost ones some
    entry has no source: only a bookie that comes back can have it.
    """

    WHOLE = "whole"
    REPAIRABLE = "repairable"
    WAITING_FOR_WRITER = "waiting_for_writer"
    BLOCKED_NO_TARGET = "blocked_no_target"
    BLOCKED_RECOVERY = "blocked_recovery"
    BLOCKED_METADATA = "blocked_metadata"
    LOST_NO_SOURCE = "lost_no_source"
    LOST_WRITE_QUORUM_OF_ONE = "lost_write_quorum_of_one"
    LEDGER_GONE = "ledger_gone"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One ledger's verdict. ``bookies`` are those whose coming or coming back would change it.

    ``entry`` is the first entry that the verdict is about, -1 for none.
    """

    ledger: int
    kind: VerdictKind
    reason: str
    bookies: tuple[str, ...] = ()
    entry: int = -1

    @property
    def ends_the_work(self) -> bool:
        """Whether the mark is to be deleted: the ledger is whole, or gone."""
        return self.kind in (VerdictKind.WHOLE, VerdictKind.LEDGER_GONE)


def verdict_of_failures(ledger: int, write_quorum: int, failed: Sequence[FailedIndex]) -> Verdict:
    """Return the verdict on a ledger that still has bad indices after copies; the worst of them decides."""
    order = (CopyFailure.NO_SOURCE, CopyFailure.NO_TARGET, CopyFailure.TARGET_FAILED)
    worst = min(failed, key=lambda one: (order.index(one.failure), one.entry))
    bookies = tuple(sorted({one.bookie for one in failed}))
    names = ", ".join(bookies)
    if worst.failure is CopyFailure.NO_SOURCE:
        return verdict_without_source(ledger, write_quorum, worst, bookies)
    if worst.failure is CopyFailure.NO_TARGET:
        reason = f"no writable bookie is free to take the place of {names}"
        return Verdict(ledger, VerdictKind.BLOCKED_NO_TARGET, reason, bookies)
    reason = f"{worst.target} did not take the copies: {worst.error.message}"
    return Verdict(ledger, VerdictKind.REPAIRABLE, reason, bookies, worst.entry)


def verdict_without_source(
    ledger: int, write_quorum: int, failed: FailedIndex, bookies: tuple[str, ...]
) -> Verdict:
    """Return the verdict on a ledger with an entry that no bookie proves."""
    names = ", ".join(bookies)
    if write_quorum == 1:
        reason = (
            f"entry {failed.entry} was written to one bookie alone (write quorum 1), and {failed.bookie} "
            "does not have a good copy now"
        )
        return Verdict(ledger, VerdictKind.LOST_WRITE_QUORUM_OF_ONE, reason, bookies, failed.entry)
    missing = isinstance(failed.error, NoSuchEntryError)
    why = "every replica says that it never had it" if missing else failed.error.message
    reason = f"entry {failed.entry} is on no replica that proves it ({why}); only {names} may have it"
    return Verdict(ledger, VerdictKind.LOST_NO_SOURCE, reason, bookies, failed.entry)
