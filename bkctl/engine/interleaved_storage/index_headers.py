"""The headers of ``.idx`` files as the rows of ledgers, and as the key-value store that holds them.

A header has no field for limbo, nor for a file whose ledger is gone; both are bits of its state (see
``codec.file_info``) that Java, which changes bit 0 alone, writes back. A Java bookie takes a file without a
ledger for a ledger, which its collector deletes when no metadata name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bkctl.codec.file_info import FENCED, HEADER_BYTES, LIMBO, NO_LEDGER, FileInfoHeader
from bkctl.codec.ledger_data import (
    KEY_BYTES,
    LedgerData,
    decode_ledger_data,
    encode_ledger_data,
    encode_ledger_key,
)
from bkctl.engine.db_storage.ledgers import LedgerIndex
from bkctl.engine.interleaved_storage.index_files import IndexFiles
from bkctl.errors import BadRequestError
from bkctl.kvstore.base import Delete, Operation, Put, Row
from bkctl.reporting import counted

_KNOWN = FENCED | LIMBO | NO_LEDGER
_LAC_BYTES_MIN = 16
#: Of a header, what is not the master key and the explicit LAC.
_FIELDS_BYTES = 20
_BATCH_ROWS = 1024


def row_of(header: FileInfoHeader) -> LedgerData:
    """Return what a header says of its ledger."""
    return LedgerData(header.fenced, header.master_key, header.explicit_lac, header.limbo or None)


def header_of(row: LedgerData | None, state: int = 0) -> FileInfoHeader:
    """Return the header of a file for the row of its ledger, or for no ledger when ``row`` is None.

    The bits of ``state`` that have no name here are kept.
    """
    state &= ~_KNOWN
    if row is None:
        return FileInfoHeader(1, b"", state | NO_LEDGER)
    state |= (FENCED if row.fenced else 0) | (LIMBO if row.limbo else 0)
    return FileInfoHeader(1, row.master_key, state, row.explicit_lac)


class HeaderStore:
    """The store that :class:`LedgerIndex` keeps its rows in: the headers of the files.

    A write is durable when it returns, with or without ``sync``, header by header: a crash leaves some.
    """

    def __init__(self, files: IndexFiles) -> None:
        self._files = files

    @property
    def path(self) -> str:
        """The path that messages name the store by."""
        return self._files.directories[0]

    @property
    def never_written(self) -> bool:
        """Whether there never was a file."""
        return self._files.never_written

    def batches(self) -> Iterator[list[Row]]:
        """Return all rows. Raises CorruptionError for a header that does not decode, StorageError."""
        batch: list[Row] = []
        for ledger, header in self._files.read_headers():
            if header.has_ledger:
                batch.append((encode_ledger_key(ledger), encode_ledger_data(row_of(header))))
            if len(batch) >= _BATCH_ROWS:
                yield batch
                batch = []
        yield batch

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        """Change headers. A row that goes leaves its file without a ledger, until its slots are removed.

        Raises StorageError; some headers are changed then.
        """
        del sync
        headers: dict[int, FileInfoHeader] = {}
        for operation in operations:
            if isinstance(operation, Put):
                self._put(headers, operation.key, decode_ledger_data(operation.value))
            elif isinstance(operation, Delete) and self._has_file(operation.key):
                self._put(headers, operation.key, None)
        self._files.write_headers(headers)

    def _has_file(self, key: bytes) -> bool:
        return len(key) == KEY_BYTES and self._files.path(_ledger(key)) is not None

    def _put(self, headers: dict[int, FileInfoHeader], key: bytes, row: LedgerData | None) -> None:
        ledger = _ledger(key)
        before = self._files.header(ledger)
        headers[ledger] = header_of(row, 0 if before is None else before.state)

    def flush(self) -> None:
        """Do nothing: every write is in the files."""

    def compact(self) -> None:
        """Do nothing: no deleted row is kept."""

    def note_synced(self) -> None:
        """Do nothing: written headers are synced, and damage to a header is always noticed."""

    def close(self) -> None:
        """Close the files."""
        self._files.close()


class HeaderIndex(LedgerIndex):
    """The rows of ledgers over headers; refuses what no header has room for."""

    def __init__(self, files: IndexFiles) -> None:
        """Read all headers. Raises CorruptionError naming a file whose header is damaged, StorageError."""
        super().__init__(HeaderStore(files))
        self._files = files

    def set(self, ledger: int, data: LedgerData) -> None:
        """Remember a row. Raises BadRequestError for a master key or an explicit LAC of a length that no
        header takes; clients send such ones only on purpose.
        """
        lac = data.explicit_lac
        if lac is not None and len(lac) < _LAC_BYTES_MIN:
            raise BadRequestError(
                f"ledger {ledger}: an explicit LAC of {counted(len(lac), 'byte')}", ledger=ledger
            )
        size_bytes = _FIELDS_BYTES + len(data.master_key) + len(lac or b"")
        if size_bytes > HEADER_BYTES:
            raise BadRequestError(
                f"ledger {ledger}: its master key and explicit LAC need {counted(size_bytes, 'byte')} of an "
                f"index file's header, which has {HEADER_BYTES}",
                ledger=ledger,
            )
        super().set(ledger, data)

    def note_written(self) -> None:
        """Make the index directories durably ones that were written to."""
        self._files.note_written()


def _ledger(key: bytes) -> int:
    return int.from_bytes(key, "big")
