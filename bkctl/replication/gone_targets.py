"""Taking a change of a ledger's ensemble back whose new bookies have gone before it was written.

A copy proves its targets entry by entry; then the write of the metadata may wait for a store that is away. A
bookie that leaves is up and has good copies, and a target that is dead by then has none that can be read. So
targets are asked once more behind the write. One that does not answer gives its place back to a bookie which
does. The lock is not asked for: it is this process's own change, and nothing is written where somebody else
has changed the metadata since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from bkctl.client.distribution import Distribution
from bkctl.client.errors import NoAnswerError
from bkctl.client.ops.ledger_access import LedgerAccess
from bkctl.client.ops.metadata_update import MetadataUpdateMachine, UpdateOutcome
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.replication.fragment_check import BadFragment, Defect
from bkctl.replication.fragment_copy import CopyFailure, CopyResult, FailedIndex
from bkctl.replication.fragments import StoredEntries
from bkctl.replication.replica_reads import Replica, ReplicaReadMachine, ReplicaState, WantedReplicas
from bkctl.replication.segment_change import replaced_in_segment
from bkctl.replication.steps import Steps


async def without_gone_targets(
    access: LedgerAccess, bad: BadFragment, result: CopyResult, steps: Steps
) -> CopyResult:
    """Return what has become of a copy: an index that was given back has failed. Raises the store's errors.

    A bookie that lacked entries, or was gone, gets no place back.
    """
    leaving = {one.index: one.bookie for one in bad.bad if one.defect in (Defect.LEAVING, Defect.MISPLACED)}
    targets = {index: target for index, target in result.replaced.items() if index in leaving}
    found = await _states(access, bad, result.metadata, targets, steps)
    gone = {index: leaving[index] for index, state in found.items() if state is ReplicaState.NO_ANSWER}
    found = await _states(access, bad, result.metadata, gone, steps)
    wanted = {index: gone[index] for index, state in found.items() if state is ReplicaState.PRESENT}
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
        return now
    error = NoAnswerError("it has gone behind the copy", ledger=access.ledger)
    failed = [
        FailedIndex(index, bookie, CopyFailure.TARGET_FAILED, error, targets[index])
        for index, bookie in sorted(wanted.items())
    ]
    replaced = {index: target for index, target in result.replaced.items() if index not in wanted}
    return replace(now, replaced=replaced, failed=(*result.failed, *failed))


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
