"""The marks and locks of ledgers that miss replicas, over a tree; the switches of autorecovery beside them.

Source: ``org.apache.bookkeeper.meta.ZkLedgerUnderreplicationManager``, ``ZkLedgerAuditorManager``.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
from collections.abc import Callable, Container, Iterable, Iterator

from bkctl.codec.underreplication import (
    ELECTION,
    LAYOUT,
    LAYOUT_DATA,
    LOCKS,
    MARKS,
    PULSAR_LEADER,
    UnderreplicatedMark,
    check_layout,
    decode_holder,
    decode_mark,
    encode_holder,
    encode_mark,
    ledger_of_mark,
    mark_name,
    mark_path,
    vote_number,
)
from bkctl.errors import CorruptionError, RefusedError
from bkctl.metadata.api import VersionConflictError
from bkctl.metadata.autorecovery_api import LockHolder, Taken
from bkctl.metadata.autorecovery_switches import TreeSwitches
from bkctl.metadata.subscription import Subscription, Subscriptions
from bkctl.metadata.tree import (
    Node,
    NodeExistsError,
    NodeMissingError,
    NodeNotEmptyError,
    NodeTree,
    decoded,
    join,
    parent_of,
    require_node,
)

_FOUR_DIGITS = re.compile(r"[0-9a-f]{4}\Z")
_DIRECTORIES = 4


class TreeUnderreplication(TreeSwitches):
    """:class:`bkctl.metadata.autorecovery_api.Underreplication` over a tree."""

    def __init__(self, tree: NodeTree, root: str) -> None:
        super().__init__(tree, root)
        self._random = random.Random()  # noqa: S311 - workers shall not meet; no secret

    def prepare(self) -> None:
        require_node(self._tree, self._root)
        refuse_pulsars_own(self._tree, self._root)
        layout = self._path(LAYOUT)
        with contextlib.suppress(NodeExistsError):
            if self._tree.get(layout) is None:
                self._tree.create_with_parents(layout, LAYOUT_DATA, below=self._root)
        self._value(LAYOUT, check_layout)
        for folder in (MARKS, LOCKS):
            with contextlib.suppress(NodeExistsError):
                if self._tree.get(self._path(folder)) is None:
                    self._tree.create_with_parents(self._path(folder), b"", below=self._root)

    # --- marks and locks ------------------------------------------------------------------------------------

    def mark(
        self, ledger: int, bookies: Iterable[str], now_ms: int | None, *, guard: str | None = None
    ) -> bool:
        path = mark_path(ledger)
        missing = tuple(bookies)
        grows = True

        def change(stored: bytes | None) -> bytes | None:
            nonlocal grows
            grows = True
            if stored is None:
                return encode_mark(UnderreplicatedMark((), now_ms).with_missing(missing, now_ms))
            known = decoded(self._tree, self._path(path), stored, decode_mark)
            more = known.with_missing(missing, now_ms)
            if more is not known:
                return encode_mark(more)
            grows = False
            # A worker that has the ledger may have found these bookies up, and finishes by the version. One
            # that has just finished took the mark before the lock: where no lock is, the mark is looked at
            # once more, and whoever takes the lock from then on looks at the bookies behind this moment.
            if self._tree.get(self._lock_path(ledger)) is None:
                again = self._tree.get(self._path(path))
                if again is not None and again.data == stored:
                    return None
            return stored

        return self._write(path, change, guard=guard) and grows

    def acquire(
        self, skip: Container[int] = (), *, host: str | None = None, adopt: bool = False
    ) -> Taken | None:
        if not self.enabled():
            return None
        locked = self._locked(but_ours=adopt)
        for path in self._shuffled(self._path(MARKS), _DIRECTORIES):
            ledger = _ledger_at(path)
            if ledger is None or ledger in skip or mark_name(ledger) in locked:
                continue
            taken = self._take(ledger, host, adopt=adopt)
            if taken is not None:
                return taken
        return None

    def _locked(self, *, but_ours: bool) -> frozenset[str]:
        """Return the names of the locks that exist; without those of this session where that is asked for."""
        folder = self._path(LOCKS)
        names = self._tree.children(folder) or []
        if not but_ours:
            return frozenset(names)
        session = self._tree.session()
        nodes = self._tree.get_many([join(folder, name) for name in names])
        return frozenset(
            path.rpartition("/")[2] for path, node in nodes if node is not None and node.owner != session
        )

    def _shuffled(self, path: str, directories: int) -> Iterator[str]:
        """Walk the marks in an order of chance, so that workers do not all try the same one."""
        names = self._tree.children(path) or []
        self._random.shuffle(names)
        for name in names:
            if directories == 0:
                yield join(path, name)
            elif _FOUR_DIGITS.match(name):
                yield from self._shuffled(join(path, name), directories - 1)

    def acquire_ledger(
        self, ledger: int, *, host: str | None = None, unmarked: bool = False, adopt: bool = False
    ) -> Taken | None:
        return self._take(ledger, host, adopt=adopt, unmarked=unmarked)

    def _take(self, ledger: int, host: str | None, *, adopt: bool, unmarked: bool = False) -> Taken | None:
        lock = self._lock_path(ledger)
        data = encode_holder(host if host is not None else socket.getfqdn())
        try:
            self._tree.create_with_parents(lock, data, below=self._root, ephemeral=True)
        except NodeExistsError:
            if not adopt:
                return None
        held = self._tree.get(lock)
        session = self._tree.session()
        if held is None or held.owner != session:
            return None  # the session ended in between, and the lock with it
        # The mark is read under the lock: what is marked from here on has another version.
        path = self._path(mark_path(ledger))
        node = self._tree.get(path)
        if node is None:
            taken = Taken(ledger, UnderreplicatedMark(()), None, session)
            if unmarked:
                return taken
            self.release(taken)
            return None
        try:
            mark = decode_mark(node.data)
        except CorruptionError:
            mark = UnderreplicatedMark(())
        return Taken(ledger, mark, node.version, session, node.created_ms)

    def is_held(self, taken: Taken) -> bool:
        return self._lock_node(taken) is not None

    def _lock_node(self, taken: Taken) -> Node | None:
        """Return the lock, if it is still there and that of the session which took it."""
        node = self._tree.get(self._lock_path(taken.ledger))
        return node if node is not None and node.owner == taken.session else None

    def finish(self, taken: Taken) -> bool:
        if not self.is_held(taken):
            return False
        done = taken.version is not None and self._delete_mark(taken, taken.version)
        self.release(taken)
        return done

    def _delete_mark(self, taken: Taken, version: int) -> bool:
        """Delete a mark; return False when it was written again since it had this version."""
        path = self._path(mark_path(taken.ledger))
        # A deletion whose answer was lost is tried again: by then there may be another mark, whose versions
        # begin with 0 again.
        node = self._tree.get(path)
        if node is not None and node.created_ms != taken.created_ms:
            return False
        try:
            with contextlib.suppress(NodeMissingError):
                self._tree.delete(path, version)
            self._remove_empty_parents(path)
        except VersionConflictError:
            return False
        return True

    def _remove_empty_parents(self, path: str) -> None:
        for _ in range(_DIRECTORIES):
            path = parent_of(path)
            try:
                self._tree.delete(path)
            except NodeMissingError:
                continue
            except NodeNotEmptyError:
                return

    def release(self, taken: Taken) -> None:
        node = self._lock_node(taken)
        if node is not None:
            # By its version: where the answer is lost, the next try leaves the lock of somebody else alone.
            with contextlib.suppress(NodeMissingError, VersionConflictError):
                self._tree.delete(self._lock_path(taken.ledger), node.version)

    def _lock_path(self, ledger: int) -> str:
        return self._path(_lock_name(ledger))

    # --- watches --------------------------------------------------------------------------------------------

    def watch_work(self, changed: Callable[[], None]) -> Subscription:
        folders = [self._tree.watch_children(self._path(name), changed) for name in (MARKS, LOCKS)]
        return Subscriptions([*folders, self.watch_enabled(changed)])

    # --- who and what ---------------------------------------------------------------------------------------

    def auditor(self) -> str | None:
        names = self._tree.children(self._path(ELECTION)) or ()
        votes = {vote_number(name): name for name in names}
        # The data of the parent may be that of an auditor that is gone.
        for number in sorted(number for number in votes if number is not None):
            holder = self._value(join(ELECTION, votes[number]), decode_holder)
            if holder is not None:
                return holder
        require_node(self._tree, self._root)
        return None

    def marked_ledgers(self) -> Iterator[tuple[int, UnderreplicatedMark]]:
        self._tree.sync(self._root)
        require_node(self._tree, self._root)
        directories: Iterator[str] = iter((self._path(MARKS),))
        for _ in range(_DIRECTORIES):
            directories = self._below(directories, _FOUR_DIGITS.match)
        for path, node in self._tree.get_many(self._below(directories, _ledger_at)):
            ledger = _ledger_at(path)
            # A mark that goes while the list is read is done with.
            if ledger is not None and node is not None:
                yield ledger, decoded(self._tree, path, node.data, decode_mark)
        require_node(self._tree, self._root)

    def mark_of(self, ledger: int) -> UnderreplicatedMark | None:
        return self._value_in_cluster(mark_path(ledger), decode_mark)

    def replicator_of(self, ledger: int) -> str | None:
        return self._value_in_cluster(_lock_name(ledger), decode_holder)

    def lock_of(self, ledger: int) -> LockHolder | None:
        found = self._with_node(_lock_name(ledger), decode_holder)
        return None if found is None else LockHolder(found[0], found[1].created_ms)

    def locks(self) -> dict[int, LockHolder]:
        folder = self._path(LOCKS)
        names = self._tree.children(folder)
        if names is None:
            require_node(self._tree, self._root)
        found: dict[int, LockHolder] = {}
        for path, node in self._tree.get_many([join(folder, name) for name in names or ()]):
            ledger = _ledger_at(path)
            # A lock that goes while they are read is held no more.
            if ledger is not None and node is not None:
                found[ledger] = self._holder(path, node)
        return found

    def _holder(self, path: str, node: Node) -> LockHolder:
        try:
            return LockHolder(decoded(self._tree, path, node.data, decode_holder), node.created_ms)
        except CorruptionError as error:
            return LockHolder("", node.created_ms, str(error))

    def _below(self, directories: Iterable[str], wanted: Callable[[str], object]) -> Iterator[str]:
        """Yield the paths below the directories, ascending, for whose names ``wanted`` does not give None."""
        for path, names in self._tree.children_many(directories):
            for name in sorted(names or ()):
                if wanted(name) is not None:
                    yield join(path, name)


def refuse_pulsars_own(tree: NodeTree, root: str) -> None:
    """Raise RefusedError where Pulsar's metadata driver elects the auditor: there would be two of them."""
    if tree.get(join(root, PULSAR_LEADER)) is not None:
        raise RefusedError(
            f"{tree.name}: {join(root, PULSAR_LEADER)} is there: the auditor of this cluster is elected by "
            "Pulsar's metadata driver, which does not see our vote; autorecovery of that driver and ours "
            "cannot run beside each other"
        )


def _lock_name(ledger: int) -> str:
    return join(LOCKS, mark_name(ledger))


def _ledger_at(path: str) -> int | None:
    """Return the ledger of a mark's path or name."""
    return ledger_of_mark(path.rpartition("/")[2])
