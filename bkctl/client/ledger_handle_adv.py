"""An open ledger whose writer chooses the ids of entries.

Source: ``org.apache.bookkeeper.client.LedgerHandleAdv``.
"""

from __future__ import annotations

import asyncio
from typing import cast

from bkctl.client.driver import Driver
from bkctl.client.ledger_handle import WriterHandle
from bkctl.client.ops.ledger_access import LedgerAccess
from bkctl.client.ops.write_adv import AdvWriteMachine


class LedgerHandleAdv(WriterHandle):
    """A writer that gives each entry its id. See :class:`bkctl.client.ledger_handle.WriterHandle`.

    Entries may come in any order; they are acknowledged in the order of their ids, each with all below it.
    """

    def __init__(self, driver: Driver, access: LedgerAccess, machine: AdvWriteMachine) -> None:
        super().__init__(driver, access, machine)
        self._adv = machine

    async def append(self, entry: int, data: bytes) -> int:
        """Write ``entry`` and wait until it is acknowledged, with all entries below it; return its id.

        Raises DuplicateEntryError for an id that was used, UsageError for what is no id or fits into no
        frame, and what :meth:`LedgerHandle.append` raises.
        """
        return await (await self.submit(entry, data))

    async def submit(self, entry: int, data: bytes) -> asyncio.Future[int]:
        """Send an entry and return a future of its id, done when it is acknowledged.

        Waits while as many appends or bytes are outstanding as the settings allow, unless this is the entry
        that all of those wait for. Raises as :meth:`append`.
        """
        self._check_size(data)
        await self._wait_for_room(lambda: entry <= self._adv.next_entry)
        return cast("asyncio.Future[int]", self._begun(self._adv.append_at(entry, data)))
