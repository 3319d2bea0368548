"""What autorecovery keeps below the ledgers root: marks, locks, votes, switches.

Source: ``org.apache.bookkeeper.meta.ZkLedgerUnderreplicationManager``, ``ZkLedgerAuditorManager``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from bkctl.codec.underreplication import (
    DISABLED,
    ELECTION,
    LOCKS,
    LOST_BOOKIE_DELAY,
    MARKS,
    UnderreplicatedMark,
    decode_delay_s,
    decode_holder,
    decode_mark,
    encode_delay_s,
    ledger_of_mark,
    mark_name,
    mark_path,
    vote_number,
)
from bkctl.metadata.api import VersionConflictError
from bkctl.metadata.tree import NodeExistsError, NodeMissingError, NodeTree, decoded, join, require_node

_Value = TypeVar("_Value")

_FOUR_DIGITS = re.compile(r"[0-9a-f]{4}\Z")
_DIRECTORIES = 4

#: Others that write the same node at the same time, before it is given up.
_ATTEMPTS = 10


class TreeUnderreplication:
    """:class:`bkctl.metadata.api.Underreplication` over a tree."""

    def __init__(self, tree: NodeTree, root: str) -> None:
        self._tree = tree
        self._root = root

    # --- switches -------------------------------------------------------------------------------------------

    def enabled(self) -> bool:
        if self._tree.get(join(self._root, DISABLED)) is not None:
            return False
        require_node(self._tree, self._root)
        return True

    def set_enabled(self, enabled: bool) -> None:
        require_node(self._tree, self._root)
        path = join(self._root, DISABLED)
        if enabled:
            with contextlib.suppress(NodeMissingError):
                self._tree.delete(path)
        else:
            with contextlib.suppress(NodeExistsError):
                self._tree.create_with_parents(path, b"", below=self._root)

    def lost_bookie_recovery_delay_s(self) -> int | None:
        return self._value_in_cluster(join(self._root, LOST_BOOKIE_DELAY), decode_delay_s)

    def set_lost_bookie_recovery_delay(self, seconds: int) -> None:
        data = encode_delay_s(seconds)
        require_node(self._tree, self._root)
        path = join(self._root, LOST_BOOKIE_DELAY)
        for attempt in range(_ATTEMPTS):
            node = self._tree.get(path)
            try:
                if node is None:
                    # Java leaves this one to everybody, also in a cluster with access control.
                    self._tree.create_with_parents(path, data, below=self._root, open_to_all=True)
                else:
                    self._tree.set(path, data, node.version)
            except (NodeExistsError, NodeMissingError, VersionConflictError):
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                return

    # --- who and what ---------------------------------------------------------------------------------------

    def auditor(self) -> str | None:
        path = join(self._root, ELECTION)
        votes = {vote_number(name): name for name in self._tree.children(path) or ()}
        # The data of the parent may be that of an auditor that is gone.
        for number in sorted(number for number in votes if number is not None):
            holder = self._value(join(path, votes[number]), decode_holder)
            if holder is not None:
                return holder
        require_node(self._tree, self._root)
        return None

    def marked_ledgers(self) -> Iterator[tuple[int, UnderreplicatedMark]]:
        self._tree.sync(self._root)
        require_node(self._tree, self._root)
        directories: Iterator[str] = iter((join(self._root, MARKS),))
        for _ in range(_DIRECTORIES):
            directories = self._below(directories, _FOUR_DIGITS.match)
        for path, node in self._tree.get_many(self._below(directories, _ledger_at)):
            ledger = _ledger_at(path)
            # A mark that goes while the list is read is done with.
            if ledger is not None and node is not None:
                yield ledger, decoded(self._tree, path, node.data, decode_mark)
        require_node(self._tree, self._root)

    def mark_of(self, ledger: int) -> UnderreplicatedMark | None:
        return self._value_in_cluster(join(self._root, mark_path(ledger)), decode_mark)

    def replicator_of(self, ledger: int) -> str | None:
        return self._value_in_cluster(join(self._root, f"{LOCKS}/{mark_name(ledger)}"), decode_holder)

    def _below(self, directories: Iterable[str], wanted: Callable[[str], object]) -> Iterator[str]:
        """The paths below the directories, ascending, whose names are ``wanted``, that is, give not None."""
        for path, names in self._tree.children_many(directories):
            for name in sorted(names or ()):
                if wanted(name) is not None:
                    yield join(path, name)

    def _value(self, path: str, decode: Callable[[bytes], _Value]) -> _Value | None:
        """What a node says, None when it is not there."""
        node = self._tree.get(path)
        return None if node is None else decoded(self._tree, path, node.data, decode)

    def _value_in_cluster(self, path: str, decode: Callable[[bytes], _Value]) -> _Value | None:
        """:meth:`_value`; None only where there is a cluster that could have the node."""
        found = self._value(path, decode)
        if found is None:
            require_node(self._tree, self._root)
        return found


def _ledger_at(path: str) -> int | None:
    """The ledger of a mark's path or name."""
    return ledger_of_mark(path.rpartition("/")[2])
