"""Notes what adds that were appended say of their ledgers: last adds confirmed, use, counts.

Nothing of it decides about an entry: it is in the write cache and on its way to the journal by now.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterable

from bkctl.clock import Clock
from bkctl.engine.add_run import AddRun, RecordRun
from bkctl.engine.engine_thread import Actions
from bkctl.engine.ledger_descriptor import LedgerDescriptor
from bkctl.engine.ledger_table import LedgerTable
from bkctl.metrics.busiest_ledgers import BusiestLedgers
from bkctl.metrics.stage import StageMeter


class AddNotes:
    """Under the engine lock only. ``meter`` counts the adds that were appended."""

    def __init__(self, table: LedgerTable, clock: Clock, meter: StageMeter) -> None:
        self.busiest = BusiestLedgers(clock.monotonic)
        self._table = table
        self._clock = clock
        self._meter = meter

    def run(
        self,
        run: AddRun,
        descriptors: list[LedgerDescriptor],
        ledgers: set[LedgerDescriptor],
        actions: Actions,
    ) -> None:
        """Note what a run that was appended says of its ledgers."""
        self._raise_lacs(descriptors, ledgers, run.bodies, actions)
        if len(ledgers) == 1:
            self.busiest.add(descriptors[0].ledger, len(run.keys), run.size_bytes)
        else:
            counts = Counter(descriptors)
            self._count_adds(counts, counts.values(), run.size_bytes)
        self._meter.done += len(run.keys)

    def records(self, run: RecordRun, places: bytes, actions: Actions) -> None:
        """Do what :meth:`run` does, of a run in one piece."""
        entry_bytes = run.size_bytes / run.count
        watched, uncounted = self._table.grants.note(
            places, run.lacs, run.counts, entry_bytes, self.busiest.generation
        )
        # A ledger may come more than once: only now is its LAC the highest one.
        self._note_use(watched, actions)
        for descriptor, adds in uncounted:
            descriptor.counter = self.busiest.add(descriptor.ledger, adds, adds * entry_bytes)
        self._meter.done += run.count

    def single(self, descriptor: LedgerDescriptor, body: bytes, actions: Actions) -> None:
        """Do what :meth:`run` does, of one add."""
        self._raise_lacs([descriptor], {descriptor}, [body], actions)
        self.busiest.add(descriptor.ledger, 1, len(body))
        self._meter.done += 1

    def _raise_lacs(
        self,
        descriptors: list[LedgerDescriptor],
        ledgers: set[LedgerDescriptor],
        bodies: list[bytes],
        actions: Actions,
    ) -> None:
        """Take the LAC fields of added entries into account, and wake the watches that wait for them.

        ``descriptors`` are those of the bodies, ``ledgers`` the same ones, each once.
        """
        lacs = struct.unpack(f">{len(bodies)}q", b"".join([body[16:24] for body in bodies]))
        if len(ledgers) == 1:
            descriptors[0].raise_lac(max(lacs))
        else:
            for descriptor, lac in zip(descriptors, lacs, strict=True):
                if lac > descriptor.lac:
                    descriptor.lac = lac
        self._note_use(ledgers, actions)

    def _note_use(self, ledgers: Iterable[LedgerDescriptor], actions: Actions) -> None:
        """Note that ledgers have got entries, and wake the watches that wait for their LACs."""
        for descriptor in ledgers:
            descriptor.used = True
            if descriptor.watches is not None:
                actions.extend(descriptor.due_watches(self._clock.time_ms()))

    def _count_adds(
        self, ledgers: Iterable[LedgerDescriptor], counts: Collection[int], size_bytes: int
    ) -> None:
        """Count the adds of a run by ledger; the bytes are shared by entries."""
        entry_bytes = size_bytes / sum(counts)
        for descriptor, adds in zip(ledgers, counts, strict=True):
            self.busiest.add(descriptor.ledger, adds, adds * entry_bytes)
