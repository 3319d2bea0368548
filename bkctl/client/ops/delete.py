"""Deleting a ledger: its metadata goes, bookies find out by garbage collection.

======== ========================== ========================================================================
state    input                      next state, effect
======== ========================== ========================================================================
NEW      ``start``                  DELETING, DeleteMetadata of the version that was read
DELETING the ledger has no metadata FINISHED
DELETING the outcome is not known   RESTING, SetTimer, twice as long each time; FINISHED with the error
                                    behind UNKNOWN_MAX of these
DELETING any other error            FINISHED with the error
RESTING  the timer                  DELETING, DeleteMetadata of the same version
======== ========================== ========================================================================

Source: ``org.apache.bookkeeper.client.LedgerDeleteOp``.
"""

from __future__ import annotations

from bkctl.client.errors import ClientError
from bkctl.client.machine import Event, MetadataFailed, MetadataGone
from bkctl.client.ops.exchange import OperationMachine
from bkctl.client.ops.metadata_update import PAUSE_S, UNKNOWN_MAX
from bkctl.errors import ConnectionFailedError


class DeleteMachine(OperationMachine):
    """Delete the ledger that was read with ``version``; finishes with None. One that is gone is fine.

    Errors: VersionConflictError when it was changed since it was read, those of the metadata store. A lost
    answer is followed by another try: nothing else can have the version.
    """

    def __init__(self, ledger: int, version: int) -> None:
        super().__init__()
        self._ledger = ledger
        self._version = version
        self._unknown = 0

    def _begin(self) -> None:
        self.exchange.delete_metadata(self._ledger, self._version, self._ended)

    def _ended(self, event: Event) -> None:
        if isinstance(event, MetadataGone):
            self.exchange.finish()
        elif not isinstance(event, MetadataFailed):
            self.exchange.finish(error=ClientError("it could not be deleted", ledger=self._ledger))
        elif isinstance(event.error, ConnectionFailedError) and self._unknown < UNKNOWN_MAX:
            self._unknown += 1
            self.exchange.set_timer(PAUSE_S * 2 ** (self._unknown - 1), lambda _: self._begin())
        else:
            self.exchange.finish(error=event.error)
