"""The writer of a ledger who chooses the ids of entries: ``LedgerHandleAdv``.

Entries may come in any order and go out at once. They are acknowledged in the order of their ids, so that a
gap holds back what lies above it, and the LAC never passes one. An id can be used once. Closing fails what
lies above a gap: the ledger ends behind the last entry without one below.

An entry's header counts the payload bytes that were *sent* before it, in whatever order, as Java's does; the
length of the closed ledger is that of the entries in it.

Source: ``org.apache.bookkeeper.client.LedgerHandleAdv``.
"""

from __future__ import annotations

from bkctl.client.errors import DuplicateEntryError
from bkctl.client.ops.write import Appended, WriteMachine
from bkctl.errors import UsageError

#: Ids are signed numbers of 64 bits, the last one is left for "behind the last".
ENTRY_MAX = 2**63 - 2


class AdvWriteMachine(WriteMachine):
    """A :class:`WriteMachine` to which the caller gives the id of every entry."""

    def append(self, data: bytes) -> Appended:
        """Refuse an append without an id (UsageError): see :meth:`append_at`."""
        raise UsageError(f"ledger {self.access.ledger}: its writer chooses the ids of entries; give one")

    def append_at(self, entry: int, data: bytes) -> Appended:
        """Send ``data`` as ``entry``.

        Raises UsageError for what is no id, DuplicateEntryError, and what :meth:`WriteMachine.append` does.
        """
        self._require_writable()
        if not 0 <= entry <= ENTRY_MAX:
            raise UsageError(f"ledger {self.access.ledger}: {entry} is no entry id, 0 to {ENTRY_MAX}")
        if self._pipeline.has_sent(entry):
            raise DuplicateEntryError("its id was used already", ledger=self.access.ledger, entry=entry)
        return self._push(entry, data)

    @property
    def next_entry(self) -> int:
        """The entry that is acknowledged next: the one that all others wait for."""
        return self._pipeline.next_entry
