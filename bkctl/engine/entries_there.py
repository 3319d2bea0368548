"""Single entries that a storage has, as a replay asks for them: one that cannot be read is not there."""

from __future__ import annotations

from bkctl.engine.ledger_storage import LedgerStorage
from bkctl.errors import BookieError


def has_another(storage: LedgerStorage, ledger: int, entry: int, body: bytes) -> bool:
    """Return whether a storage has an entry with other bytes; one that cannot be read counts as not there."""
    there = entry_there(storage, ledger, entry)
    return there is not None and there != body


def entry_there(storage: LedgerStorage, ledger: int, entry: int) -> bytes | None:
    """Return the entry that a storage has; None for none, and for one that cannot be read."""
    if entry < 0:
        return None
    try:
        return storage.read(ledger, entry)
    except BookieError:
        return None


def is_there(storage: LedgerStorage, ledger: int, entry: int) -> bool:
    """Return whether a storage has an entry; in front of the first one nothing is missing."""
    return entry < 0 or entry_there(storage, ledger, entry) is not None
