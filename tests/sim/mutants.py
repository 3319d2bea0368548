"""The faults that the simulation must find: each puts one known way of losing data into the real machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bkctl.client.distribution import Distribution
from bkctl.client.machine import Answered, Event, Token, Unanswered
from bkctl.client.ops.add_pipeline import AddPipeline, PendingAdd
from bkctl.client.ops.ledger_access import DoNotKnow, LedgerAccess, LedgerEntry, NeverHadIt, ReadOutcome
from bkctl.client.ops.metadata_update import MetadataUpdate
from bkctl.client.ops.read_lac import LacRead, ReplicaLac
from bkctl.client.ops.recovery import RecoveryMachine
from bkctl.client.ops.write import WriteMachine
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.protocol.messages import ReadRequest, ReadResponse
from bkctl.types import LedgerState, ResultCode
from tests.sim.world import ANY_VERSION

Patch = pytest.MonkeyPatch


def recovery_reads_without_fence(patch: Patch) -> None:
    """BK#2614: a bookie outside the coverage set says "no such entry" and takes the writer's add later."""
    real = LedgerAccess.read_request

    def read_request(
        self: LedgerAccess, entry: int, *, fence: bool = False, priority: int = 0
    ) -> ReadRequest:
        return real(self, entry, fence=fence and entry < 0, priority=priority)

    patch.setattr(LedgerAccess, "read_request", read_request)


def _outcome(patch: Patch, missing: Callable[[Event, DoNotKnow], bool]) -> None:
    real = LedgerAccess.outcome

    def outcome(self: LedgerAccess, event: Event, entry: int | None, bookie: str) -> ReadOutcome:
        found = real(self, event, entry, bookie)
        if isinstance(found, DoNotKnow) and entry is not None and missing(event, found):
            return NeverHadIt(bookie)
        return found

    patch.setattr(LedgerAccess, "outcome", outcome)


def no_answer_is_missing(patch: Patch) -> None:
    """BK#2612: a bookie that does not answer counts as one that does not have the entry."""
    _outcome(patch, lambda event, _: isinstance(event, Unanswered))


def unknown_state_is_missing(patch: Patch) -> None:
    """BK#2908: a bookie whose ledger is in limbo counts as one that does not have the entry."""

    def unknown(_: Event, found: DoNotKnow) -> bool:
        return getattr(found.error, "code", None) is ResultCode.UNKNOWN_LEDGER_STATE

    _outcome(patch, unknown)


def bad_digest_is_missing(patch: Patch) -> None:
    """An entry that does not check counts as one that is not there."""
    _outcome(patch, lambda event, _: not isinstance(event, Unanswered))


def coverage_with_one_fewer(patch: Patch) -> None:
    """The fence is believed while a whole ack quorum may be silent."""

    def covered(self: Distribution, known: set[int]) -> bool:
        size = self.ensemble_size
        for first in range(size):
            window = [(first + w) % size for w in range(self.write_quorum)]
            if sum(index not in known for index in window) > self.ack_quorum:
                return False
        return True

    patch.setattr(Distribution, "covered", covered)


def unknown_counts_as_covered(patch: Patch) -> None:
    """Coverage counts answers, whatever they say."""
    patch.setattr(LacRead, "_covered", lambda self: self._distribution.covered(set(self._replicas)))


def close_without_compare_and_set(patch: Patch) -> None:
    """CLOSED is written over whatever is stored."""
    real = MetadataUpdate._write

    def write(self: MetadataUpdate, wanted: LedgerMetadata) -> None:
        if wanted.state is LedgerState.CLOSED:
            self.version = ANY_VERSION
        real(self, wanted)

    patch.setattr(MetadataUpdate, "_write", write)


def stop_at_the_first_missing(patch: Patch) -> None:
    """One bookie without the entry ends the recovery, instead of Wq - Aq + 1."""
    patch.setattr(Distribution, "missing_quorum", property(lambda self: 1))


def change_starts_above_lac(patch: Patch) -> None:
    """The new ensemble counts from the next append on, pending entries stay where they are in metadata."""
    patch.setattr(WriteMachine, "_change_start", lambda self: self._last_pushed + 1)


def acks_of_replaced_bookies_count(patch: Patch) -> None:
    """A late OK of a bookie that is not in the ensemble any more completes an add."""

    def never(self: AddPipeline, add: PendingAdd, index: int, token: Token) -> bool:
        return False

    patch.setattr(AddPipeline, "_is_from_a_replaced_bookie", never)


def completes_during_a_change(patch: Patch) -> None:
    """The LAC moves on while the ensemble is being changed."""
    real = AddPipeline.complete

    def complete(self: AddPipeline) -> None:
        changing, self.changing = self.changing, False
        real(self)
        self.changing = changing or self.changing

    patch.setattr(AddPipeline, "complete", complete)


def change_without_sending_again(patch: Patch) -> None:
    """Pending adds keep the acknowledgements of bookies that were replaced."""

    def replace(self: AddPipeline, ensemble: tuple[str, ...]) -> None:
        self.ensemble = ensemble
        self.changing = False
        self.complete()

    patch.setattr(AddPipeline, "replace", replace)


def recovery_does_not_add_again(patch: Patch) -> None:
    """What is found on one bookie is taken as being on an ack quorum."""

    def add_again(self: RecoveryMachine, found: LedgerEntry) -> None:
        self.lac, self.length = found.entry, found.length

    patch.setattr(RecoveryMachine, "_add_again", add_again)


def recovery_tells_its_own_lac(patch: Patch) -> None:
    """As Java: a recovery that fails leaves a LAC above entries that are on bookies which only it knew."""

    def add_again(self: RecoveryMachine, found: LedgerEntry) -> None:
        self._pipeline.push(found.entry, self.lac, found.length, found.payload, 0)

    patch.setattr(RecoveryMachine, "_add_again", add_again)


def recovery_believes_max_lac(patch: Patch) -> None:
    """The LAC that a bookie sends beside its entry, which no digest covers, decides where it closes."""
    real = LacRead._entry_answer

    def entry_answer(self: LacRead, index: int, bookie: str, event: Event) -> ReplicaLac:
        found = real(self, index, bookie, event)
        response = event.response if isinstance(event, Answered) else None
        if found.last_entry < 0 or not isinstance(response, ReadResponse) or response.max_lac is None:
            return found
        return replace(found, lac=max(found.lac, response.max_lac))

    patch.setattr(LacRead, "_entry_answer", entry_answer)


def recovery_skips_the_state(patch: Patch) -> None:
    """Recovery without IN_RECOVERY first: the writer can still change its ensemble and close."""
    patch.setattr(RecoveryMachine, "_enter_plan", lambda self, metadata: None)


MUTANTS: dict[str, Callable[[Patch], None]] = {
    mutant.__name__: mutant
    for mutant in (
        recovery_reads_without_fence,
        no_answer_is_missing,
        unknown_state_is_missing,
        bad_digest_is_missing,
        coverage_with_one_fewer,
        unknown_counts_as_covered,
        close_without_compare_and_set,
        stop_at_the_first_missing,
        change_starts_above_lac,
        acks_of_replaced_bookies_count,
        completes_during_a_change,
        change_without_sending_again,
        recovery_does_not_add_again,
        recovery_tells_its_own_lac,
        recovery_believes_max_lac,
        recovery_skips_the_state,
    )
}
