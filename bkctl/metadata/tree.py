"""The seam below the managers: a tree of small versioned nodes, some of which end with their session.

Semantics are ZooKeeper's. Paths are absolute, without a slash at the end; ``/`` is always there. A node's
version starts at 0 and counts its rewrites. A sequence node's suffix counts the children that were ever made
under its parent. Nodes of a session are gone, for everybody, when the session is.
"""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from bkctl.errors import CorruptionError, NotFoundError, RefusedError
from bkctl.metadata.api import AlreadyExistsError, NoClusterError
from bkctl.metadata.subscription import Subscription

_Value = TypeVar("_Value")

#: Version to hand to ``set`` and ``delete`` when any will do.
ANY_VERSION = -1

#: ``owner`` of a node that is no session's.
NO_SESSION = 0

#: How many reads of :meth:`NodeTree.get_many` are under way at once; as many answers are held in memory.
READS_AT_ONCE = 256

#: How often a node is created together with its parents. Another process that deletes the last child of a
#: directory deletes the directory as well, and may do so between the two steps.
_PARENT_ATTEMPTS = 5


class NodeMissingError(NotFoundError):
    """The node, or the parent of a node to be made, is not there."""

    def __init__(self, path: str, where: str) -> None:
        self.path = path
        super().__init__(f"{where}: no node {path}")


class NodeExistsError(AlreadyExistsError):
    """The node to be made is there."""

    def __init__(self, path: str, where: str) -> None:
        self.path = path
        super().__init__(f"{where}: node {path} is there already")


class NodeNotEmptyError(RefusedError):
    """The node to be deleted has children."""

    def __init__(self, path: str, where: str) -> None:
        self.path = path
        super().__init__(f"{where}: node {path} has children")


class GuardMissingError(RefusedError):
    """The node that a write was to stand beside is not there; nothing was written."""

    def __init__(self, path: str, where: str) -> None:
        self.path = path
        super().__init__(f"{where}: nothing was written, as node {path} is gone")


@dataclass(frozen=True, slots=True)
class Node:
    """One node; ``owner`` is the session it ends with, or NO_SESSION.

    ``has_children`` is False when the node certainly had none when it was read, so that nobody needs to ask.
    """

    data: bytes = field(repr=False)
    version: int
    created_ms: int
    owner: int = NO_SESSION
    has_children: bool = True


@dataclass(frozen=True, slots=True)
class SessionCallbacks:
    """Called from the tree's notice thread; never both at the same time."""

    lost: Callable[[], None]
    restored: Callable[[], None]


