"""The work that a replication worker has done and is at, for metrics and for people.

The counters' names in Java's metrics, behind ``replication_worker_`` (standalone) or
``replication_replication_worker_`` (in a bookie):

========================== ===========================================================================
field                      metric
========================== ===========================================================================
rereplicated               rereplicate_count, success="true"
rereplicate_failed         rereplicate_count, success="false"
rereplicated_s             rereplicate_sum, success="true" (ms there)
ledgers_replicated         NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED
entries_read               NUM_ENTRIES_READ
bytes_read                 NUM_BYTES_READ_sum, success="true"; entries_read is its count
entries_written            NUM_ENTRIES_WRITTEN
bytes_written              NUM_BYTES_WRITTEN_sum, success="true"; entries_written is its count
entries_unreadable         NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION
read_s                     READ_DATA_LATENCY_sum, success="true" (ms there); entries_read is its count
write_s                    WRITE_DATA_LATENCY_sum, success="true" (ms there); entries_written is its count
ledgers_mended             NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED
locks_kept                 NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER
========================== ===========================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from bkctl.replication.verdict import Verdict


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A snapshot. ``at_work`` are ledgers being repaired, ``resting`` the verdicts of those whose locks are
    kept, ``postponed`` how many rest without a lock. ``last_error`` is the metadata store's, "" since it
    answered.
    """

    running: bool
    at_work: tuple[int, ...]
    resting: tuple[Verdict, ...]
    postponed: int
    last_error: str
    sessions_lost: int
    rereplicated: int
    rereplicate_failed: int
    rereplicated_s: float
    ledgers_replicated: int
    ledgers_recovered: int
    entries_read: int
    bytes_read: int
    entries_written: int
    bytes_written: int
    entries_unreadable: int
    locks_kept: int
    read_s: float = 0.0
    write_s: float = 0.0
    ledgers_mended: int = 0
