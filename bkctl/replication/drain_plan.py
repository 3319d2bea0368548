"""Plan taking a bookie out of service: how much is to be moved, where to, and what is in the way.

Read from metadata alone, in one pass that holds nothing but sums. No replica is looked at: a rehearsal
(:class:`bkctl.replication.bookie_move.BookieMove`) does that.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from bkctl.client.bookies import DiskSpace
from bkctl.codec.ledger_metadata import LedgerMetadata
from bkctl.errors import CorruptionError
from bkctl.metadata.api import RegisteredBookies, RegistrationMode
from bkctl.replication.auditor_office import LedgerRow
from bkctl.replication.bookie_move import BookieMove
from bkctl.replication.fragment_check import BadFragment, BadIndex, Defect
from bkctl.replication.leaving_fragments import named_fragments, replica_size
from bkctl.replication.ledger_look import without_source
from bkctl.replication.moved_ledger import MovedLedger, MoveOutcome
from bkctl.reporting import counted
from bkctl.types import LedgerState

#: Ledgers that cannot be moved, which a plan names; it counts all of them.
NAMED_MAX = 1_000


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """``ledgers`` name the bookies, ``open_ledgers`` of them are not closed, so that their size is not known.

    ``entries`` and ``bytes`` are to be copied, ``bytes`` about. ``targets`` are the writable bookies that may
    take them, with their room. ``blocked`` ledgers cannot be moved as things are; ``rows`` names the first.
    ``mode`` is the bookie's: None when it is down.
    """

    bookies: tuple[str, ...]
    mode: RegistrationMode | None
    ledgers: int
    open_ledgers: int
    entries: int
    bytes: int
    targets: tuple[DiskSpace, ...]
    blocked: int
    rows: tuple[MovedLedger, ...]

    @property
    def free_bytes(self) -> int | None:
        """The room of all targets; None when one of them does not report it."""
        free = [one.free_bytes for one in self.targets]
        return None if None in free else sum(one for one in free if one is not None)

    @property
    def obstacles(self) -> tuple[str, ...]:
        """The reasons why some ledgers cannot be moved, in sentences."""
        found = []
        if self.ledgers and not self.targets:
            found.append("no writable bookie is there to take replicas")
        elif self.free_bytes is not None and self.bytes > self.free_bytes:
            found.append(
                f"{counted(self.bytes, 'byte is', 'bytes are')} to be copied, and the targets have room for "
                f"{self.free_bytes}"
            )
        if self.blocked:
            first = self.rows[0]
            if self.blocked == 1:
                found.append(f"ledger {first.ledger} cannot be moved: {first.reason}")
            else:
                which = f"the first of them is ledger {first.ledger}"
                found.append(f"{self.blocked} ledgers cannot be moved; {which}: {first.reason}")
        return tuple(found)


@dataclass(slots=True)
class _Sums:
    ledgers: int = 0
    open_ledgers: int = 0
    entries: int = 0
    bytes: int = 0
    blocked: int = 0
    rows: list[MovedLedger] = field(default_factory=list)


async def drain_plan(
    move: BookieMove,
    registered: RegisteredBookies,
    targets: Sequence[DiskSpace],
    accepted: Container[int] = (),
) -> DrainPlan:
    """Return the plan. ``targets`` are the bookies that may take replicas. Raises the store's errors."""
    sums = _Sums()
    up = frozenset(registered.everyone)
    free = frozenset(one.bookie for one in targets)
    async for group in move.groups():
        for row in group:
            _add(sums, row, move.leaving, up, free, accepted)
    modes = dict.fromkeys(registered.writable, RegistrationMode.WRITABLE)
    modes.update(dict.fromkeys(registered.read_only, RegistrationMode.READ_ONLY))
    return DrainPlan(
        tuple(sorted(move.leaving)),
        next((modes[bookie] for bookie in sorted(move.leaving) if bookie in modes), None),
        sums.ledgers,
        sums.open_ledgers,
        sums.entries,
        sums.bytes,
        tuple(targets),
        sums.blocked,
        tuple(sums.rows),
    )


def _add(
    sums: _Sums,
    row: LedgerRow,
    leaving: frozenset[str],
    up: frozenset[str],
    free: frozenset[str],
    accepted: Container[int],
) -> None:
    ledger, stored = row
    blocked: MovedLedger | None = None
    if isinstance(stored, CorruptionError):
        if ledger not in accepted:
            reason = f"its metadata cannot be read: {stored}"
            blocked = MovedLedger(ledger, MoveOutcome.BLOCKED_METADATA, reason)
    elif stored is not None:
        metadata = stored.metadata
        sums.ledgers += 1
        sums.open_ledgers += metadata.state is not LedgerState.CLOSED
        for bad in named_fragments(metadata, metadata.last_entry, leaving):
            entries, size = replica_size(metadata, bad)
            sums.entries += entries
            sums.bytes += size
            blocked = blocked or _blocked(ledger, metadata, bad, up, free, is_accepted=ledger in accepted)
    if blocked is not None:
        sums.blocked += 1
        if len(sums.rows) < NAMED_MAX:
            sums.rows.append(blocked)


def _blocked(
    ledger: int,
    metadata: LedgerMetadata,
    bad: BadFragment,
    up: frozenset[str],
    free: frozenset[str],
    *,
    is_accepted: bool,
) -> MovedLedger | None:
    """Return why a fragment cannot be moved, as far as metadata and registrations show."""
    bookies = bad.fragment.bookies
    if len(free.difference(bookies)) < len(bad.bad):
        names = ", ".join(one.bookie for one in bad.bad)
        reason = f"no writable bookie outside of its ensemble is there to take the place of {names}"
        return MovedLedger(ledger, MoveOutcome.BLOCKED_NO_TARGET, reason)
    if not bad.fragment.is_closed or is_accepted:
        return None
    gone = tuple([BadIndex(i, one, Defect.NOT_REGISTERED) for i, one in enumerate(bookies) if one not in up])
    for entry, _ in without_source(metadata, BadFragment(bad.fragment, gone)):
        reason = f"all bookies that should have entry {entry} are down"
        return MovedLedger(ledger, MoveOutcome.LOST_NO_SOURCE, reason, lost=(entry,), lost_count=1)
    return None
