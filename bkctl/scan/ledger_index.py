"""The ``ledgers`` database of a ledger directory: a row for each ledger."""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.codec.ledger_data import (
    FLAGS_ID,
    NEEDS_INTEGRITY_CHECK,
    REBUILT_KEY_BYTES,
    decode_flags,
    decode_ledger_data,
    decode_ledger_key,
    encode_ledger_key,
)
from bkctl.errors import CorruptionError
from bkctl.kvstore.base import KeyValueReader
from bkctl.scan.index_databases import decoded, open_store
from bkctl.scan.index_rows import IndexDamage, LedgerRow, reason_of


class LedgerIndex:
    """The ``ledgers`` database; implements :class:`LedgerSource`. ``close`` closes the store."""

    def __init__(self, store: KeyValueReader) -> None:
        self._store = store

    @classmethod
    def open(cls, directory: str) -> LedgerIndex:
        """Open a ``ledgers`` directory. Raises NotFoundError, CorruptionError, StorageError."""
        return cls(open_store(directory))

    @property
    def path(self) -> str:
        return self._store.path

    def rows(self) -> Iterator[LedgerRow | IndexDamage]:
        """Yield every row but that of the flags, which is among them only when it is damaged."""
        if self._store.damage is not None:
            yield IndexDamage(self.path, "", self._store.damage)
        for key, value in self._store.iterate():
            try:
                ledger, key_bytes = decode_ledger_key(key)
                if ledger == FLAGS_ID:
                    decode_flags(value)
                else:
                    yield LedgerRow(ledger, decode_ledger_data(value), key_bytes)
            except CorruptionError as error:
                yield IndexDamage(self.path, key.hex(), reason_of(error))

    def merged(self) -> Iterator[LedgerRow | IndexDamage]:
        last: int | None = None
        for row in self.rows():
            if isinstance(row, LedgerRow):
                # The 8-byte key is a prefix of the 16-byte one, so its row comes first.
                if row.ledger == last:
                    continue
                last = row.ledger
            yield row

    def get(self, ledger: int) -> LedgerRow | None:
        key = encode_ledger_key(ledger)
        for candidate in (key, key.ljust(REBUILT_KEY_BYTES, b"\0")):
            value = self._store.get(candidate) if ledger >= 0 else None
            if value is not None:
                data = decoded(decode_ledger_data, value, candidate, self.path)
                return LedgerRow(ledger, data, len(candidate))
        return None

    def needs_integrity_check(self) -> bool:
        key = encode_ledger_key(FLAGS_ID)
        value = self._store.get(key)
        return value is not None and bool(
            decoded(decode_flags, value, key, self.path) & NEEDS_INTEGRITY_CHECK
        )

    def close(self) -> None:
        """Close the store."""
        self._store.close()
