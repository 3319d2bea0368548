"""A walk over everything below a node, with many reads under way at once.

A leaf costs one read: that it has no children is in the same answer. A directory costs two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from bkctl.metadata.tree import READS_AT_ONCE, Node, NodeTree, join


def walk(tree: NodeTree, path: str) -> Iterator[tuple[str, Node]]:
    """Yield the node at ``path`` and all below it: parents first, children in the order of their names.

    The nodes are not a picture of one moment: a node that changes during the walk is yielded as it was when
    it was read, and one that is deleted before that is left out. Raises what the tree raises: a walk that
    ends without an error is complete.
    Of each level of the tree READS_AT_ONCE nodes are held at most, and the names below some of them.
    """
    for _, found, node in _nodes(tree, [(0, path)]):
        yield found, node


def _nodes(tree: NodeTree, places: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str, Node]]:
    """Walk from several places, each with a number that is given out again with every node below it.

    The nodes below a group of nodes are read as one stream, so that narrow directories cost no waits each.
    """
    numbers: deque[int] = deque()
    nodes = tree.get_many(_numbered(places, numbers))
    while group := [(numbers.popleft(), path, node) for path, node in islice(nodes, READS_AT_ONCE)]:
        there = [(number, path, node) for number, path, node in group if node is not None]
        below = _nodes(tree, _children(tree, [path for _, path, node in there if node.has_children]))
        parents = 0
        ahead = next(below, None)
        for number, path, node in there:
            yield number, path, node
            if not node.has_children:
                continue
            while ahead is not None and ahead[0] == parents:
                yield number, ahead[1], ahead[2]
                ahead = next(below, None)
            parents += 1


def _numbered(places: Iterable[tuple[int, str]], numbers: deque[int]) -> Iterator[str]:
    """Yield the paths, and put their numbers into ``numbers``."""
    for number, path in places:
        numbers.append(number)
        yield path


def _children(tree: NodeTree, parents: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the paths of all children, ascending below each parent, with the number of the parent."""
    for number, (parent, names) in enumerate(tree.children_many(parents)):
        for name in sorted(names or ()):
            yield number, join(parent, name)
