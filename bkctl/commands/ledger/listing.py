"""The ledgers of a cluster one by one, for the commands that go through many of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from bkctl.commands.frame.progress import Advance

if TYPE_CHECKING:
    from bkctl.metadata.api import MetadataStore, StoredLedger
    from bkctl.metadata.ledger_filter import LedgerFilter


class LedgerListing:
    """Yield the wanted ledgers by id; raise an error rather than yield a partial list.

    A ledger whose metadata does not decode is named on stderr and counted in :attr:`unreadable`: whether it
    is wanted nobody knows.
    """

    def __init__(self, store: MetadataStore, wanted: LedgerFilter, advance: Advance) -> None:
        self._store = store
        self._wanted = wanted
        self._advance = advance
        self.unreadable = 0

    def __iter__(self) -> Iterator[StoredLedger]:
        from bkctl.metadata.ledger_filter import UnreadableLedger, list_ledgers

        for found in list_ledgers(self._store.ledgers, self._wanted, self._advance):
            if isinstance(found, UnreadableLedger):
                self.unreadable += 1
                typer.echo(f"bkctl: ledger {found.ledger}: {found.error}", err=True)
            else:
                yield found
