"""The bookie's memory of a ledger that is in use (Java: ``LedgerDescriptorImpl``).

Everything here is read and changed under the engine lock, except where a method says otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from bkctl._kernels import LedgerUse
from bkctl._kernels._api import GRANT_BYTES
from bkctl.engine.lac_watches import LacWatch, LacWatches, notify_all
from bkctl.errors import BookieError
from bkctl.metrics.busiest_ledgers import UNCOUNTED

if TYPE_CHECKING:
    from bkctl.engine.journal.journal import Journal
    from bkctl.engine.ledger_storage import LedgerStorage

_I64 = struct.Struct(">q")

#: LAC of a ledger without confirmed entries.
LAC_NONE = -1

#: Called with None when done, or with the error that stands in the way.
Done = Callable[[BookieError | None], None]


class LedgerDescriptor(LedgerUse):
    """State of one ledger.

    ``grant`` is master key and ledger id as they stand next to each other in an add request: adds that bring
    it need no further check while the ledger is open. ``key_prefix`` are the first eight bytes of the keys of
    its entries. ``key_journaled`` says that a record with the master key stands in front of whatever is
    appended to the journal now. ``lac`` is the highest last add confirmed seen; ``lac_complete`` that entries
    of earlier runs of the bookie are counted in.
    ``fence_waiters`` is a list while the fence record is on its way to the disk; ``fence_owed`` says that the
    record did not get there: the ledger takes no adds any more, and who fences it next has it written again.
    ``used``: the ledger was used since the table last looked for ledgers to forget.
    ``counter`` counts its adds, as long as it is of the younger generation of the busiest ledgers.
    ``watches`` is None while no client waits for the LAC, as for nearly all ledgers.
    """

    __slots__ = (
        "fence_owed",
        "fence_waiters",
        "fenced",
        "grant",
        "journal",
        "key_journaled",
        "key_prefix",
        "lac_complete",
        "ledger",
        "master_key",
        "storage",
        "watches",
    )

    def __init__(
        self, ledger: int, master_key: bytes, storage: LedgerStorage, journal: Journal, *, fenced: bool
    ) -> None:
        super().__init__(UNCOUNTED)
        self.ledger = ledger
        self.master_key = master_key
        self.grant = grant(ledger, master_key)
        self.key_prefix = _I64.pack(ledger)
        self.storage = storage
        self.journal = journal
        self.fenced = fenced
        self.key_journaled = False
        self.fence_waiters: list[Done] | None = None
        self.fence_owed = False
        self.lac_complete = False
        self.watches: LacWatches | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost by forgetting it."""
        return not self.watches and self.fence_waiters is None and not self.fence_owed

    def adopt(self, master_key: bytes) -> None:
        """Take the first real key of a ledger that had a blank one."""
        # First what can fail: the key that counts would be taken for one that is in the journal.
        self.grant = grant(self.ledger, master_key)
        self.master_key = master_key
        self.key_journaled = False

    def raise_lac(self, lac: int) -> None:
        """Take ``lac`` if it is higher."""
        if lac > self.lac:
            self.lac = lac

    def watch(self, watch: LacWatch) -> None:
        """Begin a wait for the LAC."""
        watches = self.watches or LacWatches()
        watches.add(watch)
        self.watches, self.watched = watches, True

    def unwatch(self, watch: LacWatch) -> bool:
        """End a wait; False when it is over already."""
        if self.watches is None or not self.watches.remove(watch):
            return False
        self._drop_empty_watches()
        return True

    def due_watches(self, changed_ms: int | None) -> list[Callable[[], None]]:
        """Remove the watches whose wait is over; return callbacks that notify them, for a call without locks.

        With ``changed_ms`` None the wait of every watch is over.
        """
        if self.watches is None:
            return []
        due = self.watches.take_all() if changed_ms is None else self.watches.take_passed(self.lac)
        if not due:
            return []
        self._drop_empty_watches()
        return [partial(notify_all, due, self.lac, changed_ms)]

    def _drop_empty_watches(self) -> None:
        if not self.watches:
            self.watches = None
            self.watched = False


def grant(ledger: int, master_key: bytes) -> bytes:
    """Return master key and ledger id as an add request has them side by side."""
    return master_key + _I64.pack(ledger)


def ledgers_of(grants: bytes) -> Iterator[bytes]:
    """Yield the ledger ids, 8 bytes each, of grants that lie one behind the other."""
    for end in range(GRANT_BYTES, len(grants) + 1, GRANT_BYTES):
        yield grants[end - _I64.size : end]


def is_blank(master_key: bytes) -> bool:
    """Return whether a stored key is no key: empty or all zeros, as index rebuilds leave it."""
    return not any(master_key)
