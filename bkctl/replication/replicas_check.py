"""Counting the ledgers whose entries have too few replicas (``auditorReplicasCheckInterval``).

All entries of all closed ledgers are read from all bookies; nothing is marked, and the check of all ledgers
finds what there is to be repaired. A ledger counts once, for the entry that is worst off: none of its
replicas is good, fewer than the ack quorum, or fewer than the write quorum.

Source: ``org.apache.bookkeeper.replication.AuditorReplicasCheckTask``.
"""

from __future__ import annotations

from typing import cast

from bkctl.client.ops.ledger_access import LedgerAccess, require_quorum_fields
from bkctl.errors import UsageError
from bkctl.metadata.api import StoredLedger
from bkctl.replication.auditor_office import Office
from bkctl.replication.auditor_status import Gauge
from bkctl.replication.fragments import fragments
from bkctl.replication.ledger_check import READS_OF_A_LEDGER, MachineRunner
from bkctl.replication.replica_count import ReplicaCountMachine
from bkctl.types import LedgerState

_GAUGES = (Gauge.NO_REPLICA, Gauge.BELOW_ACK_QUORUM, Gauge.BELOW_WRITE_QUORUM)


class ReplicasCheck:
    """One count of the replicas of all closed ledgers."""

    def __init__(self, office: Office, runner: MachineRunner) -> None:
        self._office = office
        self._runner = runner
        self._up: frozenset[str] = frozenset()
        self._found = dict.fromkeys(_GAUGES, 0)

    async def run(self) -> None:
        """Count the ledgers that lack replicas, and set the gauges at the end.

        Raises the store's errors; then the gauges stay as they were.
        """
        office = self._office
        self._up = await office.up()
        at_once = max(1, office.settings.reads_max // READS_OF_A_LEDGER)
        await office.for_each(self._count, min(at_once, office.settings.open_ledgers_max))
        office.counts.gauges.update(self._found)

    async def _count(self, stored: StoredLedger) -> None:
        metadata = stored.metadata
        if metadata.state is not LedgerState.CLOSED or metadata.digest_type is None:
            return
        try:
            require_quorum_fields(metadata, stored.ledger)
        except UsageError:
            return
        parts = tuple(fragments(metadata, metadata.last_entry))
        access = LedgerAccess.of(stored.ledger, metadata)
        machine = ReplicaCountMachine(access, metadata, parts, self._up, READS_OF_A_LEDGER)
        fewest = cast("int", await self._runner.run(machine))
        if fewest == 0:
            self._found[Gauge.NO_REPLICA] += 1
        elif fewest < metadata.ack_quorum:
            self._found[Gauge.BELOW_ACK_QUORUM] += 1
        elif fewest < metadata.write_quorum:
            self._found[Gauge.BELOW_WRITE_QUORUM] += 1
