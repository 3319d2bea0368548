"""The list of all ledgers, ascending and complete.

A garbage collector deletes what is not listed, so the end of a list, an empty directory and a failure are
three different things here. Every gap is confirmed against the cluster's root and instance id.

=============== ===================== ================================================================
layout          directories           ledgers of one range
=============== ===================== ================================================================
flat            the root              up to 10,000 in a row
legacy          ``00/0000``           those of one directory, 10,000 ids
long            ``000/0000/0000/0000`` those of one directory, 10,000 ids
hierarchical    both                  ids below 2147483647 in the legacy tree, the others in the long
=============== ===================== ================================================================

Source: ``org.apache.bookkeeper.meta.LedgerManager.LedgerRangeIterator`` and its implementations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bkctl.codec.ledger_path import LEDGER_ID_MAX, LONG_TREE_FIRST, TEN_DIGITS_LIMIT, LedgerLayout
from bkctl.errors import RefusedError
from bkctl.metadata import paths
from bkctl.metadata.api import LayoutManager, LedgerRange
from bkctl.metadata.tree import NodeTree, join

_FOUR_DIGITS = re.compile(r"[0-9]{4}\Z")
_LEAF = re.compile(r"L[0-9]{4}\Z")
_LEAF_IDS = 10_000
_FLAT_RANGE_LEDGERS = 10_000

#: First directory and number of four-digit directories below it.
_LEGACY = (paths.LEGACY_DIRECTORY, 1)
_LONG = (paths.LONG_DIRECTORY, 3)


class LedgerListing:
    """One pass over the ledgers; made again for each pass."""

    def __init__(self, tree: NodeTree, root: str, layout_manager: LayoutManager) -> None:
        self._tree = tree
        self._root = root
        self._layout_manager = layout_manager

    def ranges(self) -> Iterator[LedgerRange]:
        """Yield ranges of ledgers; see :meth:`bkctl.metadata.api.LedgerManager.ledger_ranges`."""
        self._tree.sync(self._root)
        layout = layout_that_hides_nothing(self._tree, self._root, self._layout_manager)
        self._instance = self._layout_manager.instance_id()
        names = sorted(self._tree.children(self._root) or ())
        first = 0
        for last, ledgers in self._filled(layout, names):
            yield LedgerRange(first, last, ledgers)
            first = last + 1
        self._confirm_the_cluster()
        if first <= LEDGER_ID_MAX:
            yield LedgerRange(first, LEDGER_ID_MAX, ())

    def _filled(self, layout: LedgerLayout, names: list[str]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield (last id, ledgers) of each range that has ledgers."""
        if layout is LedgerLayout.FLAT:
            yield from self._flat(names)
            return
        if layout is not LedgerLayout.LONG:
            below = LONG_TREE_FIRST if layout is LedgerLayout.HIERARCHICAL else TEN_DIGITS_LIMIT
            yield from self._nested(names, *_LEGACY, 0, below)
        if layout is not LedgerLayout.LEGACY:
            start = LONG_TREE_FIRST if layout is LedgerLayout.HIERARCHICAL else 0
            yield from self._nested(names, *_LONG, start, LEDGER_ID_MAX + 1)

    def _flat(self, names: list[str]) -> Iterator[tuple[int, tuple[int, ...]]]:
        ids = sorted(int(name[1:]) for name in names if paths.FLAT_LEDGER.match(name))
        ids = [ledger for ledger in ids if ledger <= LEDGER_ID_MAX]
        for at in range(0, len(ids), _FLAT_RANGE_LEDGERS):
            part = tuple(ids[at : at + _FLAT_RANGE_LEDGERS])
            yield part[-1], part

    def _nested(
        self, names: list[str], pattern: re.Pattern[str], depth: int, start: int, stop: int
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        directories: Iterator[str] = (join(self._root, name) for name in names if pattern.match(name))
        for _ in range(depth):
            directories = self._lower(directories)
        for path, leaves in self._listed(directories):
            base = int(path[len(self._root) :].replace("/", "")) * _LEAF_IDS
            ids = sorted(base + int(leaf[1:]) for leaf in leaves if _LEAF.match(leaf))
            inside = tuple(ledger for ledger in ids if start <= ledger < stop)
            if inside:
                yield min(base + _LEAF_IDS, stop) - 1, inside

    def _lower(self, directories: Iterator[str]) -> Iterator[str]:
        """Yield the directories below these, ascending."""
        for path, names in self._listed(directories):
            for name in sorted(names):
                if _FOUR_DIGITS.match(name):
                    yield join(path, name)

    def _listed(self, directories: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
        """Yield directories with the names of their children.

        A directory may go with its last ledger, but not with the cluster.
        """
        for path, names in self._tree.children_many(directories):
            if not names:
                self._confirm_the_cluster()
            yield path, names or []

    def _confirm_the_cluster(self) -> None:
        if self._layout_manager.instance_id() != self._instance:
            raise RefusedError(
                f"{self._tree.name}: the cluster at {self._root} was formatted while its ledgers were listed"
            )


def layout_that_hides_nothing(tree: NodeTree, root: str, layout_manager: LayoutManager) -> LedgerLayout:
    """Return the cluster's layout. Without LAYOUT it is a guess; ledgers that it would not find must not seem
    deleted: RefusedError."""
    stored = layout_manager.read_layout()
    layout = layout_manager.layout_of(stored)
    if stored is not None:
        return layout
    names = tree.children(root) or ()
    flat = any(paths.FLAT_LEDGER.match(name) for name in names)
    nested = any(paths.LEGACY_DIRECTORY.match(name) or paths.LONG_DIRECTORY.match(name) for name in names)
    if nested if layout is LedgerLayout.FLAT else flat:
        raise RefusedError(
            f"{tree.name}: {root} has no LAYOUT, and ledgers that layout {layout.value!r} does not find: "
            "name the kind in the metadata URI (zk+flat://...)"
        )
    return layout
