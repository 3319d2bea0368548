"""The ledgers that an index knows, and what is wrong with their rows."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from posixpath import join

import numpy as np
from numpy.typing import NDArray

from bkctl.admin.index.check.finding import Finding, Kind, about_directory, about_ledger
from bkctl.admin.index.check.master_keys import MasterKeyCheck
from bkctl.codec import file_info, ledger_data, location
from bkctl.codec.file_info import HEADER_BYTES, SLOT_BYTES
from bkctl.directories.index_spaces import IndexSpace
from bkctl.errors import CorruptionError
from bkctl.scan.index import DirectoryIndex
from bkctl.scan.index_rows import IndexDamage, LedgerRow
from bkctl.scan.ledger_places import place_of
from bkctl.vfs import FileSystem

Column = NDArray[np.int64]


@dataclass(slots=True)
class IndexedLedgers:
    """``ids`` ascend. ``seen`` says of each whether an entry of it was found anywhere. ``hidden`` are ledgers
    of which the index cannot be read, so that nothing is said of entries missing from it. ``owners`` are
    ledgers with a file in several ``.idx`` directories, and the directory whose file counts. ``limbo`` are
    ledgers of which a missing entry is answered with unknown."""

    ids: Column
    seen: NDArray[np.bool_]
    hidden: set[int] = field(default_factory=set)
    owners: dict[int, str] = field(default_factory=dict)
    limbo: set[int] = field(default_factory=set)

    def find(self, ledgers: Column) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Find the position of each ledger in ``ids``, and whether it is there."""
        if not len(self.ids):
            return np.zeros(len(ledgers), np.intp), np.zeros(len(ledgers), np.bool_)
        at = np.minimum(np.searchsorted(self.ids, ledgers), len(self.ids) - 1)
        return at, self.ids[at] == ledgers


def no_ledgers() -> IndexedLedgers:
    """Return what is known of the ledgers without an index: nothing."""
    return IndexedLedgers(np.zeros(0, np.int64), np.zeros(0, np.bool_))


def read_ledgers(
    filesystem: FileSystem,
    space: IndexSpace,
    indexes: Sequence[DirectoryIndex],
    keys: MasterKeyCheck | None = None,
) -> Generator[Finding, None, IndexedLedgers]:
    """Yield findings about ledger rows and return the ledgers. Raises CorruptionError, StorageError.

    Memory: some ten bytes for each ledger.
    """
    ids: list[Column] = []
    hidden: set[int] = set()
    limbo: set[int] = set()
    for index in indexes:
        reader = _Reader(space, index, keys)
        yield from reader.findings()
        ids.append(reader.ids())
        hidden |= reader.hidden
        limbo |= reader.limbo
    every, counts = np.unique(np.concatenate(ids), return_counts=True)
    owners: dict[int, str] = {}
    for ledger in every[counts > 1].tolist():
        owner, others = _owner(filesystem, space, ledger)
        owners[ledger] = owner
        if others:
            detail = f"it has an .idx file here and in {', '.join(others)}; only the one here was looked at"
            yield about_ledger(Kind.DUPLICATE_IDX, owner, ledger, detail)
    every = np.union1d(every, np.fromiter(hidden, np.int64))
    seen = np.zeros(len(every), np.bool_)
    return IndexedLedgers(every, seen, hidden if space.kind.has_file_per_ledger else set(), owners, limbo)


def _owner(filesystem: FileSystem, space: IndexSpace, ledger: int) -> tuple[str, list[str]]:
    """Find the first directory with a finished ``.idx`` file of the ledger, and the others with one.

    Where all are ``.idx.rloc``, copies in progress, Java makes the first it finds the file.
    """
    path = file_info.index_path(ledger)
    finished = [
        directory for directory in space.index_dirs if filesystem.status(join(directory, path)) is not None
    ]
    if finished:
        return finished[0], finished[1:]
    copies = (
        directory for directory in space.index_dirs if filesystem.status(join(directory, f"{path}.rloc"))
    )
    return next(copies, space.index_dirs[0]), []


