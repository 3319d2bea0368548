"""Asking one bookie for the newest entry that it has of a ledger, named by the ledger's metadata or not.

A recovery writes entries to bookies that it has chosen in the places of others, and names these in the
metadata only when it closes the ledger.

====== =========================== =========================================================================
state  input                       next state, effect
====== =========================== =========================================================================
NEW    ``start``                   ASKING, Send
ASKING an entry, proved            FINISHED with its id
ASKING "no such entry or ledger"   FINISHED with NO_ENTRY
ASKING anything else, or no answer FINISHED with None
====== =========================== =========================================================================
"""

from __future__ import annotations

from bkctl.client.machine import Event
from bkctl.client.ops.exchange import OperationMachine
from bkctl.client.ops.ledger_access import LedgerAccess, LedgerEntry, NeverHadIt
from bkctl.codec.ledger_metadata import NO_ENTRY
from bkctl.protocol.messages import LAST_ADD_CONFIRMED


class NewestEntryMachine(OperationMachine):
    """Ask one bookie; finishes with the id of its newest entry, NO_ENTRY for none, None if not known."""

    def __init__(self, access: LedgerAccess, bookie: str) -> None:
        super().__init__()
        self._access = access
        self._bookie = bookie

    def _begin(self) -> None:
        self.exchange.send(self._bookie, self._access.read_request(LAST_ADD_CONFIRMED), self._answered)

    def _answered(self, event: Event) -> None:
        outcome = self._access.outcome(event, None, self._bookie)
        if isinstance(outcome, LedgerEntry):
            self.exchange.finish(outcome.entry)
        else:
            self.exchange.finish(NO_ENTRY if isinstance(outcome, NeverHadIt) else None)
