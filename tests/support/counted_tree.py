"""A tree in memory that counts what a network would carry: requests, and how often somebody waits for one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from bkctl.metadata.memory import MemoryCluster, MemoryTree
from bkctl.metadata.tree import READS_AT_ONCE, Node


class CountedTree(MemoryTree):
    """``requests`` are all reads and syncs, ``waits`` the round trips that follow one another.

    Reads of many nodes are one wait for READS_AT_ONCE of them, as with a store that is asked for so many at
    once. ``most`` is the largest number of requests of one wait.
    """

    def __init__(self, cluster: MemoryCluster | None = None) -> None:
        super().__init__(cluster or MemoryCluster())
        self.requests = self.waits = self.most = 0

    def reset(self) -> None:
        """Count from here on."""
        self.requests = self.waits = self.most = 0

    def _count(self, requests: int) -> None:
        self.requests += requests
        self.waits += 1
        self.most = max(self.most, requests)

    def get(self, path: str) -> Node | None:
        self._count(1)
        return super().get(path)

    def children(self, path: str) -> list[str] | None:
        self._count(1)
        return super().children(path)

    def sync(self, path: str) -> None:
        self._count(1)
        super().sync(path)

    def get_many(self, paths: Iterable[str]) -> Iterator[tuple[str, Node | None]]:
        rest = iter(paths)
        while group := list(islice(rest, READS_AT_ONCE)):
            self._count(len(group))
            yield from [(path, super(CountedTree, self).get(path)) for path in group]

    def children_many(self, paths: Iterable[str]) -> Iterator[tuple[str, list[str] | None]]:
        rest = iter(paths)
        while group := list(islice(rest, READS_AT_ONCE)):
            self._count(len(group))
            yield from [(path, super(CountedTree, self).children(path)) for path in group]
