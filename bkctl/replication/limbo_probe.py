"""Asking a bookie whether it has a ledger in limbo, and fencing the ledger there; ours or Java's.

Only a ledger in limbo is answered with "unknown" for an entry that nobody can have written; every other one
with "no such entry". The fence may be among the lost records, so a closed ledger is fenced again before it
leaves limbo: it takes no plain add any more anyway.

====== =========================== =========================================================================
state  input                       next state, effect
====== =========================== =========================================================================
NEW    ``start``                   ASKING, Send
ASKING "unknown"                   FINISHED with LIMBO
ASKING "no such entry or ledger"   FINISHED with COMPLETE
ASKING anything else, or no answer FINISHED with NOT_KNOWN
====== =========================== =========================================================================
"""

from __future__ import annotations

import enum

from bkctl.client.machine import Event
from bkctl.client.ops.exchange import OperationMachine
from bkctl.client.ops.ledger_access import MISSING_CODES, LedgerAccess, answer_code
from bkctl.types import ResultCode

#: No writer comes so far.
PROBED_ENTRY = 1 << 62


class LimboAnswer(enum.Enum):
    """The answer of a bookie about a ledger's limbo."""

    COMPLETE = "complete"
    LIMBO = "limbo"
    NOT_KNOWN = "not_known"


class LimboProbeMachine(OperationMachine):
    """Ask one bookie, and fence the ledger there with ``fence``; finishes with a :class:`LimboAnswer`."""

    def __init__(self, access: LedgerAccess, bookie: str, *, fence: bool = False) -> None:
        super().__init__()
        self._bookie = bookie
        self._request = access.read_request(PROBED_ENTRY, fence=fence)

    def _begin(self) -> None:
        self.exchange.send(self._bookie, self._request, self._answered)

    def _answered(self, event: Event) -> None:
        code = answer_code(event)
        if code is ResultCode.UNKNOWN_LEDGER_STATE:
            self.exchange.finish(LimboAnswer.LIMBO)
        elif code in MISSING_CODES:
            self.exchange.finish(LimboAnswer.COMPLETE)
        else:
            self.exchange.finish(LimboAnswer.NOT_KNOWN)
