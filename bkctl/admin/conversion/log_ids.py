"""New ids for logs, where logs of several directories come into one space of ids.

DbLedgerStorage counts the logs of each ledger directory by themselves. A log has its id in its name alone, so
that another name is all that a new id takes. All logs of a directory move up by one number, so that they stay
in their order: of two records of one entry the later one counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from bkctl.admin.conversion.old_index import OldLogs
from bkctl.codec.last_id import LOG_ID_MAX
from bkctl.errors import RefusedError


def shifts_to_one_space(logs: OldLogs, last_id: int) -> list[int]:
    """Return what is added to the log ids of each directory; ``last_id`` was given out last in any of them.

    Raises RefusedError where the ids do not suffice.
    """
    shifts: list[int] = []
    used: set[int] = set()
    last = max((log.log_id for _, log in logs.every()), default=-1)
    last = max(last, last_id)
    for of in logs.of:
        shift = 0 if used.isdisjoint(of) else last + 1 - min(of)
        shifts.append(shift)
        used |= {log_id + shift for log_id in of}
        last = max(last, *used) if used else last
    refuse_beyond(last)
    return shifts


def refuse_beyond(log_id: int) -> None:
    """Raise RefusedError for an id that no log can have."""
    if log_id > LOG_ID_MAX:
        raise RefusedError(f"log ids up to {log_id:x} would be needed, and {LOG_ID_MAX:x} is the largest")


def last_of(shifts: Sequence[int], logs: OldLogs, last_id: int) -> int:
    """Return the largest id that is, or was, given out then."""
    return max([last_id, *(log.log_id + shifts[position] for position, log in logs.every())])
