"""The knowledge that garbage collection needs of the cluster.

The runner of the bookie connects it to metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol


class LiveRange(Protocol):
    """All ledgers of the cluster with ``first <= id <= last``."""

    @property
    def first(self) -> int:
        """Lowest id of the range."""

    @property
    def last(self) -> int:
        """Highest id of the range, at least ``first``."""

    @property
    def ledgers(self) -> Sequence[int]:
        """The ids in it that exist, ascending; there may be none."""


class LedgerDirectory(Protocol):
    """The cluster's ledgers. Every method raises BkctlError when it cannot tell; that is never an answer.

    Called from the threads of the collectors.
    """

    def ranges(self) -> Iterable[LiveRange]:
        """Return the whole id space 0 to 2^63-1 in adjoining ranges, ascending; complete, or raise."""

    def exists(self, ledger: int) -> bool:
        """Whether the ledger has metadata, by a read of its own."""

    def next_ledger(self) -> int:
        """Return the id that the cluster would generate next: every id that it has generated is lower."""

    def is_kept_here(self, ledger: int) -> bool:
        """Whether the ledger exists and its metadata name this bookie for any of its entries."""


class ReplicaDirectory(Protocol):
    """Which ledgers other bookies keep; for ledgers that were replicated away from this one."""

    def is_kept_elsewhere(self, ledger: int) -> bool:
        """Whether the ledger is closed and its metadata name other bookies only, by a read of its own."""

    def locked(self, ledger: int) -> AbstractContextManager[bool]:
        """Hold the ledger's replication lock inside; False when somebody else has it.

        Without it a replication worker may just be copying the ledger here, and name this bookie next.
        """
