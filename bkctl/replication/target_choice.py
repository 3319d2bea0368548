"""Asking who would take the places of bookies of a fragment, without copying anything.

======== ========= =========================================================================================
state    input     next state, effect
======== ========= =========================================================================================
NEW      ``start`` CHOOSING, ChooseBookies
CHOOSING bookies   FINISHED with them
CHOOSING an error  FINISHED with ClientError
======== ========= =========================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence

from bkctl.client.errors import ClientError
from bkctl.client.machine import BookiesAre, Event, MetadataFailed
from bkctl.client.ops.exchange import OperationMachine
from bkctl.replication.fragments import Fragment


class TargetChoiceMachine(OperationMachine):
    """Choose as a copy does; finishes with a tuple of bookies, too few where they are wanting."""

    def __init__(
        self, fragment: Fragment, indices: Sequence[int], exclude: frozenset[str], write_quorum: int
    ) -> None:
        super().__init__()
        self._fragment = fragment
        self._indices = tuple(indices)
        self._exclude = exclude
        self._write_quorum = write_quorum

    def _begin(self) -> None:
        self.exchange.choose_bookies(
            len(self._indices),
            self._exclude | set(self._fragment.bookies),
            self._chosen,
            ensemble=self._fragment.bookies,
            replace=self._indices,
            write_quorum=self._write_quorum,
        )

    def _chosen(self, event: Event) -> None:
        if isinstance(event, MetadataFailed):
            self.exchange.finish(error=ClientError(f"no bookie can be chosen: {event.error}"))
            return
        self.exchange.finish(event.bookies if isinstance(event, BookiesAre) else ())