class _Reader:
    """The ledger rows of one directory."""

    def __init__(self, space: IndexSpace, index: DirectoryIndex, keys: MasterKeyCheck | None) -> None:
        self._space = space
        self._index = index
        self._keys = keys
        self._parts: list[Column] = []
        self._batch: list[int] = []
        self.hidden: set[int] = set()
        self.limbo: set[int] = set()

    def ids(self) -> Column:
        self._seal()
        return np.concatenate([np.empty(0, np.int64), *self._parts])

    def _seal(self) -> None:
        self._parts.append(np.array(self._batch, np.int64))
        self._batch.clear()

    def findings(self) -> Generator[Finding, None, None]:
        source = self._index.ledgers
        if source.needs_integrity_check():
            detail = "Java was asked for a data integrity check at the next start"
            yield about_directory(Kind.INTEGRITY_FLAG, self._index.path, detail)
        last: int | None = None
        for row in source.rows():
            if isinstance(row, IndexDamage):
                yield self._damage(row)
                continue
            if row.key_bytes == ledger_data.REBUILT_KEY_BYTES:
                yield _wide(self._index.path, row.ledger, beside=row.ledger == last)
            if row.ledger != last:
                yield from self._ledger(row)
            last = row.ledger
        if self._keys is not None:
            yield from self._keys.end(self._index.path)

    def _damage(self, damage: IndexDamage) -> Finding:
        finding = damage_finding(damage, self._index.path)
        if finding.ledger is not None:
            self.hidden.add(finding.ledger)
        return finding

    def _ledger(self, row: LedgerRow) -> Generator[Finding, None, None]:
        self._batch.append(row.ledger)
        if len(self._batch) >= 1 << 16:
            self._seal()
        if row.data.limbo:
            self.limbo.add(row.ledger)
            detail = "entries may have been lost: a missing one is answered with unknown until it is cleared"
            yield about_ledger(Kind.LIMBO, self._index.path, row.ledger, detail)
        if self._keys is not None:
            yield from self._keys.add(self._index.path, row)
        if self._space.is_elsewhere(row.ledger):
            yield wrong_directory(self._space, self._index.path, row.ledger)


def _wide(directory: str, ledger: int, *, beside: bool) -> Finding:
    effect = "at every start it overrides the 8-byte row beside it" if beside else "the ledger has no other"
    return about_ledger(
        Kind.WIDE_KEY,
        directory,
        ledger,
        f"a row with a 16-byte key, left by Java's index rebuild: {effect}; it brings the ledger back after "
        "its deletion (bkctl index repair collapses it)",
    )


def wrong_directory(space: IndexSpace, directory: str, ledger: int) -> Finding:
    """Report that the ledger is at home in another directory of its bookie."""
    return about_ledger(
        Kind.WRONG_DIRECTORY,
        directory,
        ledger,
        f"a bookie looks for it in directory {place_of(ledger, space.directories)} of {space.directories} "
        f"(counted from 0), this is directory {space.position}: directories were swapped, reordered, or "
        "their number was changed",
    )


def damage_finding(damage: IndexDamage, directory: str) -> Finding:
    """Report what an index reader could not decode."""
    if damage.offset is not None:
        return _idx_damage(damage, damage.offset, directory)
    if not damage.key_hex:
        return about_directory(Kind.UNREADABLE_INDEX, directory, f"{damage.path}: {damage.reason}")
    ledger, entry = _ids(bytes.fromhex(damage.key_hex), locations=damage.path.endswith("locations"))
    detail = f"{damage.path}: row {damage.key_hex}: {damage.reason}"
    return Finding(Kind.UNDECODABLE_ROW, directory, ledger, entry, None, None, detail)


def _idx_damage(damage: IndexDamage, offset: int, directory: str) -> Finding:
    detail = f"{damage.path}: at {offset}: {damage.reason}"
    try:
        ledger = file_info.parse_index_path(damage.path).ledger
    except CorruptionError:
        return about_directory(Kind.UNDECODABLE_ROW, directory, detail)
    if offset < HEADER_BYTES:
        return about_ledger(Kind.DAMAGED_IDX_HEADER, directory, ledger, detail)
    entry = (offset - HEADER_BYTES) // SLOT_BYTES
    return Finding(Kind.UNDECODABLE_ROW, directory, ledger, entry, None, None, detail)


def _ids(key: bytes, *, locations: bool) -> tuple[int | None, int | None]:
    """Decode the ledger and the entry of a key, as far as it decodes."""
    try:
        if locations:
            return location.decode_key(key)
        ledger = ledger_data.decode_ledger_key(key)[0]
        return (ledger if ledger >= 0 else None), None
    except CorruptionError:
        return None, None
