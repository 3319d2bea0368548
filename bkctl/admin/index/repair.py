"""``index repair``: rows with 16-byte keys of Java's index rebuild become 8-byte ones, and damaged master
keys those of the metadata (:mod:`bkctl.admin.index.damaged_keys`).

Java loads a 16-byte row after the 8-byte row of its ledger and lets it win, and neither updates nor deletes
it: at every restart the ledger is fenced and without its key again, and a deleted ledger is back. So

* where both rows are there, the 16-byte one goes; the 8-byte row stays as it is, but fenced if either is,
  because that is what the bookie answers today and to unfence a ledger could lose entries;
* a lone 16-byte row becomes an 8-byte row with the same content;
* a lone 16-byte row of a ledger that is proven to be gone (:mod:`bkctl.admin.ledgers.known_ledgers`) goes,
  its locations before it. A dump that an operator trusts has to know at least one ledger of the index: one of
  another cluster must not delete anything.

A row that does not decode is left alone, and so is the other row of its ledger.

All changes of a ``ledgers`` database are one atomic batch, fsynced. Locations of deleted ledgers are removed
by a synced batch before that, so that what was killed in between can be finished by the next run. Before
that the old databases and headers are kept, for ``repair undo``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from posixpath import join

from bkctl.admin.index.damaged_keys import damaged_headers, damaged_keys, write_key
from bkctl.admin.index.stopped_index import IndexDatabases, LedgerRows, rocks_databases
from bkctl.admin.ledgers.known_ledgers import KnownLedgers
from bkctl.admin.repairs.repair_journal import Intent, begin_repair, changes_database, changes_start
from bkctl.clock import Clock
from bkctl.codec.file_info import HEADER_BYTES
from bkctl.codec.ledger_data import (
    KEY_BYTES,
    REBUILT_KEY_BYTES,
    LedgerData,
    decode_ledger_data,
    encode_ledger_data,
    encode_ledger_key,
)
from bkctl.codec.location import encode_key
from bkctl.errors import CorruptionError, RefusedError
from bkctl.kvstore.base import Delete, DeleteRange, KeyValueReader, Operation, Put
from bkctl.reporting import counted
from bkctl.scan.directory import is_key_value_store
from bkctl.scan.index_databases import LEDGERS, LOCATIONS
from bkctl.scan.index_rows import IndexDamage, LedgerRow
from bkctl.scan.ledger_index import LedgerIndex
from bkctl.vfs import FileSystem, WritableFileSystem

MADE_BY = "index repair"
_COLLAPSED = "collapsed"
_CONVERTED = "converted"
_DELETED = "deleted"
_DAMAGED = "damaged"
_REKEYED = "rekeyed"
_REKEYED_DETAIL = "it has the master key of the metadata; some bytes of the old one had been changed"


@dataclass(frozen=True, slots=True)
class RepairRow:
    """One difference that a repair makes, or found and left (``damaged``).

    ``kind`` is ``collapsed`` (there were two rows), ``converted`` (only the 16-byte one), ``deleted``,
    ``rekeyed`` (it has the metadata's master key now) or ``damaged``; ``ledger`` is None for a row whose
    key does not decode.
    """

    dir: str
    kind: str
    ledger: int | None
    detail: str


@dataclass(slots=True)
class RepairPlan:
    """The plan for repairing one ``ledgers`` database, or the ``.idx`` files of one directory.

    ``deleted`` are ledgers whose locations go too. ``headers`` are ``.idx`` files that get a key.
    """

    dir: str
    rows: list[RepairRow] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)
    headers: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def changes(self) -> int:
        """Number of rows that change or go."""
        return sum(row.kind != _DAMAGED for row in self.rows)


def collapsed(eight: LedgerData, sixteen: LedgerData) -> LedgerData:
    """Make the one row that both rows of a ledger become: the 8-byte row, fenced if either is."""
    return dataclasses.replace(eight, fenced=eight.fenced or sixteen.fenced)


def stored_row(store: LedgerRows, ledger: int) -> tuple[LedgerData | None, list[Delete]]:
    """Return the row of a ledger, a 16-byte row beside it included, and the deletion of the latter.

    Raises CorruptionError when a row cannot be decoded.
    """
    key = encode_ledger_key(ledger)
    old = key.ljust(REBUILT_KEY_BYTES, b"\0")
    eight, sixteen = _decoded(store, key), _decoded(store, old)
    row = collapsed(eight, sixteen) if eight and sixteen else eight or sixteen
    return row, [] if sixteen is None else [Delete(old)]


def _decoded(store: LedgerRows, key: bytes) -> LedgerData | None:
    value = store.get(key)
    if value is None:
        return None
    try:
        return decode_ledger_data(value)
    except CorruptionError as error:
        raise error.located(f"{store.path}: row {key.hex()}") from None


def plan_repair(
    fs: FileSystem,
    current_dir: str,
    known: KnownLedgers | None = None,
    databases: IndexDatabases | None = None,
) -> RepairPlan:
    """Plan what :func:`repair` would do, from a read-only open. ``known`` has the ledgers that exist.

    Of ``.idx`` files the keys alone are looked at; a directory with neither has nothing to repair.
    Raises CorruptionError and StorageError when the database cannot be read, RefusedError when ``known``
    cannot be the metadata of this bookie's ledgers.
    """
    directory = join(current_dir, LEDGERS)
    if not is_key_value_store(fs, directory):
        return _plan_headers(fs, current_dir, known)
    with closing((databases or rocks_databases()).read(directory)) as store:
        return _plan(current_dir, store, known)


def repair_on_record(
    fs: WritableFileSystem,
    clock: Clock,
    dirs: Sequence[str],
    plans: Sequence[RepairPlan],
    known: Mapping[str, KnownLedgers],
    databases: IndexDatabases,
) -> list[RepairPlan]:
    """Do what was planned in directories that a ``DirectoryLock`` holds, so that ``repair undo`` goes back.

    ``dirs`` are those of the plans, and others in which a start of the bookie leaves a trace; they have the
    record.
    Returns what was done. Raises as :func:`repair`, and RefusedError where it would be something else by now;
    ``settle_unfinished`` takes back what was reached.
    """
    intents = [intent for plan in plans for intent in _intents(fs, plan)]
    changes = sum(plan.changes for plan in plans)
    record = begin_repair(fs, clock, dirs, MADE_BY, counted(changes, "row"), intents)
    done = [
        repair(fs, plan.dir, known.get(plan.dir), databases, plan) if plan.changes else plan for plan in plans
    ]
    record.finish()
    return done


def _intents(fs: FileSystem, plan: RepairPlan) -> Iterator[Intent]:
    for path, _ in plan.headers:
        yield changes_start(path, HEADER_BYTES)
    if not plan.operations:
        return
    if plan.deleted and is_key_value_store(fs, join(plan.dir, LOCATIONS)):
        yield changes_database(join(plan.dir, LOCATIONS))
    yield changes_database(join(plan.dir, LEDGERS))


def repair(
    fs: WritableFileSystem,
    current_dir: str,
    known: KnownLedgers | None = None,
    databases: IndexDatabases | None = None,
    planned: RepairPlan | None = None,
) -> RepairPlan:
    """Repair the ledger rows of a directory that a ``DirectoryLock`` holds; return what was done.

    With ``planned`` nothing else is done. Raises as :func:`plan_repair`, and RefusedError when a process
    holds a database.
    """
    opened = databases or rocks_databases()
    directory = join(current_dir, LEDGERS)
    if not is_key_value_store(fs, directory):
        plan = _plan_headers(fs, current_dir, known)
        _refuse_another(plan, planned)
        for path, key in plan.headers:
            write_key(fs, path, key)
        return plan
    with closing(opened.write(directory)) as ledgers:
        plan = _plan(current_dir, ledgers, known)
        _refuse_another(plan, planned)
        # Locations first: as long as its row is there, a later run still finds the ledger.
        if plan.deleted and is_key_value_store(fs, join(current_dir, LOCATIONS)):
            with closing(opened.write(join(current_dir, LOCATIONS))) as locations:
                locations.write(map(_locations_of, plan.deleted), sync=True)
        if plan.operations:
            ledgers.write(plan.operations, sync=True)
    return plan


def _refuse_another(plan: RepairPlan, planned: RepairPlan | None) -> None:
    """Raise RefusedError for changes that were not planned: the record keeps nothing of what they change."""
    if planned is None:
        return
    if (plan.operations, plan.deleted, plan.headers) != (
        planned.operations,
        planned.deleted,
        planned.headers,
    ):
        raise RefusedError(f"{plan.dir}: the metadata have changed since this was planned; run it again")


def _plan_headers(fs: FileSystem, current_dir: str, known: KnownLedgers | None) -> RepairPlan:
    plan = RepairPlan(current_dir)
    for ledger, path, key in damaged_headers(fs, current_dir, known):
        plan.headers.append((path, key))
        plan.rows.append(RepairRow(current_dir, _REKEYED, ledger, _REKEYED_DETAIL))
    return plan


def _locations_of(ledger: int) -> Operation:
    """Make the deletion of all of a ledger's locations.

    Those of negative entry ids (which sort last) are included.
    """
    return DeleteRange(encode_key(ledger, 0), encode_ledger_key(ledger) + b"\xff" * KEY_BYTES + b"\0")


def _plan(current_dir: str, store: KeyValueReader, known: KnownLedgers | None) -> RepairPlan:
    plan = RepairPlan(current_dir)
    damaged: set[int] = set()
    # The lone rows are searched first, so that the cluster is asked about all of them at once.
    lone = {
        sixteen.ledger for eight, sixteen in _pairs(store, RepairPlan(""), set()) if sixteen and not eight
    }
    gone = frozenset() if known is None else frozenset(known.gone(lone))
    matches = False
    for eight, sixteen in _pairs(store, plan, damaged):
        row = eight or sixteen
        assert row is not None, "a pair has at least one row"
        matches = matches or (known is not None and bool(gone) and _describes(known, row.ledger))
        if sixteen is None or row.ledger in damaged:
            continue
        _plan_row(plan, eight, sixteen, known, gone)
    _plan_keys(plan, store, known, damaged)
    if plan.deleted and not matches:
        raise RefusedError(
            f"{current_dir}: the ledger metadata know none of the ledgers in this index; are they of another "
            f"cluster? Run without --metadata to keep all ledgers"
        )
    return plan


def _plan_keys(
    plan: RepairPlan, store: KeyValueReader, known: KnownLedgers | None, damaged: set[int]
) -> None:
    """Plan the rows that get the metadata's key, behind what else becomes of them in the same batch."""
    left_out = damaged | set(plan.deleted)
    for row, key in damaged_keys(_merged(store), known):
        if row.ledger not in left_out:
            data = dataclasses.replace(row.data, master_key=key)
            plan.operations.append(Put(encode_ledger_key(row.ledger), encode_ledger_data(data)))
            plan.rows.append(RepairRow(plan.dir, _REKEYED, row.ledger, _REKEYED_DETAIL))


def _merged(store: KeyValueReader) -> Iterator[LedgerRow]:
    """Yield the one row that is there of each ledger behind the repair of wide keys."""
    for eight, sixteen in _pairs(store, RepairPlan(""), set()):
        if eight is not None and sixteen is not None:
            yield dataclasses.replace(eight, data=collapsed(eight.data, sixteen.data))
        elif (row := eight or sixteen) is not None:
            yield row


def _describes(known: KnownLedgers, ledger: int) -> bool:
    """Return whether the metadata are this bookie's by their instance id, or know the ledger."""
    is_same = known.instance_id is not None and known.cluster.instance_id is not None
    return known.cluster.is_live or is_same or ledger in known.metadata_of([ledger])


def _plan_row(
    plan: RepairPlan,
    eight: LedgerRow | None,
    sixteen: LedgerRow,
    known: KnownLedgers | None,
    gone: frozenset[int],
) -> None:
    key = encode_ledger_key(sixteen.ledger)
    old = key.ljust(REBUILT_KEY_BYTES, b"\0")
    operations: list[Operation] = [Delete(old)]
    if eight is not None:
        kind, detail = _COLLAPSED, "the 8-byte row stays"
        merged = collapsed(eight.data, sixteen.data)
        if merged != eight.data:
            operations.append(Put(key, encode_ledger_data(merged)))
            detail = "the 8-byte row stays, now fenced as the 16-byte row was"
    elif sixteen.ledger in gone:
        kind, detail = _DELETED, "no such ledger in the metadata; its locations go too"
        plan.deleted.append(sixteen.ledger)
    else:
        kind, detail = _CONVERTED, _converted_detail(sixteen, known)
        operations.append(Put(key, encode_ledger_data(sixteen.data)))
    plan.operations += operations
    plan.rows.append(RepairRow(plan.dir, kind, sixteen.ledger, detail))


def _converted_detail(row: LedgerRow, known: KnownLedgers | None) -> str:
    parts = ["fenced" if row.data.fenced else "not fenced"]
    if not row.data.master_key:
        parts.append("no master key")
    if known is None or not known.cluster.is_asked:
        parts.append("may have been deleted (--metadata shows it)")
    elif row.ledger not in known.metadata_of([row.ledger]):
        why = known.reservation or "it is newer than the metadata"
        parts.append(f"not in the metadata, which do not show whether it was deleted: {why}")
    return ", ".join(parts)


def _pairs(
    store: KeyValueReader, plan: RepairPlan, damaged: set[int]
) -> Iterator[tuple[LedgerRow | None, LedgerRow | None]]:
    """Pair the 8-byte and the 16-byte row of each ledger; ``damaged`` gets ledgers with an unreadable row.

    The 8-byte key is a prefix of the 16-byte one, so the two rows are neighbours.
    """
    held: LedgerRow | None = None
    for row in LedgerIndex(store).rows():
        if isinstance(row, IndexDamage):
            ledger = _ledger_of(row.key_hex)
            plan.rows.append(RepairRow(plan.dir, _DAMAGED, ledger, f"row {row.key_hex}: {row.reason}"))
            if ledger is not None:
                damaged.add(ledger)
            continue
        if held is not None and held.ledger != row.ledger:
            yield held, None
            held = None
        if row.key_bytes == KEY_BYTES:
            held = row
        else:
            yield held, row
            held = None
    if held is not None:
        yield held, None


def _ledger_of(key_hex: str) -> int | None:
    key = bytes.fromhex(key_hex)
    if len(key) not in (KEY_BYTES, REBUILT_KEY_BYTES) or key[0] & 0x80:
        return None
    return int.from_bytes(key[:KEY_BYTES], "big")
