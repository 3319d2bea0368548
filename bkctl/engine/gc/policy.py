"""The decisions of garbage collection, without clock, thread, disk or network.

A ledger goes on two independent proofs: a complete listing of the cluster does not have it (:func:`absent`),
and a read of the ledger itself says that it does not exist. A pass that would delete surprisingly much stops
instead (:func:`too_many`). A log goes when none of its ledgers is alive; others are compacted below a
threshold of live bytes, the emptiest first (:func:`compaction_order`).

Source: ``org.apache.bookkeeper.bookie.ScanAndCompareGarbageCollector`` and ``GarbageCollectorThread``.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from bkctl.config.server_keys.garbage import CompactionSettings, GcSettings
from bkctl.engine.gc.ports import LiveRange
from bkctl.errors import RefusedError
from bkctl.ledger_set import LedgerSet

#: Highest ledger id.
LEDGER_MAX = (1 << 63) - 1


class IncompleteListingError(RefusedError):
    """A listing of the cluster's ledgers with gaps, or out of order: nothing is deleted because of it."""


def absent(local: Iterable[int], ranges: Iterable[LiveRange], *, also: Iterable[int] = ()) -> array[int]:
    """Return the ids of ``local`` and ``also`` that the listing lacks, ascending, without negative ones.

    Raises IncompleteListingError unless the ranges adjoin each other from 0 to the highest id, with ids
    ascending inside their range. An iterator that ends early, skips a range, or comes in the order of the
    ids' digits is none to delete by. Errors of the iterator are passed on.
    """
    left = local.copy() if isinstance(local, LedgerSet) else LedgerSet(local)
    left.update(also)
    try:
        expected_first = 0
        for part in ranges:
            if part.first != expected_first or part.last < part.first:
                raise IncompleteListingError(
                    f"the listing of ledgers goes on at {part.first} to {part.last}"
                    f" where {expected_first} is due"
                )
            left.discard_all(_ascending(part))
            expected_first = part.last + 1
        if expected_first <= LEDGER_MAX:
            raise IncompleteListingError(f"the listing of ledgers ends before {expected_first}")
        # A list of a million numbers is freed in one call that takes long; these are no objects.
        return array("q", (ledger for ledger in left.in_order() if ledger >= 0))
    finally:
        left.clear()


def _ascending(part: LiveRange) -> Sequence[int]:
    ids = part.ledgers
    if ids and (ids[0] < part.first or ids[-1] > part.last):
        raise IncompleteListingError(
            f"ledgers {ids[0]} to {ids[-1]} in the range {part.first} to {part.last}"
        )
    before = -1
    for ledger in ids:
        if ledger <= before:
            raise IncompleteListingError(f"ledger {ledger} follows {before} in a listing")
        before = ledger
    return ids


def too_many(deletions: int, ledgers: int, settings: GcSettings) -> bool:
    """Return whether so many deletions of so many ledgers want a confirmation.

    That is a sign of an empty cluster: the wrong root, a reformatted one, an old snapshot.
    """
    share = deletions > ledgers * settings.deletions_share_max
    return share and deletions > settings.deletions_ledgers_max


# --- compaction ---------------------------------------------------------------------------------------------


class Kind(enum.Enum):
    """The kind of a compaction; the value is the word in JSON."""

    MINOR = "minor"
    MAJOR = "major"


@dataclass(frozen=True, slots=True)
class Request:
    """The pass that somebody asked for. Without ``major`` or ``minor`` it is a collection alone.

    ``overrides`` is a request that names the kinds: it is met also while they are suspended."""

    major: bool = False
    minor: bool = False
    overrides: bool = False

    def joined(self, other: Request | None) -> Request:
        """Return a request for everything that the two requests ask for."""
        if other is None:
            return self
        return Request(
            self.major or other.major, self.minor or other.minor, self.overrides or other.overrides
        )


@dataclass(frozen=True, slots=True)
class Due:
    """The facts known of one kind of compaction when a pass decides."""

    settings: CompactionSettings
    since_last_ms: float
    suspended: bool


