"""Whether the entries that a recovery would write again could be: what its dry run asks in their place.

Each of them needs an ack quorum of its write set. A bookie that does not answer would not take an
add either, and another one would have to take its place; where nobody is there, the recovery would not end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from bkctl.client.distribution import Distribution
from bkctl.client.errors import RecoveryFailedError
from bkctl.client.machine import BookiesAre, Event, MetadataFailed
from bkctl.client.ops.exchange import Exchange
from bkctl.errors import BkctlError

#: Called with None where the entries could be written again, else with what would keep them from it.
Rehearsed = Callable[[BkctlError | None], None]


def not_written_again(ledger: int, entry: int, bookies: Collection[str]) -> RecoveryFailedError:
    """Return the error of a recovery that cannot write an entry again: these bookies do not take it."""
    return RecoveryFailedError(
        f"it could not be written again to an ack quorum: {', '.join(bookies)} failed, and no other bookie "
        "can replace them. Start these bookies, or one more bookie, and recover the ledger again",
        ledger=ledger,
        entry=entry,
    )


class RecoveryRehearsal:
    """The adds of one recovery: ``entries`` to ``ensemble``, in which the bookies of ``silent`` take none."""

    def __init__(
        self,
        exchange: Exchange,
        ledger: int,
        distribution: Distribution,
        ensemble: tuple[str, ...],
        entries: range,
        silent: Collection[str],
        done: Rehearsed,
    ) -> None:
        self._exchange = exchange
        self._ledger = ledger
        self._distribution = distribution
        self._ensemble = ensemble
        # From there on the write sets repeat.
        self._entries = entries[: distribution.ensemble_size]
        self._failing = tuple(
            index
            for index, bookie in enumerate(ensemble)
            if bookie in silent and any(distribution.holds(index, entry) for entry in self._entries)
        )
        self._done = done

    def begin(self) -> None:
        """Ask for bookies in the place of those that do not answer."""
        if not self._failing:
            self._done(None)
            return
        self._exchange.choose_bookies(
            len(self._failing),
            frozenset(self._ensemble),
            self._chosen,
            ensemble=self._ensemble,
            replace=self._failing,
            write_quorum=self._distribution.write_quorum,
        )

    def _chosen(self, event: Event) -> None:
        if isinstance(event, MetadataFailed):
            self._done(event.error)
            return
        left = self._failing[len(event.bookies) if isinstance(event, BookiesAre) else 0 :]
        for entry in self._entries:
            write_set = self._distribution.write_set(entry)
            failed = [self._ensemble[index] for index in write_set if index in left]
            if len(write_set) - len(failed) < self._distribution.ack_quorum:
                self._done(not_written_again(self._ledger, entry, failed))
                return
        self._done(None)
