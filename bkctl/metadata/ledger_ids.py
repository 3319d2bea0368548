"""New ledger ids out of the store's sequence nodes.

The first generator gives 31 bits; when it has run out, ``idgen-long`` is made and the second one gives 63
for good: the high half is the number of the newest ``HOB-`` directory, the low half a sequence below it.

Source: ``org.apache.bookkeeper.meta.ZkLedgerIdGenerator``, ``LongZkLedgerIdGenerator``.
"""

from __future__ import annotations

import contextlib

from bkctl.codec.ledger_path import LONG_TREE_FIRST, LedgerLayout
from bkctl.errors import RefusedError
from bkctl.metadata import paths
from bkctl.metadata.tree import NodeExistsError, NodeMissingError, NodeTree, join

_HIGH_BITS_LIMIT = 2**31


class LedgerIdGenerator:
    """Ids of one cluster."""

    def __init__(self, tree: NodeTree, root: str) -> None:
        self._tree = tree
        self._root = root

    def next_id(self, layout: LedgerLayout) -> int:
        """Return a fresh id. Raises RefusedError when there are no more."""
        if layout is LedgerLayout.FLAT:
            number = self._sequence(self._root)
            if not 0 <= number < LONG_TREE_FIRST:
                raise RefusedError(f"{self._tree.name}: the flat layout at {self._root} has no more ids")
            return number
        long_folder = join(self._root, paths.LONG_ID_GENERATOR)
        if self._tree.get(long_folder) is None:
            number = self._sequence(join(self._root, paths.ID_GENERATOR))
            if 0 <= number < LONG_TREE_FIRST:
                return number
            with contextlib.suppress(NodeExistsError):
                self._tree.create(long_folder)
        return self._long_id(long_folder)

    def upcoming_id(self, layout: LedgerLayout) -> int:
        """Return the id that :meth:`next_id` would give, without taking it: no id that was generated so far
        is as high."""
        self._tree.sync(self._root)
        if layout is LedgerLayout.FLAT:
            return self._tree.children_made(self._root) or 0
        long_folder = join(self._root, paths.LONG_ID_GENERATOR)
        if self._tree.get(long_folder) is None:
            return self._tree.children_made(join(self._root, paths.ID_GENERATOR)) or 0
        high = max(self._high_numbers(long_folder), default=1)
        return high << 32 | (self._tree.children_made(_high_bits(long_folder, high)) or 0)

    def _high_numbers(self, folder: str) -> list[int]:
        return [
            int(name.removeprefix(paths.HIGH_BITS_PREFIX))
            for name in self._tree.children(folder) or ()
            if name.startswith(paths.HIGH_BITS_PREFIX)
        ]

    def _long_id(self, folder: str) -> int:
        for high in range(max(self._high_numbers(folder), default=1), _HIGH_BITS_LIMIT):
            path = _high_bits(folder, high)
            with contextlib.suppress(NodeExistsError):
                self._tree.create(path, open_to_all=True)
            low = self._sequence(path)
            if low >= 0:
                return high << 32 | low
        raise RefusedError(f"{self._tree.name}: {folder} has no more ledger ids")

    def _sequence(self, folder: str) -> int:
        """Return the next number below a folder, which is made when it is missing."""
        prefix = join(folder, paths.SEQUENCE_PREFIX)
        try:
            path = self._tree.create(prefix, ephemeral=True, sequence=True)
        except NodeMissingError:
            with contextlib.suppress(NodeExistsError):
                self._tree.create(folder)
            path = self._tree.create(prefix, ephemeral=True, sequence=True)
        with contextlib.suppress(NodeMissingError):
            self._tree.delete(path)
        return int(path[len(prefix) :])


def _high_bits(folder: str, high: int) -> str:
    return f"{join(folder, paths.HIGH_BITS_PREFIX)}{high:010d}"
