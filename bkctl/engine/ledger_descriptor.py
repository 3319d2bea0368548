"""What the bookie keeps in memory of a ledger that is in use (Java: ``LedgerDescriptorImpl``).

Everything here is read and changed under the engine lock, except where a method says otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bkctl.errors import BookieError

if TYPE_CHECKING:
    from bkctl.engine.journal.journal import Journal
    from bkctl.engine.ledger_storage import LedgerStorage

_I64 = struct.Struct(">q")

#: LAC of a ledger without confirmed entries.
LAC_NONE = -1

#: Called with None when done, or with the error that stands in the way.
Done = Callable[[BookieError | None], None]


class LacWatch:
    """One who waits for a ledger's last add confirmed to pass ``previous``.

    ``notify`` gets the LAC and the time of its change in ms since 1970, None when the wait ends for
    another reason (the ledger was fenced or deleted). It is called once, without locks, by the thread
    that changed the ledger.
    """

    __slots__ = ("notify", "previous")

    def __init__(self, previous: int, notify: Callable[[int, int | None], None]) -> None:
        self.previous = previous
        self.notify = notify


class LedgerDescriptor:
    """State of one ledger.

    ``grant`` is master key and ledger id as they stand next to each other in an add request: adds that bring
    it need no further check while the ledger is open. ``key_journaled`` says that a record with the master
    key stands in front of whatever is appended to the journal now. ``lac`` is the highest last add confirmed
    seen; ``lac_complete`` that entries of earlier runs of the bookie are counted in.
    ``fence_waiters`` is a list while the fence record is on its way to the disk; ``fence_owed`` says that the
    record did not get there: the ledger takes no adds any more, and who fences it next has it written again.
    """

    __slots__ = (
        "fence_owed",
        "fence_waiters",
        "fenced",
        "grant",
        "journal",
        "key_journaled",
        "lac",
        "lac_complete",
        "ledger",
        "master_key",
        "storage",
        "watches",
    )

    def __init__(
        self, ledger: int, master_key: bytes, storage: LedgerStorage, journal: Journal, *, fenced: bool
    ) -> None:
        self.ledger = ledger
        self.master_key = master_key
        self.grant = grant(ledger, master_key)
        self.storage = storage
        self.journal = journal
        self.fenced = fenced
        self.key_journaled = False
        self.fence_waiters: list[Done] | None = None
        self.fence_owed = False
        self.lac = LAC_NONE
        self.lac_complete = False
        self.watches: list[LacWatch] = []

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost by forgetting it."""
        return not self.watches and self.fence_waiters is None and not self.fence_owed

    def adopt(self, master_key: bytes) -> None:
        """Take the first real key of a ledger that had a blank one."""
        self.master_key = master_key
        self.grant = grant(self.ledger, master_key)
        self.key_journaled = False

    def raise_lac(self, lac: int) -> None:
        """Take ``lac`` if it is higher."""
        if lac > self.lac:
            self.lac = lac

    def due_watches(self, changed_ms: int | None) -> list[Callable[[], None]]:
        """Remove the watches whose wait is over; what tells them, to be called without locks.

        ``changed_ms`` None ends the wait of all of them.
        """
        due = [watch for watch in self.watches if changed_ms is None or self.lac > watch.previous]
        if due:
            self.watches = [watch for watch in self.watches if watch not in due]
        return [partial(watch.notify, self.lac, changed_ms) for watch in due]


def grant(ledger: int, master_key: bytes) -> bytes:
    """Master key and ledger id as an add request has them side by side."""
    return master_key + _I64.pack(ledger)


def is_blank(master_key: bytes) -> bool:
    """Whether a stored key is no key: empty or all zeros, as index rebuilds leave it."""
    return not any(master_key)
