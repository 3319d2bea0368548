"""Ledgers whose bookies break the placement policy: which replicas move, and to which bookies.

Only a closed ledger that lacks nothing is examined, segment by segment. Where other bookies are there with
which the ensemble keeps to the policy, as few of its replicas as possible move. They are copied like those of
bookies that are gone. Until the metadata change, the old replicas stay where they are, and are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.replication.fragment_check import BadFragment, BadIndex, Defect
from bkctl.replication.fragments import fragments
from bkctl.types import LedgerState

#: Returns the new bookies, by index, with which an ensemble keeps to the policy: {} where it does already,
#: None where there are none. The last argument are bookies that are not wanted. Called in a thread.
Mends = Callable[[Sequence[str], int, Collection[str]], Mapping[int, str] | None]


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A fragment with the replicas that are to move, and to whom, by their index."""

    bad: BadFragment
    targets: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class PlacementLook:
    """The replicas that can move, and how many fragments break the policy and cannot be mended now."""

    movable: tuple[Misplaced, ...]
    hopeless: int


def look_at_placement(
    metadata: LedgerMetadata, mends: Mends, refused: Mapping[int, Collection[str]]
) -> PlacementLook:
    """Look at the ensembles of a ledger; of one that is not closed nothing is moved.

    ``refused`` are bookies that did not take copies, by the first entry of the fragment. Runs in a thread.
    """
    movable: list[Misplaced] = []
    hopeless = 0
    if metadata.state is LedgerState.CLOSED:
        for fragment in fragments(metadata, metadata.last_entry):
            unwanted = refused.get(fragment.first_entry, ())
            targets = mends(fragment.bookies, metadata.write_quorum, unwanted)
            if targets is None:
                hopeless += 1
            elif targets:
                bad = tuple([BadIndex(i, fragment.bookies[i], Defect.MISPLACED) for i in sorted(targets)])
                movable.append(Misplaced(BadFragment(fragment, bad), targets))
    return PlacementLook(tuple(movable), hopeless)