def choose(
    minor: Due, major: Due, request: Request | None, *, compact_when_off: bool
) -> tuple[Kind | None, str]:
    """Choose the compaction that runs now; return it, or None, with the reason.

    A request is met whatever the time since the last one; one for a kind that is off by its interval is met
    with ``compact_when_off``. A suspended kind runs only on a request that overrides that. A major compaction
    takes the logs of a minor one as well, so it goes first.
    """
    reasons = []
    for kind, due, asked in (
        (Kind.MAJOR, major, request is not None and request.major),
        (Kind.MINOR, minor, request is not None and request.minor),
    ):
        overridden = asked and request is not None and request.overrides
        if asked and due.settings.has_threshold and (overridden or not due.suspended):
            if due.settings.enabled or compact_when_off:
                return kind, "asked for"
            reasons.append(f"{kind.value} is off by its interval")
            continue
        obstacle = obstacle_of(kind, due)
        if not obstacle:
            return kind, "its interval is over"
        reasons.append(obstacle)
    return None, ", ".join(reasons)


def obstacle_of(kind: Kind, due: Due) -> str:
    """Return the reason why a compaction does not run by itself now; empty when it does."""
    if due.suspended:
        return f"{kind.value} is suspended"
    if not due.settings.has_threshold:
        return f"{kind.value} is off by its threshold"
    if not due.settings.enabled:
        return f"{kind.value} is off by its interval"
    left_s = (due.settings.interval_ms - due.since_last_ms) / 1000
    return f"{kind.value} is due in {left_s:.0f} s" if left_s > 0 else ""


class LogShare(Protocol):
    """The figures of a log that decide about its compaction.

    :class:`bkctl.engine.gc.log_usage.LogUsage` is one such set.
    """

    @property
    def log_id(self) -> int:
        """The log."""

    @property
    def file_bytes(self) -> int:
        """The bytes that the removal of the file gives back."""

    @property
    def remaining_bytes(self) -> int:
        """The bytes that a compaction has to copy."""

    def usage(self, log_size_bytes: int | None = None) -> float:
        """Return the live fraction, 0 to 1; with ``log_size_bytes`` of a log of at least that size."""


_Share = TypeVar("_Share", bound=LogShare)


def compaction_order(
    usages: Iterable[_Share], threshold: float, *, log_size_bytes: int | None = None, scarce: bool = False
) -> list[_Share]:
    """Return the logs below the threshold in the order in which they are compacted.

    The emptiest first; with ``scarce`` disk space the one that gives back most bytes for each that has to be
    copied. Equals go by their id.
    """
    chosen = [usage for usage in usages if usage.usage(log_size_bytes) < threshold]
    if scarce:
        # Ascending by the bytes copied for each byte won. The inverse would divide by zero where nothing is
        # copied.
        return sorted(chosen, key=lambda each: (_cost(each), each.log_id))
    return sorted(chosen, key=lambda each: (each.usage(log_size_bytes), each.log_id))


def _cost(usage: LogShare) -> float:
    freed_bytes = usage.file_bytes - usage.remaining_bytes
    return usage.remaining_bytes / freed_bytes if freed_bytes > 0 else float("inf")


def fits(size_bytes: int, free_bytes: int, settings: GcSettings) -> bool:
    """Return whether a disk has room for a copy of so many bytes."""
    return size_bytes + settings.free_bytes_min <= free_bytes


class RateLimit:
    """Spreads work evenly: so many units a second, without saving up what was not used.

    One unit may be larger than a second's worth; it is waited for afterwards.
    """

    def __init__(self, units_per_s: int | None) -> None:
        self._units_per_s = units_per_s
        self._free_at_s = float("-inf")

    def wait_s(self, units: int, now_s: float) -> float:
        """Return the seconds to wait before ``units`` of work that is done at once then."""
        if self._units_per_s is None:
            return 0.0
        start_s = max(self._free_at_s, now_s)
        self._free_at_s = start_s + units / self._units_per_s
        return start_s - now_s
