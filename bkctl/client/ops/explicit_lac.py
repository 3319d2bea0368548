"""A writer's last add confirmed in a message of its own, for bookies that no further entry brings it to.

Source: ``org.apache.bookkeeper.client.PendingWriteLacOp``.
"""

from __future__ import annotations

from functools import partial

from bkctl.client.distribution import Distribution
from bkctl.client.machine import Event, Token
from bkctl.client.ops.add_pipeline import AddPipeline
from bkctl.client.ops.exchange import Exchange
from bkctl.client.ops.ledger_access import LedgerAccess
from bkctl.client.ops.votes import Votes
from bkctl.codec.ledger_metadata import NO_ENTRY


class ExplicitLac:
    """Sends the LAC (WRITE_LAC) to its write set, unless an entry or a message has brought it there."""

    def __init__(
        self, exchange: Exchange, access: LedgerAccess, distribution: Distribution, pipeline: AddPipeline
    ) -> None:
        self._exchange = exchange
        self._access = access
        self._distribution = distribution
        self._pipeline = pipeline
        self._sent = NO_ENTRY

    def note(self, lac: int) -> None:
        """Note that the bookies get ``lac`` in another way."""
        self._sent = max(self._sent, lac)

    def flush(self, lac: int, token: Token) -> None:
        """Send ``lac``; the caller of ``token`` hears of it after Aq OKs, 0 is nobody."""
        if lac <= self._sent:
            if token:
                self._exchange.notify(token, lac)
            return
        indices = self._distribution.write_set(lac)
        votes = Votes(
            self._exchange,
            self._access,
            token,
            sent=len(indices),
            needed=self._distribution.ack_quorum,
            lac=lac,
        )
        request = self._access.write_lac_request(lac)
        for index in indices:
            bookie = self._pipeline.ensemble[index]
            self._exchange.send(bookie, request, partial(self._answered, votes, bookie))

    def _answered(self, votes: Votes, bookie: str, event: Event) -> None:
        if votes.complete(bookie, event):
            self.note(votes.lac)
            if votes.token:
                self._exchange.notify(votes.token, votes.lac)
