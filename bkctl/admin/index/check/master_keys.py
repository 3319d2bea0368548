"""Find ledger rows whose master key is not that of the ledger's password in the metadata.

A bookie compares the key of every add and every fence with its row's. When some bytes of the row's key were
changed (by a bit that flipped in a journal, which proves no key), no client brings that key any more: the
ledger can be read, and nothing can be added, copied or fenced. A key that has next to nothing in common with
the metadata's is another password's: a ledger was deleted, and its id used again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from bkctl.admin.index.check.finding import Finding, Kind, about_ledger
from bkctl.admin.ledgers.grouped_metadata import LEDGERS_AT_ONCE
from bkctl.codec.digest import MASTER_KEY_BYTES, master_key
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.engine.ledger_descriptor import is_blank
from bkctl.engine.second_keys import alike
from bkctl.errors import CorruptionError
from bkctl.scan.index_rows import LedgerRow

#: A function that returns the metadata of those of some ledgers that have any.
MetadataOf = Callable[[Collection[int]], Mapping[int, LedgerMetadata | CorruptionError]]


def key_of_metadata(found: LedgerMetadata | CorruptionError | None) -> bytes | None:
    """Return the master key of a ledger's password, None where the metadata do not have the password."""
    if found is None or isinstance(found, CorruptionError):
        return None
    if found.digest_type is None or found.password is None:
        return None
    return master_key(found.password)


def is_damaged_key(key: bytes, right: bytes | None) -> bool:
    """Return whether no client can bring ``key``, or it is ``right`` of which some bytes were changed.

    ``right`` is the key of the metadata, None where nobody knows it.
    """
    if is_blank(key) or key == right:
        return False
    if len(key) != MASTER_KEY_BYTES:
        return True
    return right is not None and (alike(key, right) or right.startswith(key.rstrip(b"\0")))


def other_keys(rows: Collection[LedgerRow], metadata_of: MetadataOf) -> Iterator[tuple[LedgerRow, bytes]]:
    """Yield the rows whose key is not that of the metadata, each with that key; the store is asked once.

    A blank key is not among them: the next client's key will do. Raises BkctlError as the metadata do.
    """
    keyed = [row for row in rows if not is_blank(row.data.master_key)]
    found = metadata_of([row.ledger for row in keyed]) if keyed else {}
    for row in keyed:
        right = key_of_metadata(found.get(row.ledger))
        if right is not None and row.data.master_key != right:
            yield row, right


class MasterKeyCheck:
    """Fed with ledger rows; asks for the metadata of some thousand ledgers at a time.

    ``metadata_of`` None: there are no metadata, so that only the length of a key says something.
    """

    def __init__(self, metadata_of: MetadataOf | None) -> None:
        self._metadata_of = metadata_of
        self._rows: list[LedgerRow] = []

    def add(self, directory: str, row: LedgerRow) -> Iterator[Finding]:
        """Take one row of a directory; yield findings about rows before it."""
        self._rows.append(row)
        if len(self._rows) >= LEDGERS_AT_ONCE:
            yield from self.end(directory)

    def end(self, directory: str) -> Iterator[Finding]:
        """Yield findings about the rows of a directory that are left."""
        rows, self._rows = self._rows, []
        others = {} if self._metadata_of is None else dict(other_keys(rows, self._metadata_of))
        for row in rows:
            right = others.get(row)
            if is_damaged_key(row.data.master_key, right):
                yield _damaged(directory, row)
            elif right is not None:
                detail = (
                    "its master key is another password's than that in the metadata: an earlier ledger had"
                    " the id, or the ledger was made with another password"
                )
                yield about_ledger(Kind.OTHER_MASTER_KEY, directory, row.ledger, detail)


def _damaged(directory: str, row: LedgerRow) -> Finding:
    key = row.data.master_key
    what = (
        f"its master key has {len(key)} bytes, and a key has {MASTER_KEY_BYTES}"
        if len(key) != MASTER_KEY_BYTES
        else "some bytes of its master key were changed"
    )
    detail = (
        f"{what}: it can be read, and no client can add to it, copy to it or fence it (bkctl index repair"
        " --metadata sets the key of the metadata)"
    )
    return about_ledger(Kind.DAMAGED_MASTER_KEY, directory, row.ledger, detail)
