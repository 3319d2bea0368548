"""Taking a change of a ledger's ensemble back whose new bookies have gone before it was written.

A copy proves its targets entry by entry; then the write of the metadata may wait for a store that is away. A
bookie that leaves is up and has good copies, and a target that is dead by then has none that can be read. So
targets are asked once more behind the write. One that does not answer gives its place back to a bookie which
does. The lock is not asked for: it is this process's own change, and nothing is written where somebody else
has changed the metadata since.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import cast

from bkctl.client.distribution import Distribution
from bkctl.client.errors import NoAnswerError
from bkctl.client.ops.ledger_access import LedgerAccess
from bkctl.client.ops.metadata_update import MetadataUpdateMachine, UpdateOutcome
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.metadata.api import StoredLedger
from bkctl.replication.entry_copy import CopyCounts
from bkctl.replication.fragment_check import BadFragment, Defect
from bkctl.replication.fragment_copy import CopyFailure, CopyResult, FailedIndex, FragmentCopyMachine
from bkctl.replication.fragments import StoredEntries
from bkctl.replication.replica_reads import Replica, ReplicaReadMachine, ReplicaState, WantedReplicas
from bkctl.replication.segment_change import replaced_in_segment, same_segment
from bkctl.replication.steps import Steps

#: States of a replica that do not say whether it is there.
_NOT_TOLD = (ReplicaState.NO_ANSWER, ReplicaState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class UnaskedCopy:
    """A copy of a fragment whose targets the metadata may name; ``metadata`` are those it began with."""

    metadata: LedgerMetadata
    bad: BadFragment
    targets: Mapping[int, str]
    given_up: frozenset[int]


class NamedTargets:
    """Checks the targets of copies behind the write that names them.

    Where the store gives no answer to that write, or to the one that gives a place back, or neither of the
    two bookies answers, or somebody else changes the metadata in between, the copy is remembered, and its
    targets can be asked later.
    """

    def __init__(self) -> None:
        self._unasked: dict[int, list[UnaskedCopy]] = {}

    def __contains__(self, ledger: object) -> bool:
        return ledger in self._unasked

    def forget(self, ledger: int) -> None:
        """Forget the copies of a ledger that is gone."""
        self._unasked.pop(ledger, None)

    async def copy(
        self,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        bad: BadFragment,
        machine: FragmentCopyMachine,
        steps: Steps,
        given_up: frozenset[int] = frozenset(),
    ) -> CopyResult:
        """Run a copy and return what has become of it (:func:`without_gone_targets`)."""
        is_open = True
        try:
            copied = cast("CopyResult", await steps.run(machine))
            result = await without_gone_targets(access, bad, copied, steps)
            is_open = result.superseded
            return result
        finally:
            targets = {index: machine.replacements[index] for index in _may_return(bad, machine.replacements)}
            if is_open and targets:
                unasked = UnaskedCopy(metadata, bad, targets, given_up)
                self._unasked.setdefault(access.ledger, []).append(unasked)

    async def ask(
        self, access: LedgerAccess, stored: StoredLedger, steps: Steps
    ) -> list[tuple[UnaskedCopy, CopyResult]]:
        """Ask the targets that a ledger names as it is stored, and that were not asked behind their write.

        Return what has become of these copies. A copy whose place still has the bookie of before stays: its
        write may be under way. Raises the store's errors.
        """
        settled: list[tuple[UnaskedCopy, CopyResult]] = []
        metadata, version = stored.metadata, stored.version
        for copy in tuple(self._unasked.get(access.ledger, ())):
            fragment = copy.bad.fragment
            segment = same_segment(copy.metadata, metadata, fragment)
            now = () if segment is None else segment.bookies
            if any(now[index] == fragment.bookies[index] for index in copy.targets if now):
                continue
            named = {index: target for index, target in copy.targets.items() if now and now[index] == target}
            result = CopyResult(metadata, version, named, (), (), superseded=False, counts=CopyCounts())
            result = await without_gone_targets(access, copy.bad, result, steps)
            metadata, version = result.metadata, result.version
            if not result.superseded:
                self._settled(access.ledger, copy)
                settled.append((copy, result))
        return settled

    def _settled(self, ledger: int, copy: UnaskedCopy) -> None:
        left = [one for one in self._unasked[ledger] if one is not copy]
        if left:
            self._unasked[ledger] = left
        else:
            del self._unasked[ledger]


async def without_gone_targets(
    access: LedgerAccess, bad: BadFragment, result: CopyResult, steps: Steps
) -> CopyResult:
    """Return what has become of a copy: an index that was given back has failed. Raises the store's errors.

    A bookie that lacks entries gets no place back. Where somebody else has changed the metadata since, or
    neither of the two bookies answers, nothing is written, and the copy counts as superseded.
    """
    leaving = _may_return(bad, result.replaced)
    targets = {index: result.replaced[index] for index in leaving}
    found = await _states(access, bad, result.metadata, targets, steps)
    gone = {index: leaving[index] for index, state in found.items() if state is ReplicaState.NO_ANSWER}
    found = await _states(access, bad, result.metadata, gone, steps)
    wanted = {index: gone[index] for index, state in found.items() if state is ReplicaState.PRESENT}
    if any(state in _NOT_TOLD for state in found.values()):
        result = replace(result, superseded=True)
    if not wanted:
        return result

    def plan(metadata: LedgerMetadata) -> LedgerMetadata | None:
        if metadata != result.metadata:
            return None
        return replaced_in_segment(metadata, bad.fragment.position, wanted)

    machine = MetadataUpdateMachine(access.ledger, result.metadata, result.version, plan)
    outcome = cast("UpdateOutcome", await steps.run(machine))
    now = replace(result, metadata=outcome.metadata, version=outcome.version)
    if not outcome.written:
        return replace(now, superseded=True)
    error = NoAnswerError("it has gone behind the copy", ledger=access.ledger)
    failed = [
        FailedIndex(index, bookie, CopyFailure.TARGET_FAILED, error, targets[index])
        for index, bookie in sorted(wanted.items())
    ]
    replaced = {index: target for index, target in result.replaced.items() if index not in wanted}
    return replace(now, replaced=replaced, failed=(*result.failed, *failed))


def _may_return(bad: BadFragment, indices: Container[int]) -> dict[int, str]:
    """Return the bookies of ``indices`` that are replaced although they may have everything."""
    return {
        one.index: one.bookie
        for one in bad.bad
        if one.index in indices and one.defect in (Defect.LEAVING, Defect.MISPLACED)
    }


async def _states(
    access: LedgerAccess,
    bad: BadFragment,
    metadata: LedgerMetadata,
    bookies: Mapping[int, str],
    steps: Steps,
) -> dict[int, ReplicaState]:
    """Return the state of the last entry of each index on a bookie; nothing for an index without entries."""
    distribution = Distribution.of(metadata)
    last = {index: StoredEntries(distribution, bad.fragment, index).last for index in bookies}
    asked = [WantedReplicas(entry, (bookies[at],)) for at, entry in last.items() if entry is not None]
    if not asked:
        return {}
    replicas = cast("tuple[Replica, ...]", await steps.run(ReplicaReadMachine(access, asked)))
    states = {one.bookie: one.state for one in replicas}
    return {index: states[bookie] for index, bookie in bookies.items() if bookie in states}
