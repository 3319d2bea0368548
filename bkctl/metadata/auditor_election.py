"""The election of the one auditor, together with Java's candidates.

Each candidate makes a sequence node of its session below ``underreplication/auditorelection``; the one with
the lowest number is the auditor, and the others watch the vote just before theirs. A session has one vote: a
create whose answer was lost may have made one that the candidate does not know of, so own votes are found by
their owner, and all but the first are removed.

Source: ``org.apache.bookkeeper.meta.ZkLedgerAuditorManager``.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from bkctl.codec.underreplication import ELECTION, VOTE_PREFIX, encode_holder, vote_number
from bkctl.errors import BkctlError, ConnectionFailedError
from bkctl.metadata.registration import TreeRegistrationManager
from bkctl.metadata.subscription import Subscription
from bkctl.metadata.tree import ANY_VERSION, NodeExistsError, NodeMissingError, NodeTree, join, require_node
from bkctl.metadata.underreplication import refuse_pulsars_own

#: How long a candidate sleeps before it looks again when no change was reported.
_LOOK_AGAIN_S = 10.0

#: The same while the store does not answer.
_RETRY_S = 1.0


class TreeAuditorElection:
    """:class:`bkctl.metadata.api.AuditorElection` over a tree; one for each session of the store."""

    def __init__(
        self,
        tree: NodeTree,
        root: str,
        registration: TreeRegistrationManager,
        bookie: str,
        lost: Callable[[], None],
    ) -> None:
        self._tree = tree
        self._root = root
        self._folder = join(root, ELECTION)
        self._registration = registration
        self._data = encode_holder(bookie)
        self._lost = lost
        self._changed = threading.Condition()
        self._woken = False
        self._resigned = False
        self._elected: tuple[str, int] | None = None  # the vote and its session
        self._watch: Subscription | None = None  # of the vote, ours or the one before it
        self._before: str | None = None
        self._is_listening = False

    # --- standing -------------------------------------------------------------------------------------------

    def run(self) -> bool:
        if not self._is_listening:
            self._is_listening = True
            self._registration.add_session_listener(self)
        while not self._is_resigned():
            try:
                vote, session, before = self._stand()
                if before is not None:
                    self._wait(before, _LOOK_AGAIN_S)
                elif self._win(vote, session):
                    return True
            except ConnectionFailedError:
                self._wait(None, _RETRY_S)
        self._withdraw()  # what was made while another thread resigned
        return False

    def _stand(self) -> tuple[str, int, str | None]:
        """Return this session's vote, the session, and the vote just before; None when there is none."""
        require_node(self._tree, self._root)
        refuse_pulsars_own(self._tree, self._root)
        while True:
            session = self._tree.session()
            votes = self._votes()
            owners = {path: node.owner for path, node in self._tree.get_many(votes) if node is not None}
            own = [path for path in votes if owners.get(path) == session]
            for path in own[1:]:
                with contextlib.suppress(NodeMissingError):
                    self._tree.delete(path)
            if own:
                place = votes.index(own[0])
                return own[0], session, votes[place - 1] if place else None
            self._vote()

    def _votes(self) -> list[str]:
        """Return the paths of all votes, the first one's first."""
        numbers = {name: vote_number(name) for name in self._tree.children(self._folder) or ()}
        counted = sorted((number, name) for name, number in numbers.items() if number is not None)
        return [join(self._folder, name) for _, name in counted]

    def _vote(self) -> None:
        if self._tree.get(self._folder) is None:
            with contextlib.suppress(NodeExistsError):
                self._tree.create_with_parents(self._folder, b"", below=self._root)
        with contextlib.suppress(NodeMissingError):
            self._tree.create(join(self._folder, VOTE_PREFIX), self._data, ephemeral=True, sequence=True)

    def _win(self, vote: str, session: int) -> bool:
        with self._changed:
            if self._resigned:
                return False
            self._elected = (vote, session)
        self._close_watch()
        # The first read of the watch finds out when the vote went before it was watched.
        self._watch = self._tree.watch_node(vote, self._look_at_the_vote)
        with contextlib.suppress(NodeMissingError):
            # For people who look; nobody may rely on it, as it stays when the auditor goes.
            self._tree.set(self._folder, self._data, ANY_VERSION)
        return self.is_elected()

    def _wait(self, before: str | None, seconds: float) -> None:
        """Sleep until the vote ``before`` ours, or our session, has changed."""
        if before is not None and before != self._before:
            # One watch for each vote: the store keeps every one that has not fired.
            self._close_watch()
            self._before = before
            self._watch = self._tree.watch_node(before, lambda: self._told(before))
        with self._changed:
            self._changed.wait_for(lambda: self._woken or self._resigned, seconds)
            self._woken = False

    def _told(self, before: str) -> None:
        """Wake the candidate when the vote before its own is gone."""
        if self._tree.get(before) is None:
            self._wake()

    def _wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    # --- elected --------------------------------------------------------------------------------------------

    @property
    def vote(self) -> str | None:
        with self._changed:
            return None if self._elected is None else self._elected[0]

    def is_elected(self) -> bool:
        with self._changed:
            elected = self._elected
        if elected is None:
            return False
        vote, session = elected
        node = self._tree.get(vote)
        return node is not None and node.owner == session

    def _look_at_the_vote(self) -> None:
        if not self.is_elected():
            self._lose()

    def _lose(self) -> None:
        with self._changed:
            elected, self._elected = self._elected, None
        if elected is not None:
            self._close_watch()
            self._lost()

    def _close_watch(self) -> None:
        watch, self._watch, self._before = self._watch, None, None
        if watch is not None:
            watch.close()

    # --- the session ----------------------------------------------------------------------------------------

    def session_lost(self) -> None:
        """Step down at once: another candidate may be elected already."""
        self._lose()

    def session_restored(self) -> None:
        """Stand for election again, with a new vote."""
        self._wake()

    def registration_failed(self, error: BkctlError) -> None:
        """Stand for election again, as the session is there."""
        self._wake()

    # --- the end --------------------------------------------------------------------------------------------

    def resign(self) -> None:
        with self._changed:
            self._resigned = True
            self._elected = None
            self._changed.notify_all()
        self._registration.remove_session_listener(self)
        self._close_watch()
        self._withdraw()

    def _withdraw(self) -> None:
        """Remove the votes of this session; without that the others wait until the session ends."""
        with contextlib.suppress(BkctlError):
            session = self._tree.session()
            for path, node in self._tree.get_many(self._votes()):
                if node is not None and node.owner == session:
                    with contextlib.suppress(NodeMissingError):
                        self._tree.delete(path)

    def _is_resigned(self) -> bool:
        with self._changed:
            return self._resigned
