"""The ledgers of a directory that are gone, and their deletion.

The ledgers are noted before the cluster is asked, so that a ledger that is created later is in neither. A
ledger that the index does not know counts as dead only if the cluster does not know it either, or does not
keep it here. While locations of it are left, a read of the ledger itself has to say so: an index that was
lost or rebuilt by half must not cost the logs.

A ledger that the cluster does not have although it would be its next id to generate, or a later one, says
that the metadata store was brought back from an older copy, or that a client chose the id. Which of the two
only an operator knows: no listing is believed until the deletions are confirmed.

Source: ``org.apache.bookkeeper.bookie.ScanAndCompareGarbageCollector``.
"""

from __future__ import annotations

import logging
import threading
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import TypeVar

from bkctl.clock import Clock
from bkctl.config.server_keys.garbage import GcSettings
from bkctl.engine.gc import policy
from bkctl.engine.gc.pace import Pace, StoppedError
from bkctl.engine.gc.policy import RateLimit
from bkctl.engine.gc.ports import LedgerDirectory, ReplicaDirectory
from bkctl.engine.gc.reports import GcMeters, PassReport
from bkctl.engine.ledger_storage import LogKeeper
from bkctl.errors import BkctlError, StorageError, SyncError
from bkctl.ledger_set import LedgerSet
from bkctl.reporting import counted

_log = logging.getLogger(__name__)

#: Deletions that wait for a flush at most: their memory grows in single calls.
FLUSH_LEDGERS = 50_000

_Answer = TypeVar("_Answer")


