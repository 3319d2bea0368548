"""The kinds of ledger storage that bookies have, with the facts that distinguish them, in one table.

No other module compares kinds. One that treats them differently asks for a fact of this table, or has a table
of operations with a row for each kind: the readers of indexes are ``READERS`` of ``scan.index``, the rebuilds
``REBUILDS`` of ``admin.index.rebuild.rebuild``. ``tests/arch/test_storage_kinds.py`` checks both.

SortedLedgerStorage and InterleavedLedgerStorage leave the same files, so that they are one kind here; a class
of Java's chooses between them.

Source: ``org.apache.bookkeeper.bookie.LedgerStorageFactory`` and the classes that it makes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from bkctl.errors import UsageError

DB_LEDGER_STORAGE = "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"
SORTED_LEDGER_STORAGE = "org.apache.bookkeeper.bookie.SortedLedgerStorage"
INTERLEAVED_LEDGER_STORAGE = "org.apache.bookkeeper.bookie.InterleavedLedgerStorage"


@dataclass(frozen=True, slots=True)
class StorageKind:
    """One kind of ledger storage, by the files that it leaves.

    =================== ==================================================================================
    field               meaning
    =================== ==================================================================================
    name                what ``--storage`` takes
    packages            values of ``ledgerStorageClass`` that choose it, each with the package of the engine
                        that serves it to a running bookie (``engine.storages``)
    indexes             its index, as ``BookieDirectory.indexes`` names it; what a bookie cannot do without
                        comes first
    traces              names in a ``current`` directory that only it leaves, whole or moved away by a tool
    has_databases       whether ``indexes`` are RocksDB databases, which are read, built and kept one by one
    has_file_per_ledger whether a ledger that cannot be read hides in a file of its own
    shares_log_ids      whether all ledger directories of a bookie are one storage: one space of log ids, in
                        which several logs may be written at a time, and any index directory for a ledger.
                        Otherwise each ledger directory is a storage of its own, with the ledgers of its
                        position
    has_metadata_cache  whether ``metadata-cache`` in a ledger directory is its collector's
    =================== ==================================================================================
    """

    name: str
    packages: Mapping[str, str] = field(hash=False)
    indexes: tuple[str, ...]
    traces: tuple[str, ...]
    has_databases: bool
    has_file_per_ledger: bool
    shares_log_ids: bool
    has_metadata_cache: bool

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the values of ``ledgerStorageClass`` that choose it."""
        return tuple(self.packages)

    def is_in(self, indexes: Collection[str]) -> bool:
        """Return whether a directory with these indexes has one of this kind."""
        return any(name in indexes for name in self.indexes)

    def has_others_in(self, indexes: Collection[str]) -> bool:
        """Return whether a directory with these indexes has one of another kind."""
        return any(kind.is_in(indexes) for kind in KINDS if kind != self)

    def finds_nothing_in(self, indexes: Collection[str]) -> bool:
        """Return whether a bookie of this kind would find no ledger of a directory with these indexes."""
        return self.has_others_in(indexes) and self.indexes[0] not in indexes

    def has_trace_in(self, names: Iterable[str]) -> bool:
        """Return whether a name in ``current`` is this kind's: an index, or one that a tool moved away."""
        return any(name.split(".", 1)[0] in self.traces for name in names)


DB = StorageKind(
    name="db",
    packages={DB_LEDGER_STORAGE: "db_storage"},
    indexes=("locations", "ledgers"),
    traces=("locations", "ledgers", "metadata-cache"),
    has_databases=True,
    has_file_per_ledger=False,
    shares_log_ids=False,
    has_metadata_cache=True,
)
IDX = StorageKind(
    name="idx",
    # Two names of one storage: what they leave is the same, and so is what they do (ADR 0019).
    packages={
        SORTED_LEDGER_STORAGE: "interleaved_storage",
        INTERLEAVED_LEDGER_STORAGE: "interleaved_storage",
    },
    indexes=("idx",),
    traces=(),
    has_databases=False,
    has_file_per_ledger=True,
    shares_log_ids=True,
    has_metadata_cache=False,
)

#: Every kind. If a directory has indexes of several, the first one counts: a conversion leaves the others.
KINDS = (DB, IDX)

#: The kind of a bookie of this program whose configuration names none.
DEFAULT = DB


def kind_named(name: str) -> StorageKind:
    """Return the kind that ``--storage`` names. Raises UsageError."""
    for kind in KINDS:
        if kind.name == name:
            return kind
    raise UsageError(f"--storage {name}: is neither {' nor '.join(kind.name for kind in KINDS)}")


def kind_in(indexes: Collection[str]) -> StorageKind | None:
    """Return the kind of a directory with these indexes, None where it has none."""
    return next((kind for kind in KINDS if kind.is_in(indexes)), None)


def kind_of_class(storage_class: str | None) -> StorageKind:
    """Return the kind that a ``ledgerStorageClass`` chooses; the default one for a class that is none."""
    return next((kind for kind in KINDS if storage_class in kind.classes), DEFAULT)


def serving_package(storage_class: str) -> str:
    """Return the package of ``bkctl.engine`` that serves a class. Raises UsageError for one that is none."""
    for kind in KINDS:
        if storage_class in kind.packages:
            return kind.packages[storage_class]
    every = [name for kind in KINDS for name in kind.classes]
    raise UsageError(f"ledgerStorageClass={storage_class}: is none of {', '.join(every)}")


def short_names(classes: Iterable[str]) -> str:
    """Return classes as people call them: without their packages."""
    return " or ".join(name.rsplit(".", 1)[-1] for name in classes)
