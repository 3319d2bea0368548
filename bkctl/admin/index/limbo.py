"""``index limbo``: the flag under which a missing entry is answered "unknown" instead of "no such entry".

It is set where entries may have been lost, so that no reader takes the loss for the end of the ledger, and
cleared when they are back or known to be gone. In an ``.idx`` file it is a bit that Java bookies do not know:
they keep it, and answer "no such entry".

A 16-byte row of the ledger (see ``index_repair``) would win over the row with the flag at the next start of
a Java bookie; it is collapsed in the same batch. One batch for each database, atomic and fsynced. Before that
the old databases and headers are kept, for ``repair undo``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from posixpath import join

from bkctl.admin.index.repair import stored_row
from bkctl.admin.index.stopped_index import IndexDatabases, rocks_databases
from bkctl.admin.repairs.repair_journal import Intent, begin_repair, changes_database, changes_start
from bkctl.clock import Clock
from bkctl.codec.file_info import HEADER_BYTES, LIMBO, FileInfoHeader, index_path
from bkctl.codec.ledger_data import encode_ledger_data, encode_ledger_key
from bkctl.codec.location import ID_MAX
from bkctl.engine.interleaved_storage.ledger_file import LedgerFile
from bkctl.errors import CorruptionError, NotFoundError, UsageError
from bkctl.kvstore.base import KeyValueReader, Operation, Put
from bkctl.reporting import counted
from bkctl.scan.directory import is_key_value_store
from bkctl.scan.idx_tree import IdxTree
from bkctl.scan.index import open_index
from bkctl.scan.index_databases import LEDGERS
from bkctl.scan.index_rows import IndexDamage
from bkctl.vfs import FileSystem, WritableFileSystem

MADE_BY = "index limbo"


@dataclass(frozen=True, slots=True)
class LimboRow:
    """One ledger in one directory: its flag as it is now (or would be), and whether that is a change."""

    dir: str
    ledger: int
    limbo: bool
    changed: bool


def plan_limbo(
    fs: FileSystem,
    dirs: Sequence[str],
    ledgers: Sequence[int],
    *,
    limbo: bool,
    databases: IndexDatabases | None = None,
) -> list[LimboRow]:
    """Return what :func:`set_limbo` is to do, from read-only opens.

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
        with closing((databases or rocks_databases()).read(path)) as store:
            if store.damage is not None:  # a ledger that is not found may be one that cannot be read
                raise CorruptionError(store.damage, path=path)
            rows += _plan(directory, store, ledgers, limbo)[0]
    missing = sorted(set(ledgers) - {row.ledger for row in rows})
    if missing:
        names = ", ".join(map(str, missing))
        raise NotFoundError(f"ledger {names}: no row in {', '.join(dirs)}; nothing was changed")
    return rows


def ledgers_in_limbo(fs: FileSystem, dirs: Sequence[str]) -> list[int]:
    """Return the ledgers that have the flag in one of the directories, ascending.

    Raises CorruptionError where a row does not decode, which may have it, and StorageError.
    """
    found: set[int] = set()
    for directory in dirs:
        index = open_index(fs, directory)
        if index is None:
            continue
        with index:
            for row in index.ledgers.merged():
                if isinstance(row, IndexDamage):
                    raise CorruptionError(
                        f"row {row.key_hex}", expected="a row of a ledger", found=row.reason, path=row.path
                    )
                if row.data.limbo:
                    found.add(row.ledger)
    return sorted(found)


def set_limbo_on_record(
    fs: WritableFileSystem,
    clock: Clock,
    dirs: Sequence[str],
    planned: Sequence[LimboRow],
    databases: IndexDatabases,
) -> None:
    """Do what :func:`set_limbo` does, so that ``repair undo`` goes back.

    ``dirs`` are those of the plan, and others in which a start of the bookie leaves a trace; they have the
    record. Raises as :func:`set_limbo`; ``settle_unfinished``
    takes back what was reached.
    """
    changed = [row for row in planned if row.changed]
    done = "set for" if all(row.limbo for row in changed) else "cleared for"
    detail = f"{done} {counted(len(changed), 'ledger')}"
    record = begin_repair(fs, clock, dirs, MADE_BY, detail, list(_intents(fs, changed)))
    set_limbo(fs, planned, databases)
    record.finish()


def _intents(fs: FileSystem, changed: Sequence[LimboRow]) -> Iterator[Intent]:
    for directory in dict.fromkeys(row.dir for row in changed):
        if is_key_value_store(fs, join(directory, LEDGERS)):
            yield changes_database(join(directory, LEDGERS))
            continue
        for row in changed:
            if row.dir == directory:
                yield changes_start(join(directory, index_path(row.ledger)), HEADER_BYTES)


def set_limbo(
    fs: WritableFileSystem, planned: Sequence[LimboRow], databases: IndexDatabases | None = None
) -> None:
    """Set or clear the flag as :func:`plan_limbo` has planned it, under one ``DirectoryLock`` with the plan.

    Nothing is opened where nothing changes. Raises CorruptionError, StorageError, and RefusedError when a
    process holds a database.
    """
    changed = [row for row in planned if row.changed]
    for directory in dict.fromkeys(row.dir for row in changed):
        here = [row for row in changed if row.dir == directory]
        ledgers, limbo = [row.ledger for row in here], here[0].limbo
        if is_key_value_store(fs, join(directory, LEDGERS)):
            with closing((databases or rocks_databases()).write(join(directory, LEDGERS))) as store:
                store.write(_plan(directory, store, ledgers, limbo)[1], sync=True)
        else:
            for row, header in _plan_files(fs, directory, ledgers, limbo):
                _write_header(fs, row, header)


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
        data, stale = stored_row(store, ledger)
        if data is None:
            continue
        changed = bool(data.limbo) is not limbo
        rows.append(LimboRow(directory, ledger, limbo, changed))
        if changed:
            new = dataclasses.replace(data, limbo=limbo)
            operations += [Put(encode_ledger_key(ledger), encode_ledger_data(new)), *stale]
    return rows, operations
