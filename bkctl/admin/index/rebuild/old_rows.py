"""The ledger rows of the old index, as far as they can be read."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkctl.codec.ledger_data import FLAGS_ID, KEY_BYTES, LedgerData, decode_ledger_key, encode_ledger_key
from bkctl.errors import CorruptionError, NotFoundError
from bkctl.kvstore.rocksdb import open_read_only
from bkctl.scan.index_rows import IndexDamage
from bkctl.scan.ledger_index import LedgerIndex


@dataclass(slots=True)
class OldRows:
    """The rows of an index. ``problem`` says why it cannot be trusted as a whole, ``damaged`` are ledgers
    whose row does not decode, ``collapsed`` ledgers with a 16-byte row, ``flags`` the row of flags."""

    rows: dict[int, LedgerData] = field(default_factory=dict)
    problem: str | None = None
    damaged: set[int] = field(default_factory=set)
    collapsed: dict[int, bool] = field(default_factory=dict)
    flags: bytes | None = None

    def trusts(self, ledger: int) -> bool:
        """Return whether the ledger's old row says all there is to know."""
        return self.problem is None and ledger in self.rows


def read_old_rows(directory: str) -> OldRows:
    """Read the rows of a ``ledgers`` database as far as possible. Raises StorageError when the disk fails."""
    old = OldRows()
    try:
        index = LedgerIndex(store := open_read_only(directory))
    except NotFoundError:
        old.problem = "there is no ledgers database"
        return old
    except CorruptionError as error:
        old.problem = str(error)
        return old
    try:
        for row in index.rows():
            if isinstance(row, IndexDamage):
                _damaged(old, row)
            elif row.key_bytes == KEY_BYTES:
                old.rows[row.ledger] = row.data
            else:
                # Rows come in key order, so the 8-byte one, which wins, is there already.
                old.collapsed[row.ledger] = row.ledger in old.rows
                old.rows.setdefault(row.ledger, row.data)
        old.flags = store.get(encode_ledger_key(FLAGS_ID))
        if store.never_written:
            # An empty database was made in place of one that was lost. It does not prove that there are no
            # ledgers.
            old.problem = "nothing was ever written to it"
    except CorruptionError as error:
        old.problem = str(error)
    finally:
        index.close()
    return old


def _damaged(old: OldRows, row: IndexDamage) -> None:
    """Note the ledger of a row that does not decode; if its key does not either, it may be any ledger's."""
    key = bytes.fromhex(row.key_hex)
    try:
        ledger, key_bytes = decode_ledger_key(key)
    except CorruptionError:
        if len(key) != KEY_BYTES:  # eight bytes are a negative id, which no ledger has
            old.problem = f"row {row.key_hex}: {row.reason}" if key else row.reason
        return
    # A 16-byte row counts only where the ledger has no other, which would have come before it.
    if ledger >= 0 and (key_bytes == KEY_BYTES or ledger not in old.rows):
        old.damaged.add(ledger)
