"""The answers to one request that goes to several bookies: enough OKs, or too many others."""

from __future__ import annotations

from bkctl.client.machine import Event, Token
from bkctl.client.ops.exchange import Exchange
from bkctl.client.ops.ledger_access import LedgerAccess, answer_code
from bkctl.types import ResultCode


class Votes:
    """Counts the answers to a request about ``lac``, of ``sent`` bookies of which ``needed`` have to say OK.

    The caller of ``token`` gets the error with which too few bookies are left; 0 is nobody.
    """

    def __init__(
        self, exchange: Exchange, access: LedgerAccess, token: Token, *, sent: int, needed: int, lac: int
    ) -> None:
        self._exchange = exchange
        self._access = access
        self._spare = sent - needed
        self._needed = needed
        self._over = False
        self.token = token
        self.lac = lac

    def complete(self, bookie: str, event: Event) -> bool:
        """Take an answer; return whether it is the last OK that was missing."""
        if self._over:
            return False
        if answer_code(event) is ResultCode.OK:
            self._needed -= 1
        else:
            self._spare -= 1
        self._over = self._needed == 0 or self._spare < 0
        if self._spare < 0 and self.token:
            self._exchange.notify(self.token, error=self._access.failure(event, self.lac, bookie))
        return self._needed == 0
