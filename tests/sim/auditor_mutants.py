"""Faults of an auditor that the simulation must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bkctl.errors import ConnectionFailedError
from bkctl.metadata.auditor_election import TreeAuditorElection
from bkctl.replication.auditor_office import Office
from bkctl.replication.ledger_check import LedgerCheck, LedgerCheckResult
from bkctl.replication.lost_bookies import LostBookies

Patch = pytest.MonkeyPatch


def an_aborted_check_is_recorded(patch: Patch) -> None:
    """The store went away while all ledgers were checked, and the check is recorded as done."""
    real = LedgerCheck.run

    async def run(self: LedgerCheck) -> LedgerCheckResult:
        try:
            return await real(self)
        except ConnectionFailedError:
            return LedgerCheckResult(0, 0, 0)

    patch.setattr(LedgerCheck, "run", run)


def it_goes_on_after_its_session(patch: Patch) -> None:
    """Marks are written without the check that the vote is there."""

    def mark(self: Office, ledger: int, bookies: tuple[str, ...]) -> bool:
        return self.store.underreplication.mark(ledger, bookies, self.clock.time_ms())

    @contextmanager
    def vote(self: Office) -> Iterator[None]:
        yield None

    patch.setattr(Office, "_mark_if_elected", mark)
    patch.setattr(Office, "_vote", vote)
    patch.setattr(TreeAuditorElection, "_look_at_the_vote", lambda self: None)
    patch.setattr(TreeAuditorElection, "session_lost", lambda self: None)


def votes_are_known_by_their_data(patch: Patch) -> None:
    """As somebody might do it: the first vote with our name is ours, be it of a session that is gone."""
    real = TreeAuditorElection._stand

    def stand(self: TreeAuditorElection) -> tuple[str, int, str | None]:
        votes = self._votes()
        for place, path in enumerate(votes):
            node = self._tree.get(path)
            if node is not None and node.data == self._data:
                return path, node.owner, votes[place - 1] if place else None
        return real(self)

    patch.setattr(TreeAuditorElection, "_stand", stand)


def who_is_up_is_read_once(patch: Patch) -> None:
    """Marks are made without reading the registered bookies again."""
    real = Office.up

    async def up(self: Office) -> frozenset[str]:
        if not hasattr(self, "once"):
            self.once = await real(self)  # type: ignore[attr-defined]
        found: frozenset[str] = self.once  # type: ignore[attr-defined]
        return found

    patch.setattr(Office, "up", up)


def the_delay_is_not_waited_for(patch: Patch) -> None:
    """A bookie that goes is lost at once, whatever ``lostBookieRecoveryDelay`` says."""
    real = LostBookies.__init__

    def init(self: LostBookies, known: object, delay_s: int) -> None:
        real(self, known, 0)  # type: ignore[arg-type]

    patch.setattr(LostBookies, "__init__", init)


def checks_know_nothing_of_the_delay(patch: Patch) -> None:
    """As Java: a check of all ledgers that meets a bookie which is gone for a moment marks its ledgers."""
    patch.setattr(LostBookies, "spared", property(lambda self: frozenset()))


#: Where to look for those that need a rare meeting.
FIRST_SEEDS = {
    "votes_are_known_by_their_data": 30,
    "a_deleted_ledger_is_tried_again": 45,
}

MUTANTS: dict[str, Callable[[Patch], None]] = {
    mutant.__name__: mutant
    for mutant in (
        an_aborted_check_is_recorded,
        it_goes_on_after_its_session,
        votes_are_known_by_their_data,
        who_is_up_is_read_once,
        the_delay_is_not_waited_for,
        checks_know_nothing_of_the_delay,
    )
}
