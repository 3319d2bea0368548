"""Copying entries to bookies that the metadata name already, each from replicas that the digest proves.

Nothing but entries is written: with the recovery flag, which lets a copy pass a fence and lets it take the
place of a damaged one, because the index then points at the new record. Each copy is read back.

======= ====================== =============================================================================
state   input                  next state, effect
======= ====================== =============================================================================
NEW     ``start``              COPYING, an EntryCopy of the first entry
COPYING an entry has ended     COPYING, an EntryCopy of each next one, as many as the bounds allow
COPYING the last one has ended FINISHED with the failed copies
======= ====================== =============================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bkctl.client.errors import ClientError
from bkctl.client.ops.exchange import OperationMachine
from bkctl.client.ops.ledger_access import LedgerAccess
from bkctl.errors import UsageError
from bkctl.replication.entry_copy import CopyCounts, CopyRules, EntryCopy
from bkctl.replication.rate import ByteRate


@dataclass(frozen=True, slots=True)
class WantedCopies:
    """An entry, the bookies that prove it, and the bookies that are to get it."""

    entry: int
    sources: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FailedCopy:
    """An entry that a target did not get; ``target`` is empty where it could not be read from any source."""

    entry: int
    target: str
    error: ClientError


@dataclass(frozen=True, slots=True)
class CopyBounds:
    """At most ``entries_max`` entries, of about ``bytes_max`` bytes, are under way at once."""

    entries_max: int = 32
    bytes_max: int = 16 << 20

    def __post_init__(self) -> None:
        if self.entries_max < 1 or self.bytes_max < 1:
            raise UsageError("entries_max and bytes_max must be 1 or more")


class ReplicaCopyMachine(OperationMachine):
    """Copy entries; finishes with a tuple of :class:`FailedCopy`, by entry. It never fails as a whole."""

    def __init__(
        self,
        access: LedgerAccess,
        wanted: Sequence[WantedCopies],
        rate: ByteRate,
        bounds: CopyBounds | None = None,
        counts: CopyCounts | None = None,
    ) -> None:
        super().__init__()
        self._bounds = bounds or CopyBounds()
        self._rules = CopyRules(access, rate, None, counts=counts or CopyCounts())
        self._waiting = iter(wanted)
        self._copies: set[EntryCopy] = set()
        self._failed: list[FailedCopy] = []
        self._done = 0
        self._largest_bytes = 1024
        self._filling = False

    def _begin(self) -> None:
        self._copy_on()

    def _copy_on(self) -> None:
        if self._filling:
            return
        self._filling = True
        while self._has_room():
            wanted = next(self._waiting, None)
            if wanted is None:
                break
            self._begin_entry(wanted)
        self._filling = False
        if not self._copies:
            self.exchange.finish(tuple(sorted(self._failed, key=lambda one: (one.entry, one.target))))

    def _has_room(self) -> bool:
        if len(self._copies) >= min(self._bounds.entries_max, 1 + self._done):
            return False
        held = sum(copy.held_bytes or self._largest_bytes for copy in self._copies)
        return not self._copies or held + self._largest_bytes <= self._bounds.bytes_max

    def _begin_entry(self, wanted: WantedCopies) -> None:
        copy = EntryCopy(
            self.exchange,
            self._rules,
            wanted.entry,
            wanted.sources,
            wanted.targets,
            no_source=lambda entry, error: self._note(entry, "", error),
            target_failed=self._note,
            done=self._entry_done,
        )
        self._copies.add(copy)
        copy.begin()

    def _note(self, entry: int, target: str, error: ClientError) -> None:
        self._failed.append(FailedCopy(entry, target, error))

    def _entry_done(self, copy: EntryCopy) -> None:
        self._copies.discard(copy)
        self._done += 1
        self._largest_bytes = max(self._largest_bytes, copy.held_bytes)
        self._copy_on()