class LedgerSweep:
    """Deletes ledgers of one directory; :meth:`sweep` is called by the collector's thread alone."""

    def __init__(
        self,
        storage: LogKeeper,
        cluster: LedgerDirectory,
        *,
        clock: Clock,
        settings: GcSettings,
        delete_ledger: Callable[[int], bool],
        pace: Pace,
        meters: GcMeters,
        replicas: ReplicaDirectory | None = None,
    ) -> None:
        #: Ledgers with bytes in the logs that the last sweep has neither found in the index nor dead. Where
        #: the index has lost them, the logs have all there is.
        self.undecided = LedgerSet()
        self._storage = storage
        self._cluster = cluster
        self._clock = clock
        self._settings = settings
        self._delete_ledger = delete_ledger
        self._pace = pace
        self._meters = meters
        self._replicas = replicas
        self._surplus_s = clock.monotonic()
        self._metadata_reads = RateLimit(settings.metadata_reads_per_s)
        self._lock = threading.Lock()
        self._confirmed = LedgerSet()
        self._held = LedgerSet()
        # Ledgers that were too new for the store when they were found missing, until an operator confirms
        # them: the store may have generated their ids once more since.
        self._too_new = LedgerSet()
        self._gone_for_sure = LedgerSet()

    @property
    def held(self) -> int:
        """The number of deletions that wait for a confirmation."""
        with self._lock:
            return len(self._held)

    def confirm(self) -> int:
        """Let the next sweep delete the ledgers that the last one held back; return their number."""
        with self._lock:
            self._confirmed = self._held
            return len(self._confirmed)

    def sweep(
        self, report: PassReport, in_logs: LedgerSet, in_phase: Callable[[str], None]
    ) -> Collection[int]:
        """Delete the ledgers that are gone; return those whose bytes in the logs are dead.

        ``in_logs`` are the ledgers with bytes in the logs; the set is emptied. ``in_phase`` is called with
        the name of each phase.
        """
        indexed = self._storage.ledgers.ledgers()
        unknown = in_logs - indexed
        in_logs.clear()
        try:
            dead = self._sweep(report, indexed, unknown, in_phase)
            self.undecided = unknown - LedgerSet(dead)
            return dead
        finally:
            indexed.clear()

    def _sweep(
        self, report: PassReport, indexed: LedgerSet, unknown: LedgerSet, in_phase: Callable[[str], None]
    ) -> Collection[int]:
        """Sweep ledgers that the index has, and others that have bytes in the logs.

        Deletes the ledgers that are gone, and returns those whose bytes in the logs are dead.
        """
        report.ledgers = len(indexed)
        in_phase("listing")
        missing = self._answer(
            report,
            "no ledger is deleted",
            lambda: policy.absent(indexed, self._cluster.ranges(), also=unknown),
        )
        if missing is None:
            self._meters.listing_failures += 1
            return ()
        self._pace.check()
        gone = array("q", (ledger for ledger in missing if ledger in indexed))
        if not self._compare_with_next_id(report, missing, indexed):
            return ()
        surplus = self._find_surplus(report, indexed, gone)
        if self._hold(report, chain(gone, surplus), len(indexed)):
            return ()
        in_phase("deleting")
        deleted = self._delete_ledgers(report, gone) | self._delete_surplus(report, surplus)
        unlisted = unknown & LedgerSet(missing)
        dead, found = self._proven_gone(report, array("q", unlisted.in_order()))
        dead |= self._not_kept_here(report, array("q", ((unknown - unlisted) | found).in_order()))
        if deleted:
            self._make_deletions_durable()
        # A ledger that was created again under its id since, or whose deletion was not durable, is alive.
        return LedgerSet(ledger for ledger in dead | deleted if ledger not in self._storage.ledgers)

    def _compare_with_next_id(self, report: PassReport, missing: Sequence[int], indexed: LedgerSet) -> bool:
        """Note the missing ledgers that are too new for the store; False when its next id is not known.

        A ledger that has neither a row nor a location was deleted here, when the cluster still knew it.
        """
        if not missing:
            self._too_new, self._gone_for_sure = LedgerSet(), LedgerSet()
            return True
        upcoming = self._answer(report, "no ledger is deleted", self._cluster.next_ledger)
        if upcoming is None:
            self._meters.listing_failures += 1
            return False
        newer = LedgerSet(
            ledger
            for ledger in missing
            if ledger >= upcoming
            and (ledger in indexed or self._storage.locations.last_entry(ledger) is not None)
        )
        still_missing = LedgerSet(missing)
        self._gone_for_sure &= still_missing
        self._too_new = ((self._too_new & still_missing) | newer) - self._gone_for_sure
        return True

    def _hold(self, report: PassReport, gone: Iterable[int], ledgers: int) -> bool:
        """Return whether so many ledgers would go, or so new ones, that an operator has to confirm it."""
        going = LedgerSet(gone)
        wanted = self._too_new | going
        with self._lock:
            confirmed, self._confirmed = self._confirmed, LedgerSet()
            too_new = not confirmed.issuperset(self._too_new)
            too_many = policy.too_many(len(going), ledgers, self._settings) and not confirmed.issuperset(
                going
            )
            self._held = wanted if too_new or too_many else LedgerSet()
        self._meters.held_deletions = report.held_deletions = len(self._held)
        if too_new:
            report.listing_failed = (
                f"ledger {min(self._too_new)} is here, but the metadata store does not have it, and would"
                " not generate a later id next: the store was brought back from an older copy, or a client"
                " chose the id"
            )
            _log.critical(
                "%s: garbage collection STOPPED: %s. If these ledgers were deleted, confirm it: bkctl "
                "bookie gc --confirm-deletions. If not, restore the lost metadata ('bkctl ledger restore')",
                self._storage.directory,
                report.listing_failed,
            )
            return True
        self._gone_for_sure |= self._too_new
        self._too_new = LedgerSet()
        if too_many:
            _log.critical(
                "%s: garbage collection STOPPED: %d of %d ledgers are missing from the metadata store. If"
                " they were deleted, confirm it: bkctl bookie gc --confirm-deletions. If not, this bookie"
                " uses the wrong store, or the store was emptied",
                self._storage.directory,
                len(going),
                ledgers,
            )
        return too_many

    def _delete_ledgers(self, report: PassReport, gone: Sequence[int]) -> LedgerSet:
        """Ask for the second proof that ledgers are gone, and delete those that are."""
        deleted = LedgerSet()
        for ledger in gone:
            exists = self._exists(report, ledger)
            if exists is None:
                break
            if exists or not self._delete_ledger(ledger):
                report.spared_ledgers += 1
                continue
            deleted.add(ledger)
            if not len(deleted) % FLUSH_LEDGERS:
                self._make_deletions_durable()
        report.deleted_ledgers += len(deleted)
        self._meters.deleted_ledgers += len(deleted)
        return deleted

    def _proven_gone(self, report: PassReport, missing: Sequence[int]) -> tuple[LedgerSet, LedgerSet]:
        """Split missing ledgers into those that are gone, and those that a read finds all the same.

        Neither the ledger index nor the listing has any of them. A ledger without a location was deleted
        here; the row of any other ledger may have been lost.
        """
        gone, found = LedgerSet(), LedgerSet()
        for ledger in missing:
            self._pace.check()
            if self._storage.locations.last_entry(ledger) is not None:
                exists = self._exists(report, ledger)
                if exists is None:
                    break
                if exists:
                    found.add(ledger)
                    continue
            gone.add(ledger)
        return gone, found

    def _exists(self, report: PassReport, ledger: int) -> bool | None:
        """Return whether a read of the ledger itself finds it; None for an error."""
        exists = self._ask(report, f"ledger {ledger} is not deleted", self._cluster.exists, ledger)
        if exists is None:
            self._meters.listing_failures += 1
        return exists

    def _find_surplus(self, report: PassReport, indexed: LedgerSet, gone: Sequence[int]) -> Sequence[int]:
        """Find the ledgers that only other bookies seem to keep.

        No lock is taken for the rest, which are most of the ledgers.
        """
        since_ms = (self._clock.monotonic() - self._surplus_s) * 1000
        if self._replicas is None or not 0 < self._settings.surplus_interval_ms <= since_ms:
            return []
        self._surplus_s = self._clock.monotonic()
        surplus = array("q")
        there = indexed - LedgerSet(gone)
        for ledger in there:
            elsewhere = self._ask(report, f"ledger {ledger} stays", self._replicas.is_kept_elsewhere, ledger)
            if elsewhere is None:
                break
            if elsewhere:
                surplus.append(ledger)
        return surplus

    def _delete_surplus(self, report: PassReport, surplus: Sequence[int]) -> LedgerSet:
        """Delete surplus ledgers after a second read of each, under the lock of its replication."""
        deleted = LedgerSet()
        replicas = self._replicas
        if replicas is None:
            return deleted

        def ask(ledger: int) -> bool:
            with replicas.locked(ledger) as mine:
                if mine and replicas.is_kept_elsewhere(ledger) and self._delete_ledger(ledger):
                    deleted.add(ledger)
            return ledger in deleted

        for ledger in surplus:
            if self._ask(report, f"ledger {ledger} stays", ask, ledger) is None:
                break
        report.surplus_ledgers = len(deleted)
        self._meters.deleted_ledgers += len(deleted)
        return deleted

    def _make_deletions_durable(self) -> None:
        """Make the deletion of the ledgers' rows durable before any of their logs is removed."""
        try:
            self._storage.flush()
        except SyncError:
            raise
        except StorageError as error:
            # Most likely the disk is full, and only the removal of logs makes room. After a crash such a
            # ledger is back without entries, and is deleted again.
            _log.warning("%s: deletions are not durable yet: %s", self._storage.directory, error)

    def _not_kept_here(self, report: PassReport, unknown: Sequence[int]) -> LedgerSet:
        """Find the ledgers that need not be here, of those that exist and that the index does not know."""
        dead = LedgerSet()
        for ledger in unknown:
            kept = self._ask(report, f"bytes of ledger {ledger} stay", self._cluster.is_kept_here, ledger)
            if kept is None:
                break
            if not kept:
                dead.add(ledger)
        report.unindexed_ledgers = len(unknown) - len(dead)
        if report.unindexed_ledgers:
            _log.error(
                "%s: %s here, but the ledger index does not know %s: it is incomplete, rebuild it",
                self._storage.directory,
                counted(
                    report.unindexed_ledgers,
                    "ledger has entries in the logs and belongs",
                    "ledgers have entries in the logs and belong",
                ),
                "it" if report.unindexed_ledgers == 1 else "them",
            )
        return dead

    def _ask(
        self, report: PassReport, consequence: str, question: Callable[[int], bool], ledger: int
    ) -> bool | None:
        """Return the cluster's answer about one ledger, as fast as metadata may be read; None for an error.

        After an error a store that is down is not asked again.
        """
        self._pace.wait(self._metadata_reads.wait_s(1, self._clock.monotonic()))
        return self._answer(report, consequence, lambda: question(ledger))

    def _answer(
        self, report: PassReport, consequence: str, question: Callable[[], _Answer]
    ) -> _Answer | None:
        """Return the cluster's answer; None for an error, which is no answer and is in the report."""
        try:
            with self._pace.asked():
                return question()
        except StoppedError:
            raise
        except BkctlError as error:
            report.listing_failed = str(error)
            _log.error("%s: %s: %s", self._storage.directory, consequence, error)
            return None
