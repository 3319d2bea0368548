"""The switches of a cluster's autorecovery, ours and Java's, as commands and HTTP pages turn them."""

from __future__ import annotations

from bkctl.codec.underreplication import CheckKind
from bkctl.errors import NotFoundError
from bkctl.metadata.autorecovery_api import Underreplication

#: A check that was completed at this time is due at once.
_LONG_AGO_MS = 0


def require_auditor(recorded: Underreplication) -> str:
    """Return the elected auditor. Raises NotFoundError without one."""
    auditor = recorded.auditor()
    if auditor is None:
        raise NotFoundError(
            "no auditor is elected: no autorecovery runs in this cluster; 'bkctl autorecovery start' runs one"
        )
    return auditor


def lost_bookie_recovery_delay_s(recorded: Underreplication) -> int:
    """Return the delay. Raises NotFoundError where no auditor has stored one."""
    seconds = recorded.lost_bookie_recovery_delay_s()
    if seconds is None:
        raise NotFoundError("lostBookieRecoveryDelay is not set: no auditor has run in this cluster")
    return seconds


def trigger_audit(recorded: Underreplication) -> str:
    """Have the elected auditor look at all bookies now; return its name. Raises NotFoundError."""
    auditor = require_auditor(recorded)
    recorded.set_lost_bookie_recovery_delay(lost_bookie_recovery_delay_s(recorded))
    return auditor


def trigger_check(recorded: Underreplication, kind: CheckKind) -> str:
    """Make a check of all ledgers due, and return the auditor that will make it. Raises NotFoundError.

    Our auditor reads the time stamp once a minute, Java's when it is elected. The check is not made when the
    auditor's configuration switches it off.
    """
    auditor = require_auditor(recorded)
    recorded.set_checked_at(kind, _LONG_AGO_MS)
    return auditor
