"""``index limbo``: the flag under which a missing entry is answered "unknown" instead of "no such entry".

It is set where entries may have been lost, so that no reader takes the loss for the end of the ledger, and
cleared when they are back or known to be gone. In an ``.idx`` file it is a bit that Java bookies do not know:
they keep it, and answer "no such entry".

A 16-byte row of the ledger (see ``index_repair``) would win over the row with the flag at the next start of
a Java bookie; it is collapsed in the same batch. One batch for each database, atomic and fsynced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import join

from bkctl.admin.index.repair import collapsed
from bkctl.codec.file_info import LIMBO, FileInfoHeader, index_path
from bkctl.codec.ledger_data import (
    REBUILT_KEY_BYTES,
    LedgerData,
    decode_ledger_data,
    encode_ledger_data,
    encode_ledger_key,
)
from bkctl.codec.location import ID_MAX
from bkctl.engine.interleaved_storage.ledger_file import LedgerFile
from bkctl.errors import CorruptionError, NotFoundError, UsageError
from bkctl.kvstore.base import Delete, KeyValueReader, Operation, Put
from bkctl.scan.directory import is_key_value_store
from bkctl.scan.idx_tree import IdxTree
from bkctl.scan.index import LEDGERS, open_store
from bkctl.vfs import FileSystem, WritableFileSystem


@dataclass(frozen=True, slots=True)
class LimboRow:
    """One ledger in one directory: its flag as it is now (or would be), and whether that is a change."""

    dir: str
    ledger: int
    limbo: bool
    changed: bool


def plan_limbo(fs: FileSystem, dirs: Sequence[str], ledgers: Sequence[int], *, limbo: bool) -> list[LimboRow]:
    """Tell what :func:`set_limbo` would do, from read-only opens.

    There is a row for each directory that knows a ledger.

    Raises NotFoundError when a ledger has a row in none of ``dirs``, UsageError for ids that do not exist,
    CorruptionError and StorageError.
    """
    for ledger in ledgers:
        if not 0 <= ledger <= ID_MAX:
            raise UsageError(f"{ledger}: ids are 0 to {ID_MAX}")
    rows: list[LimboRow] = []
    for directory in dirs:
        path = join(directory, LEDGERS)
        if not is_key_value_store(fs, path):
            rows += [row for row, _ in _plan_files(fs, directory, ledgers, limbo)]
            continue
        store = open_store(path)
        try:
            if store.damage is not None:  # a ledger that is not found may be one that cannot be read
                raise CorruptionError(store.damage, path=path)
            rows += _plan(directory, store, ledgers, limbo)[0]
        finally:
            store.close()
    missing = sorted(set(ledgers) - {row.ledger for row in rows})
    if missing:
        names = ", ".join(map(str, missing))
        raise NotFoundError(f"ledger {names}: no row in {', '.join(dirs)}; nothing was changed")
    return rows


def set_limbo(
    fs: WritableFileSystem, dirs: Sequence[str], ledgers: Sequence[int], *, limbo: bool
) -> list[LimboRow]:
    """Set or clear the flag in directories that a ``DirectoryLock`` holds; what was done.

    Nothing is written before every ledger was found. Raises as :func:`plan_limbo`, and RefusedError when a
    process holds a database.
    """
    from bkctl.kvstore import rocksdb_store
    from bkctl.kvstore.profile import LEDGERS_PROFILE

    plan_limbo(fs, dirs, ledgers, limbo=limbo)
    done: list[LimboRow] = []
    for directory in dirs:
        if not is_key_value_store(fs, join(directory, LEDGERS)):
            planned = _plan_files(fs, directory, ledgers, limbo)
            for row, header in planned:
                if row.changed:
                    _write_header(fs, row, header)
            done += [row for row, _ in planned]
            continue
        with rocksdb_store.open_store(join(directory, LEDGERS), LEDGERS_PROFILE, create=False) as store:
            rows, operations = _plan(directory, store, ledgers, limbo)
            if operations:
                store.write(operations, sync=True)
            done += rows
    return done


def _plan_files(
    fs: FileSystem, directory: str, ledgers: Sequence[int], limbo: bool
) -> list[tuple[LimboRow, FileInfoHeader]]:
    """Plan the rows of a directory of ``.idx`` files, with the headers as they are to be."""
    tree = IdxTree(fs, directory)
    found: list[tuple[LimboRow, FileInfoHeader]] = []
    for ledger in dict.fromkeys(ledgers):
        header = tree.header(ledger)
        if header is not None and header.has_ledger:
            state = header.state | LIMBO if limbo else header.state & ~LIMBO
            row = LimboRow(directory, ledger, limbo, header.limbo is not limbo)
            found.append((row, dataclasses.replace(header, state=state)))
    return found


def _write_header(fs: WritableFileSystem, row: LimboRow, header: FileInfoHeader) -> None:
    file = LedgerFile.open(fs, join(row.dir, index_path(row.ledger)))
    try:
        file.write_header(header)
    finally:
        file.close()


def _plan(
    directory: str, store: KeyValueReader, ledgers: Sequence[int], limbo: bool
) -> tuple[list[LimboRow], list[Operation]]:
    rows: list[LimboRow] = []
    operations: list[Operation] = []
    for ledger in dict.fromkeys(ledgers):
        key = encode_ledger_key(ledger)
        old = key.ljust(REBUILT_KEY_BYTES, b"\0")
        eight, sixteen = _get(store, key), _get(store, old)
        data = collapsed(eight, sixteen) if eight and sixteen else eight or sixteen
        if data is None:
            continue
        changed = bool(data.limbo) is not limbo
        rows.append(LimboRow(directory, ledger, limbo, changed))
        if changed:
            operations.append(Put(key, encode_ledger_data(dataclasses.replace(data, limbo=limbo))))
            if sixteen is not None:
                operations.append(Delete(old))
    return rows, operations


def _get(store: KeyValueReader, key: bytes) -> LedgerData | None:
    value = store.get(key)
    if value is None:
        return None
    try:
        return decode_ledger_data(value)
    except CorruptionError as error:
        raise error.located(f"{store.path}: row {key.hex()}") from None
