"""Find ledger rows whose master key is not that of the ledger's password in the metadata.

A bookie compares the key of every add and every fence with its row's. Where some bytes of the row's key were
changed, by a bit that flipped in a journal, where nothing proves a key, no client brings it any more: the
ledger can be read, and nothing can be added, copied or fenced. A key that has next to nothing in common with
the metadata's is another password's: a ledger was deleted, and its id used again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from bkctl.admin.index.check.finding import Finding, Kind, about_ledger
from bkctl.admin.ledgers.grouped_metadata import LEDGERS_AT_ONCE
from bkctl.codec.digest import master_key
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.engine.ledger_descriptor import is_blank
from bkctl.engine.second_keys import alike
from bkctl.errors import CorruptionError

#: Tells the metadata of those of some ledgers that have any.
MetadataOf = Callable[[Collection[int]], Mapping[int, LedgerMetadata | CorruptionError]]


def key_of_metadata(found: LedgerMetadata | CorruptionError | None) -> bytes | None:
    """Return the master key of a ledger's password, None where the metadata do not have the password."""
    if found is None or isinstance(found, CorruptionError):
        return None
    if found.digest_type is None or found.password is None:
        return None
    return master_key(found.password)


def is_damaged_key(key: bytes, right: bytes | None) -> bool:
    """Whether ``key`` is the key ``right`` of which some bytes were changed."""
    return right is not None and key != right and not is_blank(key) and alike(key, right)


class MasterKeyCheck:
    """Fed with ledger rows; asks for the metadata of some thousand ledgers at a time."""

    def __init__(self, metadata_of: MetadataOf) -> None:
        self._metadata_of = metadata_of
        self._rows: dict[int, tuple[str, bytes]] = {}

    def add(self, directory: str, ledger: int, key: bytes) -> Iterator[Finding]:
        """Take one row; yield findings about rows before it."""
        if is_blank(key):
            return  # the next client's key will do
        self._rows[ledger] = directory, key
        if len(self._rows) >= LEDGERS_AT_ONCE:
            yield from self.end()

    def end(self) -> Iterator[Finding]:
        """Yield findings about the rows that are left."""
        rows, self._rows = self._rows, {}
        found = self._metadata_of(rows) if rows else {}
        for ledger, (directory, key) in rows.items():
            right = key_of_metadata(found.get(ledger))
            if right is None or key == right:
                continue
            if is_damaged_key(key, right):
                detail = (
                    "some bytes of its master key were changed: it can be read, and no client can add to it,"
                    " copy to it or fence it (bkctl index repair sets the key of the metadata)"
                )
                yield about_ledger(Kind.DAMAGED_MASTER_KEY, directory, ledger, detail)
            else:
                detail = (
                    "its master key is another password's than that in the metadata: an earlier ledger had"
                    " the id, or the ledger was made with another password"
                )
                yield about_ledger(Kind.OTHER_MASTER_KEY, directory, ledger, detail)
