"""Counting the ledgers whose bookies do not stand as the placement policy wants it.

Only metadata of closed ledgers are looked at: a writer that is at work may still choose others. With
``repair_placement`` such a ledger is marked, without a bookie, for a worker that moves replicas. Marks that
are older than the grace period are counted as well.

Source: ``org.apache.bookkeeper.replication.AuditorPlacementPolicyCheckTask``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from bkctl.client.adherence import Adherence, Adheres
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import CorruptionError
from bkctl.replication.auditor_office import LedgerRow, Office
from bkctl.replication.auditor_status import Gauge
from bkctl.types import LedgerState


class PlacementCheck:
    """One check of the placement of all closed ledgers."""

    def __init__(self, office: Office, adheres: Adheres) -> None:
        self._office = office
        self._adheres = adheres

    async def run(self) -> None:
        """Count the ledgers that do not stand as the policy wants it, and set the gauges at the end.

        Raises NotElectedError and the store's errors; then the gauges stay as they were.
        """
        office = self._office
        found = dict.fromkeys((Gauge.NOT_ADHERING, Gauge.SOFTLY_ADHERING), 0)
        elapsed = await self._elapsed()
        async for group in office.ledgers():
            await office.until_enabled()
            failing = []
            # In a thread: where bookies stand may be asked of a script, or of the metadata store.
            for ledger, worst in await office.in_thread(partial(self._judged, group)):
                if isinstance(worst, CorruptionError):
                    office.note_undecodable(ledger, worst)
                elif worst is Adherence.FAIL:
                    found[Gauge.NOT_ADHERING] += 1
                    failing.append(ledger)
                elif worst is Adherence.SOFT:
                    found[Gauge.SOFTLY_ADHERING] += 1
            if office.settings.repair_placement:
                await office.mark([(ledger, ()) for ledger in failing])
        office.counts.gauges.update(found)
        office.counts.gauges[Gauge.GRACE_PERIOD_ELAPSED] = elapsed

    def _judged(self, group: Iterable[LedgerRow]) -> list[tuple[int, Adherence | CorruptionError]]:
        """Return how each ledger's bookies stand, or why its metadata cannot be read; runs in a thread."""
        judged: list[tuple[int, Adherence | CorruptionError]] = []
        for ledger, stored in group:
            if stored is None:
                judged.append((ledger, Adherence.STRICT))
            elif isinstance(stored, CorruptionError):
                judged.append((ledger, stored))
            else:
                judged.append((ledger, self._worst(stored.metadata)))
        return judged

    def _worst(self, metadata: LedgerMetadata) -> Adherence:
        if metadata.state is not LedgerState.CLOSED:
            return Adherence.STRICT
        seen = {self._adheres(segment.bookies, metadata.write_quorum) for segment in metadata.segments}
        return next((each for each in (Adherence.FAIL, Adherence.SOFT) if each in seen), Adherence.STRICT)

    async def _elapsed(self) -> int:
        """Return how many ledgers are marked for longer than the grace period."""
        office = self._office
        grace_ms = office.settings.recovery_grace_period_s * 1000
        if not grace_ms:
            return 0
        since_ms = office.clock.time_ms() - grace_ms

        def count() -> int:
            marks = office.store.underreplication.marked_ledgers()
            return sum(mark.marked_ms is not None and mark.marked_ms < since_ms for _, mark in marks)

        return await office.in_thread(count)
