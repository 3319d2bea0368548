"""Faults of replication that the simulation must find, those of upstream's history among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bkctl.client.errors import DigestMismatchError
from bkctl.client.machine import Event
from bkctl.client.ops.ledger_access import LedgerAccess, LedgerEntry, answer_code
from bkctl.client.ops.metadata_update import MetadataUpdate
from bkctl.client.ops.read import EntryOutcome
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.metadata.autorecovery_api import Taken
from bkctl.metadata.tree import ANY_VERSION as ANY_NODE
from bkctl.metadata.underreplication import TreeUnderreplication
from bkctl.protocol.messages import AddRequest
from bkctl.replication import fragments
from bkctl.replication.backoff import Backoff
from bkctl.replication.entry_copy import EntryCopy
from bkctl.replication.fragment_check import FragmentCheckMachine
from bkctl.replication.fragment_copy import FragmentCopyMachine
from bkctl.replication.verdict import Verdict, VerdictKind
from bkctl.types import ResultCode
from tests.sim.world import ANY_VERSION

Patch = pytest.MonkeyPatch


def copies_without_the_recovery_flag(patch: Patch) -> None:
    """BK#4163: a bookie where the ledger is fenced refuses the copies."""

    def copy_request(self: LedgerAccess, entry: int, body: bytes) -> AddRequest:
        return AddRequest(self.ledger, entry, self.key, body)

    patch.setattr(LedgerAccess, "copy_request", copy_request)


def nobody_is_filled_again(patch: Patch) -> None:
    """BK#3905: where the ensemble is all the bookies that there are, nothing can ever be done."""
    real = FragmentCopyMachine._refill_or_fail

    def refill_or_fail(self: FragmentCopyMachine, index: int) -> None:
        self._settings = replace(self._settings, refillable=frozenset())
        real(self, index)

    patch.setattr(FragmentCopyMachine, "_refill_or_fail", refill_or_fail)


def a_deleted_ledger_is_tried_again(patch: Patch) -> None:
    """BK#3316: the mark of a ledger that is gone stays."""
    patch.setattr(Verdict, "ends_the_work", property(lambda self: self.kind is VerdictKind.WHOLE))


def impossible_work_is_tried_at_once(patch: Patch) -> None:
    """BK#4872: a ledger with a write quorum of one is tried over and over again."""
    patch.setattr(Backoff, "failed", lambda self, ledger: 0.5)


def what_is_lost_is_given_up(patch: Patch) -> None:
    """A mark goes although entries of its ledger have no copy that is up."""
    patch.setattr(
        Verdict,
        "ends_the_work",
        property(lambda self: self.kind.value.startswith(("whole", "lost", "ledger_gone"))),
    )


def copies_are_not_read_back(patch: Patch) -> None:
    """What a bookie has acknowledged is taken for stored."""

    def added(self: EntryCopy, target: str, event: Event) -> None:
        if answer_code(event) is not ResultCode.OK:
            self._failed(target, self._access.failure(event, self.entry, target))
        else:
            self._target_ended()

    patch.setattr(EntryCopy, "_added", added)


def changes_without_compare_and_set(patch: Patch) -> None:
    """The new bookies are written over whatever is stored."""
    real = MetadataUpdate._write

    def write(self: MetadataUpdate, wanted: LedgerMetadata) -> None:
        if isinstance(getattr(self._plan, "__self__", None), FragmentCopyMachine):
            self.version = ANY_VERSION
        real(self, wanted)

    patch.setattr(MetadataUpdate, "_write", write)


def corrupt_counts_as_present(patch: Patch) -> None:
    """As Java: the check of a fragment looks at no digest."""
    real = FragmentCheckMachine._read_ended

    def read_ended(
        self: FragmentCheckMachine, number: int, index: int, entry: int, outcome: EntryOutcome
    ) -> None:
        if isinstance(outcome, DigestMismatchError):
            outcome = LedgerEntry(self._access.ledger, entry, -1, 0, b"")
        real(self, number, index, entry, outcome)

    patch.setattr(FragmentCheckMachine, "_read_ended", read_ended)


def marks_go_without_their_version(patch: Patch) -> None:
    """What was marked while a worker was at it is forgotten."""
    real = TreeUnderreplication.finish

    def finish(self: TreeUnderreplication, taken: Taken) -> bool:
        return real(self, replace(taken, version=ANY_NODE))

    patch.setattr(TreeUnderreplication, "finish", finish)


def open_fragments_are_copied(patch: Patch) -> None:
    """P-9.1.10: a bookie takes the place of another in a segment that is still written to."""
    patch.setattr(fragments, "is_closed", lambda metadata, segment, lac: True)


def metadata_change_before_the_copies(patch: Patch) -> None:
    """P-9.1.11: a bookie is named before it has the entries."""
    patch.setattr(FragmentCopyMachine, "_entries_to_copy", lambda self: iter(()))


def entries_without_a_source_are_left_out(patch: Patch) -> None:
    """A bookie is named that lacks the entries which nobody could be read from."""
    patch.setattr(FragmentCopyMachine, "_no_source", lambda self, entry, error: None)


def refused_copies_are_left_out(patch: Patch) -> None:
    """A bookie is named although it did not take some of the entries."""
    patch.setattr(FragmentCopyMachine, "_target_failed", lambda self, entry, target, error: None)


def locks_left_behind_are_never_found(patch: Patch) -> None:
    """A call that failed has locked the ledger, and nobody ever works on it."""
    real = TreeUnderreplication.acquire

    def acquire(self: TreeUnderreplication, skip: object = (), **rest: object) -> Taken | None:
        return real(self, skip, host=str(rest["host"]))  # type: ignore[arg-type]

    patch.setattr(TreeUnderreplication, "acquire", acquire)


#: Where to look for those that need a rare meeting of two workers, or of a worker and a marker.
FIRST_SEEDS = {"changes_without_compare_and_set": 280, "marks_go_without_their_version": 800}

MUTANTS: dict[str, Callable[[Patch], None]] = {
    mutant.__name__: mutant
    for mutant in (
        copies_without_the_recovery_flag,
        nobody_is_filled_again,
        a_deleted_ledger_is_tried_again,
        impossible_work_is_tried_at_once,
        what_is_lost_is_given_up,
        copies_are_not_read_back,
        changes_without_compare_and_set,
        corrupt_counts_as_present,
        marks_go_without_their_version,
        open_fragments_are_copied,
        metadata_change_before_the_copies,
        entries_without_a_source_are_left_out,
        refused_copies_are_left_out,
        locks_left_behind_are_never_found,
    )
}
