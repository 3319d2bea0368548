"""A maintenance of the cluster: until it is ended, autorecovery rests and waits longer for bookies.

The record is written first and removed last, so that the earlier settings are never lost: after a crash in
between, ending the maintenance restores all of them. Autorecovery is switched off before the delay is
written, because a new delay makes an auditor check all bookies.
"""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.codec.maintenance import Maintenance
from bkctl.errors import NotFoundError
from bkctl.metadata.api import MetadataStore
from bkctl.metadata.autorecovery_api import Underreplication


@dataclass(frozen=True, slots=True)
class MaintenanceEnd:
    """The switches that were set back. ``kept`` names those that were changed during the maintenance."""

    maintenance: Maintenance
    enabled: bool
    delay_s: int | None
    kept: tuple[str, ...] = ()


def begin_maintenance(
    recorded: Underreplication, by: str, reason: str, now_ms: int, delay_s: int, *, dry_run: bool = False
) -> Maintenance:
    """Record a maintenance, switch autorecovery off and make it wait ``delay_s`` for bookies.

    A delay that is longer already stays, and so does one that was never stored: then no auditor has run.
    Raises AlreadyExistsError when a maintenance has begun.
    """
    before_s = recorded.lost_bookie_recovery_delay_s()
    longer_s = None if before_s is None or before_s >= delay_s else delay_s
    maintenance = Maintenance(by, reason, now_ms, recorded.enabled(), before_s, longer_s)
    if dry_run:
        return maintenance
    recorded.begin_maintenance(maintenance)
    recorded.set_enabled(False)
    if longer_s is not None:
        recorded.set_lost_bookie_recovery_delay(longer_s)
    return maintenance


def end_maintenance(recorded: Underreplication, *, dry_run: bool = False) -> MaintenanceEnd:
    """Set back the switches of the maintenance, except those changed since, and remove its record.

    Raises NotFoundError when no maintenance has begun.
    """
    found = recorded.maintenance()
    if found is None:
        raise NotFoundError("no maintenance has begun")
    maintenance, version = found
    enabled, delay_s = recorded.enabled(), recorded.lost_bookie_recovery_delay_s()
    kept: list[str] = []
    if maintenance.delay_s is not None and maintenance.delay_before_s is not None:
        if delay_s == maintenance.delay_s:
            delay_s = maintenance.delay_before_s
            if not dry_run:
                recorded.set_lost_bookie_recovery_delay(delay_s)
        elif delay_s != maintenance.delay_before_s:
            kept.append(f"lostBookieRecoveryDelay is {delay_s} s, which somebody has set since")
    if enabled:
        kept.append("autorecovery was enabled by somebody since")
    elif maintenance.enabled_before:
        enabled = True
        if not dry_run:
            recorded.set_enabled(True)
    if not dry_run:
        recorded.end_maintenance(version)
    return MaintenanceEnd(maintenance, enabled, delay_s, tuple(kept))


def bookies_down(store: MetadataStore) -> tuple[str, ...]:
    """Return the bookies that have a cookie and are not up, ascending: their ledgers will be copied."""
    up = set(store.registration.bookies().everyone)
    return tuple(bookie for bookie in store.cookies.cookie_bookies() if bookie not in up)
