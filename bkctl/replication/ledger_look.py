"""One examination of a ledger: its metadata, the bookies that are up, and its fragments that lack copies.

Source: ``org.apache.bookkeeper.client.LedgerChecker``,
``org.apache.bookkeeper.replication.ReplicationWorker`` (``isLastSegmentOpenAndMissingBookies``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from random import Random
from typing import cast

from bkctl.client.distribution import Distribution
from bkctl.client.errors import ClientError
from bkctl.client.ops.ledger_access import LedgerAccess, require_quorum_fields
from bkctl.client.ops.read_lac import LacResult, ReadLacMachine
from bkctl.codec.ledger_metadata import NO_ENTRY, LedgerMetadata
from bkctl.metadata.api import RegisteredBookies, StoredLedger
from bkctl.replication.fragment_check import (
    BadFragment,
    BadIndex,
    CheckSettings,
    Defect,
    FragmentCheckMachine,
)
from bkctl.replication.fragments import StoredEntries, fragments
from bkctl.replication.steps import Steps
from bkctl.types import LedgerState


@dataclass(frozen=True, slots=True)
class LedgerLook:
    """The state of a ledger as seen.

    ``lac`` is how far an open one was known to reach; None where too few bookies reported it, so that nothing
    is known of what its last ensembles should have.
    """

    stored: StoredLedger
    access: LedgerAccess
    registered: RegisteredBookies
    lac: int | None
    bad: tuple[BadFragment, ...]

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata."""
        return self.stored.metadata

    @property
    def repairable(self) -> tuple[BadFragment, ...]:
        """The bad fragments that no writer writes to any more."""
        return tuple([bad for bad in self.bad if bad.fragment.is_closed])

    @property
    def open_and_bad(self) -> tuple[BadFragment, ...]:
        """The bad fragments whose writer may still be at work."""
        return tuple([bad for bad in self.bad if not bad.fragment.is_closed])

    @property
    def missing_members(self) -> tuple[str, ...]:
        """The bookies that a writer would need and that are not up; see :func:`missing_members`."""
        return missing_members(self.metadata, self.lac, self.registered.everyone)


async def look_at(
    stored: StoredLedger, access: LedgerAccess, steps: Steps, random: Random, settings: CheckSettings
) -> LedgerLook:
    """Look at a ledger whose metadata have just been read. Raises UsageError where no client can use them."""
    require_quorum_fields(stored.metadata, stored.ledger)
    registered = await steps.registered()
    lac = await read_lac(access, stored.metadata, steps)
    parts = tuple(fragments(stored.metadata, NO_ENTRY if lac is None else lac))
    machine = FragmentCheckMachine(access, stored.metadata, parts, registered.everyone, random, settings)
    bad = cast("tuple[BadFragment, ...]", await steps.run(machine))
    return LedgerLook(stored, access, registered, lac, bad)


async def read_lac(access: LedgerAccess, metadata: LedgerMetadata, steps: Steps) -> int | None:
    """Return the last add confirmed; None where too few report it, which proves no fragment closed."""
    if metadata.state is LedgerState.CLOSED:
        return metadata.last_entry
    try:
        found = cast("LacResult", await steps.run(ReadLacMachine(access, metadata, explicit=False)))
    except ClientError:
        return None
    return found.lac


def missing_members(
    metadata: LedgerMetadata, lac: int | None, registered: Collection[str]
) -> tuple[str, ...]:
    """Return the members of the last ensemble that are not up, of a ledger that is not closed.

    Those of the one before count as well while ``lac`` has not reached its end. Where it is not known (None)
    they count only in a recovery that was begun: a writer that has replaced them may be well. A read-only
    bookie is up: it answers reads and recoveries. Java takes it for missing here, and fences writers that are
    well.
    """
    if metadata.state is LedgerState.CLOSED:
        return ()
    needed = set(metadata.segments[-1].bookies)
    if lac is None:
        counts_before = metadata.state is LedgerState.IN_RECOVERY
    else:
        counts_before = lac < metadata.segments[-1].first_entry - 1
    if len(metadata.segments) > 1 and counts_before:
        needed.update(metadata.segments[-2].bookies)
    return tuple(sorted(needed.difference(registered)))


def without_source(metadata: LedgerMetadata, bad: BadFragment) -> Iterator[tuple[int, tuple[BadIndex, ...]]]:
    """Yield (entry, its indices) for write sets of a fragment of which no bookie is up.

    One entry for each such write set, the first of the fragment.
    """
    distribution = Distribution.of(metadata)
    gone = {one.index: one for one in bad.bad if one.defect is Defect.NOT_REGISTERED}
    for entry in bad.fragment.entries[: distribution.ensemble_size]:
        indices = distribution.write_set(entry)
        if all(index in gone for index in indices):
            yield entry, tuple([gone[index] for index in indices])


def targets_needed(metadata: LedgerMetadata, bad: BadFragment, registered: RegisteredBookies) -> int:
    """Return how many bookies are wanting to take the places of a fragment's bad ones.

    A bad bookie that is up and writable can be filled again.
    """
    free = set(registered.writable).difference(bad.fragment.bookies)
    to_replace = [
        one for one in bad.bad if one.defect is Defect.NOT_REGISTERED or one.bookie not in registered.writable
    ]
    return max(0, len(to_replace) - len(free))


def entries_to_copy(metadata: LedgerMetadata, bad: BadFragment) -> int:
    """Return how many copies a fragment's bad indices take, all of them being copied."""
    distribution = Distribution.of(metadata)
    return sum(StoredEntries(distribution, bad.fragment, one.index).count for one in bad.bad)
