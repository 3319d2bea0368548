"""The ``metadata-cache`` database of a ledger directory: what a collector knows of each entry log."""

from __future__ import annotations

from collections.abc import Iterator

from bkctl.codec import entry_log_metadata
from bkctl.codec.entry_log_metadata import EntryLogMetadata
from bkctl.errors import CorruptionError
from bkctl.kvstore.base import KeyValueReader
from bkctl.scan.index_databases import decoded, open_store
from bkctl.scan.index_rows import IndexDamage, reason_of


class LogMetadataCache:
    """The ``metadata-cache`` database. ``close`` closes the store."""

    def __init__(self, store: KeyValueReader) -> None:
        self._store = store

    @classmethod
    def open(cls, directory: str) -> LogMetadataCache:
        """Open a ``metadata-cache`` directory. Raises NotFoundError, CorruptionError, StorageError."""
        return cls(open_store(directory))

    @property
    def path(self) -> str:
        """The directory it was read from."""
        return self._store.path

    def rows(self) -> Iterator[EntryLogMetadata | IndexDamage]:
        """Yield every row, in order of log ids. Raises CorruptionError, StorageError."""
        if self._store.damage is not None:
            yield IndexDamage(self.path, "", self._store.damage)
        for key, value in self._store.iterate():
            try:
                yield _decode_metadata(key, value)
            except CorruptionError as error:
                yield IndexDamage(self.path, key.hex(), reason_of(error))

    def get(self, log_id: int) -> EntryLogMetadata | None:
        """Return the row of a log, None when it has none. Raises CorruptionError, StorageError."""
        key = entry_log_metadata.encode_log_key(log_id)
        value = self._store.get(key)
        if value is None:
            return None
        return decoded(lambda data: _decode_metadata(key, data), value, key, self.path)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def _decode_metadata(key: bytes, value: bytes) -> EntryLogMetadata:
    log_id = entry_log_metadata.decode_log_key(key)
    metadata = entry_log_metadata.decode_entry_log_metadata(value)
    if metadata.log_id != log_id:
        raise CorruptionError(
            "entry log metadata", offset=2, expected=f"log id {log_id}", found=str(metadata.log_id)
        )
    return metadata