class NodeTree(abc.ABC):
    """A store's own part. Every method may raise ConnectionFailedError, and waits boundedly.

    A read of a missing node gives None; a failure is never reported that way.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Return the kind and the place of the store, for messages."""

    @property
    @abc.abstractmethod
    def session_timeout_s(self) -> float:
        """How long after its owner's death a session's nodes stay."""

    @abc.abstractmethod
    def session(self) -> int:
        """Return the id of the current session, made when there is none; not NO_SESSION."""

    @abc.abstractmethod
    def get(self, path: str) -> Node | None:
        """Read the node."""

    @abc.abstractmethod
    def children(self, path: str) -> list[str] | None:
        """Return the names of the node's children, in no order; None when the node itself is missing."""

    @abc.abstractmethod
    def children_made(self, path: str) -> int | None:
        """Return the number of children that were ever made under the node, which is the number that the next
        sequence node gets; None when the node itself is missing."""

    @abc.abstractmethod
    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        open_to_all: bool = False,
    ) -> str:
        """Make a node; returns its path, which has ten digits more than ``path`` with ``sequence``.

        ``open_to_all`` keeps a node writable for everybody in a store with access control. Raises
        NodeExistsError, NodeMissingError (the parent).
        """

    @abc.abstractmethod
    def create_all(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        """Make persistent nodes in this order, all or none. Raises as :meth:`create`."""

    @abc.abstractmethod
    def move(self, path: str, target: str, data: bytes) -> None:
        """Remove ``path`` and make ``target``, a node of this session, in one step: nobody sees both or none.

        Raises NodeMissingError (``path``, or the parent of ``target``), NodeExistsError, NodeNotEmptyError.
        """

    @abc.abstractmethod
    def set(self, path: str, data: bytes, version: int) -> int:
        """Rewrite the node if ``version`` is still its own; returns the new version.

        Raises VersionConflictError, NodeMissingError.
        """

    @abc.abstractmethod
    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove the node. Raises VersionConflictError, NodeMissingError, NodeNotEmptyError."""

    @abc.abstractmethod
    def write_beside(self, guard: str, path: str, data: bytes, version: int | None) -> None:
        """Rewrite ``path`` if ``version`` is still its own, or make it where that is None, as long as the
        node ``guard`` is there: both in one step.

        Raises GuardMissingError, and otherwise as :meth:`create` and :meth:`set`.
        """

    @abc.abstractmethod
    def sync(self, path: str) -> None:
        """Make later reads of this process no older than anything acknowledged before the call."""

    @abc.abstractmethod
    def wait_until_gone(self, path: str, timeout_s: float, given_up: threading.Event | None = None) -> bool:
        """Wait for a node to go; False when it was still there after ``timeout_s``, or at a close.

        Also False soon after ``given_up`` is set, by a thread that needs the node's end no longer.
        """

    @abc.abstractmethod
    def watch_children(self, path: str, changed: Callable[[], None]) -> Subscription:
        """Call ``changed`` soon, and from then on after every change of the names of a node's children.

        Changes may be reported as one, and a report may come without a change. The node need not be there.
        Called from the notice thread.
        """

    @abc.abstractmethod
    def watch_node(self, path: str, changed: Callable[[], None]) -> Subscription:
        """Call ``changed`` soon, and from then on after the node was made, rewritten or deleted.

        Rewriting a node with the bytes that it has is a change, too. Otherwise as :meth:`watch_children`.
        """

    @abc.abstractmethod
    def set_session_callbacks(self, callbacks: SessionCallbacks) -> None:
        """Set the callbacks that get reports about the session; one set for each tree."""

    @abc.abstractmethod
    def close(self) -> None:
        """End the session and the tree's threads; a second call does nothing."""

    def get_many(self, paths: Iterable[str]) -> Iterator[tuple[str, Node | None]]:
        """Yield each path with its node, in the order of ``paths``.

        A store behind a network is asked for up to READS_AT_ONCE nodes at once; so much further than the
        answers ``paths`` is taken, which may itself be made of reads of this tree. A failure is raised where
        its answer would stand, after the same wait as that of a :meth:`get`: what ends without an error is
        complete.
        """
        for path in paths:
            yield path, self.get(path)

    def children_many(self, paths: Iterable[str]) -> Iterator[tuple[str, list[str] | None]]:
        """Yield each path with the names of its children, in the order of ``paths``, as :meth:`get_many`.

        How many requests are under way depends on how long the lists were.
        """
        for path in paths:
            yield path, self.children(path)

    def create_with_parents(
        self, path: str, data: bytes, *, below: str, ephemeral: bool = False, open_to_all: bool = False
    ) -> str:
        """Create a node as :meth:`create`, and missing parents; ``below`` is not made (NodeMissingError)."""
        for _ in range(_PARENT_ATTEMPTS):
            try:
                return self.create(path, data, ephemeral=ephemeral, open_to_all=open_to_all)
            except NodeMissingError:
                with contextlib.suppress(NodeMissingError):
                    self.make_parents(path, below=below)
        return self.create(path, data, ephemeral=ephemeral, open_to_all=open_to_all)

    def make_parents(self, path: str, *, below: str) -> None:
        """Make the missing nodes between ``below`` and ``path``, without both."""
        # From below: most often the last directory alone is missing, and each question is a round trip.
        missing: list[str] = []
        parent = parent_of(path)
        while parent not in (below, "/"):
            try:
                self.create(parent)
            except NodeMissingError:
                missing.append(parent)
                parent = parent_of(parent)
            except NodeExistsError:
                break  # somebody else made it in between
            else:
                break
        for directory in reversed(missing):
            with contextlib.suppress(NodeExistsError):
                self.create(directory)


def require_node(tree: NodeTree, path: str) -> None:
    """Raise NoClusterError unless the node, a cluster's root, is there."""
    if tree.get(path) is None:
        raise NoClusterError(
            f"{tree.name}: no cluster at {path}: make one ('bkctl cluster init'), or correct the address or "
            "path of the metadata URI"
        )


def decoded(tree: NodeTree, path: str, data: bytes, decode: Callable[[bytes], _Value]) -> _Value:
    """Decode a node's data. A CorruptionError of ``decode`` names the store and the node."""
    try:
        return decode(data)
    except CorruptionError as error:
        raise error.located(f"{tree.name}: {path}") from None


def join(path: str, name: str) -> str:
    """Return the path of a child."""
    return f"{path.rstrip('/')}/{name}"


def parent_of(path: str) -> str:
    """Return the path of the parent; of ``/a`` it is ``/``."""
    return path.rpartition("/")[0] or "/"


def sequence_name(path: str, number: int) -> str:
    """Return the path of a sequence node; the number is an i32 and wraps, as ZooKeeper's does."""
    return f"{path}{(number + 2**31) % 2**32 - 2**31:010d}"
