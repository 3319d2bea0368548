"""The knowledge that garbage collection needs of the cluster.

The runner of the bookie connects it to metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    """The cluster's ledgers. Every method raises BkctlError when it does not know; that is never an answer.

    Called from the threads of the collectors.
    """

    def ranges(self) -> Iterable[LiveRange]:
        """Return the whole id space 0 to 2^63-1 in adjoining ranges, ascending; complete, or raise."""

    def exists(self, ledger: int) -> bool:
        """Return whether the ledger has metadata, by a read of them alone."""

    def next_ledger(self) -> int:
        """Return the id that the cluster would generate next: every id that it has generated is lower."""

    def is_kept_here(self, ledger: int) -> bool:
        """Return whether the ledger exists and its metadata name this bookie for any of its entries."""

    def kept_here(self) -> Iterator[int]:
        """Yield the ledgers of :meth:`is_kept_here`, and those whose metadata do not decode."""


class ReplicaDirectory(Protocol):
    """The ledgers that other bookies keep; for ledgers that were replicated away from this bookie."""

    def is_kept_elsewhere(self, ledger: int) -> bool:
        """Return whether the ledger is closed and kept by other bookies only, by a read of its metadata."""

    def locked(self, ledger: int) -> AbstractContextManager[bool]:
        """Hold the ledger's replication lock inside; False when somebody else has it.

        Without it a replication worker may just be copying the ledger here, and name this bookie next.
        """
